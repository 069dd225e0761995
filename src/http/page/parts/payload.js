// Payloads, headers and responses, shown and copied. Not a part of kit.js: a first visit needs none.
import { html } from "../lit/lit-html.js";
import { bytes, number } from "../app/words.js";
import { byteLength, prettyJson, readableJson, surveyJson, walk } from "./json_text.js";
import { facts } from "./pieces.js";
import { copyButton } from "./text.js";

export * from "./json_text.js";

const COLOURED = 50_000; // characters; a span for each token of more would be slow
const SHOWN = 20_000; // characters of a text that are laid out
const COLOURS = { __proto__: null, key: "act", text: "good", number: "warn", word: "idle" };

/** `[[kind, text]]` for colours, kind "key", "text", "number", "word" or ""; null if no JSON. */
export function jsonParts(text) {
  const parts = [];
  const pretty = prettyJson(text);
  let end = 0;
  const fault = walk(pretty, (token, _, kind, at) => {
    const value = token.startsWith('"') ? "text" : /^[tfn]/.test(token) ? "word" : "number";
    if (at > end) parts.push(["", pretty.slice(end, at)]);
    end = at + token.length;
    parts.push([{ key: "key", value }[kind] ?? "", token]);
  });
  return fault ? null : parts;
}

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
  return html`${isAll ? "" : html`<p class="small muted">Shows the first ${number(SHOWN)} characters
    of ${bytes(byteLength(text))}. Copy takes all.</p>`}<div class="code block"><pre
    tabindex="0" dir="ltr" aria-label="Text">${shown}</pre>${copyButton(text)}</div>`;
}

const SECRET = /^((proxy-)?authorization|cookie|x-api-key)$|-(token|key|secret)$/i;

/** The value of a header; one that may be a secret is hidden until it is asked for. */
export const headerValue = (name, value) => !SECRET.test(name) ? value || " "
  : html`<details class="secret"><summary data-header=${name}
    aria-label=${`Show the value of ${name}`}>••••••</summary>${value}</details>`;

export const headerList = (headers) =>
  facts(headers.map(([name, value]) => [name, headerValue(name, value)]), "small mono wrap");

/** The task of a worker cue, which stands in its payload. */
export function taskOf({ transport, payload_text: text }) {
  const value = transport === "worker" && text ? surveyJson(text, "task").value : "";
  return value?.startsWith?.('"') ? JSON.parse(value) : "";
}
