// Cues: all of them by state and search, with their last runs; actions on one or on many.
import { html } from "../lit/lit-html.js";
import { live as same } from "../lit/directives/live.js";
import { get, getCue, post } from "../app/api.js";
import { currentRow } from "../app/keyboard.js";
import { go, link, reload, withQuery } from "../app/router.js";
import { countOf, loadOverview } from "../app/server.js";
import { busily, state, update } from "../app/state.js";
import { capital, causeShort, number, plural, stateOf } from "../app/words.js";
import { runHistory } from "../parts/charts.js";
import { copy } from "../parts/copy.js";
import { confirm } from "../parts/ask.js";
import { act, toast } from "../parts/feedback.js";
import { select } from "../parts/form.js";
import { ago, anchor, badge, button, empty, menu, muted, note, signOf, tabs,
  when } from "../parts/pieces.js";
import { asCued } from "../parts/snippets.js";
import { clearSelection, countSelected, newSelection, numberToType, offsetOf, pagedTable,
  selectionBar } from "../parts/table.js";
import { fire, remove, setPaused } from "./cue/actions.js";
import { creation, creationCall, cronWords } from "./cue/words.js";

const PER_PAGE = 50;
const RUNS = 30; // marks of a history
const TYPING_MS = 250;
const MOST_IDS = 500; // that one call takes
const MOST_COPIED = 100; // a call for each, because a list has no payloads
const MOST_FAILED = 20; // refusals that are listed
const FILTERS = ["q", "status", "transport", "failing"];

export const live = ["execution", "cue", "missed"];

/** Runs of cues on other pages change nothing here, unless they decide which are shown. Pure. */
export const event = (data, type, { cue_id: id }, { query }) => !type.startsWith("execution")
  || !!query.failing || !!query.sort || !!data.rows?.some((cue) => cue.id === id);

const listInUse = () => document.querySelector("#cue-list:is(:hover, :focus-within)");

export async function load(data, { query }) {
  const set = FILTERS.filter((name) => query[name]);
  const filter = Object.fromEntries(set.map((name) => [name, query[name]]));
  const offset = offsetOf(query, PER_PAGE);
  const list = get("v1/cues", { ...filter, sort: query.sort, runs: RUNS, limit: PER_PAGE, offset });
  const [{ total, cues: fresh }, overview] = await Promise.all([list, loadOverview()]);
  // Only an account without cues needs this module.
  const isEmpty = !total && !countOf(overview.cues);
  const first = isEmpty ? (await import("./overview/first_cue.js")).firstCue : null;
  const key = JSON.stringify([filter, query.sort, offset]);
  const chosen = JSON.stringify(filter);
  if (data.chosen !== chosen) data.selection = newSelection();
  // Rows stay where they are below the pointer and the focus, but for changes of the person.
  const isHeld = data.key === key && !data.isChanged && listInUse();
  const rows = isHeld ? inPlace(data.rows, fresh) : fresh;
  return { first, key, chosen, filter, total, fresh, rows, isChanged: false };
}

/** The rows of a list with what is new of them, in their old order. Pure. */
export function inPlace(rows, fresh) {
  const now = new Map(fresh.map((cue) => [cue.id, cue]));
  return rows.map((cue) => now.get(cue.id) || cue);
}

const settle = (data) => setTimeout(() =>
  data.rows !== data.fresh && !listInUse() && update(() => (data.rows = data.fresh)));

/** Fetches the list again after an action, which may change its rows. */
function reloadChanged(data) {
  data.isChanged = true;
  reload();
}

/** Pauses or resumes a cue; its row stays where it is and shows the new state. */
async function pause(data, cue) {
  const answer = await setPaused(cue);
  if (!answer) return;
  const changed = (rows) => rows.map((row) => (row.id === cue.id ? { ...row, ...answer } : row));
  update(() => Object.assign(data, { rows: changed(data.rows), fresh: changed(data.fresh) }));
}

export function head({ first }) {
  if (first) return {};
  const { active, failing } = state.overview?.cues || {};
  return {
    tab: failing ? `${failing} failing · Cues` : "Cues",
    note: active !== undefined
      && `${number(active)} active${failing ? `, ${number(failing)} failing` : ""}`,
    actions: anchor("#/cues/new", "New cue", "button primary"),
  };
}

export function view(data, route) {
  const { rows, total, selection, first } = data;
  if (first) return first();
  const back = total ? anchor(withQuery(route, {}), "First page", "button")
    : anchor("#/cues", "Clear the filters", "button");
  const none = empty(total ? "This page is empty" : "No cue matches", "", back);
  const bar = { selection, total, onPage: rows.length, noun: "cue", actions: bulkActions(data) };
  return html`${states(route, data)}${filters(data, route)}${refusals(data)}
    ${rows.length ? list(data, route) : none}${selectionBar(bar)}`;
}

