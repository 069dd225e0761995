// A flat form of texts, to and from the API's cue, and its changes. Pure.
import { duration, instant, localText } from "../../app/time.js";
import { PLAIN_FIELDS, attemptsOf } from "../../app/words.js";
import { compactJson, prettyJson, readableJson } from "../../parts/json_text.js";

export const PRESETS = [
  ["Every 5 min", "*/5 * * * *"], ["Hourly", "0 * * * *"], ["Every 90 s", "@every 90s"],
  ["Nightly", "0 3 * * *"], ["Weekdays 9:00", "0 9 * * 1-5"], ["Weekly", "0 9 * * 1"],
  ["Monthly", "0 9 1 * *"], ["After month's end", "monthly on the 1st at 0:00"],
];

/** No cron expression and no interval: the server says what it means. */
export const hasWords = (text) =>
  !/^\s*(@|[\d*,/?-]+(\s|$))/.test(text) || /:|\d\s*[ap]m/i.test(text);

/** What words were understood as: "Every weekday at 09:00 (0 9 * * 1-5)". */
export const saidOf = ({ cron, timezone }, description) =>
  description.replace(`, ${timezone}`, "") + (cron ? ` (${cron})` : "");

// The server refuses a text that is no number.
const numberOf = (text) => {
  const number = Number(text);
  return text.trim() === "" ? null : Number.isNaN(number) ? text : number;
};
const numberOr = (otherwise) => (text) => numberOf(text) ?? otherwise;
const trimmed = (text) => text?.trim();
const orNull = (text) => text.trim() || null;
const wordsOf = (name) => name.replace(/_(min|sec).*/, "").replace("_", " ");
const headersOf = (list) => Object.fromEntries(list.filter(([name]) => name));

const UNITS = { __proto__: null, s: 1, m: 60, h: 3_600, d: 86_400 };

/** Seconds of "90s" or "1h 30m"; another text as it is. */
export const secondsOf = (text) => !/^\s*(\d+[smhd]\s*)+$/.test(text) ? orNull(text)
  : text.match(/\d+./g).reduce((sum, part) => sum + parseInt(part) * UNITS[part.at(-1)], 0);

/** 5400 as "90m" */
export function withUnit(seconds) {
  const [unit, size] = Object.entries(UNITS).findLast(([, size]) => seconds % size === 0);
  return seconds / size + unit;
}

// Field of the form -> [name, place in the API's body, the default in the form, its value in the
// body where that is another one]
export const FIELDS = {
  __proto__: null,
  name: ["name", "name", "", trimmed],
  description: ["description", "description", "", orNull],
  kind: ["schedule", "schedule.type", "recurring"],
  cron: ["schedule", "schedule.cron", "0 3 * * *"],
  at: ["time", "schedule.at", ""],
  start: ["start", "schedule.start", "", orNull],
  end: ["end", "schedule.end", "", orNull],
  jitter: ["jitter", "schedule.jitter_seconds", "0", numberOr(0)],
  zone: ["time zone", "schedule.timezone", "UTC"],
  catchUp: ["missed runs", "schedule.catch_up", "latest"],
  transport: ["transport", "transport", "webhook"],
  url: ["URL", "callback.url", "", trimmed],
  method: ["method", "callback.method", "POST"],
  headers: ["headers", "callback.headers", [], headersOf],
  fromResponse: ["outcome from the response", "callback.outcome_from_response", false],
  timeout: ["time limit", "callback.timeout_seconds", "30", numberOr(30)],
  payload: ["payload", "payload", ""],
  attempts: ["attempts", "retry.max_attempts", "4", numberOf],
  waits: ["waits", "retry.backoff_minutes", "1, 5, 15"],
  verification: ["proof of success", "verification.mode", "none"],
  email: ["mail on failure", "on_failure.email", true],
  pause: ["pause on failure", "on_failure.pause", false],
  failureUrl: ["URL to call on failure", "on_failure.webhook", "", orNull],
  ...Object.fromEntries(PLAIN_FIELDS.map(({ name, words = [""], unit }) => [name,
    [wordsOf(name), name, words[0], unit && (unit === "minutes" ? numberOf : secondsOf)]])),
  flowKey: ["flow", "callback.flow.key", "", (text) => orNull(text) ?? undefined],
  parallel: ["flow", "callback.flow.parallelism", "", numberOf],
  perMinute: ["flow", "callback.flow.per_minute", "", numberOf],
  tags: ["tags", "tags", []],
};
export const NAMES = Object.keys(FIELDS);
const formWith = (value) => Object.fromEntries(NAMES.map((name) => [name, value(...FIELDS[name])]));

