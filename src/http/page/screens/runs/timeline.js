// The course of a run: in words, and as a timeline.
import { html, nothing, svg } from "../../lit/lit-html.js";
import { duration, instant } from "../../app/time.js";
import { bytes, capital, causeShort, lateText, plural, stateOf, triggerText, why } from "../../app/words.js";
import { byteLength, prettyJson } from "../../parts/json_text.js";
import { badge, when } from "../../parts/values.js";
import { textBlock } from "../cue/payload.js";

export const isCancelled = (run) => run.status === "failed" && run.error_message === "cancelled";
export const isFinal = (run) => run.status === "failed" || run.status === "success";

/** State for a badge: a cancelled run has not failed. */
export const stateOfRun = (run) => (isCancelled(run) ? "cancelled" : run.status);

/** Badges of a run: a success may have been reported as a failure, or not be accepted. */
export const badges = (run) => html`${badge(stateOfRun(run))}${run.outcome_state && run.outcome_state !== "reported_success" ? html` ${badge(run.outcome_state)}` : nothing}`;

/** `[kind of note, sentence]`: what became of the run, and why. */
export function headline(run) {
  const { attempts, max_attempts: most, status, outcome, outcome_state: state, verdict } = run;
  if (isCancelled(run)) return ["idle", attempts ? `Cancelled after ${plural(attempts, "attempt")}.` : "Cancelled before its first attempt."];
  if (status === "failed") return ["bad", end(attempts ? `Failed after ${plural(attempts, "attempt")}: ${why(run)}` : `Not done: ${why(run)}`)];
  if (status === "retrying") return ["warn", end(`Attempt ${attempts} of ${most} failed: ${why(run)}`)];
  if (status === "delivering") return ["", run.claimed_by_worker ? `The worker ${isolated(run.claimed_by_worker)} has it.` : "It is being sent."];
  if (status === "pending") return attempts ? ["warn", "Its worker was lost. It waits for another one."] : ["", "It waits for its turn."];
  if (outcome && !outcome.success) return ["bad", end(`It was delivered, but the work failed: ${outcome.error || outcome.result || "no reason was reported"}`)];
  if (state === "verification_failed") return ["bad", end(`It was done, but not accepted: ${verdict?.reason || "no reason was given"}`)];
  const took = run.duration_ms === null ? "" : ` in ${duration(run.duration_ms)}`;
  const late = run.late_ms >= LATE_MS ? ", " + lateText(run.late_ms) : "";
  const done = attempts ? `Succeeded at ${attempts > 1 ? `attempt ${attempts} of ${most}` : "the first attempt"}${took}${late}.` : "A success was reported.";
  return ["good", state === "verification_pending" ? done + " It is to be verified." : done];
}

// A name with right-to-left text turns nothing around it.
const isolated = (name) => `\u2068${name}\u2069`;
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufefc]/;
/** A sentence; the mark keeps its full stop at its end where it ends in a text from right to left. */
const end = (text) => (/[.!?]$/.test(text) ? text : text + (RIGHT_TO_LEFT.test(text) ? "\u200e." : "."));

/** Result of an attempt for a badge, and its sentence. */
export function attemptStory(attempt) {
  const { result } = attempt;
  if (!result) return ["running", attempt.worker_id ? `The worker ${isolated(attempt.worker_id)} has it.` : "The request is under way."];
  if (result === "success") return ["success", ""];
  if (result === "cut") return ["cut", "The server was stopped during this attempt. It does not count, and was repeated."];
  if (result === "claim_lost") return ["claim_lost", `The worker${attempt.worker_id ? " " + isolated(attempt.worker_id) : ""} sent no sign of life until its lease ended.`];
  // A failure that another attempt followed is a failure: the run is what was retried.
  return ["failed", end(capital(why(attempt)))];
}

/** The wait after attempt `i` in ms: until the next one began, or is due. `null` where it is not known. */
export function waitAfter(attempts, i) {
  const { ended_at: from, next_retry: due } = attempts[i];
  const to = attempts[i + 1]?.started_at ?? (attempts[i + 1] ? null : due);
  return from && to ? Math.max(0, instant(to) - instant(from)) : null;
}

/** When a run ended. */
export const endOf = (run, attempts) => run.delivered_at ?? ((!isCancelled(run) && attempts.at(-1)?.ended_at) || run.updated_at);

/** Creation of a run in ms: the first 48 bits of its id, a UUID of version 7. */
export const createdMs = (id) => parseInt(id.replaceAll("-", "").slice(0, 12), 16);

const KEPT_BYTES = 2_000; // of an answer, by the server
const LATE_MS = 1_000; // a shorter delay is no news beside the result

/** One step: its sign and title, its time and measures, what belongs to it below. */
const step = (state, title, meta, ...more) => {
  const { sign, color } = stateOf(state);
  return html`<li class=${color} data-step=${state}><span class="dot" aria-hidden="true">${sign}</span><h3>${title}</h3>${meta === nothing ? nothing : html`<p class="small muted">${meta}</p>`}${more}</li>`;
};
const stamp = (time, zone) => when(time, { zone, seconds: true, only: "absolute" });

