// Schedules in words, and cues as bodies of requests. Pure.
import { bodyWith } from "../../app/api.js";
import { letterOf } from "../../app/words.js";

const MACROS = {
  "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *",
  "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *",
};
const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MOST_TIMES = 3; // times of a day that are listed

const isNumber = (text) => /^\d+$/.test(text);
const two = (text) => String(text).padStart(2, "0");
const listed = (texts) =>
  [texts.slice(0, -1).join(", "), texts.at(-1)].filter(Boolean).join(" and ");
const shortDay = (day) => day.slice(0, 3).toLowerCase();
const dayNumber = (text) =>
  isNumber(text) ? text % 7 : DAYS.findIndex((day) => shortDay(day) === text.toLowerCase());

function daysOf(day, month, weekday) {
  if (month !== "*") return "";
  if (day === "*" && weekday === "*") return "every day";
  if (weekday === "*") return isNumber(day) ? `on day ${+day} of the month` : "";
  if (day !== "*") return "";
  const range = weekday.split("-");
  const names = range.length === 2 ? range : weekday.split(",");
  const days = names.map((name) => DAYS[dayNumber(name)]);
  if (days.includes(undefined)) return "";
  return range.length === 2 ? days.join(" to ") : `on ${listed(days.map((name) => name + "s"))}`;
}

function timesOf(minute, hour) {
  const hours = hour.split(",");
  const step = (text) => /^\*\/(\d+)$/.exec(text)?.[1];
  const every = (count, all, text) => (all % count ? "" : `Every ${count} ${text}`);
  const isWhole = hour === "*";
  if (minute === "*" && isWhole) return "Every minute";
  if (step(minute) && isWhole) return every(step(minute), 60, "minutes");
  if (!isNumber(minute)) return "";
  if (isWhole) return `Every hour at :${two(minute)}`;
  if (step(hour)) return every(step(hour), 24, `hours from 00:${two(minute)}`);
  if (!hours.every(isNumber) || hours.length > MOST_TIMES) return "";
  return `At ${listed(hours.map((one) => `${two(one)}:${two(minute)}`))}`;
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

/** The newest `slots` of runs (the newest first) and missed runs as letters, the newest last. */
export function lettersOf(runs, missed, slots) {
  const marks = runs.map((run) => [run.scheduled_for, letterOf(run.status)]).reverse();
  for (const { last, count } of missed) {
    for (let i = 0; i < Math.min(count, slots); i++) marks.push([last, "m"]);
  }
  marks.sort(([a], [b]) => (a < b ? -1 : +(a > b)));
  return marks.slice(-slots).map(([, letter]) => letter).join("");
}

/** JSON text that creates such a cue; the payload stands letter for letter. */
export function creation(cue) {
  const { name, description, transport, callback, retry, on_failure, verification } = cue;
  const { type, cron, at, timezone, catch_up } = cue.schedule;
  const claim_within_minutes = transport === "worker" && cue.claim_within_minutes;
  return bodyWith({
    name, ...(description && { description }),
    schedule: { type, ...(type === "once" ? { at } : { cron }), timezone, catch_up },
    ...(transport === "worker" ? { transport } : { callback }), retry, on_failure,
    ...(verification.mode !== "none" && { verification }),
    ...(claim_within_minutes && { claim_within_minutes }),
  }, { payload: cue.payload_text });
}

export const creationCall = (cue) => ({ method: "POST", path: "v1/cues", body: creation(cue) });
