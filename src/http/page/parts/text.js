// Texts to copy: commands, calls of the API.
import { html } from "../lit/lit-html.js";
import { act, openDialog, toast } from "./feedback.js";
import { button, menu } from "./pieces.js";

export async function copy(text, done = "Copied") {
  const isCopied = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  const failed = "Copying was not allowed. Select the text and copy it.";
  toast(isCopied || copyByHand(text) ? done : failed);
}

/** Plain HTTP has no clipboard. */
function copyByHand(text) {
  const area = Object.assign(document.createElement("textarea"), { value: text, className: "sr" });
  const before = document.activeElement;
  // Outside of an open dialog nothing can be selected.
  (document.querySelector("dialog[open]") || document.body).append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  before?.focus?.();
  return isCopied;
}

const valueOf = (value) => (typeof value === "function" ? value() : value);

export const copyButton = (text, label = "Copy") =>
  button(label, () => copy(valueOf(text)), "plain small");

/** A command, unbroken inside of an option. */
export const copyLine = (text) => html`<div class="code"><code>${text.split(/(--\S*)/).map(
  (part, i) => (i % 2 ? html`<span class="flag">${part}</span>` : part))}</code>${
  copyButton(text)}</div>`;

/** Shows a secret once; closes only by "I stored it". */
export const showSecret = (title, text, value) => openDialog((close) => html`<div class="body">
  <h2>${title}</h2><p>${text}</p>${copyLine(value)}<div class="actions">${
    button("I stored it", () => close(true), "primary")}</div></div>`, { required: true });

// Loaded when a menu opens: some browsers allow copying only right after a click.
const snippets = () => import("./snippets.js");

const copyCall = (call, label, name) => () => {
  const found = valueOf(call);
  return found && act(async () => void copy((await snippets())[name](found), `Copied as ${label}`));
};

/** A menu for an API call, or a function that may return one; `more` has `[label, text]` pairs. */
export const copyMenu = (call, more = []) => menu("Copy…", [
  ...[["curl", "asCurl"], ["Python", "asPython"], ["cued command", "asCued"]].map(
    ([label, name]) => [`API call as ${label}`, copyCall(call, label, name)]),
  ...more.map(([label, text]) => [label, () => copy(valueOf(text))]),
], "copy-as", { opened: () => snippets().catch(() => {}) });

export const copyKey = (call) => ["c", "Copy as curl", copyCall(call, "curl", "asCurl")];
