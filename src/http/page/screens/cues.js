// Cues: all of them by state and search, with their last runs; actions on one or on many.
import { act, ago, anchor, badge, busily, button, capital, causeShort, confirmMany, copy, countOf,
  empty, get, getCue, go, html, link, loadOverview, menu, muted, note, number, plural, post, reload,
  select, signOf, state, stateOf, tabs, toast, toastError, update, when, withQuery, yourZone } from
  "../kit.js";
import { runHistory } from "../parts/charts.js";
import { clearSelection, countSelected, newSelection, offsetOf, pagedTable, searchField,
  selectionBar } from "../parts/table.js";
import { filterChips, tagFilters, tagLinks, tagsOf } from "../parts/tags.js";
import { targetLine, whenText } from "../parts/target.js";
import { currentRow } from "../app/keyboard.js";
import { creation, creationCall, edit, fire, remove, setPaused } from "./cue/actions.js";

const PER_PAGE = 50;
const RUNS = 30; // marks of a history
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
  if (tagsOf(query).length) filter.tag = tagsOf(query);
  const offset = offsetOf(query, PER_PAGE);
  const list = get("v1/cues", { ...filter, sort: query.sort, runs: RUNS, limit: PER_PAGE, offset });
  const [{ total, cues: fresh }, overview] = await Promise.all([list, loadOverview()]);
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

export function inPlace(rows, fresh) {
  const now = new Map(fresh.map((cue) => [cue.id, cue]));
  return rows.map((cue) => now.get(cue.id) || cue);
}

const settle = (data) => setTimeout(() =>
  data.rows !== data.fresh && !listInUse() && update(() => (data.rows = data.fresh)));

const reloadChanged = (data) => ((data.isChanged = true), reload());

async function pause(data, cue) {
  const answer = await setPaused(cue);
  if (answer) update(() => Object.assign(data.rows.find(({ id }) => id === cue.id) ?? {}, answer));
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
  const bar = { selection, total, onPage: rows.length, noun: "cue", actions: bulkActions(data) };
  return html`${states(route, data)}${filters(data, route)}${
    filterChips(route, tagFilters(route.query))}${refusals(data)}
    ${rows.length ? list(data, route)
      : empty(total ? "This page is empty" : "No cue matches", "", back)}${selectionBar(bar)}`;
}

// [tab, status, failing, title]: a tab with a title is shown where there are such cues.
const STATES = [
  ["All", "", ""], ["Failing", "", "true", "Their latest run failed"],
  ["Active", "active", ""], ["Paused", "paused", ""],
  ["Completed", "completed", "", "They have no further run"],
  ["Failed", "failed", "", "They failed once and for all, or can never run"],
];

