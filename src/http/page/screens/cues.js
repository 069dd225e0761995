// Cues: all of them by state and search, with their last runs; acts on one or on many.
import { html, nothing } from "../lit/lit-html.js";
import { live as same } from "../lit/directives/live.js";
import { get, post } from "../app/api.js";
import { currentRow } from "../app/keyboard.js";
import { go, link, withQuery } from "../app/router.js";
import { loadOverview } from "../app/server.js";
import { state, update } from "../app/state.js";
import { causeShort, number, plural } from "../app/words.js";
import { copy } from "../parts/copy.js";
import { confirm } from "../parts/dialog.js";
import { act, empty, note, toast } from "../parts/feedback.js";
import { menu } from "../parts/menu.js";
import { strip } from "../parts/strip.js";
import { clearSelection, countSelected, newSelection, pager, selectionBar, table } from "../parts/table.js";
import { badge, sign, when } from "../parts/values.js";
import { fire, pathOf, remove, setPaused } from "./cue/acts.js";
import { creation, creationLine, cronWords } from "./cue/words.js";

const PER_PAGE = 50;
const RUNS = 30; // marks of a strip
const TYPING_MS = 250;
const MOST_IDS = 500; // that one call takes
const MOST_COPIED = 100; // a call for each, because a list has no payloads
const MANY = 20; // to delete more, their number must be typed
const MOST_FAILED = 20; // refusals that are listed
const FILTERS = ["q", "status", "transport", "failing"];

export const live = ["execution", "cue", "missed"];

/** Runs of cues on other pages change nothing here, unless they decide which cues are shown. Pure. */
export const event = (data, type, { cue_id: id }, { query }) => !type.startsWith("execution") || !!query.failing || !!query.sort || !!data.rows?.some((cue) => cue.id === id);

const filterOf = ({ query }) => Object.fromEntries(FILTERS.filter((name) => query[name]).map((name) => [name, query[name]]));
const listOf = () => document.querySelector("#cue-list:is(:hover, :focus-within)");

export async function load(data, route) {
  const { query } = route;
  const filter = filterOf(route);
  const offset = (Math.max(1, Number(query.page) || 1) - 1) * PER_PAGE;
  const [answer, overview] = await Promise.all([get("v1/cues", { ...filter, sort: query.sort, runs: RUNS, limit: PER_PAGE, offset }), loadOverview()]);
  // Only an empty account needs this module.
  const first = !answer.total && !anyCue(overview.cues) ? (await import("./overview/first_cue.js")).firstCue : null;
  const key = JSON.stringify([filter, query.sort, offset]);
  const chosen = JSON.stringify(filter);
  if (data.chosen !== chosen) data.selection = newSelection();
  // Rows stay where they are below the pointer and the focus.
  const held = data.key === key && !data.own && listOf();
  data.own = false;
  return { first, key, chosen, filter, total: answer.total, fresh: answer.cues, rows: held ? inPlace(data.rows, answer.cues) : answer.cues };
}

/** The rows of a list with what is new of them, in their old order. Pure. */
export function inPlace(rows, fresh) {
  const now = new Map(fresh.map((cue) => [cue.id, cue]));
  return rows.map((cue) => now.get(cue.id) || cue);
}

const settle = (data) => setTimeout(() => data.rows !== data.fresh && !listOf() && update(() => (data.rows = data.fresh)));

/** Fetches the list again after an act of one's own, which may change its rows. */
async function reload(data) {
  data.own = true;
  try {
    const patch = await load(data, state.route);
    update(() => Object.assign(data, patch));
  } catch {
    // The act has told what became of it; the list follows with the next event.
  }
}

/** Pauses or resumes a cue; its row stays where it is and shows the new state. */
async function pause(data, cue) {
  const answer = await setPaused(cue);
  const changed = (rows) => rows.map((row) => (row.id === cue.id ? { ...row, ...answer } : row));
  if (answer) update(() => Object.assign(data, { rows: changed(data.rows), fresh: changed(data.fresh) }));
}

export function head({ first }) {
  if (first) return { title: "Cues" };
  const { active, failing } = state.overview?.cues || {};
  return {
    title: "Cues",
    tab: failing ? `${failing} failing · Cues` : "Cues",
    note: active === undefined ? nothing : `${number(active)} active${failing ? `, ${number(failing)} failing` : ""}`,
    actions: html`<a class="button primary" href="#/cues/new">New cue</a>`,
  };
}

export function view(data, route) {
  const { rows, total, selection } = data;
  focusSearch(route);
  if (data.first) return data.first();
  return html`${tabs(route, data)}${filters(data, route)}${data.refused ? refusals(data) : nothing}
    ${rows.length ? list(data, route) : empty(total ? "This page is empty" : "No cue matches", "", html`<a class="button" href=${total ? withQuery(route, {}) : "#/cues"}>${total ? "First page" : "Clear the filters"}</a>`)}
    ${selectionBar({ selection, total, onPage: rows.length, noun: "cue", actions: bulkActs(data) })}`;
}

