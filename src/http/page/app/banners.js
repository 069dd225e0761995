// The banners above every screen, strongest first.
import { html, nothing } from "../lit/lit-html.js";
import { act } from "../parts/feedback.js";
import { post } from "./api.js";
import { freeze, instant, isFrozen, serverNow, skewMs } from "./time.js";
import { state } from "./state.js";
import { isLimited, number } from "./words.js";
import { when } from "../parts/values.js";

const SKEW_TOLD_MS = 60_000;
const NEAR = 0.8; // of a quota

/** `[{id, kind, text}]` of a state, strongest first. Pure. */
export function bannerList({ overview, readOnly, live, newBuild, waitUntil }, { now = Date.now(), skew = 0, frozen = false } = {}) {
  const list = [];
  const add = (id, kind, text, more = "") => list.push({ id, kind, text, more });
  const server = overview?.server;
  const reason = server?.reason || "";
  const damaged = reason.includes("damaged");
  if (damaged) add("damaged", "bad", "The database file is damaged.", "Stop cued, then run `cued check`.");
  else if (readOnly) add("disk", "bad", "The database cannot be written: the disk may be full.", "Nothing can be changed and nothing new fires. It goes on by itself once there is space.");
  if (server?.held_since) add("held", "warn", "This is a restored copy on hold: nothing fires.", "Run `cued promote` to let it go on.");
  const wrongClock = reason.startsWith("the clock ");
  if (wrongClock) add("wrong-clock", "bad", "The clock of the server looks wrong.", reason[0].toUpperCase() + reason.slice(1) + ".");
  if (frozen) add("clock", "idle", "Test clock");
  if (server?.status === "degraded" && !damaged && !wrongClock && !readOnly && !server.held_since && server.writable) add("scheduler", "bad", "The scheduler stands still: nothing fires.", "Look at the server's log, then restart it.");
  if (Math.abs(skew) > SKEW_TOLD_MS) add("skew", "warn", `This server's clock is ${apart(skew)} this device's.`, "Times here are the server's.");
  if (waitUntil > now) add("wait", "warn", `The server asks to wait ${Math.ceil((waitUntil - now) / 1000)} s: too many requests.`);
  const { executions, cues } = overview?.usage || {};
  if (executions && isLimited(executions.limit) && executions.used >= executions.limit * NEAR) {
    const over = executions.used >= executions.limit;
    const after = executions.used >= 2 * executions.limit ? " Scheduled runs fail until the month ends." : " Runs above go on for 24 hours, up to twice the number, then they fail.";
    add("quota", over ? "bad" : "warn", over ? "This month's runs are used up." : "This month's runs are nearly used up.", `${number(executions.used)} of ${number(executions.limit)}.${over ? after : ""}`);
  }
  if (cues && isLimited(cues.limit) && cues.active >= cues.limit) add("cues", "warn", "The limit of active cues is reached.", `${number(cues.active)} of ${number(cues.limit)}: pause or delete one before you add another.`);
  if (live === "polling") add("live", "warn", "Not live.", "The page is fetched again every 10 seconds.");
  if (newBuild) add("build", "", "A new version of this page is there.");
  return list;
}

function apart(skew) {
  const minutes = Math.round(Math.abs(skew) / 60_000);
  const text = minutes < 120 ? `${minutes} min` : minutes < 2_880 ? `${Math.round(minutes / 60)} h` : `${Math.round(minutes / 1_440)} days`;
  return `${text} ${skew < 0 ? "behind" : "ahead of"}`;
}

const move = (body) => act(async () => freeze(instant((await post("v1/test/clock", body)).now)));

async function askTo() {
  const { prompt } = await import("../parts/dialog.js");
  await prompt({
    title: "Move the test clock",
    text: "All that is due until then fires, in order.",
    fields: [{ name: "to", label: "To (UTC)", value: new Date(serverNow()).toISOString().slice(0, 16), type: "datetime-local", required: true }],
    action: "Move",
    send: async ({ to }) => freeze(instant((await post("v1/test/clock", { to: to + (to.length < 17 ? ":00Z" : "Z") })).now)),
  });
}

const ACTIONS = {
  clock: () => html`<span class="row">${[["+1 min", "PT1M"], ["+1 h", "PT1H"], ["+1 day", "P1D"]].map(([text, advance]) => html`<button @click=${() => move({ advance })}>${text}</button>`)}<button @click=${askTo}>To…</button></span>`,
  build: () => html`<button class="primary" @click=${() => location.reload()}>Reload</button>`,
  quota: () => html`<a href="#/account/plan">Plan</a>`,
  cues: () => html`<a href="#/account/plan">Plan</a>`,
};

// `code` in a text of a banner
const marked = (text) => text.split("`").map((part, i) => (i % 2 ? html`<code>${part}</code>` : part));

export function banners() {
  const list = bannerList(state, { skew: skewMs(), frozen: isFrozen() });
  return list.map(({ id, kind, text, more }) => html`<div class="banner ${kind && "is-" + kind}" data-banner=${id}><div><b>${text}</b> ${id === "clock" ? when(new Date(serverNow()).toISOString(), { only: "absolute", seconds: true, full: true }) : marked(more)}</div>${ACTIONS[id]?.() ?? nothing}</div>`);
}
