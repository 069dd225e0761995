// One cue: what it is, when it runs next, how its runs went, and what can be done with it.
import { html, nothing } from "../lit/lit-html.js";
import { get } from "../app/api.js";
import { go, link } from "../app/router.js";
import { update } from "../app/state.js";
import { duration } from "../app/time.js";
import { bytes, capital, catchUpText, missReason, number, plural, triggerText, why } from "../app/words.js";
import { copyButton, copyKey, copyMenu } from "../parts/copy.js";
import { act, note, toast } from "../parts/feedback.js";
import { sparkline } from "../parts/chart.js";
import { byteLength } from "../parts/json_text.js";
import { menu } from "../parts/menu.js";
import { strip } from "../parts/strip.js";
import { table } from "../parts/table.js";
import { badge, when } from "../parts/values.js";
import { fire, pathOf, remove, replayFailed, setPaused } from "./cue/acts.js";
import { attemptLine } from "./cue/attempts.js";
import { coloured, fireWith } from "./cue/payload.js";
import { isCancelled, stateOfRun } from "./runs/timeline.js";
import { attemptsOf, creation, lettersOf, streakOf } from "./cue/words.js";

const RUNS = 60; // of the strip and the lines
const ROWS = 15; // of the table
const NEXT = 10;
const GAPS = 5; // newest of the missed ledger
const LONG = 3_000; // characters of a payload that is folded

export const live = ["execution", "cue", "missed"];

export function event(data, type, { cue_id: id }, route) {
  if (id !== route.id) return false;
  if (type === "cue.deleted") {
    if (!data.removed) toast("This cue was deleted");
    go("#/cues");
    return false;
  }
  // A run changes neither the cue nor its payload, which may be large.
  if (data.stale !== "all") data.stale = type.startsWith("execution") ? "runs" : "all";
  return true;
}

export async function load(data, { id }) {
  const light = data.cue && data.stale === "runs";
  data.stale = "";
  const path = pathOf({ id });
  const upcoming = get(path + "/upcoming", { detail: true, limit: NEXT });
  if (light) {
    const [list, next] = await Promise.all([get("v1/executions", { cue_id: id, limit: RUNS }), upcoming]);
    return { runs: list.executions, total: list.total, next };
  }
  const [cue, next, missed] = await Promise.all([get(path, { payload: "text", execution_limit: RUNS }), upcoming, get(path + "/missed", { limit: GAPS })]);
  return { cue, runs: cue.executions, total: cue.execution_total, next, missed };
}

export function head(data, route, ready) {
  if (!ready) return { title: "Cue" };
  const { cue, runs, next } = data;
  const streak = runs.length < RUNS || streakOf(runs) < RUNS ? streakOf(runs) : cue.failing;
  const paused = cue.status === "paused";
  const at = next.upcoming[0];
  return {
    title: cue.name,
    tab: (streak ? "Failing: " : "") + cue.name,
    titleMore: html`${badge(cue.status)}${streak ? badge("failed", streak > 1 ? `${streak} times in a row` : "last time") : nothing}`,
    note: at ? html`Next run ${when(at, { zone: cue.schedule.timezone, local: next.occurrences[0]?.local })}` : paused ? "Paused: it does not run until it is resumed." : "No further run.",
    actions: actions(data, cue, paused),
  };
}

const callOf = (cue) => ({ method: "POST", path: "v1/cues", body: () => creation(cue) });

async function removeIt(data) {
  data.removed = true;
  if (await remove(data.cue)) go("#/cues");
  else data.removed = false;
}

/** Pauses or resumes, and shows the cue as it is then, also where no events come. */
async function pause(data) {
  if (!(await setPaused(data.cue))) return;
  data.stale = "all";
  await act(async () => {
    const patch = await load(data, data.cue);
    update(() => Object.assign(data, patch));
  });
}

const pauses = ({ status }) => status === "active" || status === "paused";

