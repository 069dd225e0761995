// "What will happen": the server's preview of the schedule, what follows from the rest of the form.
import { html } from "../../lit/lit-html.js";
import { post } from "../../app/api.js";
import { state, update } from "../../app/state.js";
import { duration } from "../../app/time.js";
import { bytes, capital, catchUpText, isLimited, number, plural } from "../../app/words.js";
import { meter, when } from "../../parts/pieces.js";
import { addressOf, attemptTimes, problemsOf, scheduleOf } from "./model.js";

const RUNS = 10;

/** Asks for the preview in `wait` ms; answers of older questions are dropped. */
export function ask(data, wait = 0) {
  clearTimeout(data.timer);
  const turn = (data.turn = (data.turn || 0) + 1);
  data.asking = true;
  data.timer = setTimeout(() => fetchPreview(data, turn), wait);
}

async function fetchPreview(data, turn) {
  let found;
  try {
    const schedule = scheduleOf(data.form, data.was, data.cue);
    found = { answer: await post("v1/schedule/preview", { schedule, limit: RUNS }) };
  } catch (error) {
    found = { error, ...problemsOf(error) };
  }
  if (turn !== data.turn) return;
  const { retryAfter } = found.error || {};
  if (retryAfter) data.timer = setTimeout(() => fetchPreview(data, turn), retryAfter * 1000);
  update(() => Object.assign(data, { asking: false, preview: found }));
}

/** The stored instant of a cue that ran once lies in the past: no fault of the form. */
export function isOver({ form, was, cue, preview }) {
  const isOnce = form.kind === "once" && cue?.schedule.type === "once";
  return isOnce && !!preview?.problems?.at && form.at === was.at && form.zone === was.zone;
}

/** Problem of a field of the schedule that the preview found. */
export const previewProblem = (data, name) => (isOver(data) ? "" : data.preview?.problems?.[name]);

export function preview(data) {
  const { answer } = data.preview || {};
  const content = answer ? runs(data, answer)
    : html`<p class="muted" role="status">${missing(data)}</p>`;
  return html`<aside class="card" aria-labelledby="happens"
    aria-busy=${data.asking ? "true" : "false"}><header><h2 id="happens">What will
    happen</h2></header><div class="pad stack" id="preview">${content}</div></aside>`;
}

function missing(data) {
  if (!data.preview) return "Asking the server…";
  if (isOver(data)) {
    return "This time is past. The cue does not run again unless you give a later time.";
  }
  const { rest = [], problems = {} } = data.preview;
  if (rest[0]) return rest[0];
  if ("zone" in problems) return "Correct the time zone to see the runs.";
  return data.form.kind === "once" ? "Give a time to come to see the run."
    : "Correct the schedule to see the runs.";
}

function runs({ form, json }, { description, occurrences, transitions, per_month: perMonth }) {
  const zone = form.zone;
  const isRecurring = form.kind === "recurring";
  const hint = (note) => note
    ? html`<p class="small warn">${capital(note.replace(/^(gap|fold): /, ""))}</p>` : "";
  const run = ({ at, local, note }) => html`<li>${when(at, { zone, local })}${hint(note)}</li>`;
  const change = ({ at, from, to }) => html`<p class="small muted">The clock changes from UTC${from}
    to UTC${to}: ${when(at, { zone })}</p>`;
  return html`<p role="status"><b>${description}</b></p><p class="small">${effects(form, json)}</p>
    ${!occurrences.length ? html`<p class="warn">It never runs.</p>`
      : html`<ol class="runs" aria-label="Next runs">${occurrences.map(run)}</ol>`}
    ${!isRecurring ? "" : html`${transitions.slice(0, 1).map(change)}${quota(perMonth)}
      <p class="small muted">${capital(catchUpText(form.catchUp))}.</p>`}`;
}

/** "Sends POST to example.com. Up to 4 attempts within 21 min, then a mail to you." */
function effects(form, json) {
  const times = attemptTimes(form.attempts, form.waits);
  const task = json.task ? ` with the task ${json.task}` : "";
  const size = json.size ? ` with ${bytes(json.size)}` : "";
  const { host } = addressOf(form.url);
  const target = form.transport === "worker" ? `Waits for a worker${task}.`
    : `Sends ${form.method}${host && ` to ${host}`}${size}.`;
  const tries = !times ? "" : times.length === 1 ? " One attempt."
    : ` Up to ${times.length} attempts within ${duration(times.at(-1) * 60_000)}.`;
  const ends = [
    form.email && "a mail to you", form.failureUrl && "a call to the address on failure",
    form.pause && form.kind === "recurring" && "a pause of the cue",
  ].filter(Boolean).join(", ");
  return html`<span class="wrap">${target}${tries}${ends ? ` If all fail: ${ends}.` : ""}</span>`;
}

function quota(perMonth) {
  const { used, limit } = state.overview?.usage?.executions || {};
  const text = `${plural(perMonth, "run")} in the next 31 days`;
  if (!isLimited(limit)) return html`<p class="small">${text}.</p>`;
  const isOver = perMonth > limit;
  return html`<div class="small"><p class=${isOver ? "warn" : ""}>${text}, of ${number(limit)} a
    month of your plan${isOver ? ": more than it has" : ""}. Used this month: ${number(used)}.</p>${
    meter(perMonth, limit, `${perMonth} of ${limit} runs`)}</div>`;
}
