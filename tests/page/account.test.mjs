import assert from "node:assert/strict";
import { test } from "node:test";

// lit-html looks for a document when it is loaded; these tests render nothing.
globalThis.document ??= { createTreeWalker: () => ({}), createComment: () => ({}) };
const page = "../../src/http/page/";
const { byMonth, monthStart } = await import(page + "screens/plan.js");
const { byCue, movedCues, question } = await import(page + "screens/alerts.js");
const { freeze } = await import(page + "app/time.js");
const { byTask, takers } = await import(page + "screens/workers.js");

const NOW = Date.parse("2026-03-31T23:59:59Z");

test("days are summed up by the month in UTC, the current month last", () => {
  const day = (at, succeeded, failed = 0) => ({ at, succeeded, failed });
  const months = byMonth([day("2025-03-31T00:00:00Z", 9), day("2025-04-01T00:00:00Z", 1, 2),
    day("2026-02-28T00:00:00Z", 3), day("2026-03-01T00:00:00Z", 4), day("2026-03-31T00:00:00Z", 5, 1)], NOW);
  assert.equal(months.length, 12);
  assert.deepEqual(months[0], { at: Date.parse("2025-04-01T00:00:00Z"), succeeded: 1, failed: 2 });
  assert.deepEqual(months[10], { at: Date.parse("2026-02-01T00:00:00Z"), succeeded: 3, failed: 0 });
  assert.deepEqual(months[11], { at: Date.parse("2026-03-01T00:00:00Z"), succeeded: 9, failed: 1 });
});

test("a month before a shorter one is not skipped at a month's end", () => {
  assert.equal(monthStart(NOW, -1), Date.parse("2026-02-01T00:00:00Z"));
  assert.equal(monthStart(NOW, -11), Date.parse("2025-04-01T00:00:00Z"));
});

test("an alert about moved runs counts all of them, and says how many it lists", () => {
  const moved = (length) => Array.from({ length }, () => ({}));
  assert.equal(movedCues({ runs: 1, moved: moved(1) }), "1 cue");
  assert.equal(movedCues({ runs: 20, moved: moved(20) }), "20 cues");
  assert.equal(movedCues({ runs: 37501, moved: moved(20) }), "37,501 cues, the first 20");
});

test("waiting runs are counted by task, the one that waits longest first", () => {
  const run = (id, task, scheduled_for) => ({ id, task, scheduled_for });
  const tasks = byTask([run("a", "report", "2026-01-01T02:00:00Z"), run("b", null, "2026-01-01T01:00:00Z"),
    run("c", "report", "2026-01-01T00:00:00Z")]);
  assert.deepEqual(tasks.map(({ task, runs, oldest }) => [task, runs, oldest.id]), [["report", 2, "c"],
    [null, 1, "b"]]);
});

test("a worker takes its tasks, one without tasks takes all, and none takes any that is silent", () => {
  const worker = (worker_id, heartbeat_status, ...handlers) => ({ worker_id, heartbeat_status, handlers });
  const workers = [worker("a", "active", "report"), worker("b", "active"), worker("c", "stale", "report")];
  const names = (task) => takers(workers, task).map(({ worker_id: id }) => id);
  assert.deepEqual(names("report"), ["a", "b"]);
  assert.deepEqual(names("import"), ["b"]);
  assert.deepEqual(names(null), ["b"]);
});

test("filters of the address become a query of the API, and unknown spans are left out", () => {
  freeze(NOW);
  const asked = question({ type: "unclaimed", cue: "cue_1", days: "7", page: "3" });
  assert.deepEqual(asked, { alert_type: "unclaimed", cue_id: "cue_1", since: "2026-03-24T23:59:59.000Z",
    limit: 50, offset: 100 });
  for (const days of ["", "x", "99999999999", undefined]) assert.equal(question({ days }).since, null);
  for (const page of ["0", "-1", "x", undefined]) assert.equal(question({ page }).offset, null);
  freeze(null);
});

test("alerts of a cue stand together where its newest one is, those of no cue alone", () => {
  const alert = (id, cue_id) => ({ id, cue_id });
  const groups = byCue([alert("5", "a"), alert("4", null), alert("3", "b"), alert("2", "a"), alert("1", null)]);
  assert.deepEqual(groups.map(({ id, rest }) => [id, rest.map((other) => other.id)]),
    [["5", ["2"]], ["4", []], ["3", []], ["1", []]]);
});
