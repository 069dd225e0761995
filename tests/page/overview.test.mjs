import assert from "node:assert/strict";
import { test } from "node:test";

// lit-html looks for a document when it is loaded; these tests render nothing.
globalThis.document ??= { createTreeWalker: () => ({}), createComment: () => ({}) };
const page = "../../src/http/page/";
const { concerns } = await import(page + "screens/overview/concerns.js");
const { isSilent, sendsMail } = await import(page + "app/notified.js");

const NOW = "2030-01-02T00:00:00Z";
const WELL = {
  now: NOW, server: { writable: true, held_since: null, status: "healthy" },
  cues: { failing: 0 }, hours: [{ at: "2030-01-01T01:00:00Z", failed: 0 }],
  waiting: { claim: 0, retry: 0 }, workers: { active: 0 }, missed: [], channels: { failing: [] },
  usage: { executions: { used: 5, limit: 1_000_000_000 } },
};
const found = (more, ...rest) => concerns({ ...WELL, ...more }, ...rest).map(({ text }) => text);

test("all is well where nothing is to be said", () => {
  assert.deepEqual(found({}), []);
  assert.deepEqual(found({ waiting: { claim: 3 }, workers: { active: 1 } }), [], "a worker takes them");
  assert.deepEqual(found({ usage: { executions: { used: 9e9, limit: 1e9 } } }), [], "no limit");
  const gap = (first, last, count) => ({ first, last, count });
  assert.deepEqual(found({ missed: [gap("2030-01-01T00:00:00Z", "2030-01-01T00:00:00Z", 1),
    gap("2029-12-31T23:59:59Z", "2029-12-31T23:59:59Z", 9)] }), ["1 run missed in the last 24 hours."]);
  const gaps = Array(5).fill(gap("2030-01-01T00:00:00Z", "2030-01-01T00:00:00Z", 2));
  assert.deepEqual(found({ missed: gaps }), ["At least 10 runs missed in the last 24 hours."], "it lists five");
  assert.match(found({ missed: [gap("2029-05-01T12:00:00Z", "2030-01-01T23:00:00Z", 5_000)] })[0],
    /^5,000 runs missed since .* May 2029, \d\d:00\.$/);
});

test("each thing that is not well has a sentence, and its screen where it has one", () => {
  const server = (more) => ({ server: { ...WELL.server, ...more } });
  const told = [server({ writable: false }), server({ held_since: NOW }), server({ status: "degraded" }),
    { usage: { executions: { used: 300, limit: 300 } } }, { channels: { failing: [{}] } }];
  for (const more of told) {
    const [concern] = concerns({ ...WELL, ...more });
    assert.ok(concern.isTold, "a banner or a notice says it, and all is not well");
  }
  assert.deepEqual(found({ waiting: { claim: 1 } }),
    ["1 run is waiting for a worker, and no worker is active."]);
  assert.deepEqual(found({ waiting: { claim: 1200 } }),
    ["1,200 runs are waiting for a worker, and no worker is active."]);
  assert.deepEqual(concerns(WELL, 2 ** 29).map(({ text }) => text), ["Only 512 MiB of disk space is left."]);
  assert.deepEqual([concerns(WELL, 2 ** 31), concerns(WELL, null)], [[], []]);
  assert.deepEqual(found({ waiting: { claim: 3, retry: 0 }, workers: { active: 1 } }, null,
    [{ task: "orphan", runs: 2 }]), ["Runs of task orphan are waiting; no active worker takes them."]);
  assert.deepEqual(found({ waiting: { claim: 0, retry: 1 } }), ["1 run is being retried."]);
  const hours = [{ ...WELL.hours[0], failed: 2 }];
  assert.deepEqual(concerns({ ...WELL, hours }), [{ text: "2 runs failed in the last 24 hours.",
    href: "#/runs?status=failed&since=2030-01-01T01%3A00%3A00Z", more: "Show failed runs", isTold: false }]);
  assert.deepEqual(found({ hours, cues: { failing: 1 } }), [], "the list of failing cues says so");
});

test("nobody is told without mail and without a channel", () => {
  const silent = (mail, count, failing = []) =>
    isSilent({ info: { mail }, overview: { channels: { count, failing } } });
  assert.deepEqual([silent("log", 0), silent("log", 1), silent("smtp", 0)], [true, false, false]);
  assert.deepEqual([silent("log", 1, [{}]), silent("log", 2, [{}]), silent("smtp", 1, [{}])],
    [true, false, false], "a channel that fails reaches nobody");
  assert.equal(isSilent({ info: null, overview: null }), false, "not known yet");
  assert.equal(sendsMail({ info: null }), true);
});
