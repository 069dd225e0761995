// Overview: what fails first, then what waits, what comes next, and the last 24 hours.
import { absolute, act, ago, anchor, badge, badges, button, bytes, card, countOf, cuePath, duration,
  flowText, get, go, html, instant, isLimited, isSilent, link, loadOverview, meter,
  missReason, note, nothing, number, patch, plural, post, set, settings, shownZone, state, streakText,
  toast, update, when, whyLine } from "../kit.js";
import { bars, sparkline } from "../parts/charts.js";
import { currentRow } from "../app/keyboard.js";
import { knownLine, withCues } from "../parts/target.js";
import { isHeld } from "./cue/actions.js";
import { LOW_DISK, concerns } from "./overview/concerns.js";

const HEALTH_MS = 30_000; // sizes of database and disk change slowly
const COUNTED = 10_000; // the API counts what waits up to here
const FIRST = 2; // failing cues above the numbers; the others are unfolded
const HOUR_MS = 3_600_000;
const RECENT = 6; // runs

export const live = ["execution", "cue", "missed", "worker", "quota", "server"];

let cuesChanged = false; // since their states and flows were fetched
export function event(data, type) {
  cuesChanged ||= type.startsWith("cue.");
  return true;
}

export async function load(data) {
  const isOld = !(Date.now() - data.healthAt < HEALTH_MS);
  const sizes = isOld ? get("health").catch(() => null) : data.health;
  const kept = { flows: data.flows ?? [] };
  const mayDiffer = isOld || cuesChanged;
  cuesChanged = false;
  const limits = mayDiffer || kept.flows.length ? get("v1/flows").catch(() => kept) : kept;
  const recent = get("v1/executions", { limit: RECENT });
  const [overview, health, { flows }, { executions: runs }] =
    await Promise.all([loadOverview(), sizes, limits, recent]);
  const named = [...overview.failing, ...overview.next, ...runs].map(({ cue_id: id }) => id);
  const known = await withCues(data.known ?? new Map(), named);
  const { cues, waiting, workers } = overview;
  // The Workers screen knows which tasks no worker takes.
  const unserved = !waiting.claim || !workers.active ? []
    : await import("./workers.js").then((screen) => screen.load().then(screen.unserved))
      .catch(() => []);
  const first = countOf(cues) ? null : (await import("./overview/first_cue.js")).firstCue;
  // The overview does not say which of the failing cues are paused or over.
  const isMixed = cues.failing && countOf(cues) > cues.active;
  const stateKey = overview.failing.map(({ cue_id: id }) => id).join();
  const isStale = mayDiffer || data.stateKey !== stateKey;
  const query = { failing: true, sort: "-last_run", limit: 30 };
  const states = !isMixed ? [] : isStale ? (await get("v1/cues", query)).cues : data.states;
  return {
    first, overview, health, flows, runs, unserved, known, stateKey, states,
    healthAt: isOld ? Date.now() : data.healthAt,
    stateOf: new Map(states.map(({ id, status }) => [id, status])),
  };
}

export function head({ overview }) {
  const failing = overview?.cues.failing;
  return {
    tab: failing ? `${number(failing)} failing` : "Overview",
    actions: overview && countOf(overview.cues)
      ? anchor("#/cues/new", "New cue", "button primary") : "",
  };
}

export function shortcuts({ overview, stateOf }) {
  const row = () => overview.failing.find(({ cue_id: id }) => id === currentRow()?.dataset.row);
  const on = (run) => () => row() && run(row());
  return [
    ["n", "New cue", () => go("#/cues/new")],
    ["r", "Replay the failed run", on(replay)],
    ["p", "Pause or resume the failing cue",
      on((cue) => (stateOf.get(cue.cue_id) === "paused" ? resume : pause)(cue))],
  ];
}

