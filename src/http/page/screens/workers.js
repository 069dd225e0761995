// Workers: who takes runs, what they hold, what waits for them.
import { ago, anchor, badge, button, card, confirmed, copyKey, copyLine, copyMenu, del, empty, get,
  html, instant, link, muted, note, number, panel, plural, relative, reloadAfter, shortId } from
  "../kit.js";
import { table } from "../parts/table.js";
import { workLine } from "../parts/target.js";

const SHOWN = 100; // runs held and runs waiting that are looked at, each
const CALL = { method: "GET", path: "v1/workers" };

const CHANGES = ["claimed", "claim_lost", "created", "succeeded", "failed", "cancelled"];
export const live = ["worker", ...CHANGES.map((word) => "execution." + word)];
export const shortcuts = () => [copyKey(CALL)];
const isActive = ({ heartbeat_status: status }) => status === "active";

export const head = ({ workers, waiting, more }) => ({
  actions: copyMenu(CALL),
  note: !workers?.length ? "Programs of yours that claim runs and report their results."
    : `${plural(workers.filter(isActive).length, "worker")} active, ${
      more ? "more than " : ""}${plural(waiting, "run")} waiting`,
});

export async function load() {
  const [{ workers }, { executions: runs, has_more: more }, { executions }] = await Promise.all([
    get("v1/workers"), get("v1/executions/claimable", { limit: SHOWN }),
    get("v1/executions", { status: "delivering", limit: SHOWN }),
  ]);
  const held = executions.filter((run) => run.claimed_by_worker);
  return { workers, waiting: runs.length, more, tasks: byTask(runs), held };
}

/** Waiting runs as `[{task, runs, oldest}]`, the task that waits longest first. Pure. */
export function byTask(waiting) {
  const sorted = waiting.toSorted((a, b) => (a.scheduled_for < b.scheduled_for ? -1 : 1));
  const tasks = new Map();
  for (const run of sorted) {
    const entry = tasks.get(run.task) ?? { task: run.task, runs: 0, oldest: run };
    tasks.set(run.task, { ...entry, runs: entry.runs + 1 });
  }
  return [...tasks.values()];
}

/** Active workers that take runs of a task; one without tasks takes all. Pure. */
export const takers = (workers, task) => workers.filter((worker) =>
  isActive(worker) && (!worker.handlers.length || worker.handlers.includes(task)));

/** Tasks whose runs no active worker takes. Pure. */
export const unserved = ({ tasks, workers }) =>
  tasks.filter(({ task }) => !takers(workers, task).length);

export function view({ workers, tasks, held, more }) {
  const lines = unserved({ tasks, workers }).map(({ task }) => lack(task));
  return html`${lines.length ? note(lines, "warn") : ""}
    ${workers.length ? list(workers, held) : none()}
    ${tasks.length ? waitingCard(workers, tasks, more) : ""}
    ${held.length ? heldCard(held) : ""}${workers.length ? starter(tasks, workers) : ""}`;
}

const lack = (task) => html`<p>${task === null ? "Runs without a task"
  : html`Runs of task <code>${task}</code>`} are waiting; no active worker takes them.</p>`;

/** For a waiting run of a task: that no worker takes it, and how to start one; "" if one does. */
export async function lackOf(task) {
  const { workers } = await get("v1/workers");
  return takers(workers, task).length ? "" : note(html`${lack(task)}${setUp}${
    copyLine(workLine(task))}`, "warn", "", "no-worker");
}

const setUp = html`<p class="small">Start one on any machine that can reach this server. First, once:
  <code>cued login</code>, or set <code>CUED_URL</code> and <code>CUED_API_KEY</code>.</p>`;

/** The line that starts another worker, for the task that needs one most. */
function starter(tasks, workers) {
  const task = unserved({ tasks, workers }).find(({ task }) => task)?.task
    ?? workers.flatMap(({ handlers }) => handlers)[0];
  return panel("start", "Start a worker", "", copyLine(workLine(task)));
}

const none = () => empty("No worker yet", "", setUp, copyLine(workLine("")));

function list(workers, held) {
  const tag = (task) => html`<span class="tag cut" title=${task}>${task}</span>`;
  const holds = ({ worker_id: id }) => {
    const count = held.filter((run) => run.claimed_by_worker === id).length;
    return count ? anchor(link("runs", { worker: id }), plural(count, "run")) : muted("Idle");
  };
  const removal = (worker) => worker.heartbeat_status !== "dead" ? ""
    : button("Remove", () => remove(worker), "plain danger",
      { label: `Remove ${worker.worker_id}` });
  return html`<section class="card">${table("Workers", [
    ["Worker", (worker) => html`<span class="name">${worker.worker_id}</span>`],
    ["State", (worker) => badge(worker.heartbeat_status)],
    ["Tasks", ({ handlers: tasks }) =>
      tasks.length ? html`<span class="row">${tasks.map(tag)}</span>` : muted("any"), "wide"],
    ["Runs now", holds, "num right tight short"],
    ["Last seen", (worker) => ago(worker.last_heartbeat), "short"],
    ["", removal, "tight right"],
  ], workers, { key: (worker) => worker.worker_id })}</section>`;
}

const remove = ({ worker_id: id, last_heartbeat: last }) => reloadAfter(confirmed(`Remove ${id}?`,
  "Remove", `It was last seen ${last ? relative(instant(last)) : "never"}. If it starts again, it
    comes back here.`, () => del("v1/workers/" + encodeURIComponent(id)), `Removed ${id}`));

const waitingCard = (workers, tasks, more) => card("waiting", "Waiting by task",
  more ? muted(`the first ${SHOWN}`) : "", table("Runs waiting, by task", [
    ["Task", ({ task }) => html`<span class="name">${task ?? "no task"}</span>`],
    ["Waiting", ({ runs }) => number(runs), "num right short"],
    ["Oldest", ({ oldest }) => anchor(link("runs", oldest.id), ago(oldest.scheduled_for)), "short"],
    ["Active workers", ({ task }) =>
      takers(workers, task).length || html`<span class="warn">none</span>`, "num right short"],
  ], tasks, { key: ({ task }) => "task " + task }));

const heldCard = (held) => card("held", "Running now", "", table("Runs held by workers", [
  ["Cue", (run) => html`${anchor(link("runs", run.id), run.cue_name, "name")} ${shortId(run.id)}`],
  ["Worker", ({ claimed_by_worker: id }) => html`<span title=${id}>${id}</span>`, "cut short"],
  ["Claimed", (run) => ago(run.claimed_at), "short"],
  ["Lease ends", (run) => ago(run.lease_expires_at), "short"],
], held));
