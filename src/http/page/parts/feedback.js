// Questions before actions, and what became of them: dialogs, toasts, sentences for readers.
import { html } from "../lit/lit-html.js";
import { state, update } from "../app/state.js";
import { plural } from "../app/words.js";
import { anchor, button, sentence } from "./pieces.js";

const SHOWN_MS = 6_000;
const MAX_TOASTS = 3;
const QUIET_MS = 5_000; // between two sentences for readers

let spokenAt = 0;
let waiting = 0;
let isLoading = false;

/** A dialog of dialog.js, which is loaded for the first one; until then no second one opens. */
const dialog = (name) => async (...given) => {
  if (isLoading) return undefined;
  isLoading = true;
  const failed = "This could not be loaded. There may be a new version: reload the page.";
  const dialogs = await import("./dialog.js").catch(() => void toast(failed));
  isLoading = false;
  return dialogs?.[name](...given);
};
export const openDialog = dialog("openDialog");
export const confirm = dialog("confirm");
const ask = dialog("prompt");
export const showShortcuts = dialog("showShortcuts");

/** Asks, then runs what was asked for as `act` does; resolves to nothing if it was not done. */
export const confirmed = async (title, action, text, run, done) =>
  (await confirm({ danger: true, title, action, text })) && act(run, done);

/** Asks for values, as `prompt` of dialog.js does, and shows `done` once they were sent. */
export async function prompt({ done, ...question }) {
  const answer = await ask(question);
  if (answer) tell(done, answer);
  return answer;
}

/** Shows a text or a function of the result, if there is one. */
function tell(done, result) {
  const text = typeof done === "function" ? done(result) : done;
  if (text) toast(text);
}

const MANY = 20; // things; for an action on more, their number is typed

/** Asks before an action on `count` things. */
export const confirmMany = (verb, count, noun, text, danger, isTyped = true) => confirm({
  title: `${verb} ${plural(count, noun)}?`, text, action: verb, danger,
  type: isTyped && count > MANY ? count : null,
});

/** Runs an action and shows `done` or the error. */
export async function act(run, done) {
  try {
    const result = await run();
    tell(done, result);
    return result ?? true;
  } catch (error) {
    return toastError(error);
  }
}

export function toastError(error) {
  if (error.status === 401) return;
  toast(sentence(error) + (error.requestId ? ` (request ${error.requestId.slice(0, 8)})` : ""));
}

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
  return html`<div class="toast"><span class="wrap">${entry.text}</span>${href
    ? anchor(href, label) : run ? button(label, () => (dismiss(entry), run())) : ""}</div>`;
});

/** Gives readers the newest sentence, at most one in QUIET_MS. */
export function announce(text) {
  clearTimeout(waiting);
  const left = spokenAt + QUIET_MS - Date.now();
  if (left > 0) return void (waiting = setTimeout(() => announce(text), left));
  spokenAt = Date.now();
  document.getElementById("status").textContent = text;
}