export function view(data) {
  const { overview, health, first, flows } = data;
  const failing = failingChannels(overview.channels);
  if (first) return [failing, first(), channelHint(overview.channels)];
  return html`${failing}${overview.failing.length ? whatFails(data) : ""}${condition(data)}
    ${tiles(overview, health)}${channelHint(overview.channels)}
    <div class="grid">${nextRuns(data)}<div class="stack">${lastDay(overview.hours)}${
      recentRuns(data)}${missedRuns(overview.missed)}${flowsCard(flows)}</div></div>`;
}

function failingChannels({ failing }) {
  if (!failing.length) return "";
  const names = failing.map(({ name }) => name).join(", ");
  const unheard = isSilent() ? ": nobody hears of failures" : "";
  const [title, text] = failing.length === 1
    ? [`The channel ${names} fails${unheard}.`, failing[0].last_error]
    : [`${number(failing.length)} channels fail${unheard}.`, names];
  return html`<div id="failing-channels">${note(html`<b>${title}</b> ${text}`, "bad",
    anchor("#/notifications", "Open Notifications", "button"))}</div>`;
}

/** Until it was followed or dismissed, in this browser. */
function channelHint({ count }) {
  const { user } = state;
  if (count || !user || settings.channel_hints.includes(user.id)) return "";
  const end = () => update(() => set("channel_hints", [...settings.channel_hints, user.id]));
  const text = isSilent() ? html`<b>You get no message when a cue fails.</b> This server sends no
    mail, and you have no other channel. Add one, or start the server with <code
    class="flag">--smtp-url</code>.`
    : "Get a message when a cue fails, and when it works again.";
  return html`<div id="channel-hint">${note(text, isSilent() ? "warn" : "", html`<span
    class="row"><a class="button" href="#/notifications/new" @click=${end}>Add a channel</a>${
    button("Dismiss", end)}</span>`)}</div>`;
}

const cueLink = ({ cue_id: id, name }) =>
  html`<a class="name cut" title=${name} href=${link("cues", id)}><bdi>${name}</bdi></a>`;
const lines = (list, line) => html`<ul class="lines">${list.map(line)}</ul>`;

function whatFails(data) {
  const { overview: { failing, cues }, stateOf, isUnfolded } = data;
  const all = anchor(link("cues", { failing: "true" }), `All ${number(cues.failing)}`);
  const shown = isUnfolded ? failing : failing.slice(0, FIRST);
  const rest = failing.length - shown.length;
  const unfold = () => update(() => (data.isUnfolded = true));
  return card("failing", "Failing cues", cues.failing > failing.length ? all : "", html`${
    lines(shown, (cue) => failingCue(data, cue, stateOf.get(cue.cue_id) ?? "active"))}${
    rest ? html`<footer>${button(`Show ${number(rest)} more`, unfold, "link")}</footer>` : ""}`);
}

function failingCue({ known }, cue, status) {
  const { cue_id: id, name, streak, at, execution_id: run } = cue;
  const action = (text, action) =>
    button(html`${text}<span class="sr"> ${name}</span>`, () => action(cue));
  const text = html`${streakText(streak)}${at && html`${streak > 1 ? ", last" : ""} ${ago(at)}: ${
    whyLine(cue)}`}`;
  const story = run ? html`<a class="wrap" data-run href=${link("runs", run)}>${text}</a>` : text;
  return html`<li data-row=${id}><span class="bad sign" aria-hidden="true">✕</span>
    <p>${cueLink(cue)} ${story} ${status === "paused" ? badge(status) : ""}
      <small>${knownLine(known, id)}</small></p>
    <span class="actions">${run ? action("Replay", replay) : ""}${
      status === "active" ? action("Pause", pause)
      : status === "paused" ? action("Resume", resume) : ""}</span></li>`;
}

async function replay({ execution_id: id, name }) {
  const run = id && (await act(() => post(`v1/executions/${id}/replay`)));
  if (run) toast(`Replaying ${name}`, { label: "See the run", href: link("runs", run.id) });
}

