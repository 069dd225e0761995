// One run: why it failed, its timeline, the request as sent, and what can be done.
import { ApiError, act, ago, anchor, awaitsResult, badge, badges, button, capital, card, confirmed,
  copy, copyButton, copyLine, copyMenu, createdMs, cuePath, empty, folded, get, html, idEnd,
  instant, link, menu, note, orNull, panel, patch, post, prompt, serverNow, stateOf, stateOfRun,
  toast, waitText, when } from "../kit.js";
import { headerList, taskOf, textBlock } from "../parts/payload.js";
import { shellWord, targetText } from "../parts/target.js";
import { fireWith, isHeld, show } from "./cue/actions.js";
import { headline, isFinal, rawField, timeline } from "./runs/timeline.js";

const REPLAYS_SHOWN = 10;
const QUOTED = 160; // characters of the answer beside the reason
const BUTTONS = 2; // actions with a button of their own; the rest are in a menu
const NEIGHBOURS = 100; // runs of the cue that are looked at to find the next one

export const live = ["execution", "cue.deleted", "cue.updated", "worker"];

export function event(data, type, payload, route) {
  const { execution_id: run, cue_id: cue, triggered_by: trigger } = payload;
  if (type === "worker.seen") return Boolean(data.lack);
  const isOfCue = cue === data.run?.cue_id;
  if (!run) return isOfCue;
  return run === route.id || (type === "execution.created" && trigger === "replay" && isOfCue);
}

export async function load(data, route) {
  const path = "v1/executions/" + encodeURIComponent(route.id);
  // Metadata and artifacts keep their numbers letter for letter: they are cut out of the text.
  const text = await orNull(get(path, { payload: "text" }, { text: true }), 404);
  if (text === null) return { run: null };
  const cut = { metadata: rawField(text, "metadata"), artifacts: rawField(text, "artifacts") };
  const run = { ...JSON.parse(text), ...cut };
  const found = await orNull(get(cuePath(run.cue_id), { payload: "text" }), 404);
  const cue = found && { ...found, task: taskOf(found) };
  const isUnclaimed = cue?.transport === "worker" && run.status === "pending";
  const [attempts, request, replays, lack] = await Promise.all([
    orNull(get(path + "/attempts"), 404),
    cue?.transport === "worker" ? null : orNull(get(path + "/request"), 404, 409, 422),
    get("v1/executions", { replayed_from: run.id, limit: REPLAYS_SHOWN }),
    isUnclaimed && import("./workers.js").then(({ lackOf }) => lackOf(cue.task || null))
      .catch(() => ""),
  ]);
  return { run, attempts: attempts?.attempts ?? [], request, cue, replays, lack };
}

export function head(data, route, isReady) {
  const { run, request, attempts } = data;
  if (!run) return { note: isReady ? "" : html`<code class="wrap">${route.id}</code>` };
  const { id, cue_id: cue, cue_name: title } = run;
  const list = actionsOf(data);
  // A menu of one entry would only hide it.
  const shown = list.length === BUTTONS + 1 ? list.length : BUTTONS;
  const rest = list.slice(shown).map(([, ...entry]) => entry);
  const kindOf = (name, kind, i) => kind || (i === 0 && name !== "edited" ? "primary" : "");
  const step = (name, mark, title, by) => html`<button id=${name} class="plain"
    title=${title + " of this cue"} @click=${() => neighbour(run, by)}>${mark}<span
    class="sr">${title}</span></button>`;
  const response = attempts.findLast((attempt) => attempt.response_body)?.response_body;
  const texts = [["Id", id], ["Payload", run.payload_text], ["Response", response]];
  return {
    title, tab: `${stateOf(stateOfRun(run)).word}: ${title}`, titleMore: badges(run),
    note: html`<span class="row">${
      data.cue ? html`<code class="wrap">${targetText(data.cue)}</code>` : ""}<span><a
      id="run-cue" href=${link("cues", cue)}>Its cue</a> · ${
      anchor(link("runs", { cue }), "Its runs")}</span>${when(run.scheduled_for)}<code
      class="wrap small">${id}</code></span>`,
    actions: html`${list.slice(0, shown).map(([name, label, go, kind], i) =>
        button(label, go, kindOf(name, kind, i), { id: "action-" + name }))}
      ${rest.length ? menu("More", rest, "run-more") : ""}${
      copyMenu({ method: "GET", path: `v1/executions/${id}` }, texts.filter(([, text]) => text))}
      ${data.cue && data.cue.execution_total < 2 ? ""
        : [step("newer", "↑", "Newer run", -1), step("older", "↓", "Older run", 1)]}`,
  };
}