export function timeline({ run, attempts, cue }) {
  const zone = cue?.schedule?.timezone;
  const waits = attempts.map((_, i) => waitAfter(attempts, i));
  const first = attempts.findIndex((attempt) => attempt.result !== "cut");
  const longest = Math.max(...waits, 1);
  const told = attempts.findLastIndex((attempt) => attempt.response_body);
  return html`<ol class="timeline">
    ${step("pending", "Due", html`${stamp(run.scheduled_for, zone)}, ${STARTED[run.triggered_by] ?? triggerText(run.triggered_by)}`)}
    ${attempts.map((attempt, i) => [
      attemptStep(run, attempt, zone, i === first ? lateText(run.late_ms) : "", i === told),
      waits[i] === null || (isFinal(run) && i === attempts.length - 1) ? nothing : waitStep(waits[i], longest),
    ])}
    ${run.status === "retrying" ? step("retrying", "Next attempt", stamp(run.next_retry, zone)) : nothing}
    ${run.status === "pending" ? step("pending", attempts.length ? "Waits for another worker" : cue?.transport === "worker" ? "Waits for a worker" : "Not sent yet", nothing) : nothing}
    ${isFinal(run) ? endStep(run, attempts, zone) : nothing}
    ${run.outcome ? outcomeStep(run, zone) : nothing}
    ${run.verdict ? verdictStep(run.verdict, zone) : nothing}
  </ol>`;
}

const STARTED = { schedule: "by its schedule", replay: "as a replay" };

function attemptStep(run, attempt, zone, late, open) {
  const [state, sentence] = attemptStory(attempt);
  const facts = [late, attempt.duration_ms === null ? "" : "took " + duration(attempt.duration_ms)].filter(Boolean).map((text) => ", " + text);
  const lease = !attempt.result && run.lease_expires_at;
  return step(state, html`Attempt ${attempt.attempt} <span class="muted">of ${run.max_attempts}</span> ${badge(state, attempt.cause || attempt.http_status ? causeShort(attempt) : "")}`, html`${stamp(attempt.started_at, zone)}${facts}${attempt.worker_id ? html`, by the worker <bdi>${attempt.worker_id}</bdi>` : nothing}${lease ? html`, its lease ends ${when(lease, { only: "relative" })}` : nothing}`, html`
    ${sentence ? html`<p class="wrap">${sentence}</p>` : nothing}
    ${attempt.response_body || attempt.response_headers ? answer(attempt, open) : nothing}`);
}

function answer({ attempt, http_status: status, response_body: body, response_headers: headers, response_truncated: isCut }, open) {
  return html`<details data-answer=${attempt} ?open=${open}>
    <summary>What the receiver answered${status ? html` <span class="num">(${status}${body ? `, ${isCut ? "more than " : ""}${bytes(byteLength(body))}` : ""})</span>` : nothing}</summary>
    ${headers?.length ? headerList(headers) : nothing}
    ${body ? html`${isCut ? html`<p class="small muted">The first ${KEPT_BYTES.toLocaleString("en-GB")} bytes.</p>` : nothing}${textBlock(body)}` : html`<p class="muted">The answer was empty.</p>`}
  </details>`;
}

export const headerList = (headers) => html`<dl class="facts small mono">${headers.map(([name, value]) => html`<dt class="wrap">${name}</dt><dd>${value}</dd>`)}</dl>`;

/** A wait as a bar, in proportion to the longest one. */
const waitStep = (ms, longest) => html`<li class="waited"><svg class="wait" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">${svg`<path d=${`M0 2h${Math.max(2, (ms / longest) * 100)}`}/>`}</svg><span class="small muted">${duration(ms)} wait</span></li>`;

function endStep(run, attempts, zone) {
  const end = endOf(run, attempts);
  const took = instant(end) - instant(run.scheduled_for);
  const state = stateOfRun(run);
  // The reason of an attempt stands at the attempt.
  const more = state === "failed" && !attempts.length ? capital(why(run)) : "";
  return step(state, stateOf(state).word, html`${stamp(end, zone)}${took > 0 ? `, ${duration(took)} after it was due` : nothing}`, more ? html`<p class="wrap">${more}</p>` : nothing);
}

function outcomeStep({ outcome, evidence, outcome_state: state, metadata, artifacts }, zone) {
  const shown = [["Result", outcome.result], ["Error", outcome.error], ["External id", evidence?.external_id], ["Address", evidence?.result_url], ["Reference", evidence?.result_ref], ["Type", evidence?.result_type], ["Summary", evidence?.summary]];
  return step(outcome.success ? "reported_success" : "reported_failure", html`Outcome ${badge(state)}`, stamp(outcome.recorded_at, zone), html`
    <dl class="facts">${shown.map(([label, text]) => (text ? html`<dt>${label}</dt><dd><bdi>${text}</bdi></dd>` : nothing))}</dl>
    ${metadata ? html`<h4>Details</h4>${textBlock(metadata)}` : nothing}
    ${artifacts ? html`<h4>Artifacts</h4>${textBlock(artifacts)}` : nothing}`);
}

const verdictStep = ({ valid, reason, verified_at: at }, zone) => step(valid ? "verified_success" : "verification_failed", valid ? "Accepted" : "Rejected", stamp(at, zone), reason ? html`<p class="wrap">${reason}</p>` : nothing);

/** The JSON of a field of a run, letter for letter: `text` is the answer, laid out by `prettyJson`. Pure. */
export function rawField(text, name) {
  const found = new RegExp(`^ {4}"${name}": ([^]*?)(?:,\\n {4}"|\\n {2}\\})`, "m").exec(prettyJson(text))?.[1];
  return found && found !== "null" ? found : null;
}