// [tab, status, failing, title]: a tab with a title is shown where there are such cues.
const STATES = [
  ["All", "", ""],
  ["Failing", "", "true", "Their last runs failed"],
  ["Active", "active", ""],
  ["Paused", "paused", ""],
  ["Completed", "completed", "", "They ran once, and are over"],
  ["Failed", "failed", "", "They ran once and failed, or can never run"],
];

function states(route, { total }) {
  const { q, transport, status: shown = "", failing: shownFailing = "" } = route.query;
  const cues = state.overview?.cues || {};
  // The counts of the account say nothing about a search.
  const isCounted = !q && !transport && cues.active !== undefined;
  const list = STATES.map(([text, status, failing, title]) => {
    const isCurrent = shown === status && shownFailing === failing;
    const all = failing ? cues.failing : status ? cues[status] : countOf(cues);
    const count = isCurrent ? total : isCounted ? all : undefined;
    return { text, href: withQuery(route, { status, failing }), title, isCurrent, count };
  });
  return tabs("States", list.filter(({ title, count, isCurrent }) =>
    !title || count !== 0 || isCurrent));
}

const SORTS = [
  ["", "Newest first"], ["created", "Oldest first"], ["name", "Name"], ["-name", "Name, Z to A"],
  ["next_run", "Next run"], ["-next_run", "Latest next run"], ["-last_run", "Last run"],
  ["last_run", "Oldest last run"],
];
const KINDS = [["", "Any kind"], ["webhook", "Callbacks"], ["worker", "Workers"]];

function filters(data, route) {
  const { query } = route;
  const { selection, total, rows } = data;
  if (data.q !== (query.q || "")) data.typed = data.q = query.q || "";
  const search = () => {
    data.q = data.typed.trim();
    go(withQuery(state.route, { q: data.q }), { replace: true });
  };
  const type = (event) => {
    data.typed = event.target.value;
    clearTimeout(data.timer);
    data.timer = setTimeout(search, TYPING_MS);
  };
  const choice = (name, label, list) => select("filter-" + name, label, query[name] || "", list,
    (value) => go(withQuery(route, { [name]: value })));
  const turn = () => (selection.all ? clearSelection(selection) : (selection.all = true));
  const all = selection.all ? "Select none" : `Select all ${number(total)}`;
  return html`<div class="row"><input id="search" class="search" type="search" data-search
    maxlength="100" placeholder="Search" aria-label="Search by name, description, address or id"
    .value=${same(data.typed)} @input=${type}>
    ${choice("transport", "How it runs", KINDS)}${choice("sort", "Order", SORTS)}
    ${rows.length ? button(all, () => update(turn), "end", { id: "select-all" }) : ""}</div>`;
}

export const leave = (data) => clearTimeout(data.timer);

function about({ status, transport, schedule: { type, cron, timezone } }) {
  const schedule = type === "once" ? "Once" : cronWords(cron) || html`<code>${cron}</code>`;
  return html`<div class="small muted">${status === "active" ? "" : html`${badge(status)} `}${
    transport === "worker" ? html`<span class="tag">worker</span> ` : ""}${schedule},
      ${timezone}</div>`;
}

function lastCell({ recent: { last }, failing }) {
  if (!last) return muted("no runs yet");
  const isBad = last.status === "failed" || last.status === "retrying";
  const at = ago(last.at);
  const streak = failing > 1
    ? html`<span class="bad">${number(failing)}\u00a0in\u00a0a\u00a0row</span>` : "";
  return html`<a href=${link("runs", last.execution_id)}>${signOf(stateOf(last.status))} ${
    (isBad && causeShort(last)) || at}</a><div class="small muted">${isBad ? at : ""}${
    isBad && streak ? ", " : ""}${streak}</div>`;
}

function list(data, route) {
  const name = (cue) => [
    anchor(link("cues", cue.id), html`<bdi>${cue.name}</bdi>`, "name"), about(cue),
  ];
  const next = ({ next_run: at, schedule: { timezone: zone } }) => html`${ago(at)}${
    at ? html` <small>${when(at, { zone, only: "absolute" })}</small>` : ""}`;
  const history = ({ recent: { statuses } }) => (statuses ? runHistory(statuses, RUNS) : "");
  const columns = [
    ["Cue", name, "", "name"],
    ["Next run", next, "short", "next_run"],
    ["Last runs", history, "wide"],
    ["Last result", lastCell, "", "last_run"],
    ["", (cue) => rowMenu(data, cue), "tight right row-actions"],
  ];
  const { selection, total, rows } = data;
  const leave = () => settle(data);
  const options = { selection, name: (cue) => cue.name, total, perPage: PER_PAGE, noun: "cues" };
  return html`<section class="card" id="cue-list" @pointerleave=${leave} @focusout=${leave}>${
    pagedTable(route, "Cues", columns, rows, options)}</section>`;
}

