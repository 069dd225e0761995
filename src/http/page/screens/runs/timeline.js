// The course of a run: in words, and as a timeline.
import { ago, awaitsResult, badge, bytes, capital, causeShort, duration, facts, html, instant,
  isCancelled, lateText, number, plural, stateOf, stateOfRun, svg, triggerText, waitText, when, why
} from "../../kit.js";
import { byteLength, headerList, prettyJson, textBlock } from "../../parts/payload.js";

const KEPT_BYTES = 2_000; // of a response, by the server
const LATE_MS = 1_000; // a shorter delay is no news beside the result

export const isFinal = (run) => run.status === "failed" || run.status === "success";

export function headline(run) {
  const { attempts, max_attempts: most, status, outcome, outcome_state: state, verdict } = run;
  const tried = plural(attempts, "attempt");
  if (isCancelled(run)) {
    return ["idle", `Cancelled ${attempts ? `after ${tried}` : "before its first attempt"}.`];
  }
  const took = run.duration_ms === null ? "" : ` in ${duration(run.duration_ms)}`;
  const late = run.late_ms >= LATE_MS ? ", " + lateText(run.late_ms) : "";
  const which = attempts > 1 ? `attempt ${attempts} of ${most}` : "the first attempt";
  const done = attempts ? `Succeeded at ${which}${took}${late}.` : "Reported as a success.";
  const reason = outcome?.error || outcome?.result || "no reason was reported";
  const success = state === "missing"
    ? ["bad", "Delivered, but no result was reported in time."] : outcome && !outcome.success
    ? ["bad", end(`Delivered, but the work failed: ${reason}`)]
    : state === "verification_failed"
    ? ["bad", end(`Done, but not accepted: ${verdict?.reason || "no reason was given"}`)]
    : awaitsResult(run) ? ["", `Delivered at ${which}${took}${late}, no result yet.`]
    : ["good", state === "verification_pending" ? done + " It needs your confirmation." : done];
  return {
    __proto__: null,
    success,
    failed: ["bad", end(outcome?.success === false ? `Reported as a failure, so not retried: ${why(run)}`
      : `${attempts ? `Failed after ${tried}` : "Not sent"}: ${why(run)}`)],
    retrying: ["warn", end(`Attempt ${attempts} of ${most} failed: ${why(run)}`)],
    delivering: ["", atWorker(run.claimed_by_worker) || "It is being sent."],
    pending: attempts && !run.waits_for
      ? ["warn", "Its worker was lost. It waits for another worker."]
      : ["", run.waits_for ? `It ${waitText(run)}.` : "Waiting."],
  }[status] ?? success;
}

// A name with right-to-left text turns nothing around it.
const isolated = (name) => `\u2068${name}\u2069`;
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufefc]/;
/** A sentence; after a text from right to left a mark keeps the full stop at its end. */
const end = (text) =>
  /[.!?]$/.test(text) ? text : text + (RIGHT_TO_LEFT.test(text) ? "\u200e." : ".");
const atWorker = (name) => name && `The worker ${isolated(name)} is running it.`;

/** Result of an attempt for a badge, and its sentence. */
export function attemptStory(attempt) {
  const { result, worker_id: worker } = attempt;
  if (!result) return ["running", atWorker(worker) || "The request is in progress."];
  const name = worker ? " " + isolated(worker) : "";
  const sentence = {
    __proto__: null,
    success: "",
    cut: "The server was stopped during this attempt. It does not count and was repeated.",
    claim_lost: `The worker${name} sent no heartbeat before its lease ended.`,
  }[result];
  // A failure that another attempt followed is a failure: the run is what was retried.
  return sentence === undefined ? ["failed", end(capital(why(attempt)))] : [result, sentence];
}

/** Milliseconds from attempt `i` until the next one began, or is due; `null` if not known. */
export function waitAfter(attempts, i) {
  const { ended_at: from, next_retry: due } = attempts[i];
  const to = attempts[i + 1] ? attempts[i + 1].started_at : due;
  return from && to ? Math.max(0, instant(to) - instant(from)) : null;
}

export const endOf = (run, attempts) =>
  run.delivered_at ?? ((!isCancelled(run) && attempts.at(-1)?.ended_at) || run.updated_at);

/** One step: its sign and title, its time and measures, what belongs to it below. */
const step = (state, title, about, ...more) => {
  const { sign, color } = stateOf(state);
  return html`<li class=${color} data-step=${state}>
    <span class="dot" aria-hidden="true">${sign}</span><h3>${title}</h3>${
    about ? html`<p class="small muted">${about}</p>` : ""}${more}</li>`;
};
const line = (text) => (text ? html`<p class="wrap pre">${text}</p>` : "");

const STARTED = { __proto__: null, schedule: "by its schedule", replay: "as a replay" };

