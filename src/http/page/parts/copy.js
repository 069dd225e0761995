// Copying: the clipboard where the page may use it, else a hidden text area (over plain HTTP there is no clipboard).
import { html } from "../lit/lit-html.js";
import { openDialog } from "./dialog.js";
import { toast } from "./feedback.js";
import { menu } from "./menu.js";
import { asCued, asCurl, asPython } from "./snippets.js";

export async function copy(text, done = "Copied") {
  const copied = await write(text);
  toast(copied ? done : "The browser did not allow copying. Select the text and copy it by hand.");
  return copied;
}

async function write(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return writeByHand(text);
  }
}

function writeByHand(text) {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "sr";
  // Inside of an open dialog all else is inert and could not be selected.
  const host = document.querySelector("dialog[open]") || document.body;
  const before = document.activeElement;
  host.append(area);
  area.select();
  let copied = false;
  try {
    copied = document.execCommand("copy");
  } finally {
    area.remove();
    before?.focus?.();
  }
  return copied;
}

/** A button that copies a text, or what a function returns. */
export const copyButton = (text, label = "Copy") =>
  html`<button type="button" class="plain small" @click=${() => copy(typeof text === "function" ? text() : text)}>${label}</button>`;

/** A menu "Copy as …" of an API call `{method, path, body}`; more entries are `[label, text]` pairs. `body` may be a function: it is asked only then. */
export function copyMenu(call, more = [], id = "copy-as") {
  const entries = [["curl", () => asCurl(made(call))], ["Python", () => asPython(made(call))], ["cued command", () => asCued(made(call))], ...more];
  return menu("Copy as", entries.map(([label, text]) => [label, () => copy(typeof text === "function" ? text() : text, `Copied as ${label}`)]), id);
}

const made = ({ body, ...call }) => ({ ...call, body: typeof body === "function" ? body() : body });

/** The shortcut that copies an API call. */
export const copyKey = (call) => ({ keys: "c", label: "Copy as curl", run: () => copy(asCurl(made(call)), "Copied as curl") });

/** Shows a secret once; closes only by "I stored it". */
export function showSecret({ title, text, value }) {
  return openDialog((close) => html`<div class="body">
    <h2>${title}</h2>
    <p>${text || "It is shown only now. Store it where you keep passwords."}</p>
    <div class="code"><code>${value}</code>${copyButton(value)}</div>
    <div class="actions"><button class="primary" @click=${() => close(true)}>I stored it</button></div>
  </div>`, { required: true });
}
