import assert from "node:assert/strict";
import { test } from "node:test";

// lit-html looks for a document when it is loaded; these tests render nothing.
globalThis.document ??= { createTreeWalker: () => ({}), createComment: () => ({}) };
const page = "../../src/http/page/";
const { promoted } = await import(page + "screens/admin.js");
const { made } = await import(page + "screens/admin/backups.js");
const { fieldsText, figures } = await import(page + "screens/admin/health.js");
const { stateOf } = await import(page + "screens/admin/users.js");
const { bannerList } = await import(page + "app/banners.js");

const HEALTH = {
  status: "healthy", version: "0.1.0", uptime_seconds: 93_600,
  poller: { seconds_ago: 2 }, workers: { active_count: 1 },
  queue: { pending_outbox: 1200, pending_retries: 0, pending_worker_claims: 3 },
  lateness: { count: 3, p50_ms: 1.5, p99_ms: 4.9, max_ms: 5 },
  database: { bytes: 4 << 20, wal_bytes: 4096, free_disk_bytes: 8 * 2 ** 30 },
};
const shown = (health, reason) => Object.fromEntries(figures(health, reason));

test("a user is disabled, or bounded by limits until the address is confirmed, or active", () => {
  const limited = { limits: true, dev: false };
  const user = { is_disabled: false, is_confirmed: false };
  assert.equal(stateOf(user, limited), "unconfirmed");
  assert.equal(stateOf(user, { limits: false, dev: false }), "active", "nothing bounds it");
  assert.equal(stateOf(user, { limits: true, dev: true }), "active", "a server for development trusts all");
  assert.equal(stateOf({ ...user, is_confirmed: true }, limited), "active");
  assert.equal(stateOf({ ...user, is_disabled: true }, limited), "disabled");
});

test("the health of a server in words", () => {
  assert.deepEqual(shown(HEALTH), {
    State: "Healthy", Version: "0.1.0", Uptime: "26 h", Database: "4.0 MiB, 4.0 KiB of it write-ahead log",
    "Free disk": "8.0 GiB",
    "Largest delay": "5 ms in 3 runs since the start; median 2 ms, 99 % under 5 ms",
    Scheduler: "Ran 2.0 s ago", "Runs waiting": "1,200 due, 3 for workers", "Active workers": "1",
  });
});

test("figures that a server does not have are left out, and a full disk and a reason are said", () => {
  const found = shown({ ...HEALTH, status: "degraded", queue: null, database: null,
    lateness: { count: 0 }, poller: { seconds_ago: null } }, "the database file is damaged");
  assert.equal(found.State, "Degraded: the database file is damaged");
  assert.equal(found["Largest delay"], "No run since the start");
  assert.equal(found.Scheduler, "Has not run yet");
  for (const name of ["Database", "Free disk", "Runs waiting"]) assert.ok(!found[name], name);
  const low = { ...HEALTH, database: { ...HEALTH.database, free_disk_bytes: 2 ** 29 } };
  assert.equal(shown(low)["Free disk"], "512 MiB (low)");
});

test("fields of a warning as they stand in a log", () => {
  assert.equal(fieldsText({ path: "/mnt/a b", tries: 3, more: null }), "path=/mnt/a b tries=3 more=null");
  assert.equal(fieldsText({ late_ms: 7_213_963, uptime_seconds: 90, lag_ms: null }), "late=2 h uptime=1 min 30 s lag_ms=null");
  assert.equal(fieldsText({}), "");
  assert.equal(fieldsText(undefined), "");
});

test("what a backup and a promotion did", () => {
  assert.equal(made({ name: "cued-1.db", bytes: 4 << 20, took_ms: 420 }), "Backed up to cued-1.db: 4.0 MiB in 420 ms");
  assert.equal(promoted({ overdue: { cues: 1, executions: 12 } }), "Promoted. 1 cue and 12 runs are catching up.");
  assert.equal(promoted({ overdue: { cues: 0, executions: 0 } }), "Promoted. Nothing is overdue.");
});

test("a copy on hold names the command to those who cannot promote it on the page", () => {
  const overview = { server: { status: "degraded", writable: true, held_since: "2026-01-01T00:00:00Z" } };
  const more = (user) => bannerList({ user, overview, live: "live" })[0].more;
  assert.equal(more({ is_operator: false }), "Run `cued promote` to start it.");
  assert.equal(more(null), "Run `cued promote` to start it.");
  assert.equal(more({ is_operator: true }), "");
});
