// One cue: what it is, when it runs next, how its runs went, and what can be done with it.
import { PLAIN_FIELDS, anchor, attemptsOf, awaitsResult, badge, badges, button, bytes, capital,
  card, catchUpText, copyButton, copyKey, copyLine, copyMenu, cuePath, duration, facts, flowText,
  folded, get, getCue, go, hasChannel, html, isSilent, link, managed, menu, missReason, muted,
  nextRuns, noRows, note, number, panel, plural, reload, ruleText, sendsMail, silence, stateOfRun,
  toast, triggerText, waitText, when, whyLine } from "../kit.js";
import { runHistory, sparkline } from "../parts/charts.js";
import { factOf } from "../parts/cue_field_texts.js";
import { byteLength, coloured, headerList, taskOf } from "../parts/payload.js";
import { table } from "../parts/table.js";
import { tagLinks } from "../parts/tags.js";
import { targetText, workLine } from "../parts/target.js";
import { creation, creationCall, edit, fire, fireWith, isHeld, lettersOf, remove, replayFailed,
  setPaused, streakOf } from "./cue/actions.js";

const RUNS = 60; // of the history and the lines
const ROWS = 15; // of the table
const NEXT = 10;
const GAPS = 5; // newest missed ones
const FEW = 5; // runs that a line needs to say something
const LONG = 3_000; // characters of a payload that is folded

export const live = ["execution", "cue", "missed"];

export function event(data, type, { cue_id: id }, route) {
  if (id !== route.id) return false;
  if (type === "cue.deleted") {
    if (!data.isRemoved) toast("This cue was deleted");
    go("#/cues");
    return false;
  }
  // A run changes neither the cue nor its payload, which may be large.
  if (data.stale !== "all") data.stale = type.startsWith("execution") ? "runs" : "all";
  return true;
}

export async function load(data, { id }) {
  const isLight = data.cue && data.stale === "runs";
  data.stale = "";
  const path = cuePath(id);
  const upcoming = get(path + "/upcoming", { detail: true, limit: NEXT });
  if (isLight) {
    const executions = get("v1/executions", { cue_id: id, limit: RUNS });
    const [{ executions: runs, total }, next] = await Promise.all([executions, upcoming]);
    return { runs, total, next };
  }
  const gaps = get(path + "/missed", { limit: GAPS });
  const [cue, next, missed] = await Promise.all([getCue(id, RUNS), upcoming, gaps]);
  return { cue: { ...cue, task: taskOf(cue) }, runs: cue.executions, total: cue.execution_total, next, missed };
}

export function head(data, route, isReady) {
  if (!isReady) return {};
  const { cue, runs, next: { upcoming: [at], occurrences } } = data;
  const shown = streakOf(runs);
  const streak = shown < RUNS ? shown : cue.failing;
  const times = streak > 1 ? `${streak} times in a row` : "last time";
  return {
    title: cue.name, tab: (streak ? "Failing: " : "") + cue.name, actions: actions(data),
    titleMore: html`${badge(cue.status)}${streak ? badge("failed", times) : ""}${
      tagLinks(cue.tags)}`,
    note: html`<span class="row">${calls(cue)}<span>${at
      ? html`Next run ${isHeld(at) ? "once promoted"
        : when(at, { zone: cue.schedule.timezone, local: occurrences[0]?.local })}`
      : cue.status === "paused" ? "Paused: it does not run until you resume it."
      : cue.status === "completed" && cue.schedule.end
      ? "Completed: no run is left before its end." : "It does not run again."}</span></span>`,
  };
}

const calls = (cue) => html`<code class="wrap" id="calls"
  title=${cue.callback.url ?? ""}>${targetText(cue)}</code>`;

async function removeIt(data) {
  data.isRemoved = true;
  if (await remove(data.cue)) go("#/cues");
  else data.isRemoved = false;
}

/** Pauses or resumes, and shows the cue as it is then, also where no events come. */
async function pause(data) {
  if (!(await setPaused(data.cue))) return;
  data.stale = "all";
  reload();
}

// The verb of a cue that can be paused or resumed
const PAUSE = { __proto__: null, active: "Pause", paused: "Resume" };