function focusSearch({ query }) {
  if (query.focus) requestAnimationFrame(() => (document.getElementById("search")?.focus(), go(withQuery(state.route, { focus: null }), { replace: true })));
}

const TABS = [["All", {}], ["Failing", { failing: "true" }, "Their last runs failed"], ["Active", { status: "active" }], ["Paused", { status: "paused" }], ["Completed", { status: "completed" }, "They ran once, and are over"], ["Failed", { status: "failed" }, "They ran once and failed, or can never run"]];

function tabs(route, { total }) {
  const { query } = route;
  const cues = state.overview?.cues || {};
  const all = anyCue(cues);
  // The counts of the account say nothing about a search.
  const counted = !query.q && !query.transport && cues.active !== undefined;
  return html`<nav class="tabs" aria-label="States">${TABS.map(([label, filter, title]) => {
    const here = (query.status || "") === (filter.status || "") && (query.failing || "") === (filter.failing || "");
    const count = here ? total : counted ? (filter.failing ? cues.failing : filter.status ? cues[filter.status] : all) : undefined;
    // States that most accounts never have are shown where there are some.
    if (title && count === 0 && !here) return nothing;
    return html`<a title=${title ?? nothing} href=${withQuery(route, { status: null, failing: null, ...filter })} aria-current=${here ? "page" : nothing}>${label}${count === undefined ? nothing : html` <small class="num">${number(count)}</small>`}</a>`;
  })}</nav>`;
}

const SORTS = [["", "Newest first"], ["created", "Oldest first"], ["name", "Name"], ["-name", "Name, Z to A"], ["next_run", "Next run"], ["-next_run", "Latest next run"], ["-last_run", "Last run"], ["last_run", "Oldest last run"]];

function filters(data, route) {
  const { query } = route;
  const { selection, total, rows } = data;
  if (data.q !== (query.q || "")) data.typed = data.q = query.q || "";
  const type = (event) => {
    data.typed = event.target.value;
    clearTimeout(data.timer);
    data.timer = setTimeout(() => go(withQuery(state.route, { q: (data.q = data.typed.trim()) }), { replace: true }), TYPING_MS);
  };
  const choose = (name) => (event) => go(withQuery(route, { [name]: event.target.value }));
  const select = (name, label, options) => html`<select class="small" id=${"filter-" + name} aria-label=${label} @change=${choose(name)}>${options.map(([value, text]) => html`<option value=${value} .selected=${(query[name] || "") === value}>${text}</option>`)}</select>`;
  return html`<div class="row"><input id="search" class="search" type="search" data-search maxlength="100" placeholder="Search" aria-label="Search by name, description, address or id" .value=${same(data.typed)} @input=${type}>
    ${select("transport", "How it runs", [["", "Any kind"], ["webhook", "Callbacks"], ["worker", "Workers"]])}
    ${select("sort", "Order", SORTS)}
    ${rows.length ? html`<button class="end" id="select-all" @click=${() => update(() => (selection.all ? clearSelection(selection) : (selection.all = true)))}>${selection.all ? "Select none" : `Select all ${number(total)}`}</button>` : nothing}</div>`;
}

const anyCue = ({ active, paused, completed, failed }) => active + paused + completed + failed;

export const leave = (data) => clearTimeout(data.timer);

const about = ({ status, transport, schedule: { type, cron, timezone } }) => html`<div class="small muted">${status === "active" ? nothing : html`${badge(status)} `}${transport === "worker" ? html`<span class="tag">worker</span> ` : nothing}${type === "once" ? "Once" : cronWords(cron) || html`<code>${cron}</code>`}, ${timezone}</div>`;

function lastCell({ recent: { last }, failing }) {
  if (!last) return html`<span class="muted">no runs yet</span>`;
  const bad = last.status === "failed" || last.status === "retrying";
  const at = when(last.at, { only: "relative" });
  return html`<a href=${link("runs", last.execution_id)}>${sign(last.status)} ${(bad && causeShort(last)) || at}</a><div class="small muted">${bad ? at : nothing}${failing > 1 ? html`${bad ? ", " : nothing}<span class="bad">${number(failing)}\u00a0in\u00a0a\u00a0row</span>` : nothing}</div>`;
}

function list(data, route) {
  const columns = [
    { label: "Cue", sort: "name", cell: (cue) => html`<a class="name" href=${link("cues", cue.id)}><bdi>${cue.name}</bdi></a>${about(cue)}` },
    { label: "Next run", sort: "next_run", short: true, cell: ({ next_run: at, schedule: { timezone: zone } }) => html`${when(at, { only: "relative" })}${at ? html` <small>${when(at, { zone, only: "absolute" })}</small>` : nothing}` },
    { label: "Last runs", kind: "wide", cell: ({ recent: { statuses } }) => (statuses ? strip(statuses, RUNS) : nothing) },
    { label: "Last result", sort: "last_run", cell: lastCell },
    { label: "", kind: "tight right acts", cell: (cue) => rowMenu(data, cue) },
  ];
  return html`<section class="card" id="cue-list" @pointerleave=${() => settle(data)} @focusout=${() => settle(data)}>
    ${table({ label: "Cues", columns, rows: data.rows, key: (cue) => cue.id, selection: data.selection, name: (cue) => cue.name, route })}
    ${pager(route, { total: data.total, perPage: PER_PAGE, noun: "cues" })}</section>`;
}

