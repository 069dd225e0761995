// Day: what runs when over 24 hours or 7 days, the hours that are full and those that are quiet.
import { absolute, anchor, button, card, clock, copyKey, copyMenu, duration, empty, get, go, html,
  link, note, nothing, number, plural, reload, serverNow, shownZone, svg, update, weekday,
} from "../kit.js";
import { targetText, withCues } from "../parts/target.js";
import { HOUR, SPANS, WIDTH, gapsOf, hoursOf, loadPath, midnightOf, overlapsOf, placeOf, rowPaths,
  rowsOf, spanOf, ticksOf } from "./day/plan.js";

const ROWS = 60; // of the chart, until all are asked for
const NAMED = 6; // times of a line
const FEW = 4; // cues of a line
const FOUND = 3; // overlaps and quiet times

export const live = ["cue"];

const callOf = ({ span: { hours, from } }) => ({
  method: "GET", path: "v1/upcoming", query: { hours, from: new Date(from).toISOString() },
});

export async function load(data, { query }) {
  const zone = shownZone();
  const span = spanOf(query, serverNow(), zone);
  const call = callOf({ span });
  const { cues, waiting, truncated } = await get(call.path, call.query);
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
  const turn = (to) => html`<button type="button" aria-pressed=${to === name}
    @click=${() => go(hash(to, 0, 0))}>${{ "24h": "24 hours", "7d": "7 days" }[to]}</button>`;
  return {
    note: span && whenText(span, shownZone()),
    actions: html`<span class="segments" role="group" aria-label="Span">${
      Object.keys(SPANS).map(turn)}</span>${!span ? ""
      : [step(span, -1, "Earlier"), step(span, 1, "Later"), copyMenu(callOf({ span }))]}`,
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
  const total = hours.reduce((sum, { count }) => sum + count, 0);
  const busiest = hours.reduce((most, hour) => (hour.count > most.count ? hour : most));
  const text = `${plural(total, "run")}; most in the hour from ${at(busiest.ms, span, zone)}: ${
    number(busiest.count)}`;
  const shown = isUnfolded ? rows : rows.slice(0, ROWS);
  const rest = rows.length - shown.length;
  return card("day", "Runs", html`<small>${text}</small>`, html`<ul class="day">
    <li><span class="small muted">Runs an hour</span>${strip(40, text,
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

const legend = (rows) => {
  const parts = [
    rows.some(({ later }) => later.length) && "◆ is a retry, or a run fired for later.",
    rows.some(({ per_hour: counts }) => counts) && "A band is a cue that runs often.",
  ].filter(Boolean);
  return parts.length ? html`<p class="pad small muted">${parts.join(" ")}</p>` : "";
};

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
  ? html`<p class="pad muted">At most two cues run in the same minute.</p>`
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
    span.hours > 24 ? folded(weekday(day, zone), list, zone)
      : html`${days.size > 1 ? html`<h3 class="pad">${weekday(day, zone)}</h3>` : ""}${
        hourList(list, zone)}`}`)}</details>`;
}

const folded = (title, list, zone) => html`<details class="hour"><summary><span class="num">${
  title} · ${plural(list.reduce((sum, { count }) => sum + count, 0), "run")}</span></summary>${
  hourList(list, zone)}</details>`;

const hourList = (list, zone) => list.map(({ ms, count, runs }) => html`<details class="hour"><summary>
  <span class="num">${clock(ms, zone)} · ${plural(count, "run")}</span></summary><p>${
  runs.map(({ row, times, count }, i) => html`${i ? ", " : ""}${cueLink(row)} <small class="num">${
    times.length === count && count <= NAMED ? times.map((at) => clock(at, zone)).join(" ")
    : `${number(count)} times`}</small>`)}</p></details>`);
