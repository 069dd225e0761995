import assert from "node:assert/strict";
import { test } from "node:test";

// lit-html looks for a document when it is loaded; these tests render nothing.
globalThis.document ??= { createTreeWalker: () => ({}), createComment: () => ({}) };
globalThis.requestAnimationFrame ??= () => 0;
const page = "../../src/http/page/screens/";
const { attemptStory, endOf, headline, rawField, waitAfter } = await import(page + "runs/timeline.js");
const { createdMs, fromLocal, toLocal } = await import(page + "../app/time.js");
const { isCancelled, stateOfRun } = await import(page + "../app/words.js");
const { csvOf, jsonLines, replayFilter } = await import(page + "runs/bulk.js");
const { load, payloadCard, rebuilt, requestAsCurl } = await import(page + "run.js");
const { activeFilters, apiQuery, event, keepRows } = await import(page + "runs.js");

const run = (more) => ({ status: "failed", attempts: 4, max_attempts: 4, cause: "status_5xx",
  http_status: 503, error_message: null, duration_ms: 87, late_ms: 2, claimed_by_worker: null,
  outcome_state: null, ...more });

test("a sentence says what became of a run and why", () => {
  const shown = (more) => headline(run(more));
  assert.equal(shown({ status: "failed", attempts: 1, error_message: "\u05e9\u05d2\u05d9\u05d0\u05d4" })[
    1].slice(-2), "\u200e.");
  assert.deepEqual(shown({}), ["bad", "Failed after 4 attempts: the URL returned 503."]);
  assert.deepEqual(shown({ attempts: 0, error_message: "execution_limit_exceeded", cause: null,
    http_status: null }), ["bad", "Not sent: this month's runs were used up."]);
  assert.deepEqual(shown({ attempts: 1, error_message: "disk full", cause: null, http_status: null,
    outcome: { success: false, error: "disk full" } }),
  ["bad", "Reported as a failure, so not retried: disk full."]);
  assert.deepEqual(shown({ attempts: 1, error_message: "cancelled" }),
    ["idle", "Cancelled after 1 attempt."]);
  assert.deepEqual(shown({ attempts: 0, error_message: "cancelled" }),
    ["idle", "Cancelled before its first attempt."]);
  assert.deepEqual(shown({ status: "retrying", attempts: 2, error_message: "no response within 30 s" }),
    ["warn", "Attempt 2 of 4 failed: no response within 30 s."]);
  assert.deepEqual(shown({ status: "success", attempts: 1 }),
    ["good", "Succeeded at the first attempt in 87 ms."]);
  assert.deepEqual(shown({ status: "success", attempts: 3 }),
    ["good", "Succeeded at attempt 3 of 4 in 87 ms."]);
  assert.deepEqual(shown({ status: "success", outcome: { success: false, error: "disk full" } }),
    ["bad", "Delivered, but the work failed: disk full."]);
  assert.deepEqual(shown({ status: "success", outcome: { success: true },
    outcome_state: "verification_failed", verdict: { reason: "empty file" } }),
    ["bad", "Done, but not accepted: empty file."]);
  assert.equal(shown({ status: "success", attempts: 1, late_ms: 90_000 })[1],
    "Succeeded at the first attempt in 87 ms, late 1 min 30 s.");
  assert.equal(shown({ status: "delivering", claimed_by_worker: "pi-1" })[1],
    "The worker \u2068pi-1\u2069 is running it.");
  assert.equal(shown({ status: "pending", attempts: 1 })[0], "warn");
  assert.deepEqual(shown({ status: "pending", attempts: 1, waits_for: { reason: "overlap" } }),
    ["", "It waits for the earlier run."]);
  assert.deepEqual(shown({ status: "success", attempts: 1, outcome_due_at: "2030-01-01T09:00:00Z" }),
    ["", "Delivered at the first attempt in 87 ms, no result yet."]);
  assert.deepEqual(shown({ status: "success", attempts: 1, outcome_state: "missing" }),
    ["bad", "Delivered, but no result was reported in time."]);
  assert.equal(shown({ cause: "expired", http_status: null, attempts: 2 })[1],
    "Failed after 2 attempts: it did not succeed in time.");
});

test("a cancelled run is not shown as a failed one", () => {
  assert.equal(stateOfRun(run({ error_message: "cancelled" })), "cancelled");
  assert.equal(stateOfRun(run({})), "failed");
  assert.ok(!isCancelled(run({ status: "success", error_message: "cancelled" })));
});

test("each end of an attempt has a sentence", () => {
  assert.deepEqual(attemptStory({ result: "retrying", error_message: "the URL returned 503" }),
    ["failed", "The URL returned 503."]);
  assert.equal(attemptStory({ result: null, worker_id: null })[0], "running");
  assert.equal(attemptStory({ result: "claim_lost", worker_id: null })[1],
    "The worker sent no heartbeat before its lease ended.");
  assert.match(attemptStory({ result: "cut" })[1], /does not count/);
});

