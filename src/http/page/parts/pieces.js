// Pieces of every screen.
import { html, nothing } from "../lit/lit-html.js";
import { settings } from "../app/state.js";
import { absolute, exact, instant, offsetMinutes, relative, serverNow, shownZone, yourZone } from
  "../app/time.js";
import { capital, number, stateOf, stateOfRun } from "../app/words.js";

export const button = (text, run, kind, { id, off = false, label } = {}) => html`<button
  type="button" class=${kind || nothing} id=${id || nothing} aria-label=${label || nothing}
  ?disabled=${off} @click=${run}>${text}</button>`;

export const anchor = (href, text, kind) =>
  html`<a class=${kind || nothing} href=${href}>${text}</a>`;

export const muted = (text) => html`<span class="muted">${text}</span>`;

export const card = (id, title, beside, content) => html`<section class="card" id=${id || nothing}>
  <header><h2>${title}</h2>${beside}</header>${content}</section>`;

/** A card of parts with room around them. */
export const panel = (id, title, beside, ...content) =>
  card(id, title, beside, html`<div class="pad stack">${content}</div>`);

/** What a card without rows says. */
export const noRows = (text) => html`<p class="pad muted">${text}</p>`;

export const folded = (summary, content, kind) => html`<details><summary class=${kind || nothing}>${
  summary}</summary>${content}</details>`;

