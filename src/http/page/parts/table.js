// Lists: tables that become cards on a phone, selection, pages.
import { html, nothing } from "../lit/lit-html.js";
import { repeat } from "../lit/directives/repeat.js";
import { live } from "../lit/directives/live.js";
import { state, update } from "../app/state.js";
import { go, withQuery } from "../app/router.js";
import { number, plural } from "../app/words.js";
import { anchor, button } from "./pieces.js";

const TYPING_MS = 250;

// A table of columns `[label, cell(row), classes, sort]`: on a phone "wide" is a line of its own,
// "short" has its label before the value; a window of 60 to 75 rem has no room for "spare"; `sort` is the word of the query that sorts by it.
// `key(row)` identifies a row; `selection` adds boxes, which `name(row)` names.
export function table(label, columns, rows, { key = ({ id }) => id, selection, name, route } = {}) {
  const ids = rows.map(key);
  const all = selection && ids.length > 0 && ids.every((id) => has(selection, id));
  const pick = (checked, text, change) => html`<label><input type="checkbox" aria-label=${text}
    .checked=${live(checked)} @click=${(event) => update(() => change(event))}></label>`;
  const row = (row) => {
    const id = key(row);
    const marked = selection && has(selection, id);
    const change = (event) => toggle(selection, id, ids, event.shiftKey);
    return html`<tr data-row=${id} aria-selected=${marked ? "true" : nothing}>${selection
      ? html`<td class="pick">${pick(marked, `Select ${name(row)}`, change)}</td>` : ""}
      ${columns.map(([label, cell, kind = ""], i) => html`<td class="${i ? "" : "main"} ${kind}"
        data-label=${/\bshort\b/.test(kind) ? label : nothing}>${cell(row)}</td>`)}</tr>`;
  };
  const changeAll = (event) => selectAll(selection, ids, event.target.checked);
  return html`<div class="scroll"><table class="cards" aria-label=${label}><thead><tr>${selection
    ? html`<th class="pick">${pick(all, "Select all rows on this page", changeAll)}</th>` : ""}
    ${columns.map((column) => head(column, route))}</tr></thead>
    <tbody>${repeat(rows, key, row)}</tbody></table></div>`;
}

function head([label, , kind = "", sort], route) {
  const now = route?.query.sort || "";
  const state = !sort ? "" : now === sort ? "ascending" : now === "-" + sort ? "descending" : "";
  const href = sort && withQuery(route, { sort: state === "ascending" ? "-" + sort : sort });
  return html`<th scope="col" class=${kind} aria-sort=${state || nothing}>${
    sort ? anchor(href, label + ({ ascending: " ↑", descending: " ↓" }[state] ?? ""))
    : label || html`<span class="sr">Actions</span>`}</th>`;
}

/** A new selection: ids, or all that match the filter (`all`, which needs no ids). */
export const newSelection = () => ({ ids: new Set(), all: false, last: null });
export const clearSelection = (selection) => Object.assign(selection, newSelection());
const has = (selection, id) => selection.all || selection.ids.has(id);
const put = ({ ids }, id, on) => (on ? ids.add(id) : ids.delete(id));

export const countSelected = (selection, total) => (selection.all ? total : selection.ids.size);

/** Selects or releases a row; with `range` also all rows from the last one clicked. */
export function toggle(selection, id, ids, range = false) {
  if (selection.all) Object.assign(selection, { all: false, ids: new Set(ids) });
  const on = !selection.ids.has(id);
  const from = range && selection.last !== null ? ids.indexOf(selection.last) : -1;
  const to = ids.indexOf(id);
  const touched = from < 0 ? [id] : ids.slice(Math.min(from, to), Math.max(from, to) + 1);
  for (const one of touched) put(selection, one, on);
  selection.last = id;
}

export function selectAll(selection, ids, on) {
  if (selection.all && !on) clearSelection(selection);
  for (const id of ids) put(selection, id, on);
}

/** The bar of a selection: how many, "all N that match", and the actions. */
export function selectionBar({ selection, total, onPage, noun, actions }) {
  const count = countSelected(selection, total);
  if (!count) return "";
  const more = !selection.all && selection.ids.size >= onPage && total > selection.ids.size;
  const all = () => update(() => (selection.all = true));
  return html`<div class="bulk" role="region" aria-label="Selection">
    <b class="num">${plural(count, noun)} selected</b>
    ${more ? button(`Select all ${number(total)} that match`, all, "link") : ""}
    ${button("Clear", () => update(() => clearSelection(selection)), "link")}
    <span class="row end">${actions}</span></div>`;
}

/** The field for `q` of the address, which follows a pause; `leave` clears `data.searching`. */
export function searchField(data, { q = "" }, label) {
  if (data.q !== q) data.typed = data.q = q;
  const search = () => {
    data.q = data.typed.trim();
    go(withQuery(state.route, { q: data.q }), { replace: true });
  };
  const type = (event) => {
    data.typed = event.target.value;
    clearTimeout(data.searching);
    data.searching = setTimeout(search, TYPING_MS);
  };
  return html`<input id="search" class="search" type="search" data-search maxlength="100"
    placeholder="Search" aria-label=${label} .value=${live(data.typed)} @input=${type}>`;
}

const pageOf = ({ page }) => Math.max(1, Number(page) || 1);
export const offsetOf = (query, perPage) => (pageOf(query) - 1) * perPage;

export function pagedTable(route, label, columns, rows, { total, perPage, noun, ...more }) {
  const page = pageOf(route.query);
  const last = Math.max(1, Math.ceil(total / perPage));
  const step = (to, text) => to < 1 || to > last
    ? html`<span class="button" aria-disabled="true">${text}</span>`
    : anchor(withQuery(route, { page: to === 1 ? null : to }), text, "button");
  const [from, to] = [offsetOf(route.query, perPage), Math.min(total, page * perPage)];
  return html`${table(label, columns, rows, { route, ...more })}<nav class="pager"
    aria-label="Pages"><span class="num">${
    last > 1 ? `${number(from + 1)}–${number(to)} of ` : ""}${plural(total, noun.slice(0, -1))}</span>${
    last > 1 ? [step(page - 1, "Previous"), step(page + 1, "Next")] : ""}</nav>`;
}
