// Dialogs: native <dialog>, opened by a call that returns a promise of the answer.
import { html, nothing, render } from "../lit/lit-html.js";
import { field, focusProblem } from "./form.js";

/**
 * Opens a dialog; `view(close, refresh)` returns its content, `close(value)` ends it. Resolves to the value,
 * `undefined` after Esc. The first heading names the dialog.
 */
export function openDialog(view, { broad = false, required = false } = {}) {
  return new Promise((resolve) => {
    const element = document.createElement("dialog");
    if (broad) element.className = "broad";
    let value;
    const close = (answer) => {
      value = answer;
      element.close();
    };
    const refresh = () => {
      render(view(close, refresh), element);
      const heading = element.querySelector("h2");
      if (heading) element.setAttribute("aria-label", heading.textContent);
    };
    if (required) {
      // A browser lets a second Esc pass `cancel`: the attribute is what holds.
      element.setAttribute("closedby", "none");
      element.addEventListener("cancel", (event) => event.preventDefault());
    }
    element.addEventListener("close", () => {
      element.remove();
      resolve(value);
    });
    if (!required) element.addEventListener("click", (event) => event.target === element && isOutside(event, element) && close());
    document.body.append(element);
    refresh();
    element.showModal();
    element.querySelector("textarea")?.setSelectionRange(0, 0);
  });
}

function isOutside({ clientX: x, clientY: y }, element) {
  const box = element.getBoundingClientRect();
  return x < box.left || x > box.right || y < box.top || y > box.bottom;
}

const submit = (fn) => (event) => {
  event.preventDefault();
  fn(new FormData(event.target));
};

const buttons = (close, action, danger, disabled) => html`<div class="actions">
  <button type="button" @click=${() => close()}>Cancel</button>
  <button class=${danger ? "primary danger" : "primary"} ?disabled=${disabled}>${action}</button>
</div>`;

/**
 * Asks before an act; resolves to true or undefined. With `type` (a number or a word) the person types it first:
 * for acts on more than 20 things, which cannot be undone.
 */
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

/**
 * Asks for values; resolves to `{name: value}` or undefined. `fields`: as `field` of form.js takes them. `send(values)`
 * (optional) is awaited before the dialog closes; its ApiError is shown under the fields, and its result is the answer.
 */
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