/** The pairs `[name, value]` that have a value. */
export const facts = (pairs, kind = "") => html`<dl class="facts ${kind}">${pairs
  .filter((pair) => pair && pair[1])
  .map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;

export const tabs = (label, list) => html`<nav class="tabs" aria-label=${label}>${list.map(
  ({ text, href, isCurrent, title, count }) => html`<a href=${href} title=${title ?? nothing}
    aria-current=${isCurrent ? "page" : nothing}>${text}${count === undefined ? ""
      : html` <small class="num">${number(count)}</small>`}</a>`)}</nav>`;

/** A notice; `kind` is "bad", "warn", "good", "idle" or "". One with an id is an alert. */
export const note = (text, kind = "", action = "", id = "") => html`<div
  class="note ${kind && "is-" + kind}" id=${id || nothing}
  role=${id ? "alert" : nothing}><div>${text}</div>${action}</div>`;

/** What a cue with a slug says to whoever wants to change it. */
export const managed = ({ slug }) => slug && note(html`Slug <code>${slug}</code>: if it is in a file,
  <code>cued apply</code> overwrites changes that you make here. A pause stays, unless the file sets
  <code>paused</code>.`);

export const sentence = (error) =>
  (error.status === undefined ? "This page failed: " : "") + error.message;

export const requestOf = ({ requestId }) =>
  requestId ? html`<div class="small muted">Request <code>${requestId}</code></div>` : "";

/** An error in place of what could not be shown, with the request's id and Retry. */
export const errorBox = (error, retry) => html`<div class="note is-bad" role="alert">
  <div><b>${sentence(error)}</b>${requestOf(error)}</div>
  ${retry ? button("Retry", retry) : ""}</div>`;

export const bones = () => html`<div class="card bones" aria-hidden="true">${
  Array.from({ length: 6 }, () => html`<i></i>`)}</div>`;

export const empty = (title, text, ...more) => html`<div class="card empty"><h2>${title}</h2>${
  text ? html`<p>${text}</p>` : ""}${more}</div>`;

export const options = (list, value) => list.map(([key, text]) =>
  html`<option value=${key} .selected=${String(key) === String(value)}>${text}</option>`);

export const select = (id, label, value, list, choose) => html`<select class="small" id=${id}
  aria-label=${label} @change=${(event) => choose(event.target.value)}>${options(list,
    value)}</select>`;

// A button with a popover of `[text, run, class]` entries; `name` is for a face like "⋯".
export function menu(face, entries, id, { name, opened } = {}) {
  const place = ({ newState, target: popover }) => {
    if (newState !== "open") return;
    opened?.();
    const { bottom, left } = popover.previousElementSibling.getBoundingClientRect();
    requestAnimationFrame(() => { // it has a size then
      const { style, offsetHeight: high, offsetWidth: wide } = popover;
      style.top = `${Math.min(bottom + 4, innerHeight - 8 - high)}px`;
      style.left = `${Math.max(8, Math.min(left, innerWidth - 8 - wide))}px`;
    });
  };
  const choose = (run) => ({ target }) => (target.closest("[popover]").hidePopover(), run());
  return html`<button type="button" popovertarget=${id} aria-label=${name || nothing}>${
    face}</button><div class="menu" id=${id} popover @beforetoggle=${place}>${
    entries.map(([text, run, kind]) => button(text, choose(run), kind))}</div>`;
}

let nearest = Infinity; // from now to a relative time of the last render

export function takeNextTick() {
  const next = nearest < 60_000 ? 1_000 : nearest < 3_600_000 ? 15_000 : 60_000;
  nearest = Infinity;
  return next;
}

// A time: the relative text and the absolute one, or `only` one of them. In the `zone` of a cue its
// local time comes first, then yours if it differs; `local` is the server's text for a zone that the
// browser does not know.
export function when(text, { zone = null, only = "", local, ...options } = {}) {
  if (!text) return muted("–");
  const ms = instant(text);
  const date = dateOf(ms, zone, local, options);
  if (only !== "absolute") nearest = Math.min(nearest, Math.abs(ms - serverNow()));
  const body = { absolute: date, relative: relative(ms) }[only]
    ?? html`${relative(ms)} ${muted(date)}`;
  return html`<time datetime=${new Date(ms).toISOString()} title=${
    only === "relative" ? `${date}\n${exact(ms)}` : exact(ms)}>${body}</time>`;
}
export const ago = (text) => when(text, { only: "relative" });

/** The next runs of a schedule, with notes about changes of the clock; with seconds if not :00. */
export function nextRuns(occurrences, zone) {
  const seconds = occurrences.some(({ at }) => instant(at) % 60_000);
  const run = ({ at, local, note }) => html`<li>${when(at, { zone, local, seconds })}${
    note ? html`<p class="small warn">${capital(note.replace(/^\w+: /, ""))}</p>` : ""}</li>`;
  return html`<ol class="runs" id="next-runs" aria-label="Next runs">${occurrences.map(run)}</ol>`;
}

function dateOf(ms, zone, local, options) {
  const shown = shownZone(zone);
  const date = absolute(ms, shown, options);
  if (!zone || settings.zone_view !== "yours") return date;
  const theirs = offsetMinutes(ms, zone);
  if (theirs === null) {
    return local ? `${local.replace("T", " ")} ${zone}` : `${absolute(ms, "UTC", options)} UTC`;
  }
  if (theirs === offsetMinutes(ms, yourZone())) return date;
  // Around midnight only one of the zones has it today: then both have the date.
  const isDated = absolute(ms, zone, options).includes(",") !== date.includes(",");
  const both = { ...options, full: options.full || isDated };
  const place = zone.split("/").at(-1).replaceAll("_", " "); // "Berlin" of "Europe/Berlin"
  return twoZones(absolute(ms, zone, both), place, absolute(ms, shown, both));
}

/** "Thu 26 Nov, 02:00 Berlin · 01:00 yours": a date that both share stands once. Pure. */
export function twoZones(theirs, name, yours) {
  const day = theirs.slice(0, theirs.lastIndexOf(", ") + 2);
  const rest = day.length > 1 && yours.startsWith(day) ? yours.slice(day.length) : yours;
  return `${theirs} ${name} · ${rest} yours`;
}

export function meter(value, most, label) {
  const share = Math.min(100, most > 0 ? (100 * value) / most : 0);
  const kind = share >= 100 ? "s-f" : share >= 80 ? "s-r" : "s-d";
  return html`<svg class="meter" viewBox="0 0 100 6" width="100%" preserveAspectRatio="none"
    role="img" aria-label=${label}><rect class=${kind} width=${share} height="6"></rect></svg>`;
}

/** A state with its sign and word; `more` follows the word ("2/4", a cause). */
export function badge(name, more = "") {
  const { sign, word, color } = stateOf(name);
  return html`<span class="badge ${color}"><i aria-hidden="true">${sign}</i>${word}${
    more ? html` ${more}` : ""}</span>`;
}

/** Badges of a run: a success may have been reported as a failure, or not be accepted. */
export const badges = (run, more) => html`${badge(stateOfRun(run), more)}${
  [null, undefined, "reported_success"].includes(run.outcome_state)
    || (run.status === "failed" && run.outcome_state === "reported_failure") ? ""
  : html` ${badge(run.outcome_state)}`}`;

export const signOf = ({ sign, word, color }) => html`<span class=${color} title=${word}><span
  class="sign" aria-hidden="true">${sign}</span><span class="sr">${word}</span></span>`;

/** The end of an id, all of it in the title. */
export const shortId = (id) =>
  html`<code class="muted id" title=${id}>${id.length > 14 ? idEnd(id) : id}</code>`;
export const idEnd = (id) => "…" + id.slice(-8);
