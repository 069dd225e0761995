// Health of the server, and its last warnings.
import { button, bytes, capital, card, duration, facts, get, html, inYourTime, noRows, number,
  plural, reload, signOf, when } from "../../kit.js";
import { table } from "../../parts/table.js";
import { LOW_DISK } from "../overview/concerns.js";

const SHOWN = 100; // warnings

export async function load() {
  const [health, { reason }, { entries }] = await Promise.all([
    get("health"), get("status").catch(({ message }) => ({ reason: message })),
    get("v1/admin/log", { limit: SHOWN }),
  ]);
  return { health, reason, entries };
}

export const actions = () => button("Refresh", reload, "", { id: "refresh" });
export const shortcuts = () => [["r", "Refresh", reload]];

export const view = ({ health, reason, entries }) => [
  card("health", "Health", "", facts(figures(health, reason), "pad")), warnings(entries),
];

/** `[name, value]` of what an operator wants to know of a server. Pure. */
export function figures(health, reason = "") {
  const { version, status, uptime_seconds: uptime, database, queue, poller, workers } = health;
  const { count, p50_ms: half, p99_ms: most, max_ms: max } = health.lateness ?? {};
  const { bytes: size, wal_bytes: wal, free_disk_bytes: free } = database ?? {};
  const sized = (value) => (Number.isFinite(value) ? bytes(value) : "");
  const waiting = queue && [[queue.pending_outbox, "due"], [queue.pending_retries, "to be retried"],
    [queue.pending_worker_claims, "for workers"]].filter(([value]) => value)
    .map(([value, text]) => `${number(value)} ${text}`).join(", ");
  return [
    ["State", capital(status) + (reason ? `: ${inYourTime(reason)}` : "")],
    ["Version", version],
    ["Uptime", duration(uptime * 1_000)],
    ["Database", sized(size + wal) + (wal ? `, ${bytes(wal)} of it write-ahead log` : "")],
    ["Free disk", sized(free) + (free < LOW_DISK ? " (low)" : "")],
    ["Largest delay", count
      ? `${duration(max)} in ${plural(count, "run")} since the start${max > 0 ? `; median ${
        duration(half)}, 99 % under ${duration(most)}` : ""}` : "No run since the start"],
    ["Scheduler", poller.seconds_ago === null ? "Has not run yet"
      : poller.seconds_ago ? `Ran ${duration(poller.seconds_ago * 1_000)} ago` : "Ran just now"],
    ["Runs waiting", waiting === "" ? "None" : waiting],
    ["Active workers", number(workers.active_count)],
  ];
}

/** "path=/mnt retries=3 late=2 h": fields of a line of the log. Pure but for the zone. */
export const fieldsText = (fields = {}) => Object.entries(fields).map(([name, value]) => {
  const unit = /_(ms|seconds)$/.exec(name)?.[1];
  if (!unit || typeof value !== "number") {
    return `${name}=${typeof value === "string" ? inYourTime(value) : JSON.stringify(value)}`;
  }
  return `${name.slice(0, -unit.length - 1)}=${duration(value * (unit === "ms" ? 1 : 1_000))}`;
}).join(" ");

function warnings(entries) {
  const sign = ({ level }) => level === "error" ? { sign: "✕", word: "Error: ", color: "bad" }
    : { sign: "!", word: "Warning: ", color: "warn" };
  const rows = entries.map((entry, at) => ({ ...entry, at }));
  const none = noRows("No warnings since the start.");
  return card("warnings", "Last warnings", "", !rows.length ? none : table("Last warnings", [
    ["Message", (entry) => html`${signOf(sign(entry))} <span class="wrap">${
      inYourTime(entry.message)}</span>${fieldsText(entry.fields)
      && html`<p class="small muted wrap mono">${fieldsText(entry.fields)}</p>`}`],
    ["Time", ({ timestamp }) => when(timestamp, { seconds: true }), "short"],
  ], rows, { key: ({ at }) => String(at) }));
}
