// Workers: who takes runs, what they hold, what waits for them.
import { html, nothing } from "../lit/lit-html.js";
import { del, get } from "../app/api.js";
import { link } from "../app/router.js";
import { instant, relative } from "../app/time.js";
import { plural } from "../app/words.js";
import { copyButton } from "../parts/copy.js";
import { confirm } from "../parts/dialog.js";
import { act, empty, note } from "../parts/feedback.js";
import { table } from "../parts/table.js";
import { badge, shortId, when } from "../parts/values.js";

const HELD_SHOWN = 100; // runs held by workers that are listed
const COMMAND = "cued work --task report -- ./report.sh";

export const live = ["worker", "execution.claimed", "execution.claim_lost", "execution.created", "execution.succeeded", "execution.failed"];

export function head(data) {
  const { workers } = data;
  const active = workers?.filter((worker) => worker.heartbeat_status === "active").length;
  return { title: "Workers", note: workers?.length ? `${plural(active, "worker")} active, ${data.more ? "more than " : ""}${plural(data.waiting, "run")} waiting` : "Programs of your own that fetch runs and report how they ended." };
}

export async function load() {
  const [answer, claimable, held] = await Promise.all([
    get("v1/workers"),
    get("v1/executions/claimable", { limit: HELD_SHOWN }),
    get("v1/executions", { status: "delivering", limit: HELD_SHOWN }),
  ]);
  const waiting = claimable.executions;
  return {
    workers: answer.workers,
    waiting: waiting.length,
    more: claimable.has_more,
    byTask: countBy(waiting, (run) => run.task ?? ""),
    held: held.executions.filter((run) => run.claimed_by_worker),
  };
}

function countBy(list, of) {
  const counts = new Map();
  for (const entry of list) counts.set(of(entry), (counts.get(of(entry)) || 0) + 1);
  return [...counts];
}

export function view({ workers, byTask, held }) {
  const lonely = byTask.length && !workers.some((worker) => worker.heartbeat_status === "active");
  return html`
    ${lonely ? note("Runs wait, and no worker is active.", "warn") : nothing}
    ${workers.length ? list(workers, held) : none()}
    ${byTask.length ? waitingCard(byTask) : nothing}
    ${held.length ? heldCard(held) : nothing}`;
}

const none = () => empty("No worker yet", "Start one on any machine that reaches this server:", html`<div class="code"><code>${COMMAND}</code>${copyButton(COMMAND)}</div>`, html`<p class="small">It needs <code>CUED_URL</code> and <code>CUED_API_KEY</code>, or <code>cued login</code> first.</p>`);

function list(workers, held) {
  const columns = [
    { label: "Worker", cell: (worker) => html`<span class="name">${worker.worker_id}</span>` },
    { label: "State", cell: (worker) => badge(worker.heartbeat_status) },
    { label: "Tasks", kind: "wide", cell: (worker) => (worker.handlers.length ? html`<span class="row">${worker.handlers.map((task) => html`<span class="tag">${task}</span>`)}</span>` : html`<span class="muted">any</span>`) },
    { label: "Holds", kind: "num right", short: true, cell: (worker) => held.filter((run) => run.claimed_by_worker === worker.worker_id).length },
    { label: "Last heard", short: true, cell: (worker) => when(worker.last_heartbeat, { only: "relative" }) },
    { label: "", kind: "tight right", cell: (worker) => (worker.heartbeat_status === "dead" ? html`<button class="plain danger" aria-label=${`Remove ${worker.worker_id}`} @click=${() => remove(worker)}>Remove</button>` : nothing) },
  ];
  return html`<section class="card">${table({ label: "Workers", columns, rows: workers, key: (worker) => worker.worker_id })}</section>`;
}

async function remove({ worker_id: id, last_heartbeat: last }) {
  const sure = await confirm({ title: `Remove ${id}?`, text: `It was last heard ${last ? relative(instant(last)) : "never"}. If it runs again, it registers itself.`, action: "Remove", danger: true });
  if (sure) await act(() => del("v1/workers/" + encodeURIComponent(id)), `Removed ${id}`);
}

const waitingCard = (byTask) => html`<section class="card"><header><h2>Waiting by task</h2></header><dl class="facts pad">${byTask.map(([task, count]) => html`<dt>${task || "no task"}</dt><dd class="num">${count}</dd>`)}</dl></section>`;

function heldCard(held) {
  const columns = [
    { label: "Cue", cell: (run) => html`<a class="name" href=${link("runs", run.id)}>${run.cue_name}</a>` },
    { label: "Run", cell: (run) => shortId(run.id) },
    { label: "Worker", short: true, cell: (run) => run.claimed_by_worker },
    { label: "Since", short: true, cell: (run) => when(run.started_at, { only: "relative" }) },
    { label: "Lease ends", short: true, cell: (run) => when(run.lease_expires_at ?? run.claim_expires_at, { only: "relative" }) },
  ];
  return html`<section class="card"><header><h2>Held now</h2></header>${table({ label: "Runs held by workers", columns, rows: held, key: (run) => run.id })}</section>`;
}
