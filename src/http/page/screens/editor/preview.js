// Input, and "What will happen": the server's preview and what follows from the form.
import { bytes, capital, catchUpText, cuePath, get, hasChannel, html, instant, isLimited, isSilent,
  meter, nextRuns, number, plural, post, sendsMail, serverNow, silence, state, update, when } from
  "../../kit.js";
import { field } from "../../parts/form.js";
import { faultText, surveyJson } from "../../parts/json_text.js";
import { addressOf, attemptTimes, attemptsText, differing, hasWords, saidOf, scheduleOf } from
  "./model.js";

const RUNS = 10;
const PREVIEW = "v1/schedule/preview";
/** The fields that change the preview. */
const WHEN = ["kind", "cron", "at", "start", "end", "jitter", "zone"];

const TYPING_MS = 250;

export function change(data, name, value) {
  data.form[name] = value;
  delete data.problems[name];
  if (WHEN.includes(name)) {
    data.form.meant = null;
    ask(data, TYPING_MS);
  }
  if (name === "payload") {
    clearTimeout(data.reading);
    const wait = TYPING_MS + value.length / 1_000;
    data.reading = setTimeout(() => update(() => readPayload(data)), wait);
  }
  update();
}

/** What is known of the payload's text: `{problem, at, size, task}`. */
export function readPayload(data) {
  clearTimeout(data.reading);
  const text = data.form.payload;
  data.json = { problem: "", size: 0, task: "", ...(text.trim() ? read(text) : {}) };
}

function read(text) {
  const { fault, size, value } = surveyJson(text, "task");
  if (fault) return { at: fault.at, problem: faultText(fault) + "." };
  if (!text.trim().startsWith("{")) return { at: 0, problem: "A payload is a JSON object: { … }." };
  return { size, task: value?.startsWith('"') ? JSON.parse(value) : "" };
}

export const bound = (data, name, label, more) => field({
  name, label, value: data.form[name], problem: data.problems[name] || previewProblem(data, name),
  oninput: (value) => change(data, name, value), ...more,
});

/** Asks for the preview in `wait` ms; answers of older questions are dropped. */
export function ask(data, wait = 0) {
  clearTimeout(data.timer);
  const turn = (data.turn = (data.turn || 0) + 1);
  data.asking = true;
  data.timer = setTimeout(() => fetchPreview(data, turn), wait);
}

const AGAIN_MS = 30_000;
/** Words such as "in 10 min" count from now; what may have arrived stays as it was sent. */
export const isLater = ({ form, busy, error }) => form.meant?.at && !busy && error?.status !== 0;

/** `{error, problems, rest, place}` of an ApiError. */
export const refused = (error, form) => import("./refusals.js").then(
  ({ problemsOf }) => ({ error, ...problemsOf(error, form) }),
  () => ({ error, problems: {}, rest: [error.message] }));

async function fetchPreview(data, turn, again = false) {
  const { form, was, cue, isEdit } = data;
  // The server knows from when the runs of an interval are counted, and the jitter of a cue.
  const isKept = isEdit && cue.next_run && !differing(form, was).some((it) => WHEN.includes(it));
  const asked = isKept ? get(cuePath(cue.id) + "/upcoming", { detail: true, limit: RUNS })
    : understand(form, again && isLater(data)).then(() =>
      post(PREVIEW, { schedule: scheduleOf(form, was, cue), limit: RUNS }));
  const preview = await asked.then((answer) => ({ answer }), (error) => refused(error, form));
  if (turn !== data.turn) return;
  const wait = preview.error?.retryAfter * 1000 || (form.meant?.at && AGAIN_MS);
  if (wait) data.timer = setTimeout(() => fetchPreview(data, turn, true), wait);
  update(() => Object.assign(data, { asking: false, preview }));
  if (preview.place) update(() => ((form.zone = preview.place), ask(data)));
}

/** Asks what the words of the schedule mean, or mean now; the API stores only that. */
export async function understand(form, again = false) {
  const { kind, cron: text, zone: timezone } = form;
  if (kind === "once" || (form.meant && !again) || !hasWords(text)) return;
  const { schedule, description } = await post(PREVIEW, { text, timezone, limit: 1 });
  if (form.cron !== text || form.zone !== timezone) return;
  Object.assign(form, { meant: schedule, said: saidOf(schedule, description) });
}

/** The stored instant or end of a cue lies in the past: no fault of the form. */
function isOver({ form, was, cue, preview }) {
  const name = form.kind === "once" ? "at" : "end";
  return !!preview?.problems?.[name] && form[name] === was[name] && form.zone === was.zone
    && instant(cue?.schedule[name] ?? "") <= serverNow();
}

/** A zone has no problem while it is being typed. */
export const previewProblem = (data, name) =>
  isOver(data) || (name === "zone" && document.activeElement?.id === "f-zone") ? ""
    : data.preview?.problems?.[name];

export function preview(data) {
  const answer = data.preview?.answer;
  return html`<aside class="card" aria-labelledby="happens"
    aria-busy=${data.asking ? "true" : "false"}><header><h2 id="happens">What will
    happen</h2></header><div class="pad stack" id="preview">${answer ? runs(data, answer)
      : html`<p class="muted" role="status">${missing(data)}</p>`}</div></aside>`;
}

function missing(data) {
  if (!data.preview) return "Asking the server…";
  const { rest = [], problems = {} } = data.preview;
  const over = `${data.form.kind === "once" ? "This time" : "The end"} is past. The cue does not run
    again unless you set a later one.`;
  return isOver(data) ? over : rest[0]
    || ("zone" in problems ? "Correct the time zone to see the runs."
    : data.form.kind === "once" ? "Set a future time to see the run."
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
    ? `Waits for a worker${json.task ? ` of task ${json.task}` : ""}.`
    : `Sends ${form.method}${host && ` to ${host}`}${
      json.size ? ` with ${bytes(json.size)}` : ""}.`;
  const tries = !times ? "" : ` ${times.length > 1 ? "Up to " : ""}${attemptsText(times)}.`;
  const ends = [
    form.email && sendsMail() && "a mail to you", hasChannel() && "a message to you",
    form.failureUrl && "a call to your URL",
    form.pause && form.kind === "recurring" && "the cue is paused",
  ].filter(Boolean).join(", ");
  return html`<span class="wrap">${target}${tries}${ends ? ` If all fail: ${ends}.` : ""}</span>${
    isSilent() && !form.failureUrl ? html` <span class="warn">${silence()}</span>` : ""}`;
}

function quota(perMonth) {
  const { used, limit } = state.overview?.usage?.executions || {};
  const text = `${plural(perMonth, "run")} in the next 31 days`;
  if (!isLimited(limit)) return html`<p class="small">${text}.</p>`;
  return html`<div class="small"><p class=${perMonth > limit ? "warn" : ""}>${text}; your plan
    allows ${number(limit)} a month. Used this month: ${number(used)}.</p>${
    meter(perMonth, limit, `${perMonth} of ${limit} runs`)}</div>`;
}
