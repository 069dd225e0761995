// Texts to show and to copy: payloads and answers of strangers, commands, calls of the API.
import { html } from "../lit/lit-html.js";
import { bytes, number } from "../app/words.js";
import { toast } from "./feedback.js";
import { byteLength, jsonParts, prettyJson, readableJson } from "./json_text.js";
import { button, menu } from "./pieces.js";
import { asCued, asCurl, asPython } from "./snippets.js";

const COLOURED = 50_000; // characters; above, a text is plain: a span for each token would be slow
const SHOWN = 20_000; // characters of a text that are laid out
const COLOURS = { key: "act", text: "good", number: "warn", word: "idle" };

export async function copy(text, done = "Copied") {
  const isCopied = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  const failed = "The browser did not allow copying. Select the text and copy it by hand.";
  toast(isCopied || copyByHand(text) ? done : failed);
}

/** Plain HTTP has no clipboard. */
function copyByHand(text) {
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

export const copyButton = (text, label = "Copy") =>
  button(label, () => copy(valueOf(text)), "plain small");

export const copyLine = (text) =>
  html`<div class="code"><code>${text}</code>${copyButton(text)}</div>`;

const copyCall = (call, label, write) => () => {
  const found = valueOf(call);
  return found && copy(write(found), `Copied as ${label}`);
};

/** A menu for an API call, or a function that may return one; `more` has `[label, text]` pairs. */
export const copyMenu = (call, more = []) => menu("Copy as", [
  ...Object.entries({ curl: asCurl, Python: asPython, "cued command": asCued }).map(
    ([label, write]) => [label, copyCall(call, label, write)]),
  ...more.map(([label, text]) => [label, () => copy(valueOf(text), `Copied as ${label}`)]),
], "copy-as");

export const copyKey = (call) => ["c", "Copy as curl", copyCall(call, "curl", asCurl)];

export function coloured(text) {
  if (text.length > COLOURED) return prettyJson(text);
  const paint = ([kind, token]) =>
    COLOURS[kind] ? html`<span class=${COLOURS[kind]}>${token}</span>` : token;
  return jsonParts(readableJson(text))?.map(paint) ?? text;
}

/** A text of a stranger, with a button that copies it unchanged. */
export function textBlock(text) {
  const isAll = text.length <= SHOWN;
  const shown = isAll ? coloured(text) : text.slice(0, SHOWN);
  return html`${isAll ? "" : html`<p class="small muted">The first ${number(SHOWN)} characters of
    ${bytes(byteLength(text))}. The button copies all.</p>`}<div class="code block"><pre
    tabindex="0" dir="ltr" aria-label="Text">${shown}</pre>${copyButton(text)}</div>`;
}
