// "What will happen": the server's preview of the schedule, what follows from the rest of the form.
import { bytes, capital, catchUpText, cuePath, get, html, instant, isLimited, meter, nextRuns,
  number, plural, post, serverNow, state, update, when } from "../../kit.js";
import { addressOf, attemptTimes, attemptsText, differing, problemsOf,
  scheduleOf } from "./model.js";

const RUNS = 10;
/** The fields that change the preview. */
export const WHEN = ["kind", "cron", "at", "start", "end", "jitter", "zone"];

/** Asks for the preview in `wait` ms; answers of older questions are dropped. */
export function ask(data, wait = 0) {
  clearTimeout(data.timer);
  const turn = (data.turn = (data.turn || 0) + 1);
  data.asking = true;
  data.timer = setTimeout(() => fetchPreview(data, turn), wait);
}

async function fetchPreview(data, turn) {
  const { form, was, cue, isEdit } = data;
  const schedule = scheduleOf(form, was, cue);
  // The server knows from when the runs of an interval are counted, and the jitter of a cue.
  const isKept = isEdit && cue.next_run && !differing(form, was).some((it) => WHEN.includes(it));
  const asked = isKept ? get(cuePath(cue.id) + "/upcoming", { detail: true, limit: RUNS })
    : post("v1/schedule/preview", { schedule, limit: RUNS });
  const preview = await asked.then(
    (answer) => ({ answer }), (error) => ({ error, ...problemsOf(error) }));
  if (turn !== data.turn) return;
  const wait = preview.error?.retryAfter;
  if (wait) data.timer = setTimeout(() => fetchPreview(data, turn), wait * 1000);
  update(() => Object.assign(data, { asking: false, preview }));
}

/** The stored instant or end of a cue lies in the past: no fault of the form. */
function isOver({ form, was, cue, preview }) {
  const name = form.kind === "once" ? "at" : "end";
  return !!preview?.problems?.[name] && form[name] === was[name] && form.zone === was.zone
    && instant(cue?.schedule[name] ?? "") <= serverNow();
}

export const previewProblem = (data, name) => (isOver(data) ? "" : data.preview?.problems?.[name]);

export function preview(data) {
  const { answer } = data.preview || {};
  return html`<aside class="card" aria-labelledby="happens"
    aria-busy=${data.asking ? "true" : "false"}><header><h2 id="happens">What will
    happen</h2></header><div class="pad stack" id="preview">${answer ? runs(data, answer)
      : html`<p class="muted" role="status">${missing(data)}</p>`}</div></aside>`;
}

function missing(data) {
  if (!data.preview) return "Asking the server…";
  const { rest = [], problems = {} } = data.preview;
  const over = `${data.form.kind === "once" ? "This time" : "The end"} is past. The cue does not run
    again unless you give a later one.`;
  return isOver(data) ? over : rest[0]
    || ("zone" in problems ? "Correct the time zone to see the runs."
    : data.form.kind === "once" ? "Give a time to come to see the run."
    : "Correct the schedule to see the runs.");
}

function runs({ form, json }, { description, occurrences, transitions, per_month: perMonth }) {
  const zone = form.zone;
  const change = ({ at, from, to }) => html`<p class="small muted">The clock changes from UTC${from}
    to UTC${to}: ${when(at, { zone })}</p>`;
  return html`<p role="status"><b>${description}</b></p><p class="small">${effects(form, json)}</p>
    ${occurrences.length ? nextRuns(occurrences, zone) : html`<p class="warn">It never runs.</p>`}
    ${form.kind === "once" ? "" : html`${transitions.slice(0, 1).map(change)}${quota(perMonth)}
      <p class="small muted">${capital(catchUpText(form.catchUp))}.</p>`}`;
}

function effects(form, json) {
  const times = attemptTimes(form.attempts, form.waits);
  const { host } = addressOf(form.url);
  const target = form.transport === "worker"
    ? `Waits for a worker${json.task ? ` with the task ${json.task}` : ""}.`
    : `Sends ${form.method}${host && ` to ${host}`}${
      json.size ? ` with ${bytes(json.size)}` : ""}.`;
  const tries = !times ? "" : ` ${times.length > 1 ? "Up to " : ""}${attemptsText(times)}.`;
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
