// "What will happen": the server's preview of the schedule, what follows from the rest of the form,
// and a test of it.
import { html } from "../../lit/lit-html.js";
import { cuePath, del, get, post, randomKey } from "../../app/api.js";
import { state, update } from "../../app/state.js";
import { duration, serverNow } from "../../app/time.js";
import { bytes, capital, catchUpText, isLimited, number, plural, why } from "../../app/words.js";
import { meter } from "../../parts/charts.js";
import { openDialog } from "../../parts/dialog.js";
import { placeOf, prettyJson, readableJson } from "../../parts/json_text.js";
import { button, when } from "../../parts/pieces.js";
import { baseUrl } from "../../parts/snippets.js";
import { attemptTimes, createBody, problemsOf, scheduleOf } from "./model.js";

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
  return html`<aside class="card" aria-labelledby="happens" aria-busy=${data.asking ? "true"
    : "false"}>
    <header><h2 id="happens">What will happen</h2></header><div class="pad stack" id="preview">${
      answer ? runs(data, answer)
        : html`<p class="muted" role="status">${missing(data)}</p>`}</div></aside>`;
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
    to
    UTC${to}: ${when(at, { zone })}</p>`;
  return html`<p role="status"><b>${description}</b></p><p class="small">${deed(form, json)}</p>
    ${!occurrences.length ? html`<p class="warn">It never runs.</p>`
      : html`<ol class="runs" aria-label="Next runs">${occurrences.map(run)}</ol>`}
    ${!isRecurring ? "" : html`${transitions.slice(0, 1).map(change)}${quota(perMonth)}
      <p class="small muted">${capital(catchUpText(form.catchUp))}.</p>`}`;
}

/** "Sends POST to example.com. Up to 4 attempts within 21 min, then a mail to you." */
function deed(form, json) {
  const times = attemptTimes(form.attempts, form.waits);
  const task = json.task ? ` with the task ${json.task}` : "";
  const size = json.size ? ` with ${bytes(json.size)}` : "";
  const target = form.transport === "worker" ? `Waits for a worker${task}.`
    : `Sends ${form.method}${host(form.url)}${size}.`;
  const tries = !times ? "" : times.length === 1 ? " One attempt."
    : ` Up to ${times.length} attempts within ${duration(times.at(-1) * 60_000)}.`;
  const ends = [
    form.email && "a mail to you",
    form.failureUrl && "a call to the address on failure",
    form.pause && form.kind === "recurring" && "a pause of the cue",
  ].filter(Boolean).join(", ");
  return html`<span class="wrap">${target}${tries}${ends ? ` If all fail: ${ends}.` : ""}</span>`;
}

function host(url) {
  try {
    return ` to ${new URL(url.trim()).host}`;
  } catch {
    return "";
  }
}

function quota(perMonth) {
  const { used, limit } = state.overview?.usage?.executions || {};
  const text = `${plural(perMonth, "run")} in the next 31 days`;
  if (!isLimited(limit)) return html`<p class="small">${text}.</p>`;
  const isOver = perMonth > limit;
  return html`<div class="small"><p class=${isOver ? "warn" : ""}>${text}, of ${number(limit)} a
    month of
    your plan${isOver ? ": more than it has" : ""}. Used this month: ${number(used)}.</p>${
    meter(perMonth, limit, `${perMonth} of ${limit} runs`)}</div>`;
}

const LOOKS = 40;
const PAUSE_MS = 300; // with LOOKS: 12 s for one request to this server itself
const DAY_MS = 86_400_000;

export function testDialog(form) {
  let shown = { text: "Sending…" };
  let redraw = () => {};
  run(form).then((found) => {
    shown = found;
    redraw();
  });
  return openDialog((close, refresh) => {
    redraw = refresh;
    const kind = shown.failed ? "bad wrap" : "muted";
    return html`<div class="body"><h2>What a receiver gets</h2>
      ${shown.headers ? received(shown) : html`<p class=${kind} role="status">${shown.text}</p>`}
      <div class="actions"><a href="#/account/keys" @click=${() => close()}>How to verify the
        signature</a>${button("Close", () => close(), "primary")}</div></div>`;
  }, { broad: true });
}

function received({ headers, payload }) {
  const line = ([name, value]) => html`<li class="wrap"><span class="muted">${name}:</span>
    ${/signature/.test(name) ? html`<b>${value}</b>` : value}</li>`;
  return html`<p>As this server sends it, signed with your webhook secret:</p>
    <ul class="mono small">${Object.entries(headers).map(line)}</ul>
    ${payload ? html`<pre class="code">${prettyJson(readableJson(payload))}</pre>` : ""}
    <p class="small muted">x-cueapi-signature is v1= and the HMAC-SHA256, in hex, of the timestamp,
      a full
      stop and the body as received. The test is a POST and counts as one run.</p>`;
}

/** A cue of its own that exists only for the test: fired, looked at, deleted. */
async function run(form) {
  const token = randomKey();
  const { body, raw } = createBody({
    ...form,
    name: `Test of ${form.name}`.slice(0, 255),
    method: "POST",
    kind: "once",
    at: new Date(serverNow() + DAY_MS).toISOString(),
    url: `${state.info?.public_url || baseUrl()}/v1/echo/${token}`,
    attempts: "1",
    email: false,
    pause: false,
    failureUrl: "",
    fromResponse: false,
    verification: "none",
  });
  let cue = null;
  try {
    cue = await post("v1/cues", body, { raw });
    const { id } = await post(cuePath(cue.id) + "/fire");
    return await look(token, id);
  } catch (error) {
    const { problems, rest } = problemsOf(error, state.info?.callbacks);
    const reasons = [...Object.values(problems), ...rest].join(" ");
    return { failed: true, text: `The test was refused. ${reasons}` };
  } finally {
    if (cue) await del(cuePath(cue.id)).catch(() => {});
  }
}

async function look(token, id) {
  for (let turn = 0; turn < LOOKS; turn++) {
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    const text = await get("v1/echo/" + token, {}, { text: true });
    const valueOf = (name) => {
      const place = placeOf(text, name);
      return place && text.slice(...place);
    };
    const headers = valueOf("headers");
    if (headers) return { headers: JSON.parse(headers), payload: valueOf("payload") };
    const { status, ...rest } = await get("v1/executions/" + id);
    if (status === "failed") {
      return { failed: true, text: `The server could not reach itself: ${why(rest)}.` };
    }
  }
  return { failed: true, text: "Nothing has arrived yet. Is the server busy or held?" };
}
