// Texts of strangers, such as payloads and answers: JSON in colours, any other as it is.
import { html } from "../lit/lit-html.js";
import { bytes, number } from "../app/words.js";
import { copyButton } from "./copy.js";
import { byteLength, jsonParts, prettyJson, readableJson } from "./json_text.js";

const COLOURED = 50_000; // characters; above, a text is plain: a span for each token would be slow
const SHOWN = 20_000; // characters of a text that are laid out
const COLOURS = { key: "act", text: "good", number: "warn", word: "idle" };

/** A JSON text laid out and in colours, any other as it is. */
export function coloured(text) {
  if (text.length > COLOURED) return prettyJson(text);
  const paint = ([kind, token]) =>
    COLOURS[kind] ? html`<span class=${COLOURS[kind]}>${token}</span>` : token;
  return jsonParts(readableJson(text))?.map(paint) ?? text;
}

/** A text of a stranger, with a button that copies it unchanged. */
export function textBlock(text) {
  const isAll = text.length <= SHOWN;
  const cut = html`<p class="small muted">The first ${number(SHOWN)} characters of
    ${bytes(byteLength(text))}. The button copies all.</p>`;
  return html`${isAll ? "" : cut}<div class="code block"><pre tabindex="0" dir="ltr"
    aria-label="Text">${isAll ? coloured(text) : text.slice(0, SHOWN)}</pre>${
    copyButton(text)}</div>`;
}
