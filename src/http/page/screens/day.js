// Day: what runs when over 24 hours or 7 days, the hours that are full and those that are quiet.
import { absolute, address, anchor, button, card, clock, copyKey, copyMenu, duration, empty, get,
  go, html, instant, link, localInstant, localText, noRows, note, nothing, number, offsetMinutes,
  plural, reload, serverNow, shownZone, sumOf, svg, update, weekday } from "../kit.js";
import { segments } from "../parts/form.js";
import { targetText, withCues } from "../parts/target.js";

export const HOUR = 3_600_000;
const MINUTE = 60_000;
const SPANS = { __proto__: null, "24h": 24, "7d": 168 }; // hours
const NAMES = [["24h", "24 hours"], ["7d", "7 days"]];
const WIDTH = 1_000; // of a chart
const MARK = 3; // the narrowest mark
const ROWS = 60; // of the chart, until all are asked for
const NAMED = 6; // times of a line
const FEW = 4; // cues of a line
const FOUND = 3; // overlaps and quiet times

export const live = ["cue"];

const callOf = ({ span: { hours, from } }) => ({
  method: "GET", path: address("v1/upcoming", { hours, from: new Date(from).toISOString() }),
});

export async function load(data, { query }) {
  const zone = shownZone();
  const span = spanOf(query, serverNow(), zone);
  const { cues, waiting, truncated } = await get(callOf({ span }).path);
  const rows = rowsOf({ cues, waiting });
  const names = Map.groupBy(rows, ({ name }) => name);
  const twins = rows.filter(({ name }) => names.get(name).length > 1);
  const known = await withCues(data.known ?? new Map(), twins.map(({ cue_id: id }) => id));
  for (const row of twins) row.calls = targetText(known.get(row.cue_id));
  return {
    known, span, zone, rows, truncated, hours: hoursOf(rows, span), isReloading: false,
    // A chart of cues has no room on a phone: the list by hour is open there.
    isListed: data.isListed ?? matchMedia("(max-width: 59.99rem)").matches,
  };
}

const hash = (name, from, first) => link("day", {
  span: name === "24h" ? null : name, from: from > first ? new Date(from).toISOString() : null,
});

export function head({ span }, { query }) {
  const name = span?.span ?? (SPANS[query.span] ? query.span : "24h");
  return {
    note: span && whenText(span, shownZone()),
    actions: [segments("Span", name, NAMES, (to) => go(hash(to, 0, 0))), ...(!span ? []
      : [step(span, -1, "Earlier"), step(span, 1, "Later"), copyMenu(callOf({ span }))])],
  };
}

function step({ span, hours, from, first }, sign, text) {
  const to = from + sign * hours * HOUR;
  return from === first && sign < 0
    ? html`<span class="button" aria-disabled="true">${text}</span>`
    : anchor(hash(span, to, first), text, "button");
}

const whenText = ({ from, hours }, zone) => [from, from + hours * HOUR].map((ms) =>
  absolute(ms, zone, { full: true })).join(" to ");

export const shortcuts = (data) => [
  ["d", "24 hours or 7 days", () => go(hash(data.span.span === "24h" ? "7d" : "24h", 0, 0))],
  copyKey(callOf(data)),
];

export function view(data, { query }) {
  const { rows, hours, truncated } = data;
  const zone = shownZone();
  const now = serverNow();
  const { first } = spanOf(query, now, zone);
  // The hour has passed, or another zone is shown.
  if ((first !== data.span.first || zone !== data.zone) && !data.isReloading) {
    data.isReloading = true;
    reload();
  }
  if (!rows.length) return nothingRuns(data.span);
  return html`${truncated ? note(`You have more cues than this screen shows: the ${
    number(rows.length)} that run least are here.`, "warn") : ""}
    <div class="grid">${sameTime(overlapsOf(rows, zone), zone)}${
      quiet(gapsOf(hours, now), data, zone)}</div>
    ${chart(data, now, zone)}${byHour(data, zone)}`;
}

const nothingRuns = ({ hours }) => empty(
  `Nothing runs in these ${hours === 24 ? "24 hours" : "7 days"}`,
  "Create a cue, resume a paused one, or look at a later time.", html`<p class="actions">${
    anchor("#/cues/new", "New cue", "button primary")}${
    anchor(link("cues", { status: "paused" }), "Paused cues", "button")}</p>`);

const cueLink = ({ cue_id: id, name, calls = "" }) => html`<a class="name cut" title=${
  [name, calls].join(" ")} href=${link("cues", id)}><bdi>${name}</bdi>${
  calls ? html` <small>${calls}</small>` : ""}</a>`;
