// Words and signs of states, causes and events. Pure.
import { duration } from "./time.js";

// State -> [sign, word, colour class, letter of the history]
const STATES = {
  __proto__: null,
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
  verification_pending: ["○", "Needs verification", "warn"],
  verification_failed: ["✕", "Rejected", "bad"],
  running: ["◐", "Running", "act"],
  delivered: ["◐", "Delivered", "act"],
  missing: ["✕", "No result", "bad"],
  failing: ["✕", "Failing", "bad"],
  unconfirmed: ["○", "Unconfirmed", "warn"],
  log_only: ["┄", "Log only", "warn"],
};

/** `{sign, word, color}` of a state of a run, cue, worker, channel, attempt or outcome. */
export function stateOf(name) {
  const other = capital(String(name ?? "unknown").replaceAll("_", " "));
  const [sign, word, color] = STATES[name] || ["○", other, "idle"];
  return { sign, word, color };
}

/** State of a letter of `recent.statuses`, and the other way. */
export const stateOfLetter = (letter) =>
  Object.keys(STATES).find((name) => STATES[name][3] === letter) ?? "pending";
export const letterOf = (name) => STATES[name]?.[3] ?? "p";

// Cause -> [as a sentence, as a word in a row]. The command line has the same words (src/cli/client/words.rs).
const CAUSES = {
  __proto__: null,
  timeout: ["the URL did not respond in time", "timeout"],
  blocked_address: ["the URL resolves to a blocked address", "address not allowed"],
  unknown_name: ["the host of the URL was not found, or is not allowed", "no usable address"],
  connection: ["the connection failed", "no connection"],
  tls: ["the TLS connection failed", "TLS"],
  unsendable: ["the request could not be sent", "unsendable"],
  status_3xx: ["the URL redirected", "redirect (3xx)"],
  status_4xx: ["the URL returned a 4xx status", "client error (4xx)"],
  status_5xx: ["the URL returned a 5xx status", "server error (5xx)"],
  status_other: ["the response had another status", "other status"],
  fault: ["an internal error", "internal error"],
  expired: ["it did not succeed in time", "expired"],
};
export const CAUSE_NAMES = Object.keys(CAUSES);

/** Short cause for a row: "503", "timeout", "no usable address". */
export const causeShort = ({ cause, http_status: status }) =>
  status ? String(status) : CAUSES[cause]?.[1] ?? (cause || "").replaceAll("_", " ");

const MESSAGES = {
  __proto__: null,
  execution_limit_exceeded: "this month's runs were used up",
  address_unconfirmed:
    "it waits: until you confirm your email address, your runs make at most 60 calls an hour",
  "not claimed in time": "no worker claimed it in time",
};

export function why({ cause, http_status: status, error_message: message }) {
  if (cause === "expired") return CAUSES[cause][0] + (/; the last [^]*/.exec(message) ?? "");
  if (message) return MESSAGES[message] || message.replaceAll("the callback", "the URL");
  if (status && (!CAUSES[cause] || cause.startsWith("status_"))) {
    return `the URL returned ${status}`;
  }
  return CAUSES[cause]?.[0] || "unknown reason";
}

/** The same in one line of a list. */
export const whyLine = (run) => why(run).trim().replaceAll(/\s*\n\s*/g, " · ");

export const streakText = (count) => (count > 1 ? `failed ${count} times in a row` : "failed");

/** Words of the API as texts; a new word as it is. */
const textsOf = (texts) => (word) => (Object.hasOwn(texts, word) ? texts[word]
  : String(word).replaceAll("_", " "));
export const triggerText = textsOf({ manual_fire: "fired by hand" });
export const catchUpText = textsOf({
  latest: "after downtime, the latest missed run still fires",
  all: "after downtime, every missed run still fires", none: "missed runs are skipped",
});
export const missReason = textsOf({
  downtime: "the server was down, asleep or on hold", clock: "the clock was set forward",
  overlap: "the earlier run was still going",
});
export const viaText = textsOf({
  key: "API key", mail: "mailed link", link: "one-time link", dev: "development sign-in",
});

/** When a schedule recurs: "0 3 * * *" or "every 5m". */
export const ruleText = ({ cron, every }) => (every ? `every ${every}` : cron ?? "once");

export const lateText = (ms) => (ms === null || ms === undefined ? "" : `late ${duration(ms)}`);
export const plural = (count, one) => `${number(count)} ${count === 1 ? one : one + "s"}`;
export const sumOf = (list, field) => list.reduce((sum, entry) => sum + entry[field], 0);
export const number = (value) => Number(value).toLocaleString("en-GB");
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export function bytes(count) {
  const power = count < 1 ? 0 : Math.min(4, Math.floor(Math.log2(count) / 10));
  const size = count / 1_024 ** power;
  return `${power && size < 10 ? size.toFixed(1) : number(Math.round(size))} ${
    ["bytes", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

const NO_LIMIT = 1_000_000_000; // how the API shows a limit that is switched off
export const isLimited = (limit) => limit !== null && limit !== undefined && limit < NO_LIMIT;

/** A cancelled run has not failed. */
export const isCancelled = (run) => run.status === "failed" && run.error_message === "cancelled";
/** Somebody must still report the result of a delivered run, which has not succeeded before. */
export const awaitsResult = (run) => !!run.outcome_due_at && !run.outcome_state;
export const stateOfRun = (run) => isCancelled(run) ? "cancelled" : run.status === "success"
  && (awaitsResult(run) || run.outcome_state === "missing") ? "delivered" : run.status;

/** What an unfinished run waits for, or "". */
export const waitText = ({ waits_for: hold }) => !hold ? ""
  : hold.key ? `waits for its turn (flow ${hold.key})` : "waits for the earlier run";
/** Limits of a flow: "2 at once, 10 a minute" */
export const flowText = ({ parallelism: most, per_minute: rate }) =>
  [most && `${most} at once`, rate && `${number(rate)} a minute`].filter(Boolean).join(", ");

/** Attempts of a retry in minutes after the first; the last wait given repeats. */
export function attemptsOf({ max_attempts: most, backoff_minutes: minutes, backoff_seconds: s }) {
  const waits = s?.map((wait) => wait / 60) ?? minutes;
  const times = [0];
  for (let i = 1; i < most; i++) {
    times.push(times.at(-1) + (waits[Math.min(i, waits.length) - 1] ?? 0));
  }
  return times;
}

// The plain fields of a cue, written by the tests.
export const PLAIN_FIELDS = [
  { name: "claim_within_minutes", unit: "minutes", only: "worker" },
  { name: "overlap", words: ["allow", "skip", "buffer_one"] },
  { name: "max_age_seconds", unit: "seconds" },
  { name: "outcome_deadline_seconds", unit: "seconds", only: "webhook" },
];
