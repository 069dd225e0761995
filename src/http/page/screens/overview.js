// Overview: what fails first, then what waits, what comes next, and the last 24 hours.
import { html, nothing } from "../lit/lit-html.js";
import { get, patch, post } from "../app/api.js";
import { currentRow } from "../app/keyboard.js";
import { go, link } from "../app/router.js";
import { loadOverview } from "../app/server.js";
import { absolute, duration, instant, shownZone } from "../app/time.js";
import { bytes, isLimited, missReason, number, plural, streakText, why } from "../app/words.js";
import { bars, meter, sparkline } from "../parts/chart.js";
import { act, note, toast } from "../parts/feedback.js";
import { badge, when } from "../parts/values.js";

const HEALTH_MS = 30_000; // sizes of database and disk change slowly
const COUNTED = 10_000; // the API counts what waits up to here
const LOW_DISK = 1 << 30;
const HOUR_MS = 3_600_000;

export const live = ["execution", "cue", "missed", "worker", "quota", "server"];

const all = ({ cues }) => cues.active + cues.paused + cues.completed + cues.failed;

export async function load(data) {
  const old = Date.now() - data.healthAt < HEALTH_MS;
  const [overview, health] = await Promise.all([loadOverview(), old ? data.health : get("health").catch(() => null)]);
  // Only an empty account needs this module and those that it uses.
  const first = all(overview) ? null : (await import("./overview/first_cue.js")).firstCue;
  const { active, failing } = overview.cues;
  // The overview does not tell which of the failing cues are paused or over.
  const states = failing && all(overview) > active ? await get("v1/cues", { failing: true, sort: "-last_run", limit: 30 }) : { cues: [] };
  return { first, overview, health, healthAt: old ? data.healthAt : Date.now(), stateOf: new Map(states.cues.map(({ id, status }) => [id, status])) };
}

export function head({ overview }) {
  const failing = overview?.cues.failing;
  return { title: "Overview", tab: failing ? `${number(failing)} failing` : "Overview", actions: overview && all(overview) ? html`<a class="button primary" href="#/cues/new">New cue</a>` : nothing };
}

export const shortcuts = ({ overview, stateOf }) => {
  const row = () => overview.failing.find(({ cue_id: id }) => id === currentRow()?.dataset.row);
  const on = (run) => () => row() && run(row());
  return [
    { keys: "n", label: "New cue", run: () => go("#/cues/new") },
    { keys: "r", label: "Replay the failed run", run: on(replay) },
    { keys: "p", label: "Pause or resume the failing cue", run: on((cue) => (stateOf.get(cue.cue_id) === "paused" ? resume : pause)(cue)) },
  ];
};

export function view(data) {
  const { overview } = data;
  const { cues, failing, hours, missed, next } = overview;
  if (data.first) return data.first();
  return html`${failing.length ? whatFails(data) : allWell(overview)}
    ${tiles(overview, data.health)}
    <div class="grid">${nextRuns(next, cues)}<div class="stack">${lastDay(hours)}${missed.length ? missedRuns(missed) : nothing}</div></div>`;
}

const cueLink = ({ cue_id: id, name }) => html`<a class="name cut" title=${name} href=${link("cues", id)}><bdi>${name}</bdi></a>`;

function whatFails({ overview: { failing, cues }, stateOf }) {
  const button = (text, cue, run) => html`<button @click=${() => run(cue)}>${text}<span class="sr"> ${cue.name}</span></button>`;
  return html`<section class="card" id="failing"><header><h2>What fails</h2>${cues.failing > failing.length ? html`<a href=${link("cues", { failing: "true" })}>All ${number(cues.failing)}</a>` : nothing}</header>
    <ul class="lines">${failing.map((cue) => {
      const status = stateOf.get(cue.cue_id) || "active";
      const text = html`${streakText(cue.streak)}${cue.at ? html`${cue.streak > 1 ? ", last" : ""} ${when(cue.at, { only: "relative" })}: ${why(cue)}` : nothing}`;
      return html`<li data-row=${cue.cue_id}><span class="bad sign" aria-hidden="true">✕</span>
        <p>${cueLink(cue)} ${cue.execution_id ? html`<a class="wrap" data-run href=${link("runs", cue.execution_id)}>${text}</a>` : text} ${status === "paused" ? badge(status) : nothing}</p>
        <span class="actions">${cue.execution_id ? button("Replay", cue, replay) : nothing}${status === "active" ? button("Pause", cue, pause) : status === "paused" ? button("Resume", cue, resume) : nothing}</span></li>`;
    })}</ul></section>`;
}

async function replay({ execution_id: id, name }) {
  if (!id) return;
  const run = await act(() => post(`v1/executions/${id}/replay`));
  if (run) toast(`Replaying ${name}`, { label: "See the run", href: link("runs", run.id) });
}

const become = ({ cue_id: id }, status) => patch("v1/cues/" + id, { status });
const resume = (cue) => act(() => become(cue, "active"), `Resumed ${cue.name}`);

async function pause(cue) {
  if (await act(() => become(cue, "paused"))) toast(`Paused ${cue.name}`, { label: "Undo", run: () => resume(cue) });
}

const sum = (hours, field) => hours.reduce((total, hour) => total + hour[field], 0);

