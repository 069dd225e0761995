// Notifications: what is told where, by the account, its cues and its channels.
import { act, ago, anchor, badge, button, capital, confirmed, copyKey, copyMenu, del, duration,
  empty, facts, get, go, html, link, loadUser, menu, note, openDialog, outdate, patch, plural, post,
  prompt, reload, sendsMail, sentence, streakText, toast } from "../kit.js";
import { table } from "../parts/table.js";
import { PATH, formView, headOf, isUnsaved, loadForm, pathOf, services } from "./channels/form.js";
import { SERVICES, eventsText, quietText, targetOf } from "./channels/services.js";

const CALL = { method: "GET", path: PATH };
const ALERT_WEBHOOK = "alert_webhook";
const CUE_WEBHOOKS = "cue_webhooks";

// Built-in channel -> where it is set, what it tells, and at which pace
const BUILT_IN = {
  __proto__: null,
  email: ["Set it in each cue, under “If a run fails”.", "Failures of cues",
    "The first in a row, then one a day, unless a channel emails it. At most 10 emails an hour."],
  [ALERT_WEBHOOK]: ["Signed with your alert secret.", "All alerts",
    "Each immediately; failures in a row once a day. Three attempts in six minutes."],
  [CUE_WEBHOOKS]: ["Set it in each cue, under “If a run fails”.", "Failures of cues",
    "Every failed run, immediately. Three attempts in six minutes."],
};

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
  note: html`What is sent where. ${anchor("docs/notifications", "About notifications")}`,
  actions: [copyMenu(CALL), anchor("#/notifications/new", "Add a channel", "button primary")],
};
export const shortcuts = (data, { id }) =>
  id ? [] : [["n", "Add a channel", () => go("#/notifications/new")], copyKey(CALL)];

export function view(data, { id, query }) {
  if (id) return data.form ? formView(data) : services();
  const { channels } = data;
  const saved = channels.find((channel) => channel.id === query.saved);
  return html`${saved ? note(html`<b>Saved ${saved.name}.</b> Does a message arrive?`, "good",
    button("Send a test", () => sendTest(saved), "", { id: "test-saved" })) : ""}
    <section class="card">${table("Notifications", [
      ["Where", channelCell], ["State", stateCell, "wide"],
      ["What", rulesCell, "wide name-cell"], ["Test", testCell, "tight"],
      ["", rowMenu, "tight right row-actions"],
    ], withUnlisted(channels))}</section>${channels.every((channel) => channel.built_in) ? none()
    : html`<p class="small muted">A channel sends up to 5 messages a minute one by one, and more as
      one summary. It tries a message for a day.</p>`}`;
}

/** The built-in channels that the API does not list: they are not set, or only in cues. Pure. */
export function withUnlisted(channels) {
  const row = (id, name) => ({ id, name, type: "webhook", built_in: true, events: [], tags: [] });
  const has = (id) => channels.some((channel) => channel.id === id);
  const isOwn = ({ built_in: isBuiltIn }) => !isBuiltIn;
  return [
    ...channels.filter((channel) => !isOwn(channel)),
    ...(has(ALERT_WEBHOOK) ? [] : [row(ALERT_WEBHOOK, "Alert webhook")]),
    row(CUE_WEBHOOKS, "Failure webhooks"), ...channels.filter(isOwn),
  ];
}

const none = () => empty("No channel of your own yet", `ntfy, Slack, Telegram and others tell you
  within seconds that a cue fails, and that it works again.`);

function channelCell({ id, type, name, built_in: isBuiltIn, ...settings }) {
  const target = targetOf(settings);
  return html`${isBuiltIn ? html`<span class="name">${name}</span>`
    : anchor(link("notifications", id), name, "name")}<p class="small muted wrap">${
    SERVICES[type].name}${target && `, ${target}`}</p>${isBuiltIn
    ? html`<p class="small muted">Built in. ${BUILT_IN[id][0]}</p>` : ""}`;
}

function stateCell({ status, type, built_in: isBuiltIn, failures, waiting, ...channel }) {
  if (!status) return html`<span class="muted">${channel.id === CUE_WEBHOOKS ? "Set in cues"
    : "Not set"}</span>`;
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
    isLogged && html`<p class="small">This server cannot send email: messages go to its log.</p>`,
  ];
  const shown = failures && status === "active" ? "retrying" : status;
  return html`${badge(isLogged ? "log_only" : shown)}${notes.map((note) => note || "")}`;
}

const rulesCell = ({ id, built_in: isBuiltIn, events, tags, quiet, repeat }) => isBuiltIn
  ? html`${BUILT_IN[id][1]}<p class="small muted">${BUILT_IN[id][2]}</p>`
  : html`${eventsText(events)}${[
    repeat === "every" ? "Every failed run" : "",
    tags.length ? `Only cues with the tag ${tags.join(" or ")}` : "", quietText(quiet),
  ].map((text) => text && html`<p class="small muted">${text}</p>`)}`;

function testCell(channel) {
  if (channel.status) {
    return button(html`Send a test<span class="sr"> to ${channel.name}</span>`,
      () => sendTest(channel));
  }
  return channel.id === CUE_WEBHOOKS ? ""
    : button("Set a webhook", () => setWebhook(""), "", { id: "set-webhook" });
}

function rowMenu(channel) {
  const { id, built_in: isBuiltIn, name, status, url } = channel;
  if (isBuiltIn && !(id === ALERT_WEBHOOK && status)) return "";
  return menu("⋯", isBuiltIn ? [
    ["Change", () => setWebhook(url)], ["Alert secret", () => go(link("account", "keys"))],
    ["Remove", () => removeWebhook(url), "danger"],
  ] : [["Edit", () => go(link("notifications", id))], ["Remove", () => remove(channel), "danger"]],
  "menu-" + id, { name: `Actions for ${name}` });
}

const change = (alert_webhook_url) => patch("v1/auth/me", { alert_webhook_url }).then(loadUser);

async function setWebhook(value) {
  const name = "alert_webhook_url";
  const saved = await prompt({
    title: "Webhook for alerts",
    text: `Each alert is sent to this URL as a POST, signed with your alert secret, with up to three
      attempts in six minutes.`,
    fields: [{ name, label: "URL", type: "url", value, required: true }],
    send: (values) => change(values[name]),
  });
  if (!saved) return;
  toast("Alerts go to the webhook");
  reload();
}

async function removeWebhook(url) {
  const text = `Alerts are no longer sent to ${url}.`;
  const gone = () => change(null);
  if (await confirmed("Remove the webhook?", "Remove", text, gone, "Removed the webhook")) reload();
}

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
  // Unlike the others, a test alert that fails is sent again, and this says so.
  const path = id === ALERT_WEBHOOK ? "v1/alerts/test" : pathOf(id) + "/test";
  const sending = post(path).catch((error) => ({ error }));
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
    color,
    text: (why ? `${text.slice(0, -1)}: ${why}` : text)
      + (answer.next_retry ? ". It will be sent again." : ""),
    pairs: [["HTTP status", code], ["Took", ms === null ? "" : duration(ms)],
      ["Response", response]],
  };
}
