// Lists: tables that become cards on a phone, selection, paging.
import { html, nothing } from "../lit/lit-html.js";
import { repeat } from "../lit/directives/repeat.js";
import { live } from "../lit/directives/live.js";
import { update } from "../app/state.js";
import { withQuery } from "../app/router.js";
import { number } from "../app/words.js";

/**
 * A table. `columns`: `{label, cell(row), kind, sort, short}`; `kind` adds classes of a cell ("wide": a line of its
 * own on a phone; "right", "tight", "num"), `sort` is the word of the query that sorts by it, `short` shows the label
 * before the value on a phone. `key(row)` identifies rows. `selection` (see below) adds boxes; `name(row)` names them.
 */
export function table({ label, columns, rows, key, selection, name, route, selected }) {
  const ids = rows.map(key);
  const all = selection && ids.length > 0 && ids.every((id) => has(selection, id));
  const heads = columns.map((column) => html`<th scope="col" class=${column.kind || ""} aria-sort=${column.sort ? sortState(route, column.sort) : nothing}>${column.sort ? sortLink(route, column) : column.label || html`<span class="sr">Acts</span>`}</th>`);
  const box = (checked, text, change) => html`<label><input type="checkbox" aria-label=${text} .checked=${live(checked)} @click=${change}></label>`;
  return html`<table class="cards" aria-label=${label}>
    <thead><tr>${selection ? html`<th class="pick">${box(all, "Select all rows of this page", (event) => update(() => selectAll(selection, ids, event.target.checked)))}</th>` : nothing}${heads}</tr></thead>
    <tbody>${repeat(rows, key, (row) => {
      const id = key(row);
      const marked = selection ? has(selection, id) : selected === id;
      return html`<tr data-row=${id} aria-selected=${marked ? "true" : nothing}>
        ${selection ? html`<td class="pick">${box(marked, `Select ${name ? name(row) : id}`, (event) => update(() => toggle(selection, id, ids, event.shiftKey)))}</td>` : nothing}
        ${columns.map((column, i) => html`<td class="${i ? "" : "main"} ${column.kind || ""}" data-label=${column.short ? column.label : nothing}>${column.cell(row)}</td>`)}
      </tr>`;
    })}</tbody>
  </table>`;
}

function sortState(route, word) {
  const sort = route.query.sort || "";
  return sort === word ? "ascending" : sort === "-" + word ? "descending" : nothing;
}

function sortLink(route, { label, sort }) {
  const now = sortState(route, sort);
  const next = now === "ascending" ? "-" + sort : sort;
  return html`<a href=${withQuery(route, { sort: next })}>${label}${now === nothing ? "" : now === "ascending" ? " ↑" : " ↓"}</a>`;
}

/** A new selection: ids, or all that match the filter (`all`, then `ids` are those left out of the page's boxes: none). */
export const newSelection = () => ({ ids: new Set(), all: false, last: null });

export const has = (selection, id) => selection.all || selection.ids.has(id);

/** Number of things selected; `total` is that of all that match. */
export const countSelected = (selection, total) => (selection.all ? total : selection.ids.size);

/** Selects or releases a row; with `range` all rows from the last one clicked as this one becomes. */
export function toggle(selection, id, ids, range = false) {
  if (selection.all) Object.assign(selection, { all: false, ids: new Set(ids) });
  const on = !selection.ids.has(id);
  const from = range && selection.last !== null ? ids.indexOf(selection.last) : -1;
  const to = ids.indexOf(id);
  const touched = from < 0 ? [id] : ids.slice(Math.min(from, to), Math.max(from, to) + 1);
  for (const one of touched) on ? selection.ids.add(one) : selection.ids.delete(one);
  selection.last = id;
}

export function selectAll(selection, ids, on) {
  if (selection.all && !on) return clearSelection(selection);
  for (const id of ids) on ? selection.ids.add(id) : selection.ids.delete(id);
}

export const clearSelection = (selection) => Object.assign(selection, newSelection());

/** The bar of a selection: how many, "all N that match", and the acts; nothing where none is selected. */
export function selectionBar({ selection, total, onPage, noun, actions }) {
  const count = countSelected(selection, total);
  if (!count) return nothing;
  const more = !selection.all && selection.ids.size >= onPage && total > selection.ids.size;
  return html`<div class="bulk" role="region" aria-label="Selection"><b class="num">${number(count)} ${count === 1 ? noun : noun + "s"} selected</b>
    ${more ? html`<button class="link" @click=${() => update(() => (selection.all = true))}>Select all ${number(total)} that match</button>` : nothing}
    <button class="link" @click=${() => update(() => clearSelection(selection))}>Clear</button>
    <span class="row end">${actions}</span></div>`;
}

/** Pages by `page` of the address (from 1). */
export function pager(route, { total, perPage, noun }) {
  const page = Math.max(1, Number(route.query.page) || 1);
  const last = Math.max(1, Math.ceil(total / perPage));
  const step = (to, text) => (to < 1 || to > last ? html`<span class="button" aria-disabled="true">${text}</span>` : html`<a class="button" href=${withQuery(route, { page: to === 1 ? null : to })}>${text}</a>`);
  const from = (page - 1) * perPage;
  return html`<nav class="pager" aria-label="Pages"><span class="num">${total ? `${number(from + 1)}–${number(Math.min(total, from + perPage))} of ${number(total)}` : "0"} ${noun}</span>${last > 1 ? [step(page - 1, "Previous"), step(page + 1, "Next")] : nothing}</nav>`;
}
