// Dialogs: native <dialog>, opened by a call that returns a promise of the answer.
import { render } from "../lit/lit-html.js";
import { toast } from "./feedback.js";

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

let loading = false;

/** The questions are loaded when the first one is asked; a second click meanwhile asks nothing. */
async function ask(name, options) {
  if (loading) return undefined;
  loading = true;
  const questions = await import("./dialog/questions.js").catch(() => void toast("This could not be loaded. There may be a new version: load the page again."));
  loading = false;
  return questions?.[name](options);
}

/**
 * Asks before an act; resolves to true or undefined. With `type` (a number or a word) the person types it first:
 * for acts on more than 20 things, which cannot be undone.
 */
export const confirm = (options) => ask("confirm", options);

/**
 * Asks for values; resolves to `{name: value}` or undefined. `fields`: as `field` of form.js takes them. `send(values)`
 * (optional) is awaited before the dialog closes; its ApiError is shown under the fields, and its result is the answer.
 */
export const prompt = (options) => ask("prompt", options);