export const blank = (zone = "UTC") => ({ ...formWith((words, path, initial) => initial), zone });

export const LOCAL = ["at", "start", "end"]; // local times as `YYYY-MM-DDTHH:MM`
const localOf = ({ meant }) => LOCAL.slice(meant ? 1 : 0); // words mean an instant

/** Waits in minutes as the API has them; in seconds if one has a unit, such as "30s, 5m". */
function waitsOf(text) {
  const waits = text.split(/[\s,;]+/).filter(Boolean);
  const parts = waits.map((wait) => /^(\d*\.?\d+)([smhd]?)$/.exec(wait) ?? [wait]);
  if (!parts.some(([, , unit]) => unit)) {
    return { backoff_minutes: waits.length ? waits.map(numberOf) : null, backoff_seconds: null };
  }
  return { backoff_seconds: parts.map(([wait, count, unit]) =>
    count ? +(count * UNITS[unit || "m"]).toFixed(3) : wait) };
}

/** The form of a cue; `texts` are its local times and payload as edited. */
export function formOf(cue, texts = {}) {
  const read = (words, path, initial, inBody) => {
    const value = path.split(".").reduce((part, key) => part?.[key], cue) ?? initial;
    if (path === "callback.headers") return Object.entries(value);
    if (typeof initial !== "string") return value;
    if (inBody === secondsOf && value) return withUnit(value);
    return Array.isArray(value) ? value.join(", ") : String(value);
  };
  const { schedule: { every }, retry: { backoff_seconds: waits }, callback: { url, flow } } = cue;
  return {
    ...formWith(read), at: "", start: "", end: "", payload: "", ...texts,
    ...(every && { cron: "@every " + every }),
    ...(waits && { waits: waits.map(withUnit).join(", ") }),
    ...(flow?.key === flowKeyOf(url) && { flowKey: "" }),
  };
}

/** The form of a cue as the API has it. */
export function formOfAnswer({ payload_text: payload, ...cue }) {
  const { schedule } = cue;
  const local = (at) => (at ? localText(instant(at), schedule.timezone) : "");
  const times = Object.fromEntries(LOCAL.map((name) => [name, local(schedule[name])]));
  return formOf(cue, { ...times, payload: prettyJson(readableJson(payload || "")) });
}