function allWell({ cues, hours, server }) {
  const done = sum(hours, "succeeded");
  const well = server.status === "healthy" && server.writable;
  const text = html`<b>${well ? "All is well." : "No cue fails."}</b> ${well ? "No cue fails. " : ""}${cues.active ? `${plural(cues.active, "cue")} active` : "No cue is active"}${done ? `, ${plural(done, "run")} succeeded in the last 24 hours` : ""}.`;
  return html`<div id="all-well">${note(text, well ? "good" : "idle")}</div>`;
}

function tiles({ waiting, workers, usage }, health) {
  const count = (value) => (value >= COUNTED ? number(COUNTED) + "+" : number(value));
  const { used, limit } = usage.executions;
  const limited = isLimited(limit);
  const { bytes: size, wal_bytes: wal, free_disk_bytes: free } = health?.database || {};
  const low = free !== null && free < LOW_DISK;
  return html`<section class="tiles" aria-label="Figures">
    ${tile("waiting", count(waiting.send + waiting.claim), waiting.claim ? `Waiting${waiting.send ? `, ${count(waiting.claim)}` : ""} for a worker` : "Waiting", link("runs", { status: "pending" }))}
    ${tile("running", count(waiting.delivering), "Running", link("runs", { status: "delivering" }))}
    ${tile("retrying", count(waiting.retry), "Retrying", link("runs", { status: "retrying" }))}
    ${tile("workers", number(workers.active), html`${workers.active === 1 ? "Worker" : "Workers"}${workers.stale + workers.dead ? `, ${workers.stale + workers.dead} not heard` : ""}`, "#/workers", waiting.claim && !workers.active ? "warn" : "")}
    ${tile("usage", number(used), html`${limited ? `of ${number(limit)} runs this month` : "Runs this month"}${limited ? meter(used, limit, `${number(used)} of ${number(limit)} runs used`) : nothing}`, limited ? "#/account/plan" : null)}
    ${size === undefined ? nothing : tile("database", bytes(size + wal), free === null ? "Database" : html`Database, <span class=${low ? "bad" : ""}>${bytes(free)} free${low ? ": low" : ""}</span>`)}
  </section>`;
}

const tile = (id, value, text, href = null, kind = "") => (href ? html`<a class="card tile" data-tile=${id} href=${href}><b class=${kind}>${value}</b><span>${text}</span></a>` : html`<div class="card tile" data-tile=${id}><b>${value}</b><span>${text}</span></div>`);

function nextRuns(next, { active }) {
  return html`<section class="card" id="next"><header><h2>Next runs</h2><a href=${link("cues", { status: "active", sort: "next_run" })}>${plural(active, "active cue")}</a></header>
    ${next.length ? html`<ul class="lines">${next.map((cue) => html`<li><p class="cut">${cueLink(cue)}</p><span class="small num end">${when(cue.at, { zone: cue.timezone })}</span></li>`)}</ul>` : html`<p class="pad muted">No run is planned.</p>`}</section>`;
}

function lastDay(hours) {
  const from = hours[0].at;
  const late = hours.map((hour) => hour.late_max_ms);
  const most = Math.max(-1, ...late.filter((value) => value !== null));
  const counts = ({ succeeded, failed }) => `${number(succeeded)} succeeded, ${number(failed)} failed`;
  const totals = { succeeded: sum(hours, "succeeded"), failed: sum(hours, "failed") };
  const end = (at) => new Date(instant(at) + HOUR_MS).toISOString();
  const clock = (at) => absolute(instant(at), shownZone());
  const of = (status, text, kind) => html`<a class=${kind} href=${link("runs", { status, since: from })}>${text}</a>`;
  return html`<section class="card" id="last-day"><header><h2>Last 24 hours</h2><span class="row small num">${of("success", `● ${number(totals.succeeded)} succeeded`, "good")} ${of("failed", `✕ ${number(totals.failed)} failed`, "bad")}</span></header>
    <div class="pad">${bars(hours, {
      label: `Runs by hour: ${counts(totals)}`,
      titles: hours.map((hour) => `${clock(hour.at)} to ${clock(end(hour.at))}: ${counts(hour)}${hour.late_max_ms === null ? "" : `, at most ${duration(hour.late_max_ms)} late`}`),
      links: hours.map((hour) => link("runs", { since: hour.at, until: end(hour.at) })),
    })}<p class="row spread small muted num"><span>${clock(from)}</span><span>now</span></p></div>
    ${most < 0 ? nothing : html`<footer><span>Late at most <b class="num">${duration(most)}</b></span>${sparkline(late, { label: "Largest lateness of each hour" })}</footer>`}</section>`;
}

const missedRuns = (missed) => html`<section class="card" id="missed"><header><h2>Missed</h2></header><ul class="lines">${missed.map((gap) => html`<li><span class="warn sign" aria-hidden="true">┄</span><p>${cueLink(gap)} missed ${gap.count === 1 ? html`a run, ${when(gap.first)}` : html`${plural(gap.count, "run")}, ${when(gap.first, { only: "absolute" })} to ${when(gap.last, { only: "absolute" })}`}: ${missReason(gap.reason)}</p></li>`)}</ul></section>`;