export function shortcuts(data) {
  const { run, request } = data;
  if (!run) return [];
  const first = (...ids) => () => actionsOf(data).find(([name]) => ids.includes(name))?.[2]();
  return [
    ["j", "Older run of the cue", () => neighbour(run, 1)],
    ["k", "Newer run of the cue", () => neighbour(run, -1)],
    ["r", "Replay, or retry now", first("retry", "replay")],
    ["f", "Fire with another payload", first("edited")],
    ["c", "Copy the request as curl", () => request && copy(requestAsCurl(request))],
  ];
}

export function view(data) {
  const { run, request, replays } = data;
  if (!run) {
    const text = "It was deleted with its cue, or it is older than the runs this server keeps.";
    return empty("This run is gone", text, anchor(link("runs"), "All runs", "button"));
  }
  const isWorker = data.cue?.transport === "worker";
  const aside = request || isWorker || replays.total || run.replayed_from;
  return html`${reason(data)}${data.lack || ""}<div class="grid run">
    ${panel("", "What happened", "", timeline(data))}${!aside ? "" : html`<div class="stack">${
      requestCard(data)}${payloadCard(data)}${replaysCard(data)}</div>`}</div>`;
}

function reason({ run, attempts }) {
  const [kind, sentence] = headline(run);
  const held = waitText(run);
  const isQueued = run.status === "pending" || run.status === "retrying";
  const next = isQueued && isHeld() ? "On hold: not sent until promoted."
    : awaitsResult(run) ? html`It is due ${ago(run.outcome_due_at)}.`
    : run.status === "retrying"
    ? held ? `It ${held}.` : html`Next attempt ${ago(run.next_retry)}.`
    : run.status === "pending" ? html`Due ${ago(run.scheduled_for)}.` : "";
  const end = !isFinal(run) && run.expires_at ? html` Gives up ${when(run.expires_at)}.` : "";
  const isBad = kind === "bad" || kind === "warn";
  const answer = isBad && attempts.at(-1)?.response_body?.trim();
  const quote = answer && answer.slice(0, QUOTED) + (answer.length > QUOTED ? "…" : "");
  return html`<div id="why">${note(html`<b class="wrap pre">${sentence}</b> ${next}${end}${
    quote ? html`<div class="small mono wrap pre" dir="auto">${quote}</div>` : ""}${
    isBad ? html` ${anchor("docs/webhooks", "About failures")}` : ""}`, kind)}</div>`;
}

function replaysCard({ run, replays: { executions, total } }) {
  const { id, replayed_from: origin } = run;
  if (!total && !origin) return "";
  const to = (id) => anchor(link("runs", id), idEnd(id));
  return card("replays", "Replays", "", html`<ul class="pad stack">
    ${origin ? html`<li class="row">This run replays ${to(origin)}</li>` : ""}
    ${executions.map((other) => html`<li class="row">${badge(stateOfRun(other))}${to(other.id)}${
      ago(other.created_at)}</li>`)}
    ${total > executions.length
      ? html`<li>${anchor(link("runs", { replayed_from: id }), `All ${total}`)}</li>` : ""}</ul>`);
}

function requestCard({ run, request }) {
  if (!request) return "";
  const { method, url, exact, why, body, headers } = request;
  return panel("request", run.attempts ? "Request as sent" : "Request",
    copyButton(() => requestAsCurl(request), "Copy as curl"),
    html`<p class="wrap"><b>${method}</b> <code>${url}</code></p>
    <p class="small muted">${exact ? "Exactly as it was sent." : rebuilt(why)}</p>
    ${body ? textBlock(body) : html`<p class="muted">No body.</p>`}
    ${folded("Headers", headerList(headers))}${signature(request)}`);
}

/** What the worker of a run gets; a receiver gets a request. */
export const payloadCard = ({ run: { payload_text: text }, cue }) => cue?.transport !== "worker" ? ""
  : panel("payload", "Payload", "", text ? textBlock(text)
    : html`<p class="muted">No payload.</p>`);

/** Why a rebuilt request may differ from the one that was sent. Pure. */
export const rebuilt = (why) => why.startsWith("it was never sent")
  ? "Never sent, so not signed: the run ended first." : capital(why) + ".";

