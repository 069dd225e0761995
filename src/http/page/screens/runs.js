// Runs: every run with its result and its reason; filters are in the address.
import { CAUSE_NAMES, absolute, act, address, ago, anchor, announce, awaitsResult, badges, button,
  capital, causeShort, copyKey, copyMenu, createdMs, duration, empty, fieldError, fromLocal, get,
  getCue, go, html, idEnd, instant, isCancelled, link, menu, number, plural, prompt, reload,
  serverNow, stateOf, tabs, toLocal, triggerText, update, waitText, when, whyLine, withQuery,
  yourZone } from "../kit.js";
import { newSelection, offsetOf, pagedTable, selectionBar } from "../parts/table.js";
import { filterChips, tagFilters, tagsOf } from "../parts/tags.js";
import { knownLine, targetText, withCues } from "../parts/target.js";

const PER_PAGE = 30;
const TABS = ["", "failed", "retrying", "delivering", "pending", "success"];
const COUNTS_MS = 5_000; // the counts of the other tabs are not asked for at each event
// Fields of an event that replace those of the row.
const COPIED = [
  "status", "attempts", "cause", "http_status", "error_message", "duration_ms", "late_ms",
  "next_retry", "outcome_state", "outcome_due_at",
];

export const live = ["execution"];

/** An action on many runs, whose code is loaded when it is asked for. */
const later = (name, ...given) => () =>
  act(async () => (await import("./runs/bulk.js"))[name](...given));

// Rows change in place, new ones are counted: nothing moves under the pointer. The list is fetched
// only where an event does not show whether its run matches.
export function event(data, type, payload, { query }) {
  const row = data.runs?.find((run) => run.id === payload.execution_id);
  if (row) {
    for (const field of COPIED) if (payload[field] !== undefined) row[field] = payload[field];
    Object.assign(row, { isTold: true, waits_for: null });
    return false;
  }
  const { status, cue, triggered_by: trigger, page, ...others } = query;
  const isVague = !data.runs || Object.keys(others).length > 0;
  if (isVague || type !== "execution.created") return isVague || Boolean(status);
  const fits = !page && (!status || status === "pending")
    && (!cue || cue === payload.cue_id) && (!trigger || trigger === payload.triggered_by);
  if (fits) announce(plural(++data.fresh, "new run"));
  countTabs(data, apiQuery({ cue, triggered_by: trigger }));
  return false;
}

export async function load(data, { query }) {
  const { page, ...filters } = query;
  const filterKey = JSON.stringify(filters);
  const isSame = data.filterKey === filterKey && !data.wantsNew;
  const filter = apiQuery(filters);
  // Runs above the newest one that was shown are not part of the list until they are asked for.
  const top = isSame ? data.top : null;
  const isBelow = top && !(instant(filter.until ?? "") <= instant(top));
  const newer = isBelow ? get("v1/executions", { ...filter, since: top, limit: 1 }) : { total: 0 };
  if (isBelow) filter.until = top;
  const offset = offsetOf(query, PER_PAGE);
  const isKnown = !filters.cue || data.cue?.id === filters.cue;
  const named = isKnown ? data.cue : getCue(filters.cue).catch(() => null);
  const list = get("v1/executions", { ...filter, limit: PER_PAGE, offset });
  const [{ executions, total }, above, cue] = await Promise.all([list, newer, named]);
  countTabs(data, apiQuery(filters));
  const known = data.cues ?? new Map(cue ? [[cue.id, cue]] : []);
  const cues = await withCues(known, executions.map((run) => run.cue_id));
  const { runs, inserted } = isSame && data.page === page
    ? keepRows(data.runs, executions) : { runs: executions, inserted: 0 };
  const fresh = page ? 0 : above.total + inserted;
  if (fresh > (data.fresh || 0)) announce(plural(fresh, "new run"));
  const newest = executions.length && !offset ? createdMs(executions[0].id) : serverNow();
  return {
    filterKey, page, filter, total, fresh, runs, cues, cue: filters.cue ? cue : null,
    top: top ?? new Date(newest + 1).toISOString(), wantsNew: false,
    selection: isSame ? data.selection : newSelection(),
  };
}

/** Asks how many runs each tab has, `counts` by state; the list does not wait for it. */
function countTabs(data, { status, status__in, ...rest }) {
  const countKey = JSON.stringify(rest);
  if (data.countKey !== countKey) Object.assign(data, { countKey, countedAt: 0, counts: null });
  clearTimeout(data.countsLater);
  // The last event of a burst is counted too.
  data.countsLater = setTimeout(async () => {
    data.countedAt = Date.now();
    const count = (status) => get("v1/executions", { ...rest, status, limit: 1 });
    const answers = await Promise.all(TABS.map(count)).catch(() => null); // then tabs are tabs
    if (!answers || data.countKey !== countKey) return;
    const totals = TABS.map((status, i) => [status, answers[i].total]);
    update(() => (data.counts = Object.fromEntries(totals)));
  }, Math.max(0, data.countedAt + COUNTS_MS - Date.now()));
}

