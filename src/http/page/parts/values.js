// Small values as templates: times, states, ids.
import { html, nothing } from "../lit/lit-html.js";
import { absolute, browserZone, exact, instant, offsetMinutes, relative, serverNow, shownZone, yourZone } from "../app/time.js";
import { settings } from "../app/settings.js";
import { stateOf } from "../app/words.js";

// Smallest distance to the present of a relative time in the last render: says how soon the next one is due.
let nearest = Infinity;

/** Milliseconds until the relative times on the screen change; asked after each render. */
export function takeNextTick() {
  const next = nearest < 60_000 ? 1_000 : nearest < 3_600_000 ? 15_000 : 60_000;
  nearest = Infinity;
  return next;
}

/**
 * A time: relative text and the absolute one. `zone` is that of the cue it belongs to: then the cue's local time
 * comes first and yours second, where they differ. Options: `seconds`, `only` ("relative" or "absolute"),
 * `local` (the server's text for a zone that the browser does not know).
 */
export function when(text, { zone = null, seconds = false, only = "", local = null, full = false } = {}) {
  if (!text) return html`<span class="muted">–</span>`;
  const ms = instant(text);
  const options = { seconds, full };
  const shown = shownZone(zone);
  let date = absolute(ms, shown, options);
  if (zone && settings.zone_view === "yours") {
    const theirs = offsetMinutes(ms, zone);
    if (theirs === null) date = `${local ? local.replace("T", " ") : absolute(ms, "UTC", options)} ${local ? zone : "UTC"}`;
    else if (theirs !== offsetMinutes(ms, yourZone())) {
      const dated = (text) => text.includes(",");
      // Around midnight only one of the zones has it today: then both have the date.
      const all = { seconds, full: full || dated(absolute(ms, zone, options)) !== dated(date) };
      date = twoZones(absolute(ms, zone, all), place(zone), absolute(ms, shown, all));
    }
  }
  const apart = relative(ms);
  if (only !== "absolute") nearest = Math.min(nearest, Math.abs(ms - serverNow()));
  const title = only === "relative" ? `${date}\n${exact(ms)}` : exact(ms);
  const body = only === "absolute" ? date : only === "relative" ? apart : html`${apart} <span class="muted">${date}</span>`;
  return html`<time datetime=${new Date(ms).toISOString()} title=${title}>${body}</time>`;
}

/** "Thu 26 Nov, 02:00 Berlin · 01:00 yours": a date that both share stands once. Pure. */
export function twoZones(theirs, name, yours) {
  const day = theirs.slice(0, theirs.lastIndexOf(", ") + 2);
  return `${theirs} ${name} · ${day.length > 1 && yours.startsWith(day) ? yours.slice(day.length) : yours} yours`;
}

/** "Berlin" of "Europe/Berlin" */
export const place = (zone) => zone.split("/").at(-1).replaceAll("_", " ");

/** Zone of a cue with the one you see where it differs. */
export const zoneText = (zone) => html`<span title=${`Yours: ${yourZone() || browserZone()}`}>${zone}</span>`;

/** A state with its sign and word; `more` follows the word ("2/4", a cause). */
export function badge(name, more = "") {
  const { sign, word, color } = stateOf(name);
  return html`<span class="badge ${color}"><i aria-hidden="true">${sign}</i>${word}${more ? html` ${more}` : nothing}</span>`;
}

/** Only the sign, with its word for readers. */
export function sign(name) {
  const { sign: mark, word, color } = stateOf(name);
  return html`<span class=${color} title=${word}><span class="sign" aria-hidden="true">${mark}</span><span class="sr">${word}</span></span>`;
}

/** The end of an id, all of it in the title. */
export const shortId = (id) => html`<code class="muted id" title=${id}>${id.length > 14 ? "…" + id.slice(-8) : id}</code>`;
