// Dialogs: native <dialog>, opened by a call that returns a promise of the answer.
import { html, render } from "../lit/lit-html.js";
import { lists } from "../app/keyboard.js";
import { field, focusProblem } from "./form.js";
import { button } from "./pieces.js";

// Opens a dialog with the content of `view(close, refresh)`, named by its heading. Resolves to the
// value given to `close`, to nothing after Esc.
export const openDialog = (view, { broad = false, required = false } = {}) =>
  new Promise((resolve) => {
    const element = document.createElement("dialog");
    if (broad) element.className = "broad";
    let value;
    const close = (answer) => ((value = answer), element.close());
    const refresh = () => {
      render(view(close, refresh), element);
      element.setAttribute("aria-label", element.querySelector("h2")?.textContent);
    };
    if (required) {
      // A browser lets a second Esc pass `cancel`: only the attribute prevents it.
      element.setAttribute("closedby", "none");
      element.addEventListener("cancel", (event) => event.preventDefault());
    } else {
      element.addEventListener("click", (event) => isOutside(event, element) && close());
    }
    element.addEventListener("close", () => (element.remove(), resolve(value)));
    document.body.append(element);
    refresh();
    element.showModal();
    element.querySelector("textarea")?.setSelectionRange(0, 0);
  });

function isOutside({ target, clientX: x, clientY: y }, element) {
  const { left, right, top, bottom } = element.getBoundingClientRect();
  return target === element && (x < left || x > right || y < top || y > bottom);
}

function form({ title, text, action = "Save", danger }, content, close, send, off) {
  const submit = (event) => {
    event.preventDefault();
    const { elements } = event.target;
    send(Object.fromEntries(new FormData(event.target)),
      [...elements].find(({ validity: it }) => it.valueMissing || it.badInput));
  };
  return html`<form novalidate @submit=${submit}><h2>${title}</h2>${text ? html`<p>${text}</p>` : ""}${content}
    <div class="actions">${button("Cancel", () => close())}<button ?disabled=${off}
      class=${danger ? "primary danger" : "primary"}>${action}</button></div></form>`;
}

/** Asks before an action; resolves to true or nothing. The person types the number `type` first. */
export function confirm({ type = null, ...question }) {
  let typed = "";
  return openDialog((close, refresh) => {
    const input = html`<input id="d-typed" name="typed" autocomplete="off" inputmode="numeric"
      @input=${(event) => ((typed = event.target.value.trim()), refresh())}>`;
    const content = type === null ? ""
      : field({ name: "typed", prefix: "d-", label: `Type ${type} to confirm`, input });
    const off = type !== null && typed !== String(type);
    return form(question, content, close, () => close(true), off);
  });
}

// Asks for the values of `fields`, as form.js has them; resolves to what `send(values)` resolves
// to, or nothing. An error of it is shown, and the dialog stays.
export function prompt({ fields, send, ...question }) {
  let error = null;
  let off = false;
  let values = Object.fromEntries(fields.map(({ name, value = "" }) => [name, value]));
  return openDialog((close, refresh) => {
    const submit = async (given, wrong) => {
      values = given;
      error = wrong && { problems: [{ loc: ["body", wrong.name], msg: "Fill this in." }] };
      if (wrong) return refresh(), focusProblem();
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
    const content = html`${error && !error.problems?.length
      ? html`<p class="bad" role="alert">${error.message}</p>` : ""}${fields.map((one) =>
      field({ prefix: "d-", ...one, value: values[one.name], error }))}`;
    return form(question, content, close, submit, off);
  });
}

/** The keyboard shortcuts of this screen and of all. */
export const shortcutList = () => [...lists].map(([title, entries]) => !entries.length ? ""
  : html`<div><h3>${title}</h3><dl class="keys">${entries.map(([keys, label]) => html`<dt>${
    keys.split(" ").map((key) => html`<kbd>${key}</kbd> `)}</dt><dd>${label}</dd>`)}</dl></div>`);

export const showShortcuts = () => openDialog((close) => html`<div class="body">
  <h2>Keyboard shortcuts</h2>${shortcutList()}<div class="actions">
    <a href="#/settings" @click=${() => close()}>Switch them off</a>${
    button("Close", () => close(), "primary")}</div></div>`);
