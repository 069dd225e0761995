// The model of the editor: a flat form of texts, to and from the API's cue, and its changes. Pure.
import { attemptsOf, capital } from "../../app/words.js";
import { compactJson } from "../../parts/json_text.js";

export const PRESETS = [
  ["Every 5 min", "*/5 * * * *"],
  ["Hourly", "0 * * * *"],
  ["Nightly", "0 3 * * *"],
  ["Weekdays 9:00", "0 9 * * 1-5"],
  ["Weekly", "0 9 * * 1"],
  ["Monthly", "0 9 1 * *"],
];

// Field of the form -> [name, place in the API's body, the API's default in the form]
const FIELDS = {
  name: ["name", "name", ""],
  description: ["description", "description", ""],
  kind: ["schedule", "schedule.type", "recurring"],
  cron: ["schedule", "schedule.cron", "0 3 * * *"],
  at: ["time", "schedule.at", ""],
  zone: ["time zone", "schedule.timezone", "UTC"],
  catchUp: ["catch-up", "schedule.catch_up", "latest"],
  transport: ["transport", "transport", "webhook"],
  url: ["address", "callback.url", ""],
  method: ["method", "callback.method", "POST"],
  headers: ["headers", "callback.headers", []],
  fromResponse: ["outcome from the answer", "callback.outcome_from_response", false],
  payload: ["payload", "payload", ""],
  attempts: ["attempts", "retry.max_attempts", "4"],
  waits: ["waits", "retry.backoff_minutes", "1, 5, 15"],
  verification: ["verification", "verification.mode", "none"],
  email: ["mail on failure", "on_failure.email", true],
  pause: ["pause on failure", "on_failure.pause", false],
  failureUrl: ["address on failure", "on_failure.webhook", ""],
  claimWithin: ["claim time", "claim_within_minutes", ""],
};
const NAMES = Object.keys(FIELDS);
const formWith = (value) =>
  Object.fromEntries(NAMES.map((name) => [name, value(...FIELDS[name])]));

/** A form with the API's defaults. */
export const blank = (zone = "UTC") => ({ ...formWith((words, path, initial) => initial), zone });

/** The form of a cue; `at` is its local time as `YYYY-MM-DDTHH:MM`, `payload` the text to edit. */
export function formOf(cue, { at = "", payload = "" } = {}) {
  const read = (words, path, initial) => {
    const value = path.split(".").reduce((part, key) => part[key], { payload: "", ...cue });
    if (Array.isArray(initial)) return Object.entries(value);
    if (typeof initial === "boolean") return value;
    return Array.isArray(value) ? value.join(", ") : String(value ?? "");
  };
  return { ...formWith(read), at, payload };
}

// A text that is no number goes to the server as it is, which says so at its field.
const numberOf = (text) => {
  const number = Number(text);
  return text.trim() === "" ? null : Number.isNaN(number) ? text : number;
};
const numbersOf = (text) =>
  text.trim() ? text.split(/[\s,;]+/).filter(Boolean).map(numberOf) : null;

const trimmed = (text) => text?.trim();
const orNull = (text) => text.trim() || null;
// Field of the form -> its value in the body, where that is another one
const VALUES = {
  name: trimmed, url: trimmed, description: orNull, failureUrl: orNull, attempts: numberOf,
  claimWithin: numberOf, waits: numbersOf,
  headers: (list) => Object.fromEntries(list.filter(([name]) => name)),
};

