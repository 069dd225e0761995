// The banners above every screen, strongest first.
import { html } from "../lit/lit-html.js";
import { act } from "../parts/feedback.js";
import { anchor, button, when } from "../parts/pieces.js";
import { post } from "./api.js";
import { duration, freeze, inYourTime, instant, isFrozen, serverNow, skewMs } from "./time.js";
import { isPrivate, state } from "./state.js";
import { capital, isLimited, number } from "./words.js";

const SKEW_SHOWN_MS = 60_000;
const NEAR = 0.8; // of a quota

/** `[{id, kind, text, more}]` of a state, strongest first. Pure. */
export function bannerList(state, { now = Date.now(), skew = 0, frozen = false } = {}) {
  const { overview, readOnly, live, newBuild, waitUntil } = state;
  const lift = isPrivate(state) ? " To lift the limits, start the server with `--limits off`." : "";
  const server = overview?.server;
  const reason = server?.reason || "";
  const isDamaged = reason.includes("damaged");
  const hasWrongClock = reason.startsWith("the clock ");
  const isHeld = server?.held_since;
  const stands = server?.status === "degraded" && server.writable;
  const { executions: runs, cues } = overview?.usage || {};
  const isNear = isLimited(runs?.limit) && runs.used >= runs.limit * NEAR;
  const isOver = isNear && runs.used >= runs.limit;
  const apart = `${duration(Math.round(Math.abs(skew) / 60_000) * 60_000)} ${
    skew < 0 ? "behind" : "ahead of"}`;
  const quota = !isOver ? "This month's runs are nearly used up."
    : runs.used >= 2 * runs.limit ? "Runs used up until the month ends."
    : `Runs used up: cues stop at ${number(2 * runs.limit)} or after 24 hours.`;
  return [
    [isDamaged, "damaged", "bad", "The database file is damaged.",
      "Stop cued, then run `cued check`."],
    [!isDamaged && readOnly, "disk", "bad", "The database cannot be written: the disk may be full.",
      "Nothing can be changed and nothing fires. It recovers by itself once there is space."],
    [isHeld, "held", "warn", "This is a restored copy on hold: nothing fires.",
      state.user?.is_operator ? "" : "Run `cued promote` to start it."],
    [hasWrongClock, "wrong-clock", "bad", "The clock of the server looks wrong.",
      capital(inYourTime(reason)) + "."],
    [frozen, "clock", "idle", "Test clock"],
    [stands && !isDamaged && !hasWrongClock && !readOnly && !isHeld, "scheduler", "bad",
      "The scheduler has stopped: nothing fires.", "Check the server log, then restart it."],
    [Math.abs(skew) > SKEW_SHOWN_MS, "skew", "warn",
      `This server's clock is ${apart} this device's.`, "Times on this page are the server's."],
    [waitUntil > now, "wait", "warn",
      `Too many requests: wait ${Math.ceil((waitUntil - now) / 1000)} s.`],
    [isNear, "quota", isOver ? "bad" : "warn", quota,
      `${number(runs?.used)} of ${number(runs?.limit)}.${lift}`],
    [isLimited(cues?.limit) && cues.active >= cues.limit, "cues", "warn",
      "Limit of active cues reached.", `${number(cues?.active)} of ${
        number(cues?.limit)}: pause or delete one first.${lift}`],
    [live === "polling", "live", "warn", "Not live.", "Up to 10 seconds old."],
    [newBuild, "build", "", "A new version of this page is available."],
  ].filter(([isShown]) => isShown)
    .map(([, id, kind, text, more = ""]) => ({ id, kind, text, more }));
}

const move = async (body) => freeze(instant((await post("v1/test/clock", body)).now));

const askTo = () => act(async () => (await import("./test_clock.js")).askTo(move));
const STEPS = [["+1 min", "PT1M"], ["+1 h", "PT1H"], ["+1 day", "P1D"]];
const plan = () => anchor("#/account/plan", "Plan");
const ACTIONS = {
  __proto__: null,
  clock: () => html`<span class="row">${STEPS.map(([text, advance]) =>
    button(text, () => act(() => move({ advance }))))}${button("To…", askTo)}</span>`,
  build: () => button("Reload", () => location.reload(), "primary"),
  quota: plan, cues: plan,
  held: () => (state.user?.is_operator ? anchor("#/admin", "Promote…", "button") : ""),
};

// A text with `code` in it
const marked = (text) =>
  text.split("`").map((part, i) => (i % 2 ? html`<code>${part}</code>` : part));
const clock = () =>
  when(new Date(serverNow()).toISOString(), { only: "absolute", seconds: true, full: true });

export const banners = () => bannerList(state, { skew: skewMs(), frozen: isFrozen() }).map(
  ({ id, kind, text, more }) => html`<div class="banner ${kind && "is-" + kind}" data-banner=${id}>
    <div><b>${text}</b> <span>${id === "clock" ? clock() : marked(more)}</span></div>${
    ACTIONS[id]?.()}</div>`);