function actions(data) {
  const { cue } = data;
  const verb = PAUSE[cue.status];
  return [
    button("Fire now", () => fire(cue), "primary", { id: "fire" }),
    verb ? button(verb, () => pause(data), "", { id: "pause" }) : "",
    anchor(link("cues", cue.id, "edit"), "Edit", "button"),
    copyMenu(() => creationCall(cue), [["Cue as JSON", () => creation(cue)], ["Id", cue.id]]),
    menu("More", [
      ["Fire with a payload or time…", () => fireWith(cue)],
      ["Replay failed runs…", () => replayFailed(cue)],
      ["Duplicate", () => go(link("cues", "new", { from: cue.id }))],
      ["Delete…", () => removeIt(data), "danger"],
    ], "more-actions"),
  ];
}

export const shortcuts = (data) => [
  ["f", "Fire now", () => fire(data.cue)],
  ["p", "Pause or resume", () => PAUSE[data.cue.status] && pause(data)],
  ["e", "Edit", () => edit(data.cue)],
  ["r", "Replay failed runs", () => replayFailed(data.cue)],
  copyKey(() => creationCall(data.cue)),
  ["n", "New cue", () => go("#/cues/new")],
];

export function view(data) {
  const { cue } = data;
  return html`${cue.description ? html`<p class="wrap" dir="auto">${cue.description}</p>` : ""}
    ${managed(cue)}${cue.warning ? note(cue.warning, "warn") : ""}${runsCard(data)}
    <div class="grid">${scheduleCard(data)}${about(data)}${payload(data)}${missedCard(data)}</div>`;
}

function line(name, values) {
  const known = values.filter((value) => value !== null).sort((a, b) => a - b);
  if (known.length < FEW) return "";
  const median = `median ${duration(known[known.length >> 1])}`;
  const text = `${median}, most ${duration(known.at(-1))}`;
  return html`<figure class="row" title=${text}><figcaption class="small">${name} ${
    muted(median)}</figcaption>${
    sparkline(values, `${name} of the last ${known.length} runs: ${text}`)}</figure>`;
}

function runsCard({ cue, runs, total, missed }) {
  const zone = cue.schedule.timezone;
  const past = runs.toReversed();
  const isBad = (run) => ["failed", "retrying"].includes(stateOfRun(run));
  const waits = (run) => waitText(run) || (awaitsResult(run) && "no result yet");
  const more = (text, kind) =>
    (text ? html`<div class="small wrap ${kind}">${capital(text)}</div>` : "");
  const result = (run) => html`${
    badges(run, run.attempts > 1 ? `${run.attempts}/${run.max_attempts}` : "")}${
    more(isBad(run) && whyLine(run), "bad")}${more(waits(run), "muted")}`;
  const columns = [
    ["Due", (run) => anchor(link("runs", run.id), when(run.scheduled_for, { zone }))],
    ["Result", result, "wide"],
    ["Took", (run) => duration(run.duration_ms), "num right short"],
    ["Late", (run) => duration(run.late_ms), "num right short"],
    ["Trigger", (run) => muted(capital(triggerText(run.triggered_by)))],
  ];
  return card("cue-runs", html`Runs ${total ? html`<small>${number(total)}</small>` : ""}`,
    total ? anchor(link("runs", { cue: cue.id }), "All runs") : "",
    !total ? noRows("No run yet.") : html`<div class="pad row spread">${
      runHistory(lettersOf(runs, missed.missed, RUNS), RUNS)}${
      line("Took", past.map((run) => run.duration_ms))}${
      line("Late", past.map((run) => run.late_ms))}</div>
      ${table("Newest runs", columns, runs.slice(0, ROWS))}`);
}

