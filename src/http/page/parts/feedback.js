// Results of actions: toasts, and sentences for readers.
import { html } from "../lit/lit-html.js";
import { state, update } from "../app/state.js";
import { anchor, button, sentence } from "./pieces.js";

const SHOWN_MS = 6_000;
const MAX_TOASTS = 3;
const QUIET_MS = 5_000; // between two sentences for readers

let spokenAt = 0;
let waiting = 0;

/** Shows a sentence for some seconds; `action` is `{label, href}` or `{label, run}`. */
export function toast(text, action = {}) {
  const entry = { text, action };
  update((s) => (s.toasts = [...s.toasts.slice(1 - MAX_TOASTS), entry]));
  announce(text);
  setTimeout(() => dismiss(entry), SHOWN_MS + text.length * 40);
}

const dismiss = (entry) => update((s) => (s.toasts = s.toasts.filter((other) => other !== entry)));

export const toasts = () => state.toasts.map((entry) => {
  const { label, href, run } = entry.action;
  const press = () => (dismiss(entry), run());
  return html`<div class="toast"><span class="wrap">${entry.text}</span>${
    href ? anchor(href, label) : run ? button(label, press) : ""}</div>`;
});

/** Gives readers the newest sentence, at most one in QUIET_MS. */
export function announce(text) {
  clearTimeout(waiting);
  const left = spokenAt + QUIET_MS - Date.now();
  if (left > 0) return void (waiting = setTimeout(() => announce(text), left));
  spokenAt = Date.now();
  document.getElementById("status").textContent = text;
}

/** Shows an error; the sign-in covers a 401. */
export function toastError(error) {
  if (error.status === 401) return;
  toast(sentence(error) + (error.requestId ? ` (request ${error.requestId.slice(0, 8)})` : ""));
}

/** Runs an action and shows `done` (a text or a function of the result) or the error. */
export async function act(run, done) {
  try {
    const result = await run();
    const text = typeof done === "function" ? done(result) : done;
    if (text) toast(text);
    return result ?? true;
  } catch (error) {
    return toastError(error);
  }
}
