// Channels: where failures, recoveries and alerts are sent.
import { act, ago, anchor, badge, button, capital, confirmed, copyKey, copyMenu, del, duration, empty,
  facts, get, go, html, link, menu, note, openDialog, outdate, plural, post, reload, sendsMail,
  sentence, streakText } from "../kit.js";
import { table } from "../parts/table.js";
import { PATH, formView, headOf, isUnsaved, loadForm, pathOf, services } from "./channels/form.js";
import { SERVICES, eventsText, quietText, targetOf } from "./channels/services.js";

const CALL = { method: "GET", path: PATH };

export const live = ["execution.failed", "execution.succeeded", "cue.paused", "alert"];
/** A form is not filled again. */
export const event = (data, type, about, { id }) => !id;
export const mayLeave = (data) => (isUnsaved(data) ? "Your changes are not saved." : "");

export function load(data, { id }) {
  if (id) return data.form ? {} : loadForm(id);
  outdate(); // no event tells the overview what was done here
  return get(PATH);
}

export const head = (data, { id }) => id ? headOf(data, id) : {
  note: html`Where failures, recoveries and alerts are sent. ${anchor("docs/channels", "About channels")}`,
  actions: [copyMenu(CALL), anchor("#/channels/new", "Add a channel", "button primary")],
};
export const shortcuts = (data, { id }) =>
  id ? [] : [["n", "Add a channel", () => go("#/channels/new")], copyKey(CALL)];

export function view(data, { id, query }) {
  if (id) return data.form ? formView(data) : services();
  const { channels } = data;
  const saved = channels.find((channel) => channel.id === query.saved);
  return html`${saved ? note(html`<b>Saved ${saved.name}.</b> Does a message arrive?`, "good",
    button("Send a test", () => sendTest(saved), "", { id: "test-saved" })) : ""}
    <section class="card">${table("Channels", [
      ["Channel", channelCell], ["State", stateCell, "wide"],
      ["Events", rulesCell, "wide name-cell"], ["Test", testCell, "tight"],
      ["", rowMenu, "tight right row-actions"],
    ], channels)}</section>${channels.every((channel) => channel.built_in) ? none() : ""}`;
}

const none = () => empty("No channel of your own yet", `ntfy, Slack, Telegram and others tell you
  within seconds that a cue fails, and that it works again.`);

function channelCell({ id, type, name, built_in: isBuiltIn, ...settings }) {
  const origin = !isBuiltIn ? ""
    : id === "email" ? html`<p class="small muted">Built in. Set it in each cue, under “If a run
      fails”.</p>`
    : html`<p class="small muted">Built in. ${anchor("#/alerts", "Set it in Alerts")}</p>`;
  return html`${isBuiltIn ? html`<span class="name">${name}</span>`
    : anchor(link("channels", id), name, "name")}<p class="small muted wrap">${
    SERVICES[type].name}, ${targetOf(settings)}</p>${origin}`;
}

function stateCell({ status, type, built_in: isBuiltIn, failures, waiting, ...channel }) {
  const { last_sent_at: sentAt, last_failed_at: failedAt, last_error: error } = channel;
  const isLogged = type === "email" && !sendsMail();
  const notes = [
    failures && html`<p class="small bad">${capital(streakText(failures))}${
      failures > 1 ? ", last" : ""} ${ago(failedAt)}: ${error}</p>`,
    !isBuiltIn && html`<p class="small muted">${sentAt
      ? html`${isLogged ? "Written to the log" : "Sent"} ${ago(sentAt)}`
      : "Nothing sent yet"}${waiting ? `, ${plural(waiting, "message")} waiting` : ""}${
      status === "failing" ? ", tried once an hour" : ""}</p>`,
    status === "unconfirmed" && html`<p class="small">Open the link in the mail that asks you to
      confirm your address, or sign in by mail.</p>`,
    isLogged && html`<p class="small">This server sends no mail: mails go to its log.</p>`,
  ];
  const shown = failures && status === "active" ? "retrying" : status;
  return html`${badge(isLogged ? "log_only" : shown)}${notes.map((note) => note || "")}`;
}

const rulesCell = ({ events, tags, quiet, repeat }) => html`${eventsText(events)}${[
  repeat === "every" ? "Every failed run" : "",
  tags.length ? `Only cues with the tag ${tags.join(" or ")}` : "", quietText(quiet),
].map((text) => text && html`<p class="small muted">${text}</p>`)}`;

const testCell = (channel) =>
  button(html`Send a test<span class="sr"> to ${channel.name}</span>`, () => sendTest(channel));

const rowMenu = (channel) => channel.built_in ? "" : menu("⋯", [
  ["Edit", () => go(link("channels", channel.id))], ["Remove", () => remove(channel), "danger"],
], "menu-" + channel.id, { name: `Actions for ${channel.name}` });

async function remove({ id, name }) {
  const text = "It gets no further messages, and waiting messages are dropped.";
  const gone = () => del(pathOf(id));
  if (await confirmed(`Remove ${name}?`, "Remove", text, gone, `Removed ${name}`)) reload();
}

/** Sends a test, and shows the response. */
async function sendTest({ id, type, name }) {
  const { textBlock } = (await act(() => import("../parts/payload.js"))) || {};
  if (!textBlock) return;
  let answer = null;
  const sending = post(pathOf(id) + "/test").catch((error) => ({ error }));
  await openDialog((close, refresh) => {
    if (!answer) {
      sending.then((found) => {
        answer = found;
        refresh();
      });
    }
    const { color, text, pairs } = answer
      ? outcome(answer, type === "email")
      : { color: "muted", text: "Sending…", pairs: [] };
    const rows = pairs.map(([label, value]) =>
      [label, label === "Response" && value ? textBlock(value) : value]);
    return html`<div class="body" id="test"><h2>Test of ${name}</h2><p
      class=${color} role="status">${text}</p>${
      facts(rows, "long")}<div class="actions">${
      button("Close", () => close(), "primary")}</div></div>`;
  });
  reload();
}

const ENDS = {
  __proto__: null,
  delivered: ["good", "The test arrived."], failed: ["bad", "The test failed."],
  waiting: ["warn", "The test is on its way: there is no response yet."],
};

const MAILED = ["good", "The mail was sent."];

/** Colour, sentence and facts of the answer to a test. Pure. */
export function outcome({ error, ...answer }, isMail) {
  if (error) return { color: "bad", text: sentence(error), pairs: [] };
  const { status, http_status: code, duration_ms: ms, error_message: why, response } = answer;
  const [color, text] = (status === "delivered" && isMail && MAILED) || ENDS[status] || ENDS.failed;
  return {
    color, text: why ? `${text.slice(0, -1)}: ${why}` : text,
    pairs: [["HTTP status", code], ["Took", ms === null ? "" : duration(ms)],
      ["Response", response]],
  };
}
