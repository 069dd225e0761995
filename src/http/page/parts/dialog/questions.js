// Dialogs that ask: `confirm` and `prompt` of parts/dialog.js.
import { html, nothing } from "../../lit/lit-html.js";
import { openDialog } from "../dialog.js";
import { field, focusProblem } from "../form.js";

const submit = (fn) => (event) => {
  event.preventDefault();
  fn(new FormData(event.target));
};

const buttons = (close, action, danger, disabled) => html`<div class="actions">
  <button type="button" @click=${() => close()}>Cancel</button>
  <button class=${danger ? "primary danger" : "primary"} ?disabled=${disabled}>${action}</button>
</div>`;

export function confirm({ title, text, action, danger = false, type = null }) {
  let typed = "";
  const wanted = type === null ? null : String(type);
  return openDialog((close, refresh) => html`<form @submit=${submit(() => close(true))}>
    <h2>${title}</h2>
    ${text ? html`<p>${text}</p>` : nothing}
    ${wanted === null
      ? nothing
      : field({
          name: "typed",
          prefix: "d-",
          label: `Type ${wanted} to go on`,
          input: html`<input id="d-typed" name="typed" autocomplete="off" inputmode=${/^\d+$/.test(wanted) ? "numeric" : "text"} @input=${(event) => ((typed = event.target.value.trim()), refresh())}>`,
        })}
    ${buttons(close, action, danger, wanted !== null && typed !== wanted)}
  </form>`);
}

export function prompt({ title, text, fields, action = "Save", danger = false, send = null }) {
  let error = null;
  let busy = false;
  let values = Object.fromEntries(fields.map((entry) => [entry.name, entry.value ?? ""]));
  return openDialog((close, refresh) => html`<form @submit=${submit(async (form) => {
    values = Object.fromEntries(form);
    if (!send) return close(values);
    busy = true;
    refresh();
    try {
      close(await send(values));
    } catch (failed) {
      error = failed;
      busy = false;
      refresh();
      focusProblem();
    }
  })}>
    <h2>${title}</h2>
    ${text ? html`<p>${text}</p>` : nothing}
    ${error && !error.problems?.length ? html`<p class="bad" role="alert">${error.message}</p>` : nothing}
    ${fields.map((entry) => field({ prefix: "d-", ...entry, value: values[entry.name], error }))}
    ${buttons(close, action, danger, busy)}
  </form>`);
}
