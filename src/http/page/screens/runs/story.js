// What became of a run, in words. Pure.
import { duration, instant } from "../../app/time.js";
import { capital, lateText, plural, why } from "../../app/words.js";

export const isCancelled = (run) => run.status === "failed" && run.error_message === "cancelled";
export const isFinal = (run) => run.status === "failed" || run.status === "success";

/** State for a badge: a cancelled run has not failed. */
export const stateOfRun = (run) => (isCancelled(run) ? "cancelled" : run.status);

const MESSAGES = {
  execution_limit_exceeded: "the quota of the month was used up, so it was not sent",
  "not claimed in time": "no worker took it in time",
};

/** Why a run or an attempt failed: the server's message, a known word of it as a sentence. */
export const reasonOf = (run) => MESSAGES[run.error_message] || why(run);

/** `[kind of note, sentence]`: what became of the run, and why. */
export function headline(run) {
  const { attempts, max_attempts: most, status, outcome, outcome_state: state, verdict } = run;
  if (isCancelled(run)) return ["idle", attempts ? `Cancelled after ${plural(attempts, "attempt")}.` : "Cancelled before its first attempt."];
  if (status === "failed") return ["bad", end(attempts ? `Failed after ${plural(attempts, "attempt")}: ${reasonOf(run)}` : `Not done: ${reasonOf(run)}`)];
  if (status === "retrying") return ["warn", end(`Attempt ${attempts} of ${most} failed: ${reasonOf(run)}`)];
  if (status === "delivering") return ["", run.claimed_by_worker ? `The worker ${isolated(run.claimed_by_worker)} has it.` : "It is being sent."];
  if (status === "pending") return attempts ? ["warn", "A worker took it and was lost. It waits for another one."] : ["", "It waits for its turn."];
  if (outcome && !outcome.success) return ["bad", end(`It was delivered, but the work failed: ${outcome.error || outcome.result || "no reason was reported"}`)];
  if (state === "verification_failed") return ["bad", end(`It was done, but not accepted: ${verdict?.reason || "no reason was given"}`)];
  const took = run.duration_ms === null ? "" : ` in ${duration(run.duration_ms)}`;
  const late = lateText(run.late_ms);
  const done = attempts ? `Succeeded at ${attempts > 1 ? `attempt ${attempts} of ${most}` : "the first attempt"}${took}${late && ", " + late}.` : "A success was reported.";
  return ["good", state === "verification_pending" ? done + " It is to be verified." : done];
}

// A name with right-to-left text turns nothing around it.
const isolated = (name) => `\u2068${name}\u2069`;
const end = (text) => (/[.!?]$/.test(text) ? text : text + ".");

/** Result of an attempt for a badge, and its sentence. */
export function attemptStory(attempt) {
  const { result } = attempt;
  if (!result) return ["running", attempt.worker_id ? `The worker ${isolated(attempt.worker_id)} has it.` : "The request is under way."];
  if (result === "success") return ["success", ""];
  if (result === "cut") return ["cut", "The server was stopped during this attempt. It does not count, and was repeated."];
  if (result === "claim_lost") return ["claim_lost", `The worker${attempt.worker_id ? " " + isolated(attempt.worker_id) : ""} sent no sign of life until its lease ended.`];
  // A failure that another attempt followed is a failure: the run is what was retried.
  return ["failed", end(capital(reasonOf(attempt)))];
}

/** The wait after attempt `i` in ms: until the next one began, or is due. `null` where it is not known. */
export function waitAfter(attempts, i) {
  const { ended_at: from, next_retry: due } = attempts[i];
  const to = attempts[i + 1]?.started_at ?? (attempts[i + 1] ? null : due);
  return from && to ? Math.max(0, instant(to) - instant(from)) : null;
}

/** Time from the due instant to the end of the run in ms; `null` while it is under way. */
export function wholeTime(run, attempts) {
  const last = attempts.at(-1)?.ended_at;
  return isFinal(run) && last ? Math.max(0, instant(last) - instant(run.scheduled_for)) : null;
}

/** Creation of a run in ms: the first 48 bits of its id, a UUID of version 7. */
export const createdMs = (id) => parseInt(id.replaceAll("-", "").slice(0, 12), 16);