const at = (ms, { hours }, zone) =>
  hours === 24 ? clock(ms, zone) : `${weekday(ms, zone)}, ${clock(ms, zone)}`;

/** A phone has room for "Tue" alone. */
const dayLabel = (text) => [text.slice(0, 3), svg`<tspan>${text.slice(3)}</tspan>`];

function chart(data, now, zone) {
  const { rows, hours, span, isUnfolded } = data;
  const ticks = ticksOf(span, zone);
  const line = (ms) => `M${placeOf(ms, span)} 0V40`;
  const grid = svg`<path class="ticks" d=${ticks.map(line).join("")}></path>`;
  const isNow = now >= span.from && now < span.from + span.hours * HOUR;
  const nowLine = isNow ? svg`<path class="now" d=${line(now)}></path>` : "";
  const strip = (height, label, ...content) => html`<svg viewBox="0 0 ${WIDTH} ${height}" role="img"
    preserveAspectRatio="none" aria-label=${label} class=${height > 20 ? "load" : nothing}>${grid}${
    content}${nowLine}</svg>`;
  const label = (ms) => svg`<text x=${`${placeOf(ms, span) / 10}%`} y="12">${
    span.hours === 24 ? clock(ms, zone) : dayLabel(weekday(ms, zone))}</text>`;
  const total = sumOf(hours, "count");
  const busiest = hours.reduce((most, hour) => (hour.count > most.count ? hour : most));
  const text = `${plural(total, "run")}; most in the hour from ${at(busiest.ms, span, zone)}: ${
    number(busiest.count)}`;
  const shown = isUnfolded ? rows : rows.slice(0, ROWS);
  const rest = rows.length - shown.length;
  return card("day", "Runs", html`<small>${text}</small>`, html`<ul class="day">
    <li><span class="small muted">Runs per hour</span>${strip(40, text,
      svg`<path class="rest" d=${loadPath(hours)}></path>`)}</li>
    <li aria-hidden="true"><span></span><svg class="axis">${ticks.map(label)}</svg></li>
    ${shown.map((row) => {
      const { runs, band, later } = rowPaths(row, span);
      return html`<li data-row=${row.cue_id}>${cueLink(row)}${strip(20, rowText(row, span, zone),
        svg`<path d=${runs}></path><path class="band" d=${band}></path><path class="later"
          d=${later}></path>`)}</li>`;
    })}</ul>${legend(rows)}${rest <= 0 ? "" : html`<footer>${
    button(`Show ${number(rest)} more`, () => update(() => (data.isUnfolded = true)), "link")
  }</footer>`}`);
}

function legend(rows) {
  const later = rows.some((row) => row.later.length) && "◆ is a retry, or a run fired for later.";
  const band = rows.some((row) => row.per_hour) && "A band is a cue that runs often.";
  return later || band ? html`<p class="pad small muted">${later || ""} ${band || ""}</p>` : "";
}

function rowText({ times, later, per_hour: counts, count, expected_ms: expected }, span, zone) {
  const named = times.slice(0, NAMED).map((ms) => at(ms, span, zone));
  const more = times.length > NAMED ? " …" : "";
  const planned = counts ? plural(count, "run") : times.length
    ? `${plural(times.length, "run")}: ${named.join("; ")}${more}` : "";
  const waits = later.map(({ ms, attempts }) =>
    `${attempts ? "tried again" : "fired for"} ${at(ms, span, zone)}`);
  const lasts = expected > 0 ? `takes about ${duration(expected)}` : "";
  return [planned, ...waits.slice(0, NAMED), lasts].filter(Boolean).join(", ");
}

const names = (rows) => html`${rows.slice(0, FEW).map((row, i) => html`${i ? ", " : ""}${
  cueLink(row)}`)}${rows.length > FEW ? ` and ${number(rows.length - FEW)} more` : ""}`;

const sameTime = (overlaps, zone) => card("same-time", "At the same time", "", !overlaps.length
  ? noRows("At most two cues run in the same minute.")
  : html`<ul class="lines">${overlaps.slice(0, FOUND).map(({ at: ms, days, rows }) => html`<li><p>
    <b>${clock(ms, zone)} · ${plural(rows.length, "run")}</b>${
    days > 1 ? ` on ${days} days` : ""}: ${names(rows)}</p></li>`)}</ul>
    <footer class="small muted">${overlaps.length > FOUND
      ? `The ${FOUND} busiest of ${number(overlaps.length)} shared minutes. ` : ""}Move a cue by a
    minute, or add jitter.</footer>`);

