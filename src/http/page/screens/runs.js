// Runs: every run with its result and its reason; filters are in the address.
import { html, nothing } from "../lit/lit-html.js";
import { ApiError, address, get } from "../app/api.js";
import { go, link, withQuery } from "../app/router.js";
import { absolute, duration, instant, localInstant, localText, serverNow, yourZone } from "../app/time.js";
import { CAUSE_NAMES, capital, causeShort, number, plural, stateOf, triggerText, why } from "../app/words.js";
import { copyKey, copyMenu } from "../parts/copy.js";
import { prompt } from "../parts/dialog.js";
import { announce, empty } from "../parts/feedback.js";
import { newSelection, pager, selectionBar, table } from "../parts/table.js";
import { when } from "../parts/values.js";
import { cancelSelected, exportRuns, replaySelected } from "./runs/acts.js";
import { badges, createdMs, isCancelled } from "./runs/timeline.js";

const PER_PAGE = 30;
const TABS = [["", "All"], ["failed", "Failed"], ["retrying", "Retrying"], ["delivering", "Running"], ["pending", "Pending"], ["success", "Succeeded"]];
const COPIED = ["status", "attempts", "cause", "http_status", "error_message", "duration_ms", "late_ms", "next_retry", "outcome_state"]; // of an event

export const live = ["execution"];

/**
 * Rows change in place; new ones are only counted: nothing moves under the pointer. The list is asked for again only
 * where an event does not tell whether its run matches.
 */
export function event(data, type, payload, { query }) {
  const row = data.runs?.find((run) => run.id === payload.execution_id);
  if (row) {
    for (const field of COPIED) if (payload[field] !== undefined) row[field] = payload[field];
    row.isTold = true;
    return false;
  }
  const { status, cue, triggered_by: trigger, page, ...others } = query;
  const isVague = Object.keys(others).length > 0;
  if (!data.runs || isVague || type !== "execution.created") return !data.runs || isVague || Boolean(status);
  const fits = !page && (!status || status === "pending") && (!cue || cue === payload.cue_id) && (!trigger || trigger === payload.triggered_by);
  if (fits) announce(plural(++data.fresh, "new run"));
  return false;
}

export async function load(data, route) {
  const { page, ...filters } = route.query;
  const filterKey = JSON.stringify(filters);
  const sameFilter = data.filterKey === filterKey && !data.wantsNew;
  const asked = apiQuery(filters);
  // Runs above the newest one that was shown are not part of the list until they are asked for.
  const top = sameFilter ? data.top : null;
  const isBelow = top && !(instant(asked.until ?? "") <= instant(top));
  if (isBelow) asked.until = top;
  const offset = (Math.max(1, Number(page) || 1) - 1) * PER_PAGE;
  const [{ executions, total }, above, cue] = await Promise.all([
    get("v1/executions", { ...asked, limit: PER_PAGE, offset }),
    isBelow ? get("v1/executions", { ...apiQuery(filters), since: top, limit: 1 }) : { total: 0 },
    !filters.cue || data.cue?.id === filters.cue ? data.cue : get("v1/cues/" + encodeURIComponent(filters.cue), { payload: "text" }).catch(() => null),
  ]);
  const refreshed = sameFilter && data.page === page ? keepRows(data.runs, executions) : { runs: executions, inserted: 0 };
  const fresh = page ? 0 : above.total + refreshed.inserted;
  if (fresh > (data.fresh || 0)) announce(plural(fresh, "new run"));
  return {
    filterKey, page, asked, total, fresh,
    runs: refreshed.runs,
    cue: filters.cue ? cue : null,
    top: top ?? new Date((executions.length && !offset ? createdMs(executions[0].id) : serverNow()) + 1).toISOString(),
    wantsNew: false,
    selection: sameFilter ? data.selection : newSelection(),
  };
}

/** The rows shown in their order with their present fields; `inserted` counts rows that would come between them. */
export function keepRows(rows, fetched) {
  const known = new Set(rows.map((run) => run.id));
  const last = fetched.findLastIndex((run) => known.has(run.id));
  const inserted = fetched.filter((run, i) => !known.has(run.id) && (i < last || rows.length < PER_PAGE)).length;
  const present = new Map(fetched.map((run) => [run.id, run]));
  // A row that left the filter while it was shown stays with what its event told.
  return { inserted, runs: rows.filter((run) => run.isTold || present.has(run.id)).map((run) => present.get(run.id) ?? run) };
}