/** The rows shown, in their order, updated; `inserted` counts rows that would come between them. */
export function keepRows(rows, fetched) {
  const known = new Set(rows.map((run) => run.id));
  const last = fetched.findLastIndex((run) => known.has(run.id));
  const isFull = rows.length >= PER_PAGE;
  const inserted = fetched.filter((run, i) => !known.has(run.id) && (i < last || !isFull)).length;
  const now = new Map(fetched.map((run) => [run.id, run]));
  // A row that left the filter while it was shown stays with the fields of its event.
  const stays = (run) => run.isTold || now.has(run.id);
  return { inserted, runs: rows.filter(stays).map((run) => now.get(run.id) ?? run) };
}

export function head(data, route, isReady) {
  const { status } = route.query;
  const { total, progress, busy } = data;
  const word = status && stateOf(status.split(",")[0]).word;
  const exported = (form) => later("exportRuns", data, form);
  const isFiltered = status || activeFilters(route.query).length;
  const match = isFiltered ? (total === 1 ? " matches" : " match") : "";
  return {
    tab: word ? `${word} runs` : "Runs",
    note: isReady ? plural(total + data.fresh, "run") + match : "",
    actions: html`${progress ? html`<span class="muted num" id="progress">${progress}</span>` : ""}
      ${button("Filter", () => askFilter(route, data.cue?.name), "", { id: "filter" })}
      ${!total || busy ? "" : menu("Export", [["JSON lines", exported("jsonl")],
        ["CSV", exported("csv")]], "export")}
      ${isReady ? copyMenu(listCall(data)) : ""}`,
  };
}

function listCall({ filter, page }) {
  const query = { ...filter, limit: PER_PAGE, offset: offsetOf({ page }, PER_PAGE) || null };
  return { method: "GET", path: address("v1/executions", query) };
}

export const shortcuts = (data, route) => [
  copyKey(listCall(data)),
  ["v", "Filter", () => askFilter(route, data.cue?.name)],
  ["n", "Show new runs", () => showNew(data, route)],
];

function showNew(data, route) {
  data.wantsNew = true;
  if (route.query.page) go(withQuery(route, {}));
  else reload();
}

export function view(data, route) {
  const { runs, total, selection, fresh, counts, busy: off, progress } = data;
  const { status = "" } = route.query;
  const states = TABS.map((word) => ({
    text: word ? stateOf(word).word : "All", href: withQuery(route, { status: word }),
    isCurrent: word === status, count: counts?.[word] ?? (word === status ? total + fresh : null),
  }));
  const actions = [
    progress ? html`<span class="num">${progress}</span>` : "",
    button("Cancel runs", later("cancelSelected", data), "danger", { id: "cancel-selected", off }),
    button("Replay", later("replaySelected", data), "primary", { id: "replay-selected", off }),
  ];
  return html`${tabs("State", states)}${
    filterChips(route, activeFilters(route.query, data.cue?.name))}
    ${fresh ? button(`Show ${number(fresh)} new`, () => showNew(data, route), "primary",
      { id: "new-runs" }) : ""}
    ${runs.length ? list(data, route) : none(route)}
    ${selectionBar({ selection, total, onPage: runs.length, noun: "run", actions })}`;
}

function none(route) {
  const { page, ...filters } = route.query;
  const [title, text, href, way] = page
    ? ["No runs on this page", "", withQuery(route, {}), "First page"]
    : Object.keys(filters).length
    ? ["No run matches", "Older runs are deleted after some time.", link("runs"), "Show all runs"]
    : ["No runs yet", "A run appears here when a cue is due, or when you fire one.", link("cues"),
      "Cues"];
  return empty(title, text, anchor(href, way, "button"));
}

function list({ runs, selection, total, cues }, route) {
  const cue = ({ id, cue_id: cue, cue_name: text, triggered_by: trigger }) => html`${
    anchor(link("runs", id), html`<bdi>${text}</bdi>`, "name")}<small>${
    knownLine(cues, cue)}</small>${
    trigger === "schedule" ? "" : html`<small>${capital(triggerText(trigger))}</small>`}`;
  const result = (run) => html`<div class="result">${badges(run)}<span
    class="reason wrap">${reason(run)}</span></div>`;
  const columns = [
    ["Cue", cue, "name-cell"],
    ["Result", result, "wide result-cell"],
    ["Time", (run) => when(run.scheduled_for), "two"],
    ["Attempts", (run) => `${run.attempts}/${run.max_attempts}`, "num right tight short spare"],
    ["Took", (run) => duration(run.duration_ms), "num right tight short"],
    ["Late", (run) => duration(run.late_ms), "num right tight short spare"],
  ];
  const name = (run) => `${run.cue_name}, ${run.scheduled_for}`;
  return html`<section class="card">${pagedTable(route, "Runs", columns, runs,
    { selection, name, total, perPage: PER_PAGE, noun: "runs" })}</section>`;
}

