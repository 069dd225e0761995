// Fields: label, help, and the problem that the API found there.
import { html, nothing } from "../lit/lit-html.js";
import { live } from "../lit/directives/live.js";

/** The text of the problem that an ApiError has at a place such as "callback.url" or "name"; "" where none. */
export function problemAt(error, path) {
  const found = error?.problems?.find(({ loc }) => loc?.slice(1).join(".") === path);
  return found ? found.msg.replace(/^Value error, /, "") : "";
}

/** Problems of an ApiError at none of these places: to be shown above the form. */
export function otherProblems(error, paths) {
  return (error?.problems || []).filter(({ loc }) => !paths.includes(loc?.slice(1).join(".")));
}

/**
 * A field. `name` also names the place of its problems in `error` unless `loc` does; `input` is a template in place
 * of the usual input and then needs the id PREFIX + NAME (`prefix` is "f-" unless given). Others: `label`, `value`, `help`, `type`, `required`, `options`
 * (`[value, text]` pairs: a select), `lines` (a text area), `list`, `autocomplete`, `oninput(value)`, `problem`.
 */
export function field({ name, label, value = "", help, type = "text", required = false, options, lines, list, autocomplete = "off", placeholder, input, error, loc, problem, oninput, prefix = "f-" }) {
  const told = problem || problemAt(error, loc || name);
  const id = prefix + name;
  const notes = [told && id + "-problem", help && id + "-help"].filter(Boolean).join(" ") || nothing;
  const heard = (event) => oninput?.(event.target.value);
  const bad = told ? "true" : nothing;
  const control =
    input ||
    (options
      ? html`<select id=${id} name=${name} aria-describedby=${notes} aria-invalid=${bad} @change=${heard}>${options.map(([key, text]) => html`<option value=${key} .selected=${String(key) === String(value)}>${text}</option>`)}</select>`
      : lines
        ? html`<textarea id=${id} name=${name} rows=${lines} spellcheck="false" ?required=${required} aria-describedby=${notes} aria-invalid=${bad} .value=${oninput ? live(value) : value} @input=${heard}></textarea>`
        : html`<input id=${id} name=${name} type=${type} list=${list || nothing} autocomplete=${autocomplete} placeholder=${placeholder || nothing} ?required=${required} aria-describedby=${notes} aria-invalid=${bad} .value=${oninput ? live(value) : value} @input=${heard}>`);
  return html`<div class="field">
    <label for=${id}>${label}</label>${control}
    ${told ? html`<p class="problem" id=${id + "-problem"}>${told}</p>` : nothing}
    ${help ? html`<p class="help" id=${id + "-help"}>${help}</p>` : nothing}
  </div>`;
}

/** Moves the focus to the first field with a problem, once it is drawn. */
export const focusProblem = () => setTimeout(() => document.querySelector(":is(dialog[open], body:not(:has(dialog[open]))) [aria-invalid=true]")?.focus(), 50);

/** A box to tick with its text. */
export function check({ name, label, checked = false, onchange, help }) {
  return html`<div class="field"><label class="check"><input type="checkbox" name=${name} .checked=${live(checked)} @change=${(event) => onchange?.(event.target.checked)}>${label}</label>${help ? html`<p class="help">${help}</p>` : nothing}</div>`;
}

/** A few choices side by side, one of them pressed. */
export function segments({ label, value, options, onchange }) {
  return html`<div class="segments" role="group" aria-label=${label}>${options.map(([key, text]) => html`<button type="button" aria-pressed=${key === value} @click=${() => onchange(key)}>${text}</button>`)}</div>`;
}