test("waits lie between attempts, the last one until the next is due", () => {
  const attempts = [
    { ended_at: "2030-01-01T00:00:01Z", next_retry: "2030-01-01T00:01:01Z" },
    { started_at: "2030-01-01T00:01:31Z", ended_at: "2030-01-01T00:01:32Z",
      next_retry: "2030-01-01T00:02:32Z" },
    { started_at: null, ended_at: null, next_retry: null },
  ];
  assert.equal(waitAfter(attempts, 0), 90_000);
  assert.equal(waitAfter(attempts, 1), null);
  assert.equal(waitAfter(attempts.slice(0, 2), 1), 60_000);
  assert.equal(waitAfter(attempts, 2), null);
});

test("a run ends with its last attempt, a cancelled one when it was cancelled", () => {
  const attempts = [{ ended_at: "2030-01-01T00:00:01Z" }];
  const updated_at = "2030-01-01T00:09:00Z";
  assert.equal(endOf({ status: "failed", delivered_at: null, updated_at }, attempts), "2030-01-01T00:00:01Z");
  assert.equal(endOf({ status: "failed", error_message: "cancelled", delivered_at: null, updated_at },
    attempts), updated_at);
  assert.equal(endOf({ status: "failed", delivered_at: null, updated_at }, []), updated_at);
});

test("the address becomes a query of the API, and only known filters pass", () => {
  assert.deepEqual(apiQuery({ status: "failed", cue: "cue_1", worker: "pi", outcome: "reported_failure",
    page: "3", color: "red" }), { status: "failed", cue_id: "cue_1", worker_id: "pi",
    outcome_state: "reported_failure" });
  assert.deepEqual(apiQuery({ status: "pending,retrying" }), { status__in: "pending,retrying" });
  assert.deepEqual(apiQuery({ tag: "a,b" }), { tag: ["a", "b"] });
  assert.deepEqual(activeFilters({ worker: "pi", tag: "a,b" }),
    [["worker", "Worker", "pi"], ["tag", "Tag", "a", "b"], ["tag", "Tag", "b", "a"]]);
  assert.deepEqual(activeFilters({ cue: "cue_1", cause: "status_5xx", status: "failed" },
    "backup").map(([, label, text]) => `${label}: ${text}`), ["Cue: backup", "Cause: Server error (5xx)"]);
});

test("a replay by filter is asked for only where the filter says the same as the list", () => {
  const until = "2030-01-01T00:00:00Z";
  const sent = (filter) => JSON.parse(JSON.stringify(replayFilter(filter)));
  assert.deepEqual(sent({ status: "failed", cue_id: "c", until }), { status: "failed", cue_id: "c", until });
  assert.deepEqual(sent({ status: "failed", tag: ["a", "b"] }), { status: "failed", tags: ["a", "b"] });
  assert.equal(replayFilter({ status: "failed", triggered_by: "replay" }), null);
  assert.equal(replayFilter({ status: "success" }), null);
  assert.equal(replayFilter({}), null);
});

test("local times of a zone become instants, over changes of its clock too", () => {
  assert.equal(fromLocal("2026-07-01T09:00", "Europe/Berlin"), "2026-07-01T07:00:00.000Z");
  assert.equal(fromLocal("2026-10-25T00:30", "Europe/Berlin"), "2026-10-24T22:30:00.000Z");
  assert.equal(fromLocal("2026-10-25T04:30", "Europe/Berlin"), "2026-10-25T03:30:00.000Z");
  assert.equal(toLocal("2026-07-01T07:00:00Z", "Europe/Berlin"), "2026-07-01T09:00");
  assert.equal(fromLocal("", "UTC"), "");
  assert.equal(toLocal("nonsense", "UTC"), "");
});

test("rows stay where they are: new ones are counted, changed ones keep their known fields", () => {
  const old = [{ id: "c" }, { id: "b" }, { id: "a", isTold: true }];
  const { runs, inserted } = keepRows(old, [{ id: "x" }, { id: "c", status: "failed" }, { id: "y" },
    { id: "b" }]);
  assert.deepEqual(runs, [{ id: "c", status: "failed" }, { id: "b" }, { id: "a", isTold: true }]);
  assert.equal(inserted, 2);
  assert.deepEqual(keepRows(old.slice(0, 2), []).runs, []);
  // On a full page rows come up from below when others leave: those are not new.
  const full = Array.from({ length: 30 }, (_, i) => ({ id: String(i) }));
  assert.equal(keepRows(full, [...full.slice(1), { id: "below" }]).inserted, 0);
  assert.equal(keepRows(full, [{ id: "above" }, ...full.slice(0, 29)]).inserted, 1);
});