function states(route, { total }) {
  const { q, transport, tag, status: shown = "", failing: shownFailing = "" } = route.query;
  const cues = state.overview?.cues || {};
  // The counts of the account say nothing about a search.
  const isCounted = !q && !transport && !tag && cues.active !== undefined;
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
const KINDS = [["", "All kinds"], ["webhook", "URLs"], ["worker", "Workers"]];

function filters(data, route) {
  const { query } = route;
  const { selection, total, rows } = data;
  const choice = (name, label, list) => select("filter-" + name, label, query[name] || "", list,
    (value) => go(withQuery(route, { [name]: value })));
  const turn = () => (selection.all ? clearSelection(selection) : (selection.all = true));
  const all = selection.all ? "Select none" : `Select all ${number(total)}`;
  return html`<div class="row">${
    searchField(data, query, "Search by name, slug, tag, description, host or id")}
    ${choice("transport", "What it calls", KINDS)}${choice("sort", "Order", SORTS)}
    ${rows.length ? button(all, () => update(turn), "end", { id: "select-all" }) : ""}</div>`;
}

export const leave = (data) => clearTimeout(data.searching);

const nameCell = (route, { id, name, slug, status, tags, ...cue }) => html`<div class="line"><a
  class="name cut" title=${name} href=${link("cues", id)}><bdi>${name}</bdi></a>${
  status === "active" ? "" : badge(status)}${
  slug ? html`<code class="cut small muted spare" title=${slug}>${slug}</code>` : ""}</div><div
  class="line small muted"><span class="cut" title=${whenText(cue)}>${
  // A zone is news where it is another one.
  whenText(cue).replace(`, ${yourZone()}`, "")}</span>${targetLine(cue)}${
  tags.length ? html`<span class="tags">${tagLinks(tags, route)}</span>` : ""}</div>`;

function lastCell({ recent: { last }, failing }) {
  if (!last) return muted("no runs yet");
  const isBad = last.status === "failed" || last.status === "retrying";
  const at = ago(last.at);
  const streak = failing > 1
    ? html`<span class="bad">${number(failing)}\u00a0in\u00a0a\u00a0row</span>` : "";
  const cause = isBad && causeShort(last);
  return html`<a class="cut" href=${link("runs", last.execution_id)}>${signOf(stateOf(last.status))} ${
    cause || at}</a><div class="small muted cut">${cause ? at : ""}${
    cause && streak ? ", " : ""}${streak}</div>`;
}

function list(data, route) {
  const { selection, total, rows } = data;
  // An empty cell is no line of a card.
  const next = ({ next_run: at, schedule: { timezone: zone } }) => !at ? "" : html`${ago(at)}<div
    class="small muted cut">${when(at, { zone, only: "absolute" })}</div>`;
  const history = ({ recent: { statuses } }) => (statuses ? runHistory(statuses, RUNS) : "");
  const leave = () => settle(data);
  return html`<section class="card" id="cue-list" @pointerleave=${leave} @focusout=${leave}>${
    pagedTable(route, "Cues", [
      ["Cue", (cue) => nameCell(route, cue), "", "name"],
      ["Next run", next, "short", "next_run"],
      ["Last runs", history, "wide spare"],
      ["Last result", lastCell, "", "last_run"],
      ["", (cue) => rowMenu(data, cue), "tight right row-actions"],
    ], rows, { selection, name: (cue) => cue.name, total, perPage: PER_PAGE, noun: "cues" })
  }</section>`;
}

const rowMenu = (data, cue) => menu("⋯", [
  ["Fire now", () => fire(cue)],
  [cue.status === "paused" ? "Resume" : "Pause", () => pause(data, cue)],
  ["Edit", () => edit(cue)],
  ["Delete", async () => (await remove(cue)) && reloadChanged(data), "danger"],
], "menu-" + cue.id, { name: `Actions on ${cue.name}` });

export function shortcuts(data) {
  const on = (run) => () => {
    const cue = data.rows.find(({ id }) => id === currentRow()?.dataset.row);
    if (cue) run(cue);
  };
  return [
    ["n", "New cue", () => go("#/cues/new")],
    ["p", "Pause or resume", on((cue) => pause(data, cue))],
    ["f", "Fire", on(fire)], ["e", "Edit", on(edit)],
  ];
}

const DONE = { __proto__: null,
  pause: "paused", resume: "resumed", fire: "fired", delete: "deleted" };
const QUESTIONS = {
  __proto__: null,
  fire: "Each cue runs once, now.",
  delete: "This also deletes their runs and results. You cannot undo it.",
};

const bulkActions = (data) => [
  ...Object.keys(DONE).map((action) => button(capital(action), () => bulk(data, action),
    action === "delete" ? "danger" : "", { id: "bulk-" + action, off: data.busy })),
  menu("Copy…", ["JSON", "cued commands", "ids"].map((form) =>
    [form, () => copySelected(data, form)]), "copy-selected"),
];

/** Sends one action for the selection; what it refused is listed above the cues. */
async function bulk(data, action) {
  const { selection, total } = data;
  const ids = [...selection.ids];
  const count = countSelected(selection, total);
  const text = QUESTIONS[action];
  const danger = action === "delete";
  if (text && !(await confirmMany(capital(action), count, "cue", text, danger, danger))) return;
  const word = DONE[action];
  await busily(data, async () => {
    data.refused = null;
    // The filter of the rows that are shown: the address may be ahead of them.
    const { failing, tag, ...filter } = { ...data.filter, tags: data.filter.tag };
    if (failing) filter.failing = failing === "true";
    const which = selection.all ? { filter, expected: total } : { ids };
    const { done, failed } = await post("v1/cues/bulk", { action, ...which });
    clearSelection(selection);
    const runs = { label: "Runs", href: link("runs", { triggered_by: "manual_fire" }) };
    if (done) toast(`${plural(done, "cue")} ${word}`, action === "fire" ? runs : {});
    const nameOf = (id) => data.rows.find((cue) => cue.id === id)?.name ?? id;
    const list = failed.map((entry) => ({ ...entry, name: nameOf(entry.id) }));
    if (list.length) data.refused = { word, list };
  }, toastError);
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
    return toast(`You can copy at most ${MOST_COPIED} cues at once.`);
  }
  await act(async () => {
    const isElsewhere = selection.all && total > rows.length;
    const query = { ...filter, limit: MOST_COPIED };
    const all = isElsewhere ? (await get("v1/cues", query)).cues : rows;
    const ids = selection.all ? all.map(({ id }) => id) : [...selection.ids];
    if (form === "ids") return copy(ids.join("\n"));
    const cues = await Promise.all(ids.map((id) => getCue(id)));
    const { asCued } = await import("../parts/snippets.js");
    const text = form === "JSON" ? `[${cues.map(creation).join(",\n")}]`
      : cues.map((cue) => asCued(creationCall(cue))).join("\n");
    await copy(text, `${plural(cues.length, "cue")} copied`);
  });
}
