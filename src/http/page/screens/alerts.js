// Alerts: what went wrong, newest first, and where alerts are sent.
import { account, act, address, ago, anchor, announce, busily, button, card, confirmed, copyKey,
  copyMenu, duration, facts, get, getCue, go, html, inYourTime, instant, link, loadUser, number, patch, plural,
  post, prompt, select, serverNow, set, settings, signOf, state, tabs, toast, update, when, why,
  withQuery } from "../kit.js";
import { offsetOf, pagedTable } from "../parts/table.js";
import { knownLine, withCues } from "../parts/target.js";
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
  const { cue, type, days } = query;
  // A cue that was deleted still has alerts.
  const named = cue && getCue(cue).then(({ name }) => name, () => cue);
  const [{ alerts, total }, cueName] =
    await Promise.all([get("v1/alerts", question(query)), named]);
  const cues = alerts.map((alert) => alert.cue_id).filter(Boolean);
  const known = await withCues(data.known ?? new Map(), cues);
  const newest = offsetOf(query, PER_PAGE) || type || days ? "" : alerts[0]?.created_at;
  // What was unread when the screen was opened stays marked on it.
  const before = readAlerts(cue ? "" : newest);
  return { alerts, total, cueName, known, seen: data.seen ?? before };
}

/** All alerts until `newest` were shown; returns since when they were not. */
function readAlerts(newest) {
  const id = account();
  const since = settings.alerts_seen[id] ?? "";
  const until = newest && new Date(instant(newest) + 1).toISOString();
  if (id && until > since) set("alerts_seen", { ...settings.alerts_seen, [id]: until });
  if (state.unread) update((s) => (s.unread = 0));
  return since;
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

function list({ alerts, total, known, seen }, route) {
  const links = ({ cue_id: id }) => id && html`${anchor(link("cues", id), "Cue")}${
    route.query.cue ? "" : html` · ${anchor(withQuery(route, { cue: id }), "Its alerts")}`}`;
  const story = ({ rest, ...alert }) => html`${sentence(alert, seen)}
    <small>${knownLine(known, alert.cue_id)}</small>${moves(alert)}${!rest.length ? ""
    : html`<details><summary class="small">${number(rest.length)} more of this cue</summary><ul
      class="stack">${rest.map((other) => html`<li>${sentence(other, seen)} <small>${
      typeOf(other)}, ${ago(other.created_at)}</small></li>`)}</ul></details>`}`;
  const groups = route.query.cue ? alerts.map((alert) => ({ ...alert, rest: [] })) : byCue(alerts);
  return pagedTable(route, "Alerts", [
    ["Alert", story],
    ["Type", (alert) => html`<span class="tag">${typeOf(alert)}</span>`],
    ["Raised", (alert) => when(alert.created_at), "two"],
    ["", links, "tight right"],
  ], groups, { total, perPage: PER_PAGE, noun: "alerts" });
}

// The next runs that new rules of time zones have moved.
function moves({ metadata }) {
  const at = (text) => when(text, { only: "absolute" });
  const line = ({ cue_id: id, from, to }) => html`<li>${anchor(link("cues", id), id)}
    <small>${at(from)} → ${at(to)}</small></li>`;
  return metadata?.moved && html`<details><summary class="small">${movedCues(metadata)}</summary><ul
    class="stack">${metadata.moved.map(line)}</ul></details>`;
}

/** How many cues moved, and how many of them are listed. Pure. */
export const movedCues = ({ runs, moved: { length } }) =>
  plural(runs, "cue") + (runs > length ? `, the first ${length}` : "");

const typeOf = ({ alert_type: type }) => TYPES[type] || type;

/** The newest alert of each cue, with its others as `rest`; alerts of no cue stand alone. Pure. */
export function byCue(alerts) {
  const groups = new Map();
  for (const alert of alerts) {
    const key = alert.cue_id ?? alert.id;
    if (groups.has(key)) groups.get(key).rest.push(alert);
    else groups.set(key, { ...alert, rest: [] });
  }
  return [...groups.values()];
}

function sentence({ severity, message, execution_id: run, created_at: at }, seen) {
  const [sign, color] = severity === "critical" ? ["✕", "bad"] : ["!", "warn"];
  const said = inYourTime(message).replace("claimed an execution", "taken a run")
    .replace("an execution", "a run").replace(/; (.+) wait$/, ". $1 are waiting.");
  const text = run ? anchor(link("runs", run), said, "name")
    : html`<span class="name">${said}</span>`;
  const isNew = instant(at) >= (seen ? instant(seen) : 0);
  return html`${signOf({ sign, word: severity + ": ", color })} ${text}${
    isNew ? html` <span class="badge act">New</span>` : ""}`;
}

const none = (isFiltered) => html`<div class="empty">
  <h2>${isFiltered ? "No alert matches" : "No alert"}</h2><p>${isFiltered
  ? anchor(link("alerts"), "Show all alerts", "button")
  : `You get an alert when a cue fails 3 times in a row, a result is rejected or late, a worker is
    lost, no worker claims a run, or missed runs fire after downtime.`}</p></div>`;

function destinations(data) {
  const { test } = data;
  const url = state.user?.alert_webhook_url;
  const mailed = state.info?.mail === "smtp" ? "."
    : ", but this server sends no mail: mails go to its log.";
  const actions = [
    button(url ? "Change" : "Set a webhook", () => setWebhook(url), "", { id: "set-webhook" }),
    ...(url ? [
      button("Send a test", () => sendTest(data, url), "", { id: "send-test", off: data.busy }),
      button("Remove", () => confirmed("Remove the webhook?", "Remove",
        `Alerts are no longer sent to ${url}.`, () => change(null), "Removed the webhook"),
        "danger", { id: "remove-webhook" }),
      anchor(link("account", "keys"), "Show the alert secret"),
    ] : []),
  ];
  const unset = "Not set. A URL of yours can receive each alert as a signed POST.";
  return card("destinations", "Where alerts go", "", facts([
    ["This list", "Keeps your newest 1,000 alerts."],
    ["Webhook", html`<div class="stack"><p>${url ? html`<code>${url}</code>` : unset}</p>
      <div class="row">${actions}</div>${test && test.url === url
        ? html`<p id="test-result" class=${test.color}>${test.text}</p>` : ""}</div>`],
    ["Channels", anchor("#/channels", "ntfy, Slack, Telegram, mail and others")],
    ["Mail", `You get a mail when a cue fails, and once a day while it does, if it says so${mailed}`],
  ], "long pad"));
}

const change = (alert_webhook_url) => patch("v1/auth/me", { alert_webhook_url }).then(loadUser);

async function setWebhook(url) {
  const name = "alert_webhook_url";
  const saved = await prompt({
    title: "Webhook for alerts",
    text: `Each alert is sent to this URL as a POST, signed with your alert secret, with up to three
      attempts in six minutes.`,
    fields: [{ name, label: "URL", type: "url", value: url || "", required: true }],
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
    __proto__: null,
    delivered: ["good", `The test arrived: the URL returned ${code} in ${took}.`],
    waiting: ["warn", "The test is on its way: there is no response yet."],
  }[status] ?? ["bad", `The test failed after ${took}: ${why({ error_message: error })}. ${
    answer.next_retry ? "It will be sent again." : "It is not sent again."}`];
}