const rowMenu = (data, cue) => menu("⋯", [
  ["Fire now", () => fire(cue)],
  [cue.status === "paused" ? "Resume" : "Pause", () => pause(data, cue)],
  ["Edit", () => go(link("cues", cue.id, "edit"))],
  ["Delete", async () => (await remove(cue)) && reload(data), "danger"],
], "menu-" + cue.id, `Acts on ${cue.name}`);

export function shortcuts(data) {
  const on = (run) => () => {
    const cue = data.rows.find(({ id }) => id === currentRow()?.dataset.row);
    if (cue) run(cue);
  };
  return [
    { keys: "n", label: "New cue", run: () => go("#/cues/new") },
    { keys: "p", label: "Pause or resume", run: on((cue) => pause(data, cue)) },
    { keys: "f", label: "Fire", run: on(fire) },
    { keys: "e", label: "Edit", run: on((cue) => go(link("cues", cue.id, "edit"))) },
  ];
}

const ACTS = { pause: ["Pause", "paused"], resume: ["Resume", "resumed"], fire: ["Fire", "fired"], delete: ["Delete", "deleted"] };

function bulkActs(data) {
  const press = (action) => html`<button class=${action === "delete" ? "danger" : ""} data-bulk=${action} ?disabled=${data.busy} @click=${() => bulk(data, action)}>${ACTS[action][0]}</button>`;
  return html`${Object.keys(ACTS).map(press)}${menu("Copy as", [["JSON", () => copySelected(data, "JSON")], ["cued commands", () => copySelected(data, "cued commands")], ["ids", () => copySelected(data, "ids")]], "copy-selected")}`;
}

async function asked(action, count) {
  const cues = plural(count, "cue");
  if (action === "fire") return confirm({ title: `Fire ${cues}?`, text: "Each runs once, now.", action: "Fire" });
  if (action !== "delete") return true;
  return confirm({ title: `Delete ${cues}?`, text: "Their runs and results are deleted with them. This cannot be undone.", action: "Delete", danger: true, type: count > MANY ? count : null });
}

/** Sends one act for the selection; what it refused is listed above the cues. */
async function bulk(data, action) {
  const { selection, total } = data;
  const ids = [...selection.ids];
  if (!(await asked(action, countSelected(selection, total)))) return;
  update(() => (data.busy = true));
  const sum = { done: 0, failed: [] };
  await act(async () => {
    const { failing, ...filter } = data.filter; // of the rows that are shown: the address may be ahead of them
    const parts = selection.all ? [{ filter: { ...filter, ...(failing && { failing: failing === "true" }) }, expected: total }] : [];
    for (let i = 0; !selection.all && i < ids.length; i += MOST_IDS) parts.push({ ids: ids.slice(i, i + MOST_IDS) });
    for (const part of parts) {
      const answer = await post("v1/cues/bulk", { action, ...part });
      sum.done += answer.done;
      sum.failed.push(...answer.failed);
    }
    clearSelection(selection);
  });
  const names = new Map(data.rows.map((cue) => [cue.id, cue.name]));
  const refused = sum.failed.map((entry) => ({ ...entry, name: names.get(entry.id) || entry.id }));
  if (sum.done) toast(`${plural(sum.done, "cue")} ${ACTS[action][1]}`, action === "fire" ? { label: "Runs", href: link("runs", { triggered_by: "manual_fire" }) } : null);
  update(() => Object.assign(data, { busy: false, refused: refused.length ? { word: ACTS[action][1], list: refused } : null }));
  await reload(data);
}

function refusals(data) {
  const { word, list } = data.refused;
  return note(html`<b>${plural(list.length, "cue")} could not be ${word}:</b><ul id="refused">${list.slice(0, MOST_FAILED).map(({ id, name, message }) => html`<li class="wrap"><a href=${link("cues", id)}>${name}</a>: ${message}</li>`)}${list.length > MOST_FAILED ? html`<li>and ${number(list.length - MOST_FAILED)} more</li>` : nothing}</ul>`, "bad", html`<button @click=${() => update(() => (data.refused = null))}>Close</button>`);
}

async function copySelected({ selection, rows, total, filter }, form) {
  if (countSelected(selection, total) > MOST_COPIED) return toast(`Copying takes at most ${MOST_COPIED} cues.`);
  await act(async () => {
    const ids = selection.all && total > rows.length ? (await get("v1/cues", { ...filter, limit: MOST_COPIED })).cues.map(({ id }) => id) : selection.all ? rows.map(({ id }) => id) : [...selection.ids];
    if (form === "ids") return copy(ids.join("\n"));
    const cues = await Promise.all(ids.map((id) => get(pathOf({ id }), { payload: "text", execution_limit: 1 })));
    await copy(form === "JSON" ? `[${cues.map(creation).join(",\n")}]` : cues.map(creationLine).join("\n"), `${plural(cues.length, "cue")} copied`);
  });
}