/** The form as the API's body, without the payload and what does not belong to its kind. */
function bodyOf(form) {
  const body = {};
  const isWorker = form.transport === "worker";
  const unused = form.kind === "once" ? "cron" : "at";
  for (const name of NAMES) {
    const path = FIELDS[name][1].split(".");
    const isOther = isWorker ? path[0] === "callback" : name === "claimWithin";
    if (isOther || name === unused || name === "payload") continue;
    const last = path.pop();
    const part = path.length ? (body[path[0]] ??= {}) : body;
    part[last] = VALUES[name] ? VALUES[name](form[name]) : form[name];
  }
  return body;
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const same = (a, b) =>
  a === b || (typeof a === "object" && JSON.stringify(a) === JSON.stringify(b));

/** The parts of a body that differ from another one, field by field; headers as a whole. */
function changes(body, was) {
  const found = {};
  for (const [name, value] of Object.entries(body)) {
    if (same(value ?? null, was[name] ?? null)) continue;
    const isPart = isObject(value) && isObject(was[name]) && name !== "headers";
    found[name] = isPart ? changes(value, was[name]) : value;
  }
  return found;
}

/** `{body, raw}` of `POST /v1/cues`: what the API asks for, and what is not its default. */
export function createBody(form) {
  const defaults = bodyOf({ ...blank(), name: null, kind: null, cron: null, url: null });
  return { body: changes(bodyOf(form), defaults), raw: { payload: form.payload } };
}

/** `{body, raw}` of `PATCH /v1/cues/ID`: only what was changed. */
export function patchBody(form, was) {
  const body = changes(bodyOf(form), bodyOf(was));
  // A local time means another instant in another zone.
  if (form.kind === "once" && body.schedule?.timezone) body.schedule.at = form.at;
  const { payload } = form;
  const compact = (text) => compactJson(text).trim();
  if (payload === was.payload || compact(payload) === compact(was.payload)) {
    return { body, raw: {} };
  }
  if (!payload.trim()) return { body: { ...body, payload: null }, raw: {} };
  return { body, raw: { payload } };
}

/** Fields of the form that differ from another one. */
export const differing = (form, was) => NAMES.filter((name) => !same(form[name], was[name]));

/** "schedule, payload": fields in words. */
export const inWords = (fields) => [...new Set(fields.map((name) => FIELDS[name][0]))].join(", ");

/** `theirs` with the fields that `form` changed since `was`. */
export function merged(form, was, theirs) {
  const mine = differing(form, was).map((name) => [name, form[name]]);
  return { ...theirs, ...Object.fromEntries(mine) };
}

/** The schedule for a preview; an instant that was not touched stays as it is. */
export function scheduleOf(form, was, cue) {
  if (form.kind === "recurring") return { type: "recurring", cron: form.cron, timezone: form.zone };
  const isKept = cue?.schedule.at && form.at === was.at && form.zone === was.zone;
  return { type: "once", at: isKept ? cue.schedule.at : form.at, timezone: form.zone };
}

/** A name for a cue without one: "example.com/backup", or its task. */
export function defaultName(form, task = "") {
  if (form.transport === "worker") return task;
  const { host, pathname } = addressOf(form.url);
  return (host + pathname).replace(/\/$/, "").slice(0, 255);
}

/** The parts of an address, each empty if it is none. */
export function addressOf(text) {
  try {
    return new URL(text.trim());
  } catch {
    return { host: "", hostname: "", pathname: "" };
  }
}

/** "loopback", "private" or "": what kind of network an address visibly points to. */
export function networkOf(url) {
  const host = addressOf(url).hostname;
  if (/^(localhost|.*\.localhost|127\.[\d.]+|\[::1\])$/.test(host)) return "loopback";
  const isPrivate = /^(10\.|192\.168\.|172\.(1[6-9]|2\d|3[01])\.)[\d.]+$|^\[f[cd]/.test(host)
    || /\.(local|lan|internal|home\.arpa)$/.test(host);
  return isPrivate ? "private" : "";
}

/** Why headers cannot be sent as they stand, or "". */
export function headersProblem(headers) {
  const names = headers.map(([name]) => name.toLowerCase());
  const twice = names.find((name, at) => name && names.indexOf(name) !== at);
  if (twice) {
    return `${twice} is there twice. Write both values in one header, with a comma between.`;
  }
  return headers.some(([name, value]) => !name && value) ? "A header has no name." : "";
}

const shorten = (text) => text.replace(/^Value error, /, "")
  .replace(/^(body\.)?(callback|on_failure)\.(url|webhook|headers|method):? /, "")
  .replace(/^(expression|at): /, "")
  .replace(/^The JSON cannot be read: (.*) \(line \d+, column \d+\)$/, "$1");

/** `{problems: {field: text}, rest: [text]}` of an ApiError; `rest` belongs to no field. */
export function problemsOf(error, allowed = []) {
  const problems = {};
  const rest = [];
  const put = (field, text) => {
    if (field) problems[field] ??= capital(shorten(text));
    else rest.push(text);
  };
  const found = error.problems || [];
  for (const { loc, msg } of found) put(fieldAt(loc.slice(1).join(".")), msg);
  if (!found.length) put(fieldOf(error), error.message + flagFor(error, allowed));
  return { problems, rest };
}

function fieldAt(path) {
  if (path === "schedule") return "cron";
  if (path === "callback") return "url";
  return NAMES.find((name) => path === FIELDS[name][1] || path.startsWith(FIELDS[name][1] + "."));
}

function fieldOf({ code, field, message }) {
  if (code === "invalid_schedule") return field === "at" ? "at" : "cron";
  if (code === "invalid_timezone") return "zone";
  // Only the payload is text that a person wrote; the position would be that in the whole body.
  if (code === "invalid_payload_size" || code === "invalid_json") return "payload";
  if (code !== "invalid_callback_url" && code !== "invalid_callback") return null;
  if (message.startsWith("on_failure")) return "failureUrl";
  return /^callback\.(headers|method)/.exec(message)?.[1] || "url";
}

/** What follows `--allow-callbacks-to` of a message about a blocked address. */
function flagFor({ code, message }, allowed) {
  const pattern = /, a (private|loopback) address.*--allow-callbacks-to$/;
  const kind = code === "invalid_callback_url" && pattern.exec(message)?.[1];
  return kind ? " " + [...allowed, kind].join(",") : "";
}

/** The attempts of a retry in minutes, `[0, 1, 6, 21]`, or `null` where the numbers are wrong. */
export function attemptTimes(attempts, waits) {
  const count = numberOf(attempts) ?? 4;
  const list = numbersOf(waits) ?? [1, 5, 15];
  const isTime = (wait) => typeof wait === "number" && wait >= 0;
  if (!Number.isInteger(count) || count < 1 || count > 10 || !list.every(isTime)) return null;
  return attemptsOf({ max_attempts: count, backoff_minutes: list });
}
