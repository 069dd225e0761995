// One run: why it failed at once, then its timeline, the request as sent, and what can be done.
import { html, nothing } from "../lit/lit-html.js";
import { get } from "../app/api.js";
import { link } from "../app/router.js";
import { capital, stateOf } from "../app/words.js";
import { copy, copyButton } from "../parts/copy.js";
import { empty, note } from "../parts/feedback.js";
import { menu } from "../parts/menu.js";
import { badge, when } from "../parts/values.js";
import { actsOf, copyOf, neighbour, requestAsCurl } from "./runs/acts.js";
import { badges, headerList, headline, rawField, stateOfRun, timeline } from "./runs/timeline.js";
import { textBlock } from "./cue/payload.js";

const REPLAYS_SHOWN = 10;
const QUOTED = 160; // characters of the answer beside the reason
const BUTTONS = 2; // acts with a button of their own; the rest are in a menu

export const live = ["execution", "cue.deleted", "cue.updated"];

// Other runs of a busy cue say nothing about this one, but for its replays.
export const event = (data, type, payload, route) =>
  payload.execution_id ? payload.execution_id === route.id || (type === "execution.created" && payload.triggered_by === "replay" && payload.cue_id === data.run?.cue_id) : payload.cue_id === data.run?.cue_id;

const idEnd = (id) => "…" + id.slice(-8);
const orNull = (promise, ...statuses) => promise.catch((error) => (statuses.includes(error.status) ? null : Promise.reject(error)));

export async function load(data, route) {
  const path = "v1/executions/" + encodeURIComponent(route.id);
  // Metadata and artifacts keep their numbers letter for letter: they are cut out of the text.
  const text = await orNull(get(path, {}, { text: true }), 404);
  if (text === null) return { run: null };
  const run = { ...JSON.parse(text), metadata: rawField(text, "metadata"), artifacts: rawField(text, "artifacts") };
  const cue = await orNull(get("v1/cues/" + encodeURIComponent(run.cue_id), { payload: "text" }), 404);
  const [attempts, request, replays] = await Promise.all([
    orNull(get(path + "/attempts"), 404),
    cue?.transport === "worker" ? null : orNull(get(path + "/request"), 404, 409, 422),
    get("v1/executions", { replayed_from: run.id, limit: REPLAYS_SHOWN }),
  ]);
  return { run, attempts: attempts?.attempts ?? [], request, cue, replays };
}

export function head(data, route, ready) {
  const { run } = data;
  if (!run) return { title: "Run", note: ready ? nothing : html`<code class="wrap">${route.id}</code>` };
  const acts = actsOf(data);
  const state = stateOfRun(run);
  // A menu of one entry would only hide it.
  const shown = acts.length === BUTTONS + 1 ? acts.length : BUTTONS;
  const rest = acts.slice(shown).map(([, label, go, kind]) => [label, go, kind]);
  return {
    title: run.cue_name,
    tab: `${stateOf(state).word}: ${run.cue_name}`,
    titleMore: badges(run),
    note: html`<span class="row"><a id="run-cue" href=${link("cues", run.cue_id)}>Its cue</a><a href=${link("runs", { cue: run.cue_id })}>Its runs</a><code class="wrap">${run.id}</code>${when(run.scheduled_for, { only: "relative" })}</span>`,
    actions: html`${acts.slice(0, shown).map(([id, label, go, kind = ""], i) => html`<button id=${"act-" + id} class=${kind || (i || id === "edited" ? "" : "primary")} @click=${go}>${label}</button>`)}
      ${rest.length ? menu("More", rest, "run-more") : nothing}${copyOf(data)}
      <button id="newer" class="plain" title="Newer run of this cue" @click=${() => neighbour(run, -1)}>↑<span class="sr">Newer run</span></button>
      <button id="older" class="plain" title="Older run of this cue" @click=${() => neighbour(run, 1)}>↓<span class="sr">Older run</span></button>`,
  };
}