export function head(data, route, ready) {
  const { status } = route.query;
  const word = status && stateOf(status.split(",")[0]).word;
  return {
    title: "Runs",
    tab: word ? `${word} runs` : "Runs",
    note: ready ? `${plural(data.total, "run")}${status || activeFilters(route.query).length ? (data.total === 1 ? " matches" : " match") : ""}` : nothing,
    actions: html`${data.progress ? html`<span class="muted num" id="progress">${data.progress}</span>` : nothing}<button id="filter" @click=${() => askFilter(route, data.cue?.name)}>Filter</button>
      <button id="export" ?disabled=${!data.total || data.busy} @click=${() => exportRuns(data)}>Export</button>${ready ? copyMenu(listCall(data)) : nothing}`,
  };
}

const listCall = ({ asked, page }) => ({ method: "GET", path: address("v1/executions", { ...asked, limit: PER_PAGE, offset: page > 1 ? (page - 1) * PER_PAGE : null }) });

export const shortcuts = (data, route) => [
  copyKey(listCall(data)),
  { keys: "v", label: "Filter", run: () => askFilter(route, data.cue?.name) },
  { keys: "n", label: "Show new runs", run: () => showNew(data, route) },
];

function showNew(data, route) {
  data.wantsNew = true;
  if (route.query.page) location.hash = withQuery(route, {});
  else dispatchEvent(new HashChangeEvent("hashchange"));
}

export function view(data, route) {
  const { runs, total, selection, fresh, busy } = data;
  const { status = "" } = route.query;
  return html`
    <nav class="tabs" aria-label="State">${TABS.map(([word, text]) => html`<a href=${withQuery(route, { status: word })} aria-current=${word === status ? "page" : nothing}>${text}${word === status ? html` <small>${number(total)}</small>` : nothing}</a>`)}</nav>
    ${chips(route, data.cue?.name)}
    ${fresh ? html`<button id="new-runs" class="primary" @click=${() => showNew(data, route)}>Show ${number(fresh)} new</button>` : nothing}
    ${runs.length ? html`<section class="card">${list(data, route)}${pager(route, { total, perPage: PER_PAGE, noun: total === 1 ? "run" : "runs" })}</section>` : none(route)}
    ${selectionBar({ selection, total, onPage: runs.length, noun: "run", actions: html`${data.progress ? html`<span class="num">${data.progress}</span>` : nothing}<button id="cancel-selected" class="danger" ?disabled=${busy} @click=${() => cancelSelected(data)}>Cancel runs</button><button id="replay-selected" class="primary" ?disabled=${busy} @click=${() => replaySelected(data)}>Replay</button>` })}`;
}

function none(route) {
  const { page, ...filters } = route.query;
  if (page) return empty("No runs on this page", "", html`<a class="button" href=${withQuery(route, {})}>First page</a>`);
  if (Object.keys(filters).length) return empty("No run matches", "Runs are kept for some time; older ones are deleted.", html`<a class="button" href=${link("runs")}>Show all runs</a>`);
  return empty("No runs yet", "A run appears here when a cue is due, or when you fire one.", html`<a class="button" href=${link("cues")}>Cues</a>`);
}

function list({ runs, selection }, route) {
  const columns = [
    { label: "Cue", kind: "name-cell", cell: (run) => html`<a class="name" href=${link("runs", run.id)}><bdi>${run.cue_name}</bdi></a>${run.triggered_by === "schedule" ? nothing : html`<small>${capital(triggerText(run.triggered_by))}</small>`}` },
    { label: "Result", kind: "wide result-cell", cell: result },
    { label: "Time", cell: (run) => when(run.scheduled_for) },
    { label: "Attempts", kind: "num right tight", short: true, cell: (run) => `${run.attempts}/${run.max_attempts}` },
    { label: "Took", kind: "num right tight", short: true, cell: (run) => duration(run.duration_ms) },
    { label: "Late", kind: "num right tight", short: true, cell: (run) => duration(run.late_ms) },
  ];
  return table({ label: "Runs", columns, rows: runs, key: (run) => run.id, selection, name: (run) => `${run.cue_name}, ${run.scheduled_for}`, route });
}

/** State of a run with its reason, or with what comes next. */
function result(run) {
  return html`<div class="result">${badges(run)}<span class="reason wrap">${reason(run)}</span></div>`;
}

function reason(run) {
  if (run.status === "retrying") return html`${capital(why(run))}, next ${when(run.next_retry, { only: "relative" })}`;
  if (run.status === "failed") return isCancelled(run) ? nothing : capital(why(run));
  if (run.status === "delivering" && run.claimed_by_worker) return html`by <bdi>${run.claimed_by_worker}</bdi>, lease ends ${when(run.lease_expires_at, { only: "relative" })}`;
  return run.outcome?.error ?? nothing;
}