const edit = ({ id }) => go(link("cues", id, "edit"));

const rowMenu = (data, cue) => menu("⋯", [
  ["Fire now", () => fire(cue)],
  [cue.status === "paused" ? "Resume" : "Pause", () => pause(data, cue)],
  ["Edit", () => edit(cue)],
  ["Delete", async () => (await remove(cue)) && reloadChanged(data), "danger"],
], "menu-" + cue.id, `Actions on ${cue.name}`);

export function shortcuts(data) {
  const on = (run) => () => {
    const cue = data.rows.find(({ id }) => id === currentRow()?.dataset.row);
    if (cue) run(cue);
  };
  return [
    ["n", "New cue", () => go("#/cues/new")],
    ["p", "Pause or resume", on((cue) => pause(data, cue))],
    ["f", "Fire", on(fire)],
    ["e", "Edit", on(edit)],
  ];
}

const DONE = { pause: "paused", resume: "resumed", fire: "fired", delete: "deleted" };

function bulkActions(data) {
  const forms = ["JSON", "cued commands", "ids"];
  return [
    ...Object.keys(DONE).map((action) => button(capital(action), () => bulk(data, action),
      action === "delete" ? "danger" : "", { id: "bulk-" + action, off: data.busy })),
    menu("Copy as", forms.map((form) => [form, () => copySelected(data, form)]), "copy-selected"),
  ];
}

const QUESTIONS = {
  fire: "Each runs once, now.",
  delete: "Their runs and results are deleted with them. This cannot be undone.",
};

function isSure(name, count) {
  const action = capital(name);
  const danger = name === "delete";
  return !QUESTIONS[name] || confirm({
    title: `${action} ${plural(count, "cue")}?`, text: QUESTIONS[name], action, danger,
    type: danger ? numberToType(count) : null,
  });
}

/** Sends one action for the selection; what it refused is listed above the cues. */
async function bulk(data, action) {
  const { selection, total } = data;
  const ids = [...selection.ids];
  if (!(await isSure(action, countSelected(selection, total)))) return;
  const failed = [];
  let done = 0;
  await busily(data, () => act(async () => {
    // The filter of the rows that are shown: the address may be ahead of them.
    const { failing, ...filter } = data.filter;
    if (failing) filter.failing = failing === "true";
    const parts = selection.all ? [{ filter, expected: total }] : [];
    for (let i = 0; !selection.all && i < ids.length; i += MOST_IDS) {
      parts.push({ ids: ids.slice(i, i + MOST_IDS) });
    }
    for (const part of parts) {
      const answer = await post("v1/cues/bulk", { action, ...part });
      done += answer.done;
      failed.push(...answer.failed);
    }
    clearSelection(selection);
  }));
  const word = DONE[action];
  const runs = { label: "Runs", href: link("runs", { triggered_by: "manual_fire" }) };
  if (done) toast(`${plural(done, "cue")} ${word}`, action === "fire" ? runs : {});
  const nameOf = (id) => data.rows.find((cue) => cue.id === id)?.name ?? id;
  const list = failed.map((entry) => ({ ...entry, name: nameOf(entry.id) }));
  update(() => (data.refused = list.length ? { word, list } : null));
  reloadChanged(data);
}

function refusals(data) {
  if (!data.refused) return "";
  const { word, list } = data.refused;
  const refusal = ({ id, name, message }) =>
    html`<li class="wrap">${anchor(link("cues", id), name)}: ${message}</li>`;
  const more = list.length - MOST_FAILED;
  const close = () => update(() => (data.refused = null));
  return note(html`<b>${plural(list.length, "cue")} could not be ${word}:</b><ul id="refused">${
    list.slice(0, MOST_FAILED).map(refusal)}${
    more > 0 ? html`<li>and ${number(more)} more</li>` : ""}</ul>`, "bad", button("Close", close));
}

async function copySelected({ selection, rows, total, filter }, form) {
  if (countSelected(selection, total) > MOST_COPIED) {
    return toast(`Copying takes at most ${MOST_COPIED} cues.`);
  }
  await act(async () => {
    const isElsewhere = selection.all && total > rows.length;
    const query = { ...filter, limit: MOST_COPIED };
    const all = isElsewhere ? (await get("v1/cues", query)).cues : rows;
    const ids = selection.all ? all.map(({ id }) => id) : [...selection.ids];
    if (form === "ids") return copy(ids.join("\n"));
    const cues = await Promise.all(ids.map((id) => getCue(id)));
    const text = form === "JSON" ? `[${cues.map(creation).join(",\n")}]`
      : cues.map((cue) => asCued(creationCall(cue))).join("\n");
    await copy(text, `${plural(cues.length, "cue")} copied`);
  });
}
