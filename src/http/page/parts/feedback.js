// Results of acts: toasts, error boxes, and sentences for readers.
import { html, nothing } from "../lit/lit-html.js";
import { state, update } from "../app/state.js";

const SHOWN_MS = 6_000;
const MAX_TOASTS = 3;
const QUIET_MS = 5_000; // readers hear at most one sentence in this time

let spokenAt = 0;
let waiting = 0;

/** Shows a sentence for some seconds; `action`: `{label, href}` or `{label, run}`. */
export function toast(text, action = null) {
  const entry = { text, action };
  update((s) => (s.toasts = [...s.toasts.slice(1 - MAX_TOASTS), entry]));
  announce(text);
  setTimeout(() => dismiss(entry), SHOWN_MS + text.length * 40);
}

const dismiss = (entry) => update((s) => (s.toasts = s.toasts.filter((other) => other !== entry)));

export const toasts = () => state.toasts.map((entry) => html`<div class="toast"><span class="wrap">${entry.text}</span>${entry.action ? (entry.action.href ? html`<a href=${entry.action.href}>${entry.action.label}</a>` : html`<button @click=${() => (dismiss(entry), entry.action.run())}>${entry.action.label}</button>`) : nothing}</div>`);

/** Tells readers a sentence through the one status region, at most one in 5 s: the newest. */
export function announce(text) {
  clearTimeout(waiting);
  const left = spokenAt + QUIET_MS - Date.now();
  if (left > 0) {
    waiting = setTimeout(() => announce(text), left);
    return;
  }
  spokenAt = Date.now();
  document.getElementById("status").textContent = text;
}

/** Tells an error of an act as a toast, with the id of the request. */
export const toastError = (error) => toast(sentence(error) + (error.requestId ? ` (request ${error.requestId.slice(0, 8)})` : ""));

/** Runs an act; tells `done` (a text or a function of the result) or the error. Resolves to the result or undefined. */
export async function act(run, done) {
  try {
    const result = await run();
    const text = typeof done === "function" ? done(result) : done;
    if (text) toast(text);
    return result ?? true;
  } catch (error) {
    if (error.status !== 401) toastError(error);
    return undefined;
  }
}

const sentence = (error) => (error.status === undefined ? "The page failed: " : "") + error.message;

/** An error in place of what it kept away, with the request's id and Retry. */
export function errorBox(error, retry) {
  return html`<div class="note is-bad" role="alert"><div><b>${sentence(error)}</b>
    ${error.requestId ? html`<div class="small muted">Request <code>${error.requestId}</code></div>` : nothing}</div>
    ${retry ? html`<button @click=${retry}>Retry</button>` : nothing}</div>`;
}

/** A notice inside of a screen; `kind`: "bad", "warn", "good", "idle" or "". */
export const note = (text, kind = "", action = nothing) => html`<div class="note ${kind && "is-" + kind}"><div>${text}</div>${action}</div>`;

/** Bars in place of rows that are on their way; they appear after 150 ms. */
export const bones = (rows = 6) => html`<div class="card bones" aria-hidden="true">${Array.from({ length: rows }, () => html`<i></i>`)}</div>`;

/** An empty state: what there is none of, and the one thing that ends it. */
export const empty = (title, text, ...more) => html`<div class="card empty"><h2>${title}</h2>${text ? html`<p>${text}</p>` : nothing}${more}</div>`;
