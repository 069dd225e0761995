// Alerts: what went wrong, newest first.
import { account, address, ago, anchor, copyKey, copyMenu, get, getCue, go, html, inYourTime,
  instant, link, number, plural, select, serverNow, set, settings, signOf, state, tabs, update,
  when, withQuery } from "../kit.js";
import { offsetOf, pagedTable } from "../parts/table.js";
import { knownLine, withCues } from "../parts/target.js";
import { TYPES } from "./alerts/types.js";

const PER_PAGE = 50;
const DAY_MS = 86_400_000;
const SPANS = [
  ["", "Any time"], ["1", "Last 24 hours"], ["7", "Last 7 days"], ["30", "Last 30 days"],
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
    <p id="destinations" class="help">The newest 1,000 are kept. ${
      anchor("#/notifications", "Where alerts are sent")}</p>`;
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
