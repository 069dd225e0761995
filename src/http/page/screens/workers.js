// Workers: who takes runs, what they hold, what waits for them.
import { html, nothing } from "../lit/lit-html.js";
import { del, get } from "../app/api.js";
import { go, link } from "../app/router.js";
import { instant, relative } from "../app/time.js";
import { number, plural } from "../app/words.js";
import { copyButton, copyKey, copyMenu } from "../parts/copy.js";
import { confirm } from "../parts/dialog.js";
import { act, empty, note } from "../parts/feedback.js";
import { table } from "../parts/table.js";
import { badge, shortId, when } from "../parts/values.js";

const SHOWN = 100; // runs held and runs waiting that are looked at, each
const CALL = { method: "GET", path: "v1/workers" };
const COMMAND = "cued work --task report -- ./report.sh";

export const live = ["worker", "execution.claimed", "execution.claim_lost", "execution.created", "execution.succeeded", "execution.failed", "execution.cancelled"];

export function head(data) {
  const { workers } = data;
  const active = workers?.filter((worker) => worker.heartbeat_status === "active").length;
  return { title: "Workers", note: workers?.length ? `${plural(active, "worker")} active, ${data.more ? "more than " : ""}${plural(data.waiting, "run")} waiting` : "Programs of your own that fetch runs and report how they ended.", actions: copyMenu(CALL) };
}

export async function load() {
  const [answer, claimable, held] = await Promise.all([
    get("v1/workers"),
    get("v1/executions/claimable", { limit: SHOWN }),
    get("v1/executions", { status: "delivering", limit: SHOWN }),
  ]);
  const waiting = claimable.executions;
  return {
    workers: answer.workers,
    waiting: waiting.length,
    more: claimable.has_more,
    byTask: byTask(waiting),
    held: held.executions.filter((run) => run.claimed_by_worker),
  };
}

/** Waiting runs as `[{task, runs, oldest}]`, the task that waits longest first. Pure. */
export function byTask(waiting) {
  const tasks = new Map();
  for (const run of waiting) {
    const entry = tasks.get(run.task) || { task: run.task, runs: 0, oldest: run };
    entry.runs++;
    if (run.scheduled_for < entry.oldest.scheduled_for) entry.oldest = run;
    tasks.set(run.task, entry);
  }
  return [...tasks.values()].sort((a, b) => (a.oldest.scheduled_for < b.oldest.scheduled_for ? -1 : 1));
}

/** Active workers that take runs of a task; one without tasks takes all. Pure. */
export const takers = (workers, task) => workers.filter(({ heartbeat_status: state, handlers }) => state === "active" && (!handlers.length || handlers.includes(task)));

export const shortcuts = () => [copyKey(CALL)];

export function view({ workers, byTask, held, more }) {
  const lonely = byTask.filter(({ task }) => !takers(workers, task).length);
  return html`
    ${lonely.length ? note(html`Runs wait, and no active worker takes ${lonely.map(({ task }, i) => html`${i ? ", " : ""}${nameOf(task)}`)}.`, "warn") : nothing}
    ${workers.length ? list(workers, held) : none()}
    ${byTask.length ? waitingCard(workers, byTask, more) : nothing}
    ${held.length ? heldCard(held) : nothing}`;
}

const nameOf = (task) => (task === null ? "runs without a task" : html`<code>${task}</code>`);

const none = () => empty("No worker yet", "Start one on any machine that reaches this server:", html`<div class="code"><code>${COMMAND}</code>${copyButton(COMMAND)}</div>`, html`<p class="small">It needs <code>CUED_URL</code> and <code>CUED_API_KEY</code>, or <code>cued login</code> first.</p>`);

function list(workers, held) {
  const columns = [
    { label: "Worker", cell: (worker) => html`<span class="name">${worker.worker_id}</span>` },
    { label: "State", cell: (worker) => badge(worker.heartbeat_status) },
    { label: "Tasks", kind: "wide", cell: (worker) => (worker.handlers.length ? html`<span class="row">${worker.handlers.map((task) => html`<span class="tag cut" title=${task}>${task}</span>`)}</span>` : html`<span class="muted">any</span>`) },
    { label: "Holds", kind: "num right tight", short: true, cell: ({ worker_id: id }) => holds(id, held.filter((run) => run.claimed_by_worker === id).length) },
    { label: "Last heard", short: true, cell: (worker) => when(worker.last_heartbeat, { only: "relative" }) },
    { label: "", kind: "tight right", cell: (worker) => (worker.heartbeat_status === "dead" ? html`<button class="plain danger" aria-label=${`Remove ${worker.worker_id}`} @click=${() => remove(worker)}>Remove</button>` : nothing) },
  ];
  return html`<section class="card">${table({ label: "Workers", columns, rows: workers, key: (worker) => worker.worker_id })}</section>`;
}

const holds = (id, count) => (count ? html`<a href=${link("runs", { worker: id })}>${plural(count, "run")}</a>` : html`<span class="muted">none</span>`);

async function remove({ worker_id: id, last_heartbeat: last }) {
  const sure = await confirm({ title: `Remove ${id}?`, text: `It was last heard ${last ? relative(instant(last)) : "never"}. If it runs again, it registers itself.`, action: "Remove", danger: true });
  if (sure && (await act(() => del("v1/workers/" + encodeURIComponent(id)), `Removed ${id}`))) go(location.hash, { replace: true });
}

function waitingCard(workers, byTask, more) {
  const columns = [
    { label: "Task", cell: ({ task }) => html`<span class="name">${task ?? "no task"}</span>` },
    { label: "Waiting", kind: "num right", short: true, cell: ({ runs }) => number(runs) },
    { label: "Oldest", short: true, cell: ({ oldest }) => html`<a href=${link("runs", oldest.id)}>${when(oldest.scheduled_for, { only: "relative" })}</a>` },
    { label: "Active workers", kind: "num right", short: true, cell: ({ task }) => takers(workers, task).length || html`<span class="warn">none</span>` },
  ];
  return html`<section class="card" id="waiting"><header><h2>Waiting by task</h2>${more ? html`<span class="muted">the first ${SHOWN}</span>` : nothing}</header>${table({ label: "Runs waiting, by task", columns, rows: byTask, key: ({ task }) => "task " + task })}</section>`;
}

function heldCard(held) {
  const columns = [
    { label: "Cue", cell: (run) => html`<a class="name" href=${link("runs", run.id)}>${run.cue_name}</a> ${shortId(run.id)}` },
    { label: "Worker", kind: "cut", short: true, cell: ({ claimed_by_worker: id }) => html`<span title=${id}>${id}</span>` },
    { label: "Since", short: true, cell: (run) => when(run.claimed_at, { only: "relative" }) },
    { label: "Lease ends", short: true, cell: (run) => when(run.lease_expires_at, { only: "relative" }) },
  ];
  return html`<section class="card" id="held"><header><h2>Held now</h2></header>${table({ label: "Runs held by workers", columns, rows: held, key: (run) => run.id })}</section>`;
}
