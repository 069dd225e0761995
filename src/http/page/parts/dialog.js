// Dialogs: native <dialog>, opened by a call that returns a promise of the answer.
import { html, nothing, render } from "../lit/lit-html.js";
import { copyLine } from "./copy.js";
import { field, focusProblem } from "./form.js";
import { button } from "./pieces.js";

/**
 * Opens a dialog; `view(close, refresh)` returns its content, `close(value)` ends it. Resolves to
 * the value, `undefined` after Esc. The first heading names the dialog.
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
      // A browser lets a second Esc pass `cancel`: only the attribute prevents it.
      element.setAttribute("closedby", "none");
      element.addEventListener("cancel", (event) => event.preventDefault());
    } else {
      element.addEventListener("click", (event) => isOutside(event, element) && close());
    }
    element.addEventListener("close", () => {
      element.remove();
      resolve(value);
    });
    document.body.append(element);
    refresh();
    element.showModal();
    element.querySelector("textarea")?.setSelectionRange(0, 0);
  });
}

function isOutside({ target, clientX: x, clientY: y }, element) {
  const { left, right, top, bottom } = element.getBoundingClientRect();
  return target === element && (x < left || x > right || y < top || y > bottom);
}

const form = (send, title, text, content, close, { action, danger, off }) => html`<form
    @submit=${(event) => (event.preventDefault(),
      send(Object.fromEntries(new FormData(event.target))))}>
  <h2>${title}</h2>${text ? html`<p>${text}</p>` : ""}${content}
  <div class="actions">${button("Cancel", () => close())}
    <button class=${danger ? "primary danger" : "primary"}
      ?disabled=${off}>${action}</button></div></form>`;

/**
 * Asks before an action; resolves to true or undefined. With `type` (a number) the person types it
 * first: for actions on more than 20 things, which cannot be undone.
 */
export function confirm({ title, text, action, danger = false, type = null }) {
  let typed = "";
  const input = (refresh) => html`<input id="d-typed" name="typed" autocomplete="off"
      inputmode="numeric"
    @input=${(event) => ((typed = event.target.value.trim()), refresh())}>`;
  const asked = (refresh) => (type === null ? "" : field({
    name: "typed", prefix: "d-", label: `Type ${type} to go on`, input: input(refresh),
  }));
  return openDialog((close, refresh) => form(() => close(true), title, text, asked(refresh), close,
    { action, danger, off: type !== null && typed !== String(type) }));
}

/**
 * Asks for values; resolves to the answer or undefined. `fields`: as `field` of form.js takes them.
 * `send(values)` is awaited before the dialog closes; its ApiError is shown under the fields, and
 * its result is the answer.
 */
export function prompt({ title, text, fields, action = "Save", danger = false, send }) {
  let error = null;
  let off = false;
  let values = Object.fromEntries(fields.map(({ name, value = "" }) => [name, value]));
  return openDialog((close, refresh) => {
    const submit = async (given) => {
      values = given;
      off = true;
      refresh();
      try {
        close(await send(values));
      } catch (failure) {
        error = failure;
        off = false;
        refresh();
        focusProblem();
      }
    };
    const told = error && !error.problems?.length;
    return form(submit, title, text, html`
      ${told ? html`<p class="bad" role="alert">${error.message}</p>` : nothing}
      ${fields.map((one) => field({ prefix: "d-", ...one, value: values[one.name], error }))}`,
      close, { action, danger, off });
  });
}

/** Shows a secret once; closes only by "I stored it". */
export const showSecret = (title, text, value) => openDialog((close) => html`<div class="body">
  <h2>${title}</h2><p>${text}</p>${copyLine(value)}
  <div class="actions">${button("I stored it", () => close(true), "primary")}</div></div>`,
  { required: true });
