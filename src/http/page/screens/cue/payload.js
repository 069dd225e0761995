// A payload of a cue or a run: shown as text, and fired with changes.
import { html } from "../../lit/lit-html.js";
import { cuePath, fieldError, post, randomKey } from "../../app/api.js";
import { go, link } from "../../app/router.js";
import { knowsZone, localInstant } from "../../app/time.js";
import { bytes, number } from "../../app/words.js";
import { copyButton } from "../../parts/copy.js";
import { prompt } from "../../parts/ask.js";
import {
  byteLength, checkJson, faultText, jsonParts, prettyJson, readableJson,
} from "../../parts/json_text.js";

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
    aria-label="Text">${isAll ? coloured(text) : text.slice(0, SHOWN)}</pre>${copyButton(
      text)}</div>`;
}

/**
 * Asks for a payload and a time, fires the cue once, and shows the new run. `own` is the payload of
 * a run of the cue, if not the cue's.
 */
export async function fireWith(cue, own = null) {
  const zone = knowsZone(cue.schedule.timezone) ? cue.schedule.timezone : "UTC";
  const shown = prettyJson(readableJson(own ?? cue.payload_text ?? "{}"));
  const path = cuePath(cue.id) + "/fire";
  const key = randomKey();
  const which = own ? ", which is that of the run" : "";
  const run = await prompt({
    title: `Fire ${cue.name}`,
    text: `Runs the cue once with this payload${which}. The cue keeps its own.`,
    action: "Fire",
    fields: [
      { name: "payload_override", label: "Payload (JSON)", value: shown, lines: 10 },
      { name: "at", label: `At (${zone})`, type: "datetime-local", help: "Empty: now." },
    ],
    send({ payload_override, at }) {
      const fault = checkJson(payload_override);
      if (fault) throw fieldError("payload_override", faultText(fault));
      const send_at = at ? new Date(localInstant(at, zone)).toISOString() : undefined;
      if (own === null && payload_override === shown) return post(path, { send_at }, { key });
      return post(path, { send_at, merge_strategy: "replace" }, { raw: { payload_override }, key });
    },
  });
  if (run) go(link("runs", run.id));
}