const actions = (data, cue, paused) => html`<button class="primary" id="fire" @click=${() => fire(cue)}>Fire now</button>
  ${pauses(cue) ? html`<button id="pause" @click=${() => pause(data)}>${paused ? "Resume" : "Pause"}</button>` : nothing}
  <a class="button" href=${link("cues", cue.id, "edit")}>Edit</a>
  ${copyMenu(callOf(cue), [["JSON", () => creation(cue)], ["id", cue.id]])}
  ${menu("More", [["Fire with payload or time…", () => fireWith(cue)], ["Replay failed runs…", () => replayFailed(cue)], ["Duplicate", () => go(link("cues", "new", { from: cue.id }))], ["Delete…", () => removeIt(data), "danger"]], "more-acts")}`;

export function shortcuts(data) {
  const { cue } = data;
  return [
    { keys: "f", label: "Fire now", run: () => fire(cue) },
    { keys: "p", label: "Pause or resume", run: () => pauses(cue) && pause(data) },
    { keys: "e", label: "Edit", run: () => go(link("cues", cue.id, "edit")) },
    { keys: "r", label: "Replay failed runs", run: () => replayFailed(cue) },
    copyKey(callOf(cue)),
    { keys: "n", label: "New cue", run: () => go("#/cues/new") },
  ];
}

export function view(data) {
  const { cue } = data;
  return html`${cue.description ? html`<p class="wrap" dir="auto">${cue.description}</p>` : nothing}
    ${cue.warning ? note(cue.warning, "warn") : nothing}
    ${runsCard(data)}
    <div class="grid">${scheduleCard(data)}${facts(data)}${payload(data)}${missedCard(data)}</div>`;
}

function line(name, values) {
  const known = values.filter((value) => value !== null).sort((a, b) => a - b);
  if (known.length < 2) return nothing;
  const text = `median ${duration(known[known.length >> 1])}, most ${duration(known.at(-1))}`;
  return html`<figure class="row"><figcaption class="small">${name} <span class="muted">${text}</span></figcaption>${sparkline(values, { label: `${name} of the last ${known.length} runs: ${text}` })}</figure>`;
}

function runsCard({ cue, runs, total, missed }) {
  const zone = cue.schedule.timezone;
  const past = [...runs].reverse();
  const letters = lettersOf(runs, missed.missed, RUNS);
  const bad = (run) => (run.status === "failed" && !isCancelled(run)) || run.status === "retrying";
  const columns = [
    { label: "Due", cell: (run) => html`<a href=${link("runs", run.id)}>${when(run.scheduled_for, { zone })}</a>` },
    { label: "Result", kind: "wide", cell: (run) => html`${badge(stateOfRun(run), run.attempts > 1 ? `${run.attempts}/${run.max_attempts}` : "")}${bad(run) ? html`<div class="small bad wrap">${capital(why(run))}</div>` : nothing}` },
    { label: "Took", kind: "num right", short: true, cell: (run) => duration(run.duration_ms) },
    { label: "Late", kind: "num right", short: true, cell: (run) => duration(run.late_ms) },
    { label: "Trigger", cell: (run) => html`<span class="muted">${capital(triggerText(run.triggered_by))}</span>` },
  ];
  return html`<section class="card" id="cue-runs"><header><h2>Runs ${total ? html`<small>${number(total)}</small>` : nothing}</h2>${total ? html`<a href=${link("runs", { cue: cue.id })}>All runs</a>` : nothing}</header>
    ${total ? html`<div class="pad row spread">${strip(letters, RUNS)}${line("Took", past.map((run) => run.duration_ms))}${line("Late", past.map((run) => run.late_ms))}</div>
      ${table({ label: "Newest runs", columns, rows: runs.slice(0, ROWS), key: (run) => run.id })}` : html`<p class="pad muted">No run yet.</p>`}</section>`;
}

function scheduleCard({ cue: { schedule }, next }) {
  const { type, cron, timezone: zone, catch_up: catchUp } = schedule;
  const { description, occurrences, transitions, per_month: month } = next;
  return html`<section class="card"><header><h2>${description || "Schedule"}</h2></header><div class="pad stack"><dl class="facts">
    ${type === "once" ? html`<dt>Once</dt><dd>${when(schedule.at, { zone })}</dd>` : html`<dt>Cron</dt><dd><code>${cron}</code></dd>`}
    <dt>Time zone</dt><dd>${zone}</dd><dt>Catch-up</dt><dd>${capital(catchUpText(catchUp))}</dd>
    ${month > 1 ? html`<dt>In a month</dt><dd>${plural(month, "run")}</dd>` : nothing}
    ${transitions.map(({ at, from, to }) => html`<dt>Clock change</dt><dd>${when(at, { zone, only: "absolute" })}: ${from} to ${to}</dd>`)}</dl>
    ${occurrences.length ? html`<div><h3>Next runs</h3><ol id="next-runs">${occurrences.map(({ at, local, note: text }) => html`<li>${when(at, { zone, local })}${text ? html`<div class="small warn">${capital(text.replace(/^\w+: /, ""))}</div>` : nothing}</li>`)}</ol></div>` : nothing}</div></section>`;
}