export function shortcuts(data) {
  const { run } = data;
  if (!run) return [];
  const first = (id) => actsOf(data).find(([name]) => name === id)?.[2];
  return [
    { keys: "j", label: "Older run of the cue", run: () => neighbour(run, 1) },
    { keys: "k", label: "Newer run of the cue", run: () => neighbour(run, -1) },
    { keys: "r", label: "Replay, or retry now", run: () => (first("retry") ?? first("replay"))?.() },
    { keys: "f", label: "Fire with another payload", run: () => first("edited")?.() },
    { keys: "c", label: "Copy the request as curl", run: () => data.request && copy(requestAsCurl(data.request)) },
  ];
}

export function view(data) {
  const { run } = data;
  if (!run) return empty("This run is gone", "It was deleted with its cue, or it is older than the runs that are kept.", html`<a class="button" href=${link("runs")}>All runs</a>`);
  const [kind, sentence] = headline(run);
  const next = run.status === "retrying" ? html`Next attempt ${when(run.next_retry, { only: "relative" })}.` : run.status === "pending" ? html`Due ${when(run.scheduled_for, { only: "relative" })}.` : nothing;
  const answer = (kind === "bad" || kind === "warn") && data.attempts.at(-1)?.response_body?.trim();
  const quote = answer ? html`<div class="small mono wrap" dir="auto">${answer.slice(0, QUOTED)}${answer.length > QUOTED ? "…" : ""}</div>` : nothing;
  return html`
    <div id="why">${note(html`<b class="wrap">${sentence}</b> ${next}${quote}`, kind)}</div>
    <div class="grid run">
      <section class="card"><header><h2>What happened</h2></header><div class="pad">${timeline(data)}</div></section>
      ${data.request || data.replays.total || run.replayed_from ? html`<div class="stack">${requestCard(data)}${replaysCard(data)}</div>` : nothing}
    </div>`;
}

function replaysCard({ run, replays }) {
  const { executions, total } = replays;
  if (!total && !run.replayed_from) return nothing;
  return html`<section class="card" id="replays"><header><h2>Replays</h2></header><ul class="pad stack">
    ${run.replayed_from ? html`<li class="row">This run repeats<a href=${link("runs", run.replayed_from)}>${idEnd(run.replayed_from)}</a></li>` : nothing}
    ${executions.map((other) => html`<li class="row">${badge(stateOfRun(other))}<a href=${link("runs", other.id)}>${idEnd(other.id)}</a>${when(other.created_at, { only: "relative" })}</li>`)}
    ${total > executions.length ? html`<li><a href=${link("runs", { replayed_from: run.id })}>All ${total}</a></li>` : nothing}
  </ul></section>`;
}

function requestCard({ run, request }) {
  if (!request) return nothing;
  return html`<section class="card" id="request"><header><h2>${run.attempts ? "Request as sent" : "Request"}</h2>
    ${copyButton(() => requestAsCurl(request), "Copy as curl")}</header>
    <div class="pad stack"><p class="wrap"><b>${request.method}</b> <code>${request.url}</code></p>
    <p class="small muted">${request.exact ? "Byte for byte as it was sent." : capital(request.why) + "."}</p>
    ${request.body ? textBlock(request.body) : html`<p class="muted">It has no body.</p>`}
    <details><summary>Headers</summary>${headerList(request.headers)}</details>
    ${signature(request)}</div></section>`;
}

/** How a receiver checks the signature, with the values of this request. */
function signature({ headers, body }) {
  const value = (name) => headers.find(([key]) => key.toLowerCase() === name)?.[1];
  const time = value("x-cueapi-timestamp");
  if (!time) return nothing;
  const command = `printf '%s' '${(time + "." + (body ?? "")).replaceAll("'", `'\\''`)}' | openssl dgst -sha256 -hmac "$CUED_WEBHOOK_SECRET"`;
  return html`<details id="verify"><summary>Check the signature</summary><p class="small">The receiver computes HMAC-SHA256 of the timestamp, a dot and the body as it came, with the secret as key. It must equal <code>X-CueAPI-Signature</code> after <code>v1=</code>. <a href="#/account/keys">The secret and code for six languages</a></p>
    <div class="code"><code>${command}</code>${copyButton(command)}</div></details>`;
}