// Word of the address -> [field of the API, label, text of a value]
const FILTERS = {
  cue: ["cue_id", "Cue"],
  cause: ["cause", "Cause", (cause) => capital(causeShort({ cause }))],
  triggered_by: ["triggered_by", "Started by", triggerText],
  outcome: ["outcome_state", "Outcome", (state) => stateOf(state).word],
  worker: ["worker_id", "Worker"],
  since: ["since", "From", timeText],
  until: ["until", "Before", timeText],
  failing: ["failing_cues", "Cues", () => "those that fail now"],
  replayed_from: ["replayed_from", "Replays of", (id) => "…" + id.slice(-8)],
};
const TRIGGERS = ["schedule", "manual_fire", "replay"];
const OUTCOMES = ["reported_success", "reported_failure", "verified_success", "verification_pending", "verification_failed"];

function timeText(text) {
  const ms = instant(text);
  return Number.isNaN(ms) ? text : absolute(ms, yourZone());
}

/** The query of the API for an address; `status` may be several, separated by commas. */
export function apiQuery({ status = "", ...query }) {
  const asked = status.includes(",") ? { status__in: status } : status ? { status } : {};
  for (const [word, [field]] of Object.entries(FILTERS)) if (query[word]) asked[field] = query[word];
  return asked;
}

/** Filters that are set, `[word, label, text]`. */
export const activeFilters = (query, cueName) =>
  Object.entries(FILTERS).flatMap(([word, [, label, text]]) => (query[word] ? [[word, label, (word === "cue" && cueName) || (text ? text(query[word]) : query[word])]] : []));

/** One link per filter that removes it. */
export function chips(route, cueName) {
  const active = activeFilters(route.query, cueName);
  if (!active.length) return "";
  const none = Object.fromEntries(active.map(([word]) => [word, null]));
  return html`<div class="row" role="group" aria-label="Filters">${active.map(([word, label, text]) => html`<a class="button small chip" data-filter=${word} href=${withQuery(route, { [word]: null })} aria-label=${`Remove the filter ${label}: ${text}`}><span class="cut">${label}: <bdi>${text}</bdi></span> ✕</a>`)}
    ${active.length > 1 ? html`<a class="small" href=${withQuery(route, none)}>Clear all</a>` : ""}</div>`;
}

/** A local time of a zone as an instant of the API; "" of "". */
export const fromLocal = (text, zone) => text && new Date(localInstant(text, zone)).toISOString();

/** The other way; "" of what is no instant. */
export function toLocal(text, zone) {
  const ms = text ? instant(text) : NaN;
  return Number.isNaN(ms) ? "" : localText(ms, zone).slice(0, 16);
}

/** Asks for all filters at once and goes to the list that they select. */
export async function askFilter(route, cueName) {
  const { query } = route;
  const zone = yourZone();
  const choices = (values, text) => [["", "any"], ...values.map((value) => [value, text(value)])];
  const select = (name, values) => ({ name, label: FILTERS[name][1], value: query[name] || "", options: choices(values, FILTERS[name][2]) });
  const time = (name, label) => ({ name, label, type: "datetime-local", value: toLocal(query[name], zone), help: `Local time of ${zone}` });
  const found = await prompt({
    title: "Filter runs",
    action: "Show",
    fields: [
      { name: "cue", label: "Cue", value: query.cue ? (cueName ?? query.cue) : "", help: "Its name or id" },
      select("cause", CAUSE_NAMES),
      select("triggered_by", TRIGGERS),
      select("outcome", OUTCOMES),
      { name: "worker", label: "Worker", value: query.worker || "" },
      time("since", "Created from"),
      time("until", "Created before"),
    ],
    async send({ cue, since, until, ...values }) {
      return { ...values, cue: await cueId(cue.trim(), query.cue, cueName), since: fromLocal(since, zone), until: fromLocal(until, zone) };
    },
  });
  if (found) go(withQuery(route, found));
}

async function cueId(text, before, nameBefore) {
  if (!text) return "";
  if (before && text === nameBefore) return before;
  const { cues } = await get("v1/cues", { q: text.slice(0, 100), limit: 100 });
  const exact = cues.filter((cue) => cue.name === text || cue.id === text);
  const fitting = exact.length ? exact : cues;
  if (fitting.length === 1) return fitting[0].id;
  const msg = fitting.length ? `${fitting.length} cues fit. Give the whole name, or the id of one.` : "There is no such cue.";
  throw new ApiError(422, "unknown_cue", msg, { problems: [{ loc: ["body", "cue"], msg }] });
}
