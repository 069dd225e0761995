// What a cue is: where it goes, with what, and what happens when it fails.
import { html, nothing } from "../../lit/lit-html.js";
import { update } from "../../app/state.js";
import { bytes } from "../../app/words.js";
import { copyButton } from "../../parts/copy.js";
import { byteLength, jsonParts, prettyJson } from "../../parts/json_text.js";
import { when } from "../../parts/values.js";
import { waitText, waitsOf } from "./words.js";

const LONG = 3_000; // characters of a payload that is folded
const COLOURED = 50_000; // above, a payload is plain text: a span for each token would be slow

/** Attempts as dots on a line, with the waits between them. */
const waitLine = (retry) => html`<ol class="waits" aria-label="Waits between attempts">${waitsOf(retry).map((minutes) => html`<li>${waitText(minutes)}</li>`)}<li></li></ol>`;

function headers(data) {
  const entries = Object.entries(data.cue.callback.headers);
  const shown = (data.shownHeaders ||= new Set());
  return entries.map(([name, value]) => {
    const open = shown.has(name);
    return html`<div class="row spread"><span class="wrap"><code>${name}</code>: ${open ? html`<code>${value}</code>` : html`<span aria-hidden="true">••••••</span><span class="sr">hidden</span>`}</span><button class="link small" data-header=${name} aria-pressed=${open} aria-label=${`Show the value of ${name}`} @click=${() => update(() => (open ? shown.delete(name) : shown.add(name)))}>${open ? "Hide" : "Show"}</button></div>`;
  });
}

const VERIFICATION = { require_external_id: "a success needs an external id", require_result_url: "a success needs the address of its result", require_artifacts: "a success needs artifacts", manual: "a person checks each success" };

export function facts(data) {
  const { cue } = data;
  const { callback, on_failure: failure, verification, retry } = cue;
  const fact = (name, value) => (value && value !== nothing ? html`<dt>${name}</dt><dd>${value}</dd>` : nothing);
  const worker = cue.transport === "worker";
  const after = [failure.email && "sends a mail", failure.webhook && html`calls <code>${failure.webhook}</code>`, failure.pause && "pauses the cue"].filter(Boolean);
  return html`<section class="card"><header><h2>${worker ? "Worker" : "Callback"}</h2></header><dl class="facts pad">
    ${worker ? fact("Runs", "A worker fetches them") : fact("Address", html`<code>${callback.method} ${callback.url}</code>`)}
    ${fact("Claimed within", cue.claim_within_minutes && waitText(cue.claim_within_minutes))}
    ${fact("Headers", Object.keys(callback.headers).length && headers(data))}
    ${fact("Outcome", callback.outcome_from_response && "is the answer of the callback")}
    ${fact("Attempts", html`${retry.max_attempts}${retry.max_attempts > 1 ? waitLine(retry) : nothing}`)}
    ${fact("Verification", VERIFICATION[verification.mode])}
    ${fact("After a failure", after.length ? after.map((text, i) => html`${i ? ", " : ""}${text}`) : "nothing more")}
    ${fact("Id", html`<code>${cue.id}</code> ${copyButton(cue.id)}`)}
    ${fact("Made", when(cue.created_at))}${fact("Changed", when(cue.updated_at))}</dl></section>`;
}

const COLOURS = { key: "act", text: "good", number: "warn", word: "idle" };

export function payload(data) {
  const text = data.cue.payload_text;
  if (!text) return nothing;
  if (data.paintedText !== text) {
    const parts = text.length <= COLOURED && jsonParts(text);
    data.paintedText = text;
    data.painted = html`<pre class="pad" dir="ltr" id="payload">${parts ? parts.map(([kind, token]) => (kind ? html`<span class=${COLOURS[kind]}>${token}</span>` : token)) : prettyJson(text)}</pre>`;
  }
  const size = bytes(byteLength(text));
  return html`<section class="card"><header><h2>Payload</h2><small>${size}</small>${copyButton(text)}</header>${text.length > LONG ? html`<details><summary class="pad">Show ${size}</summary>${data.painted}</details>` : data.painted}</section>`;
}
