// Words and signs of states, causes and events. Pure; the one place where the API's words become
// texts.
import { duration } from "./time.js";

// State -> [sign, word, colour class, letter of the history]
const STATES = {
  success: ["●", "Succeeded", "good", "s"],
  failed: ["✕", "Failed", "bad", "f"],
  retrying: ["↻", "Retrying", "warn", "r"],
  delivering: ["◐", "Running", "act", "d"],
  pending: ["○", "Pending", "idle", "p"],
  missed: ["┄", "Missed", "warn", "m"],
  active: ["●", "Active", "good"],
  paused: ["‖", "Paused", "idle"],
  completed: ["✓", "Completed", "idle"],
  stale: ["◐", "Late", "warn"],
  dead: ["✕", "Gone", "bad"],
  cut: ["┄", "Interrupted", "warn"],
  claim_lost: ["┄", "Worker lost", "warn"],
  reported_success: ["●", "Reported success", "good"],
  reported_failure: ["✕", "Reported failure", "bad"],
  verified_success: ["✓", "Verified", "good"],
  verification_pending: ["○", "To be verified", "warn"],
  verification_failed: ["✕", "Rejected", "bad"],
  running: ["◐", "Running", "act"],
};
const LETTERS = Object.fromEntries(Object.entries(STATES).map(([word, [, , , letter]]) =>
    [letter, word]));

/** `{sign, word, color}` of a state of a run, cue, worker, attempt or outcome. */
export function stateOf(name) {
  const other = capital(String(name ?? "unknown").replaceAll("_", " "));
  const [sign, word, color] = STATES[name] || ["○", other, "idle"];
  return { sign, word, color };
}

/** State of a letter of `recent.statuses`. */
export const stateOfLetter = (letter) => LETTERS[letter] || "pending";

const CAUSES = {
  timeout: "the callback did not answer in time",
  blocked_address: "the callback's address is not allowed",
  unknown_name: "the callback's host name was not found",
  connection: "the connection to the callback failed",
  tls: "the TLS connection to the callback failed",
  unsendable: "the request could not be sent",
  status_3xx: "the callback redirected",
  status_4xx: "the callback refused the request",
  status_5xx: "the callback failed",
  status_other: "the callback's answer was not understood",
  fault: "an internal error",
};
export const CAUSE_NAMES = Object.keys(CAUSES);

const SHORT_CAUSES = {
  unknown_name: "host not found",
  blocked_address: "address not allowed",
  connection: "no connection",
  tls: "TLS",
  fault: "internal error",
  status_3xx: "redirect",
  status_4xx: "answered 4xx",
  status_5xx: "answered 5xx",
  status_other: "odd answer",
};

/** Short cause for a row: "503", "timeout", "host not found". */
export function causeShort({ cause, http_status: status }) {
  if (status) return String(status);
  return SHORT_CAUSES[cause] || (cause || "").replaceAll("_", " ");
}

const MESSAGES = {
  execution_limit_exceeded: "the quota of the month was used up, so it was not sent",
  address_unconfirmed: 
    "it waits, because the account may call only 60 times an hour until its address is confirmed",
  "not claimed in time": "no worker took it in time",
};

/**
 * The reason of a failed run or attempt: the message of the server, a code as a sentence, else the
 * cause in words.
 */
export function why({ cause, http_status: status, error_message: message }) {
  if (message) return MESSAGES[message] || message;
  if (status && cause?.startsWith("status_")) return `the callback returned ${status}`;
  return CAUSES[cause] || (status ? `the callback returned ${status}` : "no reason is known");
}

/** "failed 3 times in a row" */
export const streakText = (count) => (count > 1 ? `failed ${count} times in a row` : "failed");

const TRIGGERS = { schedule: "schedule", manual_fire: "fired by hand", replay: "replay" };
export const triggerText = (word) => TRIGGERS[word] || String(word).replaceAll("_", " ");

const CATCH_UP = {
  latest: "after an outage, runs the latest missed time",
  all: "after an outage, runs every missed time",
  none: "skips times that were missed",
};
export const catchUpText = (word) => CATCH_UP[word] || word;

const REASONS = { downtime: "the server was not running", clock: "the clock was set forward" };
export const missReason = (word) => REASONS[word] || word;

const VIA = { key: "API key", mail: "link by mail", link: "one-time link",
  dev: "development sign-in" };
export const viaText = (word) => VIA[word] || word;

/** "late 2 ms", or "" where nothing was measured. */
export const lateText = (ms) => (ms === null || ms === undefined ? "" : `late ${duration(ms)}`);

/** "1 run", "2 runs", "1,200 runs" */
export const plural = (count, one) => `${number(count)} ${count === 1 ? one : one + "s"}`;
export const number = (value) => Number(value).toLocaleString("en-GB");
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** "64 MiB" */
export function bytes(count) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  let size = count;
  while (size >= 1_024 && at < units.length - 1) (size /= 1_024), at++;
  return `${at && size < 10 ? size.toFixed(1) : number(Math.round(size))} ${units[at]}`;
}

const NO_LIMIT = 1_000_000_000; // how the API shows a limit that is switched off
export const isLimited = (limit) => limit !== null && limit !== undefined && limit < NO_LIMIT;

export const isCancelled = (run) => run.status === "failed" && run.error_message === "cancelled";

/** State for a badge: a cancelled run has not failed. */
export const stateOfRun = (run) => (isCancelled(run) ? "cancelled" : run.status);

/** Attempts of a retry in minutes after the first; the last wait given repeats. */
export function attemptsOf({ max_attempts: most, backoff_minutes: waits }) {
  const times = [0];
  for (let i = 1; i < most; i++) {
    times.push(times.at(-1) + (waits[Math.min(i, waits.length) - 1] ?? 0));
  }
  return times;
}