export function timeline({ run, attempts, cue }) {
  const stamp = (time) =>
    when(time, { zone: cue?.schedule?.timezone, seconds: true, only: "absolute" });
  const gaps = attempts.map((_, i) => waitAfter(attempts, i));
  const longest = Math.max(...gaps, 1);
  const first = attempts.findIndex((attempt) => attempt.result !== "cut");
  const answered = attempts.findLastIndex((attempt) => attempt.response_body);
  const started = STARTED[run.triggered_by] ?? triggerText(run.triggered_by);
  const isLast = (i) => isFinal(run) && i === attempts.length - 1;
  const held = capital(waitText(run));
  const waitsFor = attempts.length ? "Waiting for another worker"
    : cue?.transport === "worker" ? "Waiting for a worker" : "Not sent yet";
  return html`<ol class="timeline">
    ${step("pending", "Due", html`${stamp(run.scheduled_for)}, ${started}`)}
    ${attempts.map((attempt, i) => [
      attemptStep(run, attempt, stamp, i === first ? lateText(run.late_ms) : "", i === answered),
      gaps[i] === null || isLast(i) ? "" : waitStep(gaps[i], longest),
    ])}
    ${run.status === "retrying"
      ? step("retrying", "Next attempt", held || stamp(run.next_retry)) : ""}
    ${run.status === "pending" ? step("pending", held || waitsFor) : ""}
    ${isFinal(run) ? endStep(run, attempts, stamp) : ""}
    ${run.outcome ? outcomeStep(run, stamp) : ""}
    ${run.verdict ? verdictStep(run.verdict, stamp) : ""}</ol>`;
}

function attemptStep(run, attempt, stamp, late, isOpen) {
  const { worker_id: worker, duration_ms: ms, cause, http_status: status } = attempt;
  const [state, sentence] = attemptStory(attempt);
  const measures = [late, ms === null ? "" : "took " + duration(ms)].filter(Boolean);
  const lease = !attempt.result && run.lease_expires_at;
  // The outcome below has the error that a worker reported.
  const isReported = run.outcome?.error && run.outcome.error === attempt.error_message;
  return step(state, html`Attempt ${attempt.attempt} <span class="muted">of ${
    run.max_attempts}</span> ${badge(state, cause || status ? causeShort(attempt) : "")}`,
  html`${stamp(attempt.started_at)}${measures.map((text) => ", " + text)}${
    worker ? html`, by the worker <bdi>${worker}</bdi>` : ""}${
    lease ? html`, its lease ends ${ago(lease)}` : ""}`, line(isReported ? "" : sentence), answer(attempt, isOpen));
}

function answer(attempt, isOpen) {
  const { http_status: status, response_body: body, response_headers: headers } = attempt;
  const isCut = attempt.response_truncated;
  if (!body && !headers) return "";
  const size = body ? `, ${isCut ? "more than " : ""}${bytes(byteLength(body))}` : "";
  const cut = isCut
    ? html`<p class="small muted">Shows the first ${number(KEPT_BYTES)} bytes.</p>` : "";
  return html`<details data-answer=${attempt.attempt} ?open=${isOpen}><summary>Response${
    status ? html` <span class="num">(${status}${size})</span>` : ""}</summary>
    ${headers?.length ? headerList(headers) : ""}${body ? [cut, textBlock(body)]
      : html`<p class="muted">The response was empty.</p>`}</details>`;
}

/** A wait as a bar, in proportion to the longest one. */
const waitStep = (ms, longest) => html`<li class="waited"><svg class="wait" viewBox="0 0 100 4"
  preserveAspectRatio="none" aria-hidden="true">${
  svg`<path d=${`M0 2h${Math.max(2, (ms / longest) * 100)}`}/>`}</svg><span class="small muted">${
  duration(ms)} wait</span></li>`;

function endStep(run, attempts, stamp) {
  const end = endOf(run, attempts);
  const took = instant(end) - instant(run.scheduled_for);
  const state = stateOfRun(run);
  const after = took > 0 ? `, ${duration(took)} after it was due` : "";
  // The reason of an attempt stands at the attempt.
  const reason = state === "failed" && !attempts.length ? capital(why(run)) : "";
  return step(state, stateOf(state).word, html`${stamp(end)}${after}`, line(reason));
}

function outcomeStep({ outcome, evidence, outcome_state: state, metadata, artifacts }, stamp) {
  const proof = evidence ?? {};
  const block = (title, text) => (text ? html`<h4>${title}</h4>${textBlock(text)}` : "");
  return step(outcome.success ? "reported_success" : "reported_failure",
    html`Outcome ${badge(state)}`, stamp(outcome.recorded_at), facts([
      ["Result", outcome.result], ["Error", outcome.error], ["External id", proof.external_id],
      ["URL", proof.result_url], ["Reference", proof.result_ref], ["Type", proof.result_type],
      ["Summary", proof.summary],
    ].map(([label, text]) => [label, text && html`<bdi class="pre">${text}</bdi>`])),
    block("Details", metadata), block("Artifacts", artifacts));
}

const verdictStep = ({ valid, reason, verified_at: at }, stamp) =>
  step(valid ? "verified_success" : "verification_failed", valid ? "Accepted" : "Rejected",
    stamp(at), line(reason));

/** The JSON of a field of a run as `prettyJson` lays it out, letter for letter, or `null`. Pure. */
export function rawField(text, name) {
  const pattern = new RegExp(`^ {4}"${name}": ([^]*?)(?:,\\n {4}"|\\n {2}\\})`, "m");
  const found = pattern.exec(prettyJson(text))?.[1];
  return found && found !== "null" ? found : null;
}