test("an event changes its row, or is counted, or asks for the list", () => {
  globalThis.document.getElementById ??= () => ({});
  const data = { runs: [{ id: "a", status: "pending", attempts: 0 }], fresh: 0 };
  const apply = (type, payload, query = {}) => event(data, type, payload, { query });
  assert.equal(apply("execution.failed", { execution_id: "a", status: "failed", cause: "timeout",
    secret: 1 }), false);
  assert.deepEqual(data.runs, [{ id: "a", status: "failed", attempts: 0, cause: "timeout", isTold: true,
    waits_for: null }]);
  assert.equal(apply("execution.created", { execution_id: "b", cue_id: "c1", triggered_by: "schedule" }),
    false);
  assert.equal(apply("execution.created", { execution_id: "b", cue_id: "c1" }, { cue: "c2" }), false);
  assert.equal(apply("execution.created", { execution_id: "b", cue_id: "c1" }, { page: "2" }), false);
  assert.equal(apply("execution.created", { execution_id: "b", cue_id: "c1" }, { status: "failed" }), false);
  assert.equal(data.fresh, 1);
  assert.equal(apply("execution.created", { execution_id: "b" }, { until: "2030-01-01T00:00:00Z" }), true);
  assert.equal(apply("execution.failed", { execution_id: "b" }), false);
  assert.equal(apply("execution.failed", { execution_id: "b" }, { status: "failed" }), true);
});

test("exported runs keep every digit and letter", () => {
  const text = '{"executions":[{"id":"1","evidence":{"n":9007199254740993,"t":"a },{\\n"},"l":[{"a":[]}]},{"id":"2"}],"total":2}';
  assert.deepEqual(jsonLines(text),
    ['{"id":"1","evidence":{"n":9007199254740993,"t":"a },{\\n"},"l":[{"a":[]}]}', '{"id":"2"}']);
  assert.deepEqual(jsonLines('{"executions":[],"total":0}'), []);
});

test("runs as CSV: quotes and line breaks hold, and no text is a formula", () => {
  const runs = [{ id: "1", cue_name: 'a "b", c', error_message: "one\ntwo", attempts: 0, cause: null },
    { id: "2", cue_name: "=1+2", error_message: "@x" }];
  const calls = new Map([["a", "POST https://example.com/x"]]);
  runs[1].cue_id = "a";
  const [names, ...rows] = csvOf(runs.map((run) => JSON.stringify(run)), calls).split("\r\n");
  assert.match(names, /^id,cue_id,cue_name,status,.*,calls$/);
  assert.equal(rows[0], '1,,"a ""b"", c",,,,,,0,,,,"one\ntwo",,,,,,');
  assert.equal(rows[1], "2,a,'=1+2,,,,,,,,,,'@x,,,,,,POST https://example.com/x");
  assert.equal(rows[2], "", "the last line ends too");
});

test("metadata is cut out of the text of a run as it stands", () => {
  const text = '{"id":"1","outcome":{"success":true,"metadata":{"n":12345678901234567890,"deep":{"metadata":1}},"recorded_at":"t"},"evidence":{"artifacts":[{"url":"u"}]}}';
  assert.match(rawField(text, "metadata"), /12345678901234567890/);
  assert.ok(!rawField(text, "metadata").includes("recorded_at"));
  assert.match(rawField(text, "artifacts"), /^\[\s+\{\s+"url": "u"\s+\}\s+\]$/);
  assert.equal(rawField('{"outcome":{"metadata":null,"x":1}}', "metadata"), null);
  assert.equal(rawField('{"id":"1"}', "metadata"), null);
});

test("an id contains the time at which its run was created", () => {
  assert.equal(new Date(createdMs("01a20598-58c0-7799-8965-49abeff8c8cb")).toISOString(),
    "2026-11-22T23:30:00.000Z");
});

test("a rebuilt request says how it may differ", () => {
  assert.equal(rebuilt("rebuilt from the record: timestamp and signatures may differ slightly"),
    "Rebuilt from the record: timestamp and signatures may differ slightly.");
});

test("the request as a line for a shell holds quotes and line breaks", () => {
  const text = requestAsCurl({ method: "POST", url: "u?a=1&b=2", headers: [["X-A", "it's"]],
    body: '{"a": 1}' });
  assert.equal(text,
    "curl -sS -X POST 'u?a=1&b=2' \\\n  -H 'X-A: it'\\''s' \\\n  --data-binary '{\"a\": 1}'");
});

const words = (it) => Array.isArray(it) ? it.map(words).join("")
  : it?.strings ? it.strings.map((text, i) => text + words(it.values[i] ?? "")).join("") : String(it);

test("a run shows the payload that its worker was given, letter for letter", async () => {
  const answers = {
    "v1/executions/r1?payload=text": { id: "r1", cue_id: "c1", payload_text: '{"n":12345678901234567890}' },
    "v1/executions/r1/attempts": { attempts: [] },
    "v1/cues/c1?payload=text": { transport: "worker", payload_text: '{"n":1}' },
  };
  globalThis.fetch = async (path) => new Response(JSON.stringify(answers[path] ?? { executions: [] }));
  const data = await load({}, { id: "r1" });
  assert.match(words(payloadCard(data)), /12345678901234567890/);
  assert.match(words(payloadCard({ ...data, run: { payload_text: null } })), /No payload/);
  assert.equal(payloadCard({ ...data, cue: { transport: "webhook" } }), "", "its request has it");
});