function signature({ headers, body }) {
  const time = headers.find(([key]) => key.toLowerCase() === "x-cueapi-timestamp")?.[1];
  if (!time) return "";
  const signed = shellWord(`${time}.${body ?? ""}`);
  return html`<details id="verify"><summary>Verify the signature</summary><p class="small">Compute
    the HMAC-SHA256 of the timestamp, a dot and the raw body, with the secret as key. It must equal
    <code>X-CueAPI-Signature</code> after <code>v1=</code>.
    ${anchor("#/account/keys", "Your secret")}, ${
      anchor("docs/how-to/signatures", "code in six languages")}.</p>${copyLine(
      `printf '%s' ${signed} | openssl dgst -sha256 -hmac "$CUED_WEBHOOK_SECRET"`)}</details>`;
}

export const requestAsCurl = ({ method, url, headers, body }) => [
  `curl -sS -X ${method} ${shellWord(url)}`,
  ...headers.map((header) => "-H " + shellWord(header.join(": "))),
  ...(body ? ["--data-binary " + shellWord(body)] : []),
].join(" \\\n  ");

const path = (run, verb) => `v1/executions/${run.id}/${verb}`;

/** `[id, label, action, kind]` of what can be done with a run now, the likeliest first. */
function actionsOf({ run, cue, request }) {
  const { outcome, outcome_state: state, status } = run;
  const isWaiting = status === "pending" || status === "retrying";
  const isDueLater = isWaiting && (status === "retrying"
    || instant(run.scheduled_for) > serverNow());
  const send = (verb, done) => () => act(() => post(path(run, verb)), done);
  const isOpen = ["reported_success", "reported_failure", "verification_pending"].includes(state);
  const verify = (isNow) => !isOpen || isNow !== (state === "verification_pending") ? [] : [
    ["accept", "Accept", () => verdict(run, true)],
    ["reject", "Reject", () => verdict(run, false), "danger"],
  ];
  return [
    isDueLater
      && ["retry", run.attempts ? "Retry now" : "Send now", send("retry", "Sending it now")],
    ...verify(true),
    isFinal(run) && ["replay", "Replay", () => replay(run)],
    isWaiting && ["cancel", "Cancel", () => confirmed("Cancel this run?", "Cancel the run",
      "It ends now and is not sent again. Nobody is notified.",
      () => post(path(run, "cancel")), "Cancelled"), "danger"],
    cue && ["edited", "Edit and fire", () => fireWith(cue, run.payload_text)],
    ...verify(false),
    outcome && ["evidence", "Add evidence", () => evidence(run)],
    outcome && !isOpen && ["reopen", "Verify again",
      send("verification-pending", "It needs your confirmation again")],
  ].filter(Boolean);
}

const replay = async (run) =>
  show(await act(() => post(path(run, "replay")), "Replayed. This is the new run."));

function verdict(run, valid) {
  const action = valid ? "Accept" : "Reject";
  return prompt({
    title: `${action} the outcome?`, action, danger: !valid,
    text: valid ? "" : "This raises an alert. The run keeps its state.",
    fields: [{ name: "reason", label: "Reason (optional)", lines: 3 }],
    send: ({ reason }) => post(path(run, "verify"), { valid, reason: reason.trim() || null }),
    done: `${action}ed`,
  });
}

const EVIDENCE = {
  external_id: "Id in another system", result_url: "URL of the result",
  result_ref: "Reference", result_type: "Type", summary: "Summary",
};

function evidence(run) {
  const before = run.evidence || {};
  return prompt({
    title: "Add evidence", done: "Added",
    text: "Add proof of the result. A new value replaces the old one.",
    fields: Object.entries(EVIDENCE).map(([name, label]) =>
      ({ name, label, value: before[name] || "", lines: name === "summary" ? 3 : 0 })),
    async send(values) {
      const isNew = ([name, value]) => value !== (before[name] || "");
      const changed = Object.entries(values).filter(isNew);
      if (!changed.length) throw new ApiError(422, "nothing", "Nothing has changed.");
      return patch(path(run, "evidence"), Object.fromEntries(changed));
    },
  });
}

/** Goes to the next run of the same cue, `step` 1 older, -1 newer. */
async function neighbour({ id, cue_id }, step) {
  const at = (ms) => new Date(ms).toISOString();
  const created = createdMs(id);
  const span = step > 0 ? { until: at(created + 1) } : { since: at(created) };
  const query = { cue_id, ...span, limit: NEIGHBOURS };
  const found = await act(async () => {
    const page = await get("v1/executions", query);
    // The list is newest first: the nearest newer ones are at its end.
    const isLast = step > 0 || !page.has_more;
    return isLast ? page : get("v1/executions", { ...query, offset: page.total - NEIGHBOURS });
  });
  const runs = found?.executions ?? [];
  const next = runs[runs.findIndex((run) => run.id === id) + step];
  if (next) show(next);
  else if (found) toast(`This cue has no ${step > 0 ? "older" : "newer"} run.`);
}