/** The form as the API's body, without the payload and what its kind has not. */
function bodyOf(form) {
  const body = {};
  const meant = form.kind === "recurring" && form.meant; // what the words mean, as the API has it
  const isOnce = (meant || { type: form.kind }).type === "once";
  const unused = ["payload", ...(isOnce ? ["cron", "start", "end"] : ["at"]),
    form.transport === "worker" && "callback",
    ...PLAIN_FIELDS.filter(({ only }) => only && only !== form.transport).map(({ name }) => name)];
  for (const [name, [, path, , value = (own) => own]] of Object.entries(FIELDS)) {
    const parts = path.split(".");
    if (unused.includes(name) || unused.includes(parts[0])) continue;
    const last = parts.pop();
    parts.reduce((object, part) => (object[part] ??= {}), body)[last] = value(form[name]);
  }
  Object.assign(body.schedule, meant);
  if (meant?.every) delete body.schedule.cron;
  body.retry = { max_attempts: body.retry.max_attempts, ...waitsOf(form.waits) };
  const { callback } = body;
  const isNone = (value) => (value ?? null) === null;
  if (callback && Object.values(callback.flow).every(isNone)) callback.flow = null;
  return body;
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const same = (a, b) =>
  a === b || (typeof a === "object" && JSON.stringify(a) === JSON.stringify(b));

/** The fields that differ; headers and a flow as a whole. */
const changes = (body, was) => Object.fromEntries(Object.entries(body)
  .filter(([name, value]) => !same(value ?? null, was[name] ?? null))
  .map(([name, value]) => [name, isObject(value) && isObject(was[name]) && name !== "headers"
    && name !== "flow" ? changes(value, was[name]) : value]));

/** `{body, raw}` of `POST /v1/cues`: what it asks for, and what is not its default. */
export function createBody(form) {
  const defaults = bodyOf({ ...blank(), name: null, kind: null, cron: null, url: null });
  return { body: changes(bodyOf(form), defaults), raw: { payload: form.payload } };
}

/** `{body, raw}` of `PATCH /v1/cues/ID`: only what was changed. */
export function patchBody(form, was) {
  const full = bodyOf(form);
  const body = changes(full, bodyOf(was));
  // A local time means another instant in another zone.
  const moved = body.schedule?.timezone ? localOf(form).filter((name) => full.schedule[name]) : [];
  for (const name of moved) body.schedule[name] = form[name];
  const [payload, before] = [form, was].map(({ payload: text }) => compactJson(text).trim());
  if (payload === before) return { body, raw: {} };
  return payload ? { body, raw: { payload: form.payload } }
    : { body: { ...body, payload: null }, raw: {} };
}

// Fields that are shown at once; more.js has the others.
const FIRST = ["name", "kind", "cron", "at", "zone", "transport", "url", "method", "payload"];
export const hasMore = (form) => differing(form, blank()).some((name) => !FIRST.includes(name));

export const differing = (form, was) => NAMES.filter((name) => !same(form[name], was[name]));

export const inWords = (fields) => [...new Set(fields.map((name) => FIELDS[name][0]))].join(", ");

/** The schedule for a preview; an untouched instant stays as it is. */
export function scheduleOf(form, was, cue) {
  const { schedule } = bodyOf(form);
  const isKept = (name) => schedule[name] && form[name] === was[name] && form.zone === was.zone;
  for (const name of localOf(form).filter(isKept)) schedule[name] = cue?.schedule[name] ?? form[name];
  return schedule;
}

/** The key of a flow without one: host and port. */
export function flowKeyOf(url) {
  const { protocol, hostname, port } = addressOf(url ?? "");
  return hostname && `${hostname}:${port || (protocol.startsWith("https") ? 443 : 80)}`;
}

/** A name for a cue without one: "example.com/backup", or its task. */
export function defaultName(form, task = "") {
  if (form.transport === "worker") return task;
  const { host, pathname } = addressOf(form.url);
  return (host + pathname).replace(/\/$/, "").slice(0, 255);
}

export const addressOf = (text) => URL.canParse(text.trim()) ? new URL(text.trim())
  : { host: "", hostname: "", pathname: "" };

/** "loopback", "private" or "": the visible network of an address. */
export function networkOf(url) {
  const host = addressOf(url).hostname;
  if (/^(localhost|.*\.localhost|127\.[\d.]+|\[::1\])$/.test(host)) return "loopback";
  const isPrivate = /^(10\.|192\.168\.|172\.(1[6-9]|2\d|3[01])\.)[\d.]+$|^\[f[cd]/.test(host)
    || /\.(local|lan|internal|home\.arpa)$/.test(host);
  return isPrivate ? "private" : "";
}

/** The reason not to send the headers, or "". */
export function headersProblem(headers) {
  const names = headers.map(([name]) => name.toLowerCase());
  const twice = names.find((name, at) => name && names.indexOf(name) !== at);
  if (twice) {
    return `${twice} appears twice. Put both values in one header, separated by a comma.`;
  }
  return headers.some(([name, value]) => !name && value) ? "A header has no name." : "";
}

export function attemptTimes(attempts, waits) {
  const count = numberOf(attempts) ?? 4;
  const { backoff_minutes: minutes, backoff_seconds: seconds } = waitsOf(waits);
  const list = seconds ?? minutes ?? [1, 5, 15];
  const isTime = (wait) => typeof wait === "number" && wait >= 0;
  if (!Number.isInteger(count) || count < 1 || count > 10 || !list.every(isTime)) return null;
  return attemptsOf({ max_attempts: count, backoff_minutes: list, backoff_seconds: seconds });
}

/** "4 attempts within 21 min" */
export const attemptsText = (times) => times.length === 1 ? "one attempt"
  : `${times.length} attempts within ${duration(times.at(-1) * 60_000)}`;