function scheduleCard({ cue, next }) {
  const { schedule } = cue;
  const { type, timezone: zone, catch_up: catchUp, start, end, jitter_seconds: jitter } = schedule;
  const { description, occurrences, transitions, per_month: month } = next;
  const change = ({ at, from, to }) =>
    ["Clock change", html`${when(at, { zone, only: "absolute" })}: ${from} to ${to}`];
  return panel("", description || "Schedule", "", facts([
    type === "once" ? ["Once", when(schedule.at, { zone })]
      : [schedule.every ? "Interval" : "Cron", html`<code>${ruleText(schedule)}</code>`],
    ["Start", start && when(start, { zone })], ["End", end && when(end, { zone })],
    ["Jitter", jitter && `up to ${number(jitter)} s later`],
    ["Time zone", zone], ["Missed runs", capital(catchUpText(catchUp))],
    ...PLAIN_FIELDS.filter(({ words }) => words).map((field) => factOf(field, cue[field.name])),
    month > 1 && ["In 31 days", plural(month, "run")], ...transitions.map(change),
  ]), !occurrences.length ? "" : html`<div><h3>Next runs</h3>${nextRuns(occurrences, zone)}</div>`);
}

function missedCard({ missed: { missed, total }, cue }) {
  if (!missed.length) return "";
  const at = (time) => when(time, { zone: cue.schedule.timezone, only: "absolute" });
  const gap = ({ first, last, count, reason }) => html`<li>${plural(count, "run")}, ${at(first)}${
    count > 1 ? html` to ${at(last)}` : ""}<div class="small muted">${
    capital(missReason(reason))}</div></li>`;
  const earlier = total - missed.length;
  return card("missed", "Missed runs", html`<small>${number(cue.missed_count)}</small>`, html`<ul
    class="pad stack">${missed.map(gap)}${
    earlier > 0 ? html`<li class="muted">and ${number(earlier)} earlier gaps</li>` : ""}</ul>`);
}

const VERIFICATION = {
  __proto__: null,
  require_external_id: "requires an external id", require_result_url: "requires a result URL",
  require_artifacts: "requires artifacts", manual: "you confirm each success",
};

/** "3, after 1 min, 5 min" */
function attemptsText(retry) {
  const waits = attemptsOf(retry).map((time, i, times) => time - times[i - 1]).slice(1);
  return [retry.max_attempts, waits.map((wait) => duration(wait * 60_000)).join(", ")]
    .filter(Boolean).join(", after ");
}

function about(data) {
  const { cue } = data;
  const { callback, on_failure: failure, verification, retry } = cue;
  const isWorker = cue.transport === "worker";
  const after = [
    failure.email && sendsMail() && "sends you a mail",
    hasChannel() && "sends a message to your channels",
    failure.webhook && html`calls <code>${failure.webhook}</code>`,
    failure.pause && "pauses the cue",
  ].filter(Boolean).map((text, i) => html`${i ? ", " : ""}${text}`);
  return card("", isWorker ? "Worker" : "Request", "", facts([
    isWorker ? ["Start a worker", copyLine(workLine(data.cue.task))]
      : ["URL", html`<code>${callback.method} ${callback.url}</code>`],
    ["Headers", Object.keys(callback.headers).length && headerList(Object.entries(callback.headers))],
    ["Outcome", callback.outcome_from_response && "taken from the response"],
    ["Time limit", !isWorker && `${callback.timeout_seconds} s an attempt`],
    ["Flow", callback.flow && html`<code>${callback.flow.key}</code>: ${flowText(callback.flow)}`],
    ["Attempts", attemptsText(retry)],
    ...PLAIN_FIELDS.filter(({ unit }) => unit).map((field) => factOf(field, cue[field.name]
      && duration(cue[field.name] * (field.unit === "minutes" ? 60_000 : 1_000)))),
    ["Proof of success", VERIFICATION[verification.mode]],
    ["After a failure", html`${after.length ? after : "nothing else"}${
      isSilent() && !failure.webhook
        ? html`<p class="small warn" id="silent">${silence()}</p>` : ""}`],
    ["Id", html`<code>${cue.id}</code>`],
    ["Created", when(cue.created_at)], ["Updated", when(cue.updated_at)],
  ], "pad"));
}

function payload(data) {
  const text = data.cue.payload_text;
  if (!text) return "";
  if (data.paintedText !== text) {
    data.paintedText = text;
    data.painted = html`<pre class="pad" dir="ltr" id="payload">${coloured(text)}</pre>`;
  }
  const size = bytes(byteLength(text));
  return card("", "Payload", html`<small>${size}</small>${copyButton(text)}`,
    text.length <= LONG ? data.painted : folded(`Show ${size}`, data.painted, "pad"));
}
