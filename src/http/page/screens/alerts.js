// Alerts: what went wrong, newest first, and where alerts are sent.
import { act, address, ago, anchor, announce, busily, button, card, confirmed, copyKey, copyMenu,
  duration, facts, get, getCue, go, html, link, loadUser, patch, plural, post, prompt, select,
  serverNow, signOf, state, tabs, toast, withQuery } from "../kit.js";
import { offsetOf, pagedTable } from "../parts/table.js";
import { TYPES } from "./alerts/types.js";

const PER_PAGE = 50;
const DAY_MS = 86_400_000;
const SPANS = [
  ["", "At any time"], ["1", "Last 24 hours"], ["7", "Last 7 days"], ["30", "Last 30 days"],
];

export const live = ["alert"];

/** Query of the API for the filters of the address. Pure but for the time. */
export function question(query) {
  const { type, cue, days } = query;
  const isSpan = SPANS.some(([key]) => key && key === days);
  return {
    alert_type: type, cue_id: cue, limit: PER_PAGE, offset: offsetOf(query, PER_PAGE) || null,
    since: isSpan ? new Date(serverNow() - days * DAY_MS).toISOString() : null,
  };
}
const listCall = ({ query }) => ({ method: "GET", path: address("v1/alerts", question(query)) });
export const shortcuts = (data, route) => [copyKey(listCall(route))];

export function head({ total, cueName }, route) {
  const { cue } = route.query;
  return {
    title: cue ? `Alerts of ${cueName || cue}` : "Alerts",
    note: total === undefined ? "" : plural(total, "alert"), actions: copyMenu(listCall(route)),
  };
}

export async function load(data, { query }) {
  const { cue } = query;
  // A cue that was deleted still has alerts.
  const named = cue && getCue(cue).then(({ name }) => name, () => cue);
  const [{ alerts, total }, cueName] =
    await Promise.all([get("v1/alerts", question(query)), named]);
  return { alerts, total, cueName };
}

export function view(data, route) {
  const { type = "", cue, days = "", page } = route.query;
  const types = [["", "All"], ...Object.entries(TYPES)].map(([key, text]) =>
    ({ text, href: withQuery(route, { type: key }), isCurrent: key === type }));
  const setDays = (value) => go(withQuery(route, { days: value }));
  return html`<section class="card">${tabs("Type", types)}
    <header>${select("raised", "Raised", days, SPANS, setDays)}
      ${cue ? anchor(withQuery(route, { cue: null }), "All cues", "button") : ""}</header>
    ${data.alerts.length ? list(data, route) : none(type || cue || days || page)}</section>
    ${destinations(data)}`;
}

function list({ alerts, total }, route) {
  const links = ({ cue_id: id }) => id && html`${anchor(link("cues", id), "Cue")}${
    route.query.cue ? "" : html` · ${anchor(withQuery(route, { cue: id }), "Its alerts")}`}`;
  return pagedTable(route, "Alerts", [
    ["Alert", sentence],
    ["Type", ({ alert_type: type }) => html`<span class="tag">${TYPES[type] || type}</span>`],
    ["Raised", (alert) => ago(alert.created_at)],
    ["", links, "tight right"],
  ], alerts, { total, perPage: PER_PAGE, noun: "alerts" });
}

function sentence({ severity, message, execution_id: run }) {
  const [sign, color] = severity === "critical" ? ["✕", "bad"] : ["!", "warn"];
  const text = run ? anchor(link("runs", run), message, "name")
    : html`<span class="name">${message}</span>`;
  return html`${signOf({ sign, word: severity + ": ", color })} ${text}`;
}

const none = (isFiltered) => html`<div class="empty">
  <h2>${isFiltered ? "No alert matches" : "No alert"}</h2><p>${isFiltered
  ? anchor(link("alerts"), "Show all alerts", "button")
  : `An alert is raised when a cue fails 3 times in a row, a result is rejected or comes too late,
    a worker is lost, no worker takes a run, or runs are caught up after an outage.`}</p></div>`;

function destinations(data) {
  const { test } = data;
  const url = state.user?.alert_webhook_url;
  const mailed = state.info?.mail === "smtp" ? "."
    : "; this server sends no mail: it writes mails to its log.";
  const actions = [
    button(url ? "Change" : "Set a webhook", () => setWebhook(url), "", { id: "set-webhook" }),
    ...(url ? [
      button("Send a test", () => sendTest(data, url), "", { id: "send-test", off: data.busy }),
      button("Remove", () => confirmed("Remove the webhook?", "Remove",
        `Alerts are no longer sent to ${url}.`, () => change(null), "Removed the webhook"),
        "danger", { id: "remove-webhook" }),
      anchor(link("account", "keys"), "Secret that signs it"),
    ] : []),
  ];
  const unset = "Not set. An address of yours can get each alert as a signed POST.";
  return card("destinations", "Where alerts go", "", facts([
    ["This list", "Always. The newest 1,000 are kept."],
    ["Webhook", html`<div class="stack"><p>${url ? html`<code>${url}</code>` : unset}</p>
      <div class="row">${actions}</div>${test && test.url === url
        ? html`<p id="test-result" class=${test.color}>${test.text}</p>` : ""}</div>`],
    ["Channels", anchor("#/channels", "ntfy, Slack, Telegram, mail and others")],
    ["Mail", `Runs that fail are mailed, if their cue says so${mailed}`],
  ], "long pad"));
}

const change = (alert_webhook_url) => patch("v1/auth/me", { alert_webhook_url }).then(loadUser);

async function setWebhook(url) {
  const name = "alert_webhook_url";
  const saved = await prompt({
    title: "Webhook for alerts",
    text: `Each alert is sent there as a POST, signed with the alert secret. It is tried up to three
      times in six minutes.`,
    fields: [{ name, label: "Address", type: "url", value: url || "", required: true }],
    send: (values) => change(values[name]),
  });
  if (saved) toast("Alerts go to the webhook");
}

const sendTest = (data, url) => busily(data, async () => {
  data.test = null;
  const answer = await act(() => post("v1/alerts/test"));
  if (!answer) return;
  const [color, text] = outcome(answer);
  announce(text);
  data.test = { url, color, text };
});

/** Colour and words of the answer to a test. Pure. */
export function outcome({ status, http_status: code, error_message: error, ...answer }) {
  const took = duration(answer.duration_ms);
  return {
    delivered: ["good", `The test arrived: the webhook answered ${code} in ${took}.`],
    waiting: ["warn", "The test is on its way: the webhook has not answered yet."],
  }[status] ?? ["bad", `The test failed after ${took}: ${error}. It is ${
    answer.next_retry ? "" : "not "}sent again.`];
}