const become = ({ cue_id: id }, status) => {
  cuesChanged = true;
  return patch(cuePath(id), { status });
};
const resume = (cue) => act(() => become(cue, "active"), `Resumed ${cue.name}`);

async function pause(cue) {
  const undo = { label: "Undo", run: () => resume(cue) };
  if (await act(() => become(cue, "paused"))) toast(`Paused ${cue.name}`, undo);
}

const sum = (hours, field) => hours.reduce((total, hour) => total + hour[field], 0);

/** All is well only where there is nothing else to say; what is not well leads to its screen. */
function condition({ overview, health, unserved }) {
  const { cues, hours, usage: { executions: runs } } = overview;
  const found = concerns(overview, health?.database?.free_disk_bytes, unserved);
  const done = sum(hours, "succeeded");
  const active = cues.active ? `${plural(cues.active, "cue")} active` : "No cue is active";
  const good = done ? `, ${plural(done, "run")} succeeded in the last 24 hours` : "";
  if (!found.length) {
    const well = html`<b>All is well.</b> No cue fails. ${active}${good}.`;
    return cues.failing ? "" : html`<div id="all-well">${note(well, "good")}</div>`;
  }
  const list = found.filter(({ isTold }) => !isTold);
  if (cues.failing && !list.length) return "";
  const line = ({ text, href, more }) => html`<li>${text} ${href ? anchor(href, more) : ""}</li>`;
  // A run that was not sent, because there are too many, does not make its cue fail.
  const isOver = isLimited(runs.limit) && runs.used >= runs.limit;
  const begin = cues.failing ? "Other problems:" : isOver ? "This month's runs are used up."
    : list.length ? "No cue fails now, but there are other problems:" : "No cue fails now.";
  return html`<div id="not-well">${note(html`<b>${begin}</b> ${
    list.length ? html`<ul>${list.map(line)}</ul>` : ""}${
    cues.failing ? "" : html`<span class="small">${active}${good}.</span>`}`,
  list.length ? "warn" : "idle")}</div>`;
}

const tile = (id, value, text, href, kind) => {
  const content = html`<b class=${kind || nothing}>${value}</b><span>${text}</span>`;
  return href ? html`<a class="card tile" data-tile=${id} href=${href}>${content}</a>`
    : html`<div class="card tile" data-tile=${id}>${content}</div>`;
};

function tiles({ waiting: { send, claim, delivering, retry }, workers, usage }, health) {
  const count = (value) => (value >= COUNTED ? number(COUNTED) + "+" : number(value));
  const runs = (status) => link("runs", { status });
  const waits = claim ? `Waiting${send ? `, ${count(claim)}` : ""} for a worker` : "Waiting";
  const { active, stale, dead } = workers;
  const team = [`${active === 1 ? "Worker" : "Workers"} active`, stale && `${stale} late`,
    dead && `${dead} gone`].filter(Boolean).join(", ");
  const { used, limit } = usage.executions;
  const isCounted = isLimited(limit);
  const month = !isCounted ? "Runs this month" : html`of ${number(limit)} runs this month${
    meter(used, limit, `${number(used)} of ${number(limit)} runs used`)}`;
  const { bytes: size, wal_bytes: wal, free_disk_bytes: free } = health?.database || {};
  const isLow = free !== null && free < LOW_DISK;
  const disk = () => free === null ? "Database" : html`Database, <span
    class=${isLow ? "bad" : ""}>${bytes(free)} free${isLow ? ": low" : ""}</span>`;
  return html`<section class="tiles" aria-label="Numbers">
    ${tile("waiting", count(send + claim), waits, runs("pending"))}
    ${tile("running", count(delivering), "Running", runs("delivering"))}
    ${tile("retrying", count(retry), "Retrying", runs("retrying"))}
    ${tile("workers", number(active), team, "#/workers", claim && !active ? "warn" : "")}
    ${tile("usage", number(used), month, isCounted && "#/account/plan")}
    ${size === undefined ? "" : tile("database", bytes(size + wal), disk())}</section>`;
}

