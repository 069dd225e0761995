// What runs when: rows, load, runs at the same time and quiet hours of a span. Pure.
import { clock, instant, localInstant, localText, offsetMinutes } from "../../app/time.js";

export const HOUR = 3_600_000;
const MINUTE = 60_000;
export const SPANS = { __proto__: null, "24h": 24, "7d": 168 }; // hours

function hourOf(ms, zone) {
  const shift = (offsetMinutes(ms, zone) ?? 0) * MINUTE;
  return Math.floor((ms + shift) / HOUR) * HOUR - shift;
}

export const midnightOf = (ms, zone) =>
  localInstant(localText(ms, zone).slice(0, 10) + "T00:00", zone);

// `{span, hours, from, first}` of an address: 24 hours begin with the current hour, 7 days with
// today, or later at `from`.
export function spanOf({ span, from }, now, zone) {
  const name = SPANS[span] ? span : "24h";
  const first = name === "24h" ? hourOf(now, zone) : midnightOf(now, zone);
  return { span: name, hours: SPANS[name], first, from: Math.max(first, instant(from || "") || 0) };
}

const firstOf = ({ times, later, per_hour: counts }) =>
  counts ? Infinity : Math.min(times[0] ?? Infinity, later[0]?.ms ?? Infinity);

// A row for each cue: `times`, or `per_hour` of a frequent one, and `later`, its runs that wait for
// their time. The first to run comes first, frequent ones last.
export function rowsOf({ cues, waiting }) {
  const rows = new Map(cues.map((cue) =>
    [cue.cue_id, { ...cue, times: (cue.at ?? []).map(instant), later: [] }]));
  for (const { cue_id: id, name, at, attempts, execution_id: run } of waiting) {
    const row = rows.get(id) ?? { cue_id: id, name, times: [], per_hour: null, later: [] };
    row.later.push({ ms: instant(at), attempts, run });
    rows.set(id, row);
  }
  return [...rows.values()].toSorted((a, b) => firstOf(a) - firstOf(b) || 0);
}

const timesOf = ({ times, later }) =>
  [...times, ...later.map(({ ms }) => ms)].toSorted((a, b) => a - b);

// Each hour as `{ms, count, runs}`, `runs` with the row, its `times` and its `count` in this hour.
export function hoursOf(rows, { from, hours }) {
  const hour = (_, i) => ({ ms: from + i * HOUR, count: 0, runs: [] });
  const all = Array.from({ length: hours }, hour);
  for (const row of rows) {
    const byHour = new Map();
    for (const ms of timesOf(row)) {
      const i = Math.floor((ms - from) / HOUR);
      byHour.set(i, [...(byHour.get(i) ?? []), ms]);
    }
    row.per_hour?.forEach((count, i) => count && byHour.set(i, byHour.get(i) ?? []));
    for (const [i, times] of byHour) {
      if (!all[i]) continue;
      const count = times.length + (row.per_hour?.[i] ?? 0);
      all[i].count += count;
      all[i].runs.push({ row, times, count });
    }
  }
  const first = ({ times, row }) => (row.per_hour ? Infinity : times[0]);
  for (const { runs } of all) runs.sort((a, b) => first(a) - first(b) || 0);
  return all;
}

// Times at which at least `least` cues run in the same minute, the most first; those of the same
// cues at the same time of another day are one: `{at, days, rows}`. Frequent cues have no times.
export function overlapsOf(rows, zone, least = 3) {
  const minutes = new Map();
  for (const row of rows) {
    for (const minute of new Set(timesOf(row).map((ms) => Math.floor(ms / MINUTE)))) {
      minutes.set(minute, [...(minutes.get(minute) ?? []), row]);
    }
  }
  const groups = new Map();
  for (const [minute, found] of [...minutes].toSorted(([a], [b]) => a - b)) {
    if (found.length < least) continue;
    const ms = minute * MINUTE;
    const key = [clock(ms, zone), ...found.map(({ cue_id: id }) => id).toSorted()].join();
    const group = groups.get(key) ?? { at: ms, days: 0, rows: found };
    groups.set(key, { ...group, days: group.days + 1 });
  }
  return [...groups.values()].toSorted((a, b) => b.rows.length - a.rows.length || a.at - b.at);
}

/** Hours in a row without a run, `[from, to]`, from `now` on. */
export function gapsOf(hours, now) {
  const gaps = [];
  for (const { ms, count } of hours) {
    const end = ms + HOUR;
    if (count || end <= now) continue;
    const last = gaps.at(-1);
    if (last?.[1] === ms) last[1] = end;
    else gaps.push([Math.max(ms, now), end]);
  }
  return gaps;
}

export const WIDTH = 1_000; // of a chart
const MARK = 3; // the narrowest mark
const round = (value) => Math.round(value * 10) / 10;

export const placeOf = (ms, { from, hours }) => round(((ms - from) / (hours * HOUR)) * WIDTH);

// Paths of a row: `runs` as wide as their expected duration, a `band` of the hours of a frequent
// cue, `later` for runs that wait for their time.
export function rowPaths({ times, later, per_hour: counts, expected_ms: expected }, span) {
  const longest = Math.max(MARK, placeOf(span.from + (expected ?? 0), span));
  const mark = (ms) => {
    const x = placeOf(ms, span);
    const wide = round(Math.min(longest, WIDTH - x));
    return `M${x} 3h${wide}v14h${-wide}z`;
  };
  const step = WIDTH / span.hours;
  const band = (counts ?? []).map((count, i) => count
    ? `M${round(i * step)} 7H${round((i + 1) * step)}V13H${round(i * step)}z` : "").join("");
  const diamond = ({ ms }) => `M${placeOf(ms, span)} 3l4 7-4 7-4-7z`;
  return { runs: times.map(mark).join(""), band, later: later.map(diamond).join("") };
}

/** A path of the bars of all hours, 40 high. */
export function loadPath(hours) {
  const most = Math.max(1, ...hours.map(({ count }) => count));
  const step = WIDTH / hours.length;
  const gap = hours.length > 24 ? 1 : 6;
  return hours.map(({ count }, i) => !count ? "" : `M${round(i * step + gap / 2)} 40V${
    round(40 - Math.max(2, (count / most) * 38))}H${round((i + 1) * step - gap / 2)}V40z`).join("");
}

/** Where the axis has a line: every third hour, or each midnight of the zone. */
export function ticksOf({ from, hours }, zone) {
  if (hours === 24) return Array.from({ length: 8 }, (_, i) => from + 3 * i * HOUR);
  const days = Array.from({ length: 8 }, (_, i) => midnightOf(from + (24 * i + 12) * HOUR, zone));
  return days.filter((ms) => ms >= from && ms < from + hours * HOUR);
}