function reason(run) {
  const { status, claimed_by_worker: worker } = run;
  const held = waitText(run);
  if (status === "retrying") {
    return html`${capital(whyLine(run))}, ${held || html`next ${ago(run.next_retry)}`}`;
  }
  if (status === "pending") return capital(held);
  if (status === "failed") return isCancelled(run) ? "" : capital(whyLine(run));
  if (awaitsResult(run)) return html`No result yet, due ${ago(run.outcome_due_at)}`;
  if (status !== "delivering" || !worker) return run.outcome?.error;
  return html`by <bdi>${worker}</bdi>, lease ends ${ago(run.lease_expires_at)}`;
}

const timeText = (text) => Number.isNaN(instant(text)) ? text : absolute(instant(text), yourZone());
// Word of the address -> [field of the API, label, text of a value, values]
const FILTERS = {
  __proto__: null,
  cue: ["cue_id", "Cue"],
  cause: ["cause", "Cause", (cause) => capital(causeShort({ cause })), CAUSE_NAMES],
  triggered_by: ["triggered_by", "Started by", triggerText, ["schedule", "manual_fire", "replay"]],
  outcome: ["outcome_state", "Outcome", (state) => stateOf(state).word, ["reported_success",
    "reported_failure", "verified_success", "verification_pending", "verification_failed",
    "missing"]],
  worker: ["worker_id", "Worker"],
  since: ["since", "From", timeText],
  until: ["until", "Before", timeText],
  failing: ["failing_cues", "Cues", () => "failing now"],
  replayed_from: ["replayed_from", "Replays of", idEnd],
};

/** The query of the API for an address; `status` may be several, separated by commas. */
export function apiQuery({ status = "", ...query }) {
  const filter = status.includes(",") ? { status__in: status } : status ? { status } : {};
  for (const [word, [field]] of Object.entries(FILTERS)) {
    if (query[word]) filter[field] = query[word];
  }
  const tag = tagsOf(query);
  return tag.length ? { ...filter, tag } : filter;
}

export const activeFilters = (query, cueName) =>
  Object.entries(FILTERS).filter(([word]) => query[word]).map(([word, [, label, text = String]]) =>
    [word, label, (word === "cue" && cueName) || text(query[word])]).concat(tagFilters(query));

async function askFilter(route, cueName) {
  const { query } = route;
  const zone = yourZone();
  const choice = (name) => {
    const [, label, text, values] = FILTERS[name];
    const choices = [["", "any"], ...values.map((value) => [value, text(value)])];
    return { name, label, value: query[name] || "", choices };
  };
  const time = (name, label) => {
    const value = toLocal(query[name], zone);
    return { name, label, type: "datetime-local", value, help: `In ${zone}` };
  };
  const cueText = query.cue ? cueName ?? query.cue : "";
  const found = await prompt({
    title: "Filter runs", action: "Show",
    fields: [
      { name: "cue", label: "Cue", value: cueText, help: "Its name or id" },
      ...["cause", "triggered_by", "outcome"].map(choice),
      { name: "worker", label: "Worker", value: query.worker || "" },
      { name: "tag", label: "Tags of the cue", value: tagsOf(query).join(", "),
        help: "Separated by commas; a run must have all of them" },
      time("since", "Created from"), time("until", "Created before"),
    ],
    send: async ({ cue, since, until, tag, ...values }) => ({
      ...values, tag: tag.replace(/\s/g, ""), cue: await cueId(cue.trim(), query.cue, cueName),
      since: fromLocal(since, zone), until: fromLocal(until, zone),
    }),
  });
  if (found) go(withQuery(route, found));
}

async function cueId(text, before, nameBefore) {
  if (!text) return "";
  if (before && text === nameBefore) return before;
  const { cues } = await get("v1/cues", { q: text.slice(0, 100), limit: 100, runs: 0 });
  const exact = cues.filter((cue) => cue.name === text || cue.id === text);
  const fitting = exact.length ? exact : cues;
  if (fitting.length === 1) return fitting[0].id;
  const names = fitting.slice(0, 3).map((cue) => `${cue.name} (${targetText(cue)}, ${cue.id})`);
  throw fieldError("cue", !fitting.length ? "No cue has this name or id."
    : `${fitting.length} cues match. Enter the whole name or the id of one: ${names.join(", ")}${
      fitting.length > names.length ? ", …" : ""}`);
}
