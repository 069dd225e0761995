// Fields: label, help, and the problem that the API found there.
import { html, nothing } from "../lit/lit-html.js";
import { live } from "../lit/directives/live.js";
import { set, settings } from "../app/state.js";
import { browserZone, yourZone } from "../app/time.js";
import { options } from "./pieces.js";

const RECENT_ZONES = 5; // zones that come first in the list

/** The problem of an ApiError at a place such as "callback.url", or "". */
export const problemAt = (error, path) => error?.problems
  ?.find(({ loc }) => loc?.slice(1).join(".") === path)?.msg ?? "";

// A field. `name` is also the place of its problems in `error`; `input` replaces the usual input and
// has the id PREFIX + NAME; `choices` make a select, `lines` a text area.
export function field({
  name, label, value = "", help, type = "text", required = false, choices, lines, list,
  autocomplete = "off", placeholder, input, error, problem, oninput, prefix = "f-",
}) {
  const text = problem || problemAt(error, name);
  const id = prefix + name;
  const notes =
    [text && id + "-problem", help && id + "-help"].filter(Boolean).join(" ") || nothing;
  const report = ({ target: { value } }) => oninput?.(list === "zones" ? zoneNamed(value) : value);
  const bad = text ? "true" : nothing;
  const shown = oninput ? live(value) : value;
  const control = input || (choices
    ? html`<select id=${id} name=${name} aria-describedby=${notes} aria-invalid=${bad}
      @change=${report}>${options(choices, value)}</select>`
    : lines ? html`<textarea id=${id} name=${name} aria-describedby=${notes} aria-invalid=${bad}
      rows=${lines} spellcheck="false" ?required=${required} .value=${shown}
      @input=${report}></textarea>`
    : html`<input id=${id} name=${name} aria-describedby=${notes} aria-invalid=${bad} type=${type}
      list=${list || nothing} autocomplete=${autocomplete} placeholder=${placeholder || nothing}
      ?required=${required} .value=${shown} @input=${report}>`);
  return html`<div class="field"><label for=${id}>${label}</label>${control}
    ${text ? html`<p class="problem" id=${id + "-problem"}>${text}</p>` : ""}
    ${help ? html`<p class="help" id=${id + "-help"}>${help}</p>` : ""}</div>`;
}

export const focusProblem = () => setTimeout(() => document.querySelector(
  ":is(dialog[open], body:not(:has(dialog[open]))) [aria-invalid=true]")?.focus(), 50);

export const check = ({ name, label, checked, onchange, help }) => html`<div class="field">
  <label class="check"><input type="checkbox" name=${name} .checked=${live(checked)}
    @change=${(event) => onchange(event.target.checked)}>${label}</label>${
  help ? html`<p class="help">${help}</p>` : ""}</div>`;

export const segments = (label, value, list, choose) => html`<div class="segments" role="group"
  aria-label=${label}>${list.map(([key, text]) => html`<button type="button"
    aria-pressed=${key === value ? "true" : "false"}
    @click=${() => choose(key)}>${text}</button>`)}</div>`;

let zones = null;

/** The datalist "zones", yours and recent ones first; one node, made once. */
export function zoneList() {
  if (zones) return zones;
  const all = Intl.supportedValuesOf?.("timeZone") || [];
  const names = new Set([yourZone(), browserZone(), ...settings.recent_zones, "UTC", ...all]);
  zones = Object.assign(document.createElement("datalist"), { id: "zones" });
  zones.append(...[...names].map((name) => new Option("", name)));
  return zones;
}

/** The zone of "berlin", if the list has one; else the text. */
function zoneNamed(text) {
  const end = "/" + text.trim().toLowerCase().replaceAll(" ", "_");
  const found = [...zoneList().options].filter(({ value }) => value.toLowerCase().endsWith(end));
  return found.length === 1 ? found[0].value : text;
}

export function usedZone(zone) {
  set("recent_zones", [...new Set([zone, ...settings.recent_zones])].slice(0, RECENT_ZONES));
  zones = null;
}
