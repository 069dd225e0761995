// Texts to copy: by the clipboard, or over plain HTTP, which has none, by a hidden text area.
import { html } from "../lit/lit-html.js";
import { toast } from "./feedback.js";
import { button, menu } from "./pieces.js";

export async function copy(text, done = "Copied") {
  const isCopied = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  const failed = "The browser did not allow copying. Select the text and copy it by hand.";
  toast(isCopied || writeByHand(text) ? done : failed);
}

function writeByHand(text) {
  const area = Object.assign(document.createElement("textarea"), { value: text, className: "sr" });
  const before = document.activeElement;
  // Inside of an open dialog all else is inert and could not be selected.
  (document.querySelector("dialog[open]") || document.body).append(area);
  area.select();
  try {
    return document.execCommand("copy");
  } finally {
    area.remove();
    before?.focus?.();
  }
}

const valueOf = (value) => (typeof value === "function" ? value() : value);

/** A button that copies a text, or what a function returns. */
export const copyButton = (text, label = "Copy") =>
  button(label, () => copy(valueOf(text)), "plain small");

/** A line of code with a button that copies it. */
export const copyLine = (text) =>
  html`<div class="code"><code>${text}</code>${copyButton(text)}</div>`;

const FORMS = [["curl", "asCurl"], ["Python", "asPython"], ["cued command", "asCued"]];

async function copyCall(call, label, form) {
  const found = valueOf(call);
  if (!found) return;
  const snippets = await import("./snippets.js");
  await copy(snippets[form](found), `Copied as ${label}`);
}

/** A menu for an API call, or a function that may return one; `more` has `[label, text]` pairs. */
export const copyMenu = (call, more = []) => menu("Copy as", [
  ...FORMS.map(([label, form]) => [label, () => copyCall(call, label, form)]),
  ...more.map(([label, text]) => [label, () => copy(valueOf(text), `Copied as ${label}`)]),
], "copy-as");

/** The shortcut that copies an API call. */
export const copyKey = (call) => ["c", "Copy as curl", () => copyCall(call, "curl", "asCurl")];