function missedCard({ missed: { missed, total }, cue }) {
  if (!missed.length) return nothing;
  const zone = cue.schedule.timezone;
  const at = (time) => when(time, { zone, only: "absolute" });
  return html`<section class="card" id="missed"><header><h2>Missed</h2><small>${number(cue.missed_count)}</small></header><ul class="pad stack">${missed.map(({ first, last, count, reason }) => html`<li>${plural(count, "run")}, ${at(first)}${count > 1 ? html` to ${at(last)}` : nothing}<div class="small muted">${capital(missReason(reason))}</div></li>`)}${total > missed.length ? html`<li class="muted">and ${number(total - missed.length)} earlier gaps</li>` : nothing}</ul></section>`;
}

function headers(data) {
  const entries = Object.entries(data.cue.callback.headers);
  const shown = (data.shownHeaders ||= new Set());
  return entries.map(([name, value]) => {
    const open = shown.has(name);
    return html`<div class="row spread"><span class="wrap"><code>${name}</code>: ${open ? html`<code>${value}</code>` : html`<span aria-hidden="true">••••••</span><span class="sr">hidden</span>`}</span><button class="link small" data-header=${name} aria-label=${`${open ? "Hide" : "Show"} the value of ${name}`} @click=${() => update(() => (open ? shown.delete(name) : shown.add(name)))}>${open ? "Hide" : "Show"}</button></div>`;
  });
}

const VERIFICATION = { require_external_id: "a success needs an external id", require_result_url: "a success needs the address of its result", require_artifacts: "a success needs artifacts", manual: "a person checks each success" };

function facts(data) {
  const { cue } = data;
  const { callback, on_failure: failure, verification, retry } = cue;
  const fact = (name, value) => (value && value !== nothing ? html`<dt>${name}</dt><dd>${value}</dd>` : nothing);
  const worker = cue.transport === "worker";
  const after = [failure.email && "sends a mail", failure.webhook && html`calls <code>${failure.webhook}</code>`, failure.pause && "pauses the cue"].filter(Boolean);
  return html`<section class="card"><header><h2>${worker ? "Worker" : "Callback"}</h2></header><dl class="facts pad">
    ${worker ? fact("Runs", "A worker fetches them") : fact("Address", html`<code>${callback.method} ${callback.url}</code>`)}
    ${fact("Claimed within", cue.claim_within_minutes && duration(cue.claim_within_minutes * 60_000))}
    ${fact("Headers", Object.keys(callback.headers).length && headers(data))}
    ${fact("Outcome", callback.outcome_from_response && "is the answer of the callback")}
    ${fact("Attempts", html`${retry.max_attempts}${retry.max_attempts > 1 ? attemptLine(attemptsOf(retry)) : nothing}`)}
    ${fact("Verification", VERIFICATION[verification.mode])}
    ${fact("After a failure", after.length ? after.map((text, i) => html`${i ? ", " : ""}${text}`) : "nothing more")}
    ${fact("Id", html`<code>${cue.id}</code>`)}
    ${fact("Made", when(cue.created_at))}${fact("Changed", when(cue.updated_at))}</dl></section>`;
}

function payload(data) {
  const text = data.cue.payload_text;
  if (!text) return nothing;
  if (data.paintedText !== text) {
    data.paintedText = text;
    data.painted = html`<pre class="pad" dir="ltr" id="payload">${coloured(text)}</pre>`;
  }
  const size = bytes(byteLength(text));
  return html`<section class="card"><header><h2>Payload</h2><small>${size}</small>${copyButton(text)}</header>${text.length > LONG ? html`<details><summary class="pad">Show ${size}</summary>${data.painted}</details>` : data.painted}</section>`;
}