const nextRuns = ({ overview: { next, cues: { active } }, known }) => card("next", "Next runs",
  html`<span class="row">${anchor("#/day", "Day")}${
    anchor(link("cues", { status: "active", sort: "next_run" }), plural(active, "active cue"))}</span>`,
  !next.length ? html`<p class="pad muted">No run is scheduled.</p>`
  : lines(next, (cue) => html`<li><p class="cut">${cueLink(cue)}
    <small>${knownLine(known, cue.cue_id)}</small></p><span class="small num end">${
    isHeld(cue.at) ? "once promoted"
    : when(cue.at, { zone: settings.zone_view === "cue" ? cue.timezone : null })}</span></li>`));

const recentRuns = ({ runs, known }) => !runs.length ? "" : card("recent", "Recent runs",
  anchor(link("runs"), "All runs"), lines(runs, (run) => html`<li data-row=${run.id}><p
    class="cut"><a class="name cut" href=${link("runs", run.id)}><bdi>${run.cue_name}</bdi></a>
    <small>${knownLine(known, run.cue_id)}</small></p>${badges(run)}<span
    class="small num end">${ago(run.scheduled_for)}</span></li>`));

function lastDay(hours) {
  const from = hours[0].at;
  const late = hours.map((hour) => hour.late_max_ms);
  const most = Math.max(-1, ...late.filter((value) => value !== null));
  const counts = ({ succeeded, failed }) =>
    `${number(succeeded)} succeeded, ${number(failed)} failed`;
  const totals = { succeeded: sum(hours, "succeeded"), failed: sum(hours, "failed") };
  const end = (at) => new Date(instant(at) + HOUR_MS).toISOString();
  const clock = (at) => absolute(instant(at), shownZone());
  const of = (status, text, kind) => anchor(link("runs", { status, since: from }), text, kind);
  const title = ({ at, late_max_ms: ms, ...hour }) => `${clock(at)} to ${clock(end(at))}: ${
    counts(hour)}${ms === null ? "" : `, up to ${duration(ms)} late`}`;
  const chart = bars(hours, {
    label: `Runs by hour: ${counts(totals)}`, titles: hours.map(title),
    links: hours.map(({ at }) => link("runs", { since: at, until: end(at) })),
  });
  return card("last-day", "Last 24 hours", html`<span class="row small num">
    ${of("success", `● ${number(totals.succeeded)} succeeded`, "good")}
    ${of("failed", `✕ ${number(totals.failed)} failed`, "bad")}</span>`, html`<div
    class="pad">${chart}
      <p class="row spread small muted num"><span>${clock(from)}</span><span>now</span></p></div>
    ${most < 0 ? "" : html`<footer><span>Largest delay:
      <b class="num">${duration(most)}</b></span>${
      sparkline(late, "Largest delay of each hour")}</footer>`}`);
}

function missedRuns(missed) {
  if (!missed.length) return "";
  const at = (time) => when(time, { only: "absolute", full: true });
  const runs = ({ count, first, last }) => count === 1 ? html`a run, ${when(first)}`
    : html`${plural(count, "run")}, ${at(first)} to ${at(last)}`;
  return card("missed", "Missed runs", "", lines(missed, (gap) => html`<li><span class="warn sign"
    aria-hidden="true">┄</span><p>${cueLink(gap)} missed ${runs(gap)}: ${
    missReason(gap.reason)}</p></li>`));
}

const flowsCard = (flows) => !flows.length ? "" : card("flows", "Flows", "", lines(flows,
  (flow) => html`<li><p><b class="name wrap">${flow.key}</b> <span class="small muted">${
    flowText(flow)}, ${plural(flow.cues, "cue")}</span></p><span class="small num end">${
    number(flow.waiting)} waiting, ${number(flow.running)} running</span></li>`));
