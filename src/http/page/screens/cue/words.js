// Schedules in words, and cues as bodies of requests. Pure.
import { bodyWith } from "../../app/api.js";
import { asCued } from "../../parts/snippets.js";

const MACROS = { "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *" };
const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MOST_TIMES = 3; // times of a day that are listed

const isNumber = (text) => /^\d+$/.test(text);
const two = (text) => String(text).padStart(2, "0");
const listed = (texts) => (texts.length < 2 ? texts.join("") : `${texts.slice(0, -1).join(", ")} and ${texts.at(-1)}`);
const dayNumber = (text) => (isNumber(text) ? text % 7 : DAYS.findIndex((day) => day.slice(0, 3).toLowerCase() === text.toLowerCase()));

function daysOf(day, month, weekday) {
  if (month !== "*") return "";
  if (day === "*" && weekday === "*") return "every day";
  if (weekday === "*") return isNumber(day) ? `on day ${+day} of the month` : "";
  if (day !== "*") return "";
  const range = weekday.split("-");
  const days = (range.length === 2 ? range : weekday.split(",")).map(dayNumber).map((at) => DAYS[at]);
  if (days.includes(undefined)) return "";
  return range.length === 2 ? days.join(" to ") : `on ${listed(days.map((name) => name + "s"))}`;
}

function timesOf(minute, hour) {
  const hours = hour.split(",");
  const each = /^\*\/(\d+)$/;
  const whole = hour === "*";
  if (minute === "*" && whole) return "Every minute";
  if (each.test(minute) && whole) return 60 % each.exec(minute)[1] ? "" : `Every ${each.exec(minute)[1]} minutes`;
  if (!isNumber(minute)) return "";
  if (whole) return `Every hour at :${two(minute)}`;
  if (each.test(hour)) return 24 % each.exec(hour)[1] ? "" : `Every ${each.exec(hour)[1]} hours from 00:${two(minute)}`;
  return hours.every(isNumber) && hours.length <= MOST_TIMES ? `At ${listed(hours.map((one) => `${two(one)}:${two(minute)}`))}` : "";
}

/** The usual cron expressions as the server words them, for lists; "" for others. */
export function cronWords(cron) {
  const fields = (MACROS[cron] || cron).trim().split(/\s+/);
  if (fields.length !== 5) return "";
  const times = timesOf(fields[0], fields[1]);
  const days = daysOf(...fields.slice(2));
  if (!times || !days) return "";
  return days === "every day" && !times.startsWith("At") ? times : `${times}, ${days}`;
}

/** Failed runs in a row, the newest first in `runs`; unfinished ones do not count. */
export function streakOf(runs) {
  const ended = runs.filter(({ status }) => status === "success" || status === "failed");
  const good = ended.findIndex(({ status }) => status === "success");
  return good < 0 ? ended.length : good;
}

const LETTERS = { success: "s", failed: "f", retrying: "r", delivering: "d", missed: "m" };

/** The newest `slots` of runs (the newest first) and missed runs as letters, the newest last. */
export function lettersOf(runs, missed, slots) {
  const marks = runs.map((run) => [run.scheduled_for, LETTERS[run.status] || "p"]).reverse();
  for (const { last, count } of missed) for (let i = 0; i < Math.min(count, slots); i++) marks.push([last, "m"]);
  return marks.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)).slice(-slots).map(([, letter]) => letter).join("");
}

/** JSON text that creates such a cue; the payload stands letter for letter. */
export function creation({ name, description, schedule: { type, cron, at, timezone, catch_up }, transport, callback, retry, on_failure, verification, claim_within_minutes, payload_text }) {
  const worker = transport === "worker";
  const schedule = type === "once" ? { type, at, timezone, catch_up } : { type, cron, timezone, catch_up };
  const body = { name, ...(description && { description }), schedule, ...(worker ? { transport } : { callback }), retry, on_failure, ...(verification.mode !== "none" && { verification }), ...(worker && claim_within_minutes && { claim_within_minutes }) };
  return bodyWith(body, { payload: payload_text });
}

export const creationLine = (cue) => asCued({ method: "POST", path: "v1/cues", body: creation(cue) });

/** Attempts of a retry in minutes after the first; the last wait given repeats. */
export const attemptsOf = ({ max_attempts: most, backoff_minutes: waits }) => Array.from({ length: most - 1 }, (_, i) => waits[Math.min(i, waits.length - 1)] ?? 0).reduce((times, wait) => [...times, times.at(-1) + wait], [0]);
