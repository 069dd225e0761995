// Times: the server's time, zones, and their texts. Pure but for the clock of this device.
import { attempt, settings } from "./state.js";

const SKEW_STEP_MS = 1_000; // `Date` has whole seconds; smaller differences are noise

const server = { skew: 0, known: false, frozen: null };

/** The server sent its time `ms`, at `here` of this device. */
export function sawServerTime(ms, here = Date.now()) {
  if (Number.isNaN(ms)) return;
  if (server.frozen !== null) server.frozen = Math.max(server.frozen, ms - 500);
  else if (!server.known || Math.abs(ms - here - server.skew) > SKEW_STEP_MS) server.skew = ms - here;
  server.known = true;
}

export const freeze = (ms) => void (server.frozen = ms);
export const isFrozen = () => server.frozen !== null;
export const skewMs = () => (isFrozen() ? 0 : server.skew);
export const serverNow = () => server.frozen ?? Date.now() + server.skew;

/** Milliseconds of an instant of the API; one without a zone is UTC. */
export const instant = (text) => Date.parse(/(Z|[+-]\d\d:?\d\d)$/.test(text) ? text : text + "Z");

export const browserZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
export const yourZone = () => settings.zone || browserZone();

/** Zone of the header's switch for a time, which may belong to a cue in `cueZone`. */
export const shownZone = (cueZone) => settings.zone_view === "utc" ? "UTC"
  : (settings.zone_view === "cue" && cueZone) || yourZone();

const formats = new Map(); // by zone, hours and fields

/** A format of Intl, made once; `null` if the browser does not know the zone. */
function format(zone, fields) {
  const key = zone + settings.hour12 + JSON.stringify(fields);
  if (!formats.has(key)) {
    const options = { timeZone: zone, hourCycle: settings.hour12 ? "h12" : "h23", ...fields };
    // An old browser with a new zone: texts of the server are shown instead.
    formats.set(key, attempt(() => new Intl.DateTimeFormat("en-GB", options), null));
  }
  return formats.get(key);
}

export const knowsZone = (zone) => format(zone, { hour: "2-digit" }) !== null;

const CLOCK = { hour: "2-digit", minute: "2-digit" };
const DAY = { year: "numeric", month: "2-digit", day: "2-digit" };
const NEAR_DAY = { weekday: "short", day: "numeric", month: "short" };
const FAR_DAY = { ...NEAR_DAY, year: "numeric" };
const day = (ms, zone) => format(zone, DAY)?.format(ms);

/** "14:05" today, "Tue 24 Nov, 14:05", "Mon 24 Nov 2025, 14:05"; "… UTC" if the zone is not known. */
export function absolute(ms, zone, { seconds = false, now = serverNow(), full = false } = {}) {
  if (!knowsZone(zone)) return absolute(ms, "UTC", { seconds, now, full }) + " UTC";
  const time = format(zone, seconds ? { ...CLOCK, second: "2-digit" } : CLOCK).format(ms);
  if (!full && day(ms, zone) === day(now, zone)) return time;
  const near = Math.abs(ms - now) < 180 * 86_400_000;
  const date = format(zone, near ? NEAR_DAY : FAR_DAY);
  // The only month that en-GB shortens to four letters.
  return `${date.format(ms).replace(",", "").replace("Sept", "Sep")}, ${time}`;
}

/** "14:05", and "Tue 24 Nov"; in UTC if the zone is not known. */
export const clock = (ms, zone) => (format(zone, CLOCK) ?? format("UTC", CLOCK)).format(ms);
export const weekday = (ms, zone) =>
  (format(zone, NEAR_DAY) ?? format("UTC", NEAR_DAY)).format(ms).replace(",", "");

export const exact = (ms) => new Date(ms).toISOString().replace("T", " ").replace("Z", " UTC");

/** Minutes that a zone is ahead of UTC at an instant; `null` if the browser does not know it. */
export function offsetMinutes(ms, zone) {
  const parts = format(zone, { timeZoneName: "longOffset", hour: "2-digit" })?.formatToParts(ms);
  const text = parts?.find((part) => part.type === "timeZoneName")?.value;
  if (!text) return null;
  const found = /GMT(?:([+-])(\d\d):(\d\d))?/.exec(text);
  return found?.[1] ? (found[1] === "-" ? -1 : 1) * (60 * found[2] + +found[3]) : 0;
}

/** Milliseconds of a local time "2026-03-29T02:30" in a zone; in UTC if the zone is not known. */
export function localInstant(text, zone) {
  const wall = instant(text);
  const shift = (ms) => (offsetMinutes(ms, zone) ?? 0) * 60_000;
  return wall - shift(wall - shift(wall));
}

/** "2026-11-22T14:05" of an instant in a zone, for a field of a form; with seconds if not :00. */
export function localText(ms, zone) {
  const wall = new Date(ms + (offsetMinutes(ms, zone) ?? 0) * 60_000);
  return wall.toISOString().slice(0, 19).replace(/:00$/, "");
}

/** A local time of a zone as an instant of the API, and the other way; "" of what is none. */
export const fromLocal = (text, zone) => text && new Date(localInstant(text, zone)).toISOString();
export const toLocal = (text, zone) => Number.isNaN(text ? instant(text) : NaN) ? ""
  : localText(instant(text), zone).slice(0, 16);

const UNITS = [
  [1_000, 60, "s"], [60_000, 60, "min"], [3_600_000, 48, "h"], [86_400_000, 60, "days"],
  [2_629_800_000, 24, "months"], [31_557_600_000, Infinity, "years"],
];

/** "in 4 min", "12 s ago", "now" */
export function relative(ms, now = serverNow()) {
  const apart = Math.abs(ms - now);
  if (apart < 1_000) return "now";
  const [size, , unit] = UNITS.find(([size, most]) => Math.floor(apart / size) < most);
  const text = `${Math.floor(apart / size)} ${unit}`;
  return ms > now ? `in ${text}` : `${text} ago`;
}

/** "87 ms", "1.2 s", "2 min 5 s", "3 h 10 min", "4 days 2 h" */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 9_950) return `${(ms / 1_000).toFixed(1)} s`;
  if (ms < 59_500) return `${Math.round(ms / 1_000)} s`;
  const two = (count, size, big, small) =>
    `${Math.floor(count / size)} ${big}` + (count % size ? ` ${count % size} ${small}` : "");
  const seconds = Math.round(ms / 1_000);
  if (seconds < 3_600) return two(seconds, 60, "min", "s");
  const minutes = Math.round(seconds / 60);
  return minutes < 48 * 60 ? two(minutes, 60, "h", "min")
    : two(Math.round(minutes / 60), 24, "days", "h");
}

const INSTANT = /\b\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)/g;

/** A sentence of the server with its instants as times of your zone, and long spans in their units. */
export const inYourTime = (text) => text
  .replace(INSTANT, (at) => absolute(instant(at), yourZone()))
  .replace(/\b(\d{3,}) (m?)s\b/g, (_, count, milli) => duration(count * (milli ? 1 : 1_000)));

/** Creation of a run in ms: the first 48 bits of its id, a UUID of version 7. */
export const createdMs = (id) => parseInt(id.replaceAll("-", "").slice(0, 12), 16);