const quiet = (gaps, { span }, zone) => !gaps.length ? "" : card("quiet", "Nothing runs", "",
  html`<ul class="lines">${longest(gaps).map(([from, to]) => html`<li><p>${
    at(from, span, zone)} to ${at(to, span, zone)}</p><span class="small num end">${
    duration(to - from)}</span></li>`)}</ul>${gaps.length <= FOUND ? ""
    : html`<footer class="small muted">The longest of ${number(gaps.length)}</footer>`}`);

const longest = (gaps) => gaps.toSorted(([a, b], [c, d]) => d - c - (b - a)).slice(0, FOUND)
  .toSorted(([a], [b]) => a - b);

/** The same as a list: for a phone, and for those who cannot see the chart. */
function byHour(data, zone) {
  const { hours, span, isListed } = data;
  const toggled = ({ target }) => update(() => (data.isListed = target.open));
  const days = Map.groupBy(hours.filter(({ count }) => count), ({ ms }) => midnightOf(ms, zone));
  return html`<details class="card" id="by-hour" ?open=${isListed} @toggle=${toggled}>
    <summary><h2>By hour</h2></summary>${!isListed ? "" : [...days].map(([day, list]) => html`${
    span.hours > 24 ? folded(weekday(day, zone), sumOf(list, "count"), hourList(list, zone))
      : html`${days.size > 1 ? html`<h3 class="pad">${weekday(day, zone)}</h3>` : ""}${
        hourList(list, zone)}`}`)}</details>`;
}

const folded = (title, count, content) => html`<details class="hour"><summary><span class="num">${
  title} · ${plural(count, "run")}</span></summary>${content}</details>`;

const hourList = (list, zone) => list.map(({ ms, count, runs }) => folded(clock(ms, zone), count,
  html`<p>${runs.map(({ row, times, count }, i) => html`${i ? ", " : ""}${cueLink(row)} <small
    class="num">${times.length === count && count <= NAMED
      ? times.map((at) => clock(at, zone)).join(" ") : `${number(count)} times`}</small>`)}</p>`));

function hourOf(ms, zone) {
  const shift = (offsetMinutes(ms, zone) ?? 0) * MINUTE;
  return Math.floor((ms + shift) / HOUR) * HOUR - shift;
}

const midnightOf = (ms, zone) =>
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
  const known = rows.map((row) => [row, timesOf(row)]);
  const first = ({ times, row }) => (row.per_hour ? Infinity : times[0]);
  return Array.from({ length: hours }, (_, i) => {
    const ms = from + i * HOUR;
    const runs = known.map(([row, all]) => {
      const times = all.filter((time) => time >= ms && time < ms + HOUR);
      return { row, times, count: times.length + (row.per_hour?.[i] ?? 0) };
    }).filter(({ count }) => count).sort((a, b) => first(a) - first(b) || 0);
    return { ms, count: sumOf(runs, "count"), runs };
  });
}

// Times at which at least `least` cues run in the same minute, the most first; those of the same
// cues at the same time of another day are one: `{at, days, rows}`. Frequent cues have no times.
export function overlapsOf(rows, zone, least = 3) {
  const minutes = new Map();
  for (const row of rows) {
    for (const at of new Set(timesOf(row).map((ms) => ms - (ms % MINUTE)))) {
      minutes.set(at, [...(minutes.get(at) ?? []), row]);
    }
  }
  const groups = new Map();
  for (const [at, rows] of [...minutes].toSorted(([a], [b]) => a - b)) {
    const key = [clock(at, zone), ...rows.map(({ cue_id: id }) => id).toSorted()].join();
    groups.set(key, { at, rows, ...groups.get(key), days: (groups.get(key)?.days ?? 0) + 1 });
  }
  return [...groups.values()].filter(({ rows }) => rows.length >= least)
    .toSorted((a, b) => b.rows.length - a.rows.length || a.at - b.at);
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

const round = (value) => Math.round(value * 10) / 10;

const placeOf = (ms, { from, hours }) => round(((ms - from) / (hours * HOUR)) * WIDTH);

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
export const ticksOf = ({ from, hours }, zone) => Array.from({ length: 8 }, (_, i) =>
  hours === 24 ? from + 3 * i * HOUR : midnightOf(from + (24 * i + 12) * HOUR, zone))
  .filter((ms) => ms >= from && ms < from + hours * HOUR);
