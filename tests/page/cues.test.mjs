import assert from "node:assert/strict";
import { test } from "node:test";

// lit-html looks for a document when it is loaded; these tests render nothing.
globalThis.document ??= { createTreeWalker: () => ({}), createComment: () => ({}) };
const page = "../../src/http/page/";
const { creation, creationCall, lettersOf, streakOf } = await import(page + "screens/cue/actions.js");
const { attemptsOf, ruleText } = await import(page + "app/words.js");
const { asCued } = await import(page + "parts/snippets.js");
const { event, inPlace } = await import(page + "screens/cues.js");
const { twoZones } = await import(page + "parts/pieces.js");
const { tagsOf } = await import(page + "parts/tags.js");
const { localInstant } = await import(page + "app/time.js");

const run = (status, scheduled_for = "") => ({ status, scheduled_for });

test("a streak counts failed runs since the last success, and no unfinished ones", () => {
  assert.equal(streakOf([run("pending"), run("failed"), run("retrying"), run("failed"), run("success"),
    run("failed")]), 2);
  assert.equal(streakOf([run("success"), run("failed")]), 0);
  assert.equal(streakOf([]), 0);
});

test("missed runs stand between runs of their time, the newest mark last", () => {
  const runs = [run("failed", "2026-01-05T00:00:00Z"), run("success", "2026-01-01T00:00:00Z")];
  assert.equal(lettersOf(runs, [{ last: "2026-01-04T00:00:00Z", count: 3 }], 60), "smmmf");
  assert.equal(lettersOf(runs, [{ last: "2026-01-04T00:00:00Z", count: 2 ** 40 }], 3), "mmf");
});

test("runs of one instant keep their order of creation", () => {
  assert.equal(lettersOf([run("failed"), run("success"), run("success")], [], 60), "ssf");
});

const CUE = {
  name: "a",
  description: null,
  schedule: { type: "recurring", cron: "@daily", at: null, timezone: "UTC", catch_up: "latest" },
  transport: "webhook",
  callback: { url: "http://example.com/", method: "POST", headers: {}, outcome_from_response: false },
  retry: { max_attempts: 1, backoff_minutes: [1] },
  on_failure: { email: true, webhook: null, pause: false },
  verification: { mode: "none" },
  claim_within_minutes: null, overlap: "allow", max_age_seconds: null, outcome_deadline_seconds: null,
  tags: [],
  payload_text: '{"n":12345678901234567890123}',
};

test("a copied cue keeps its payload digit for digit and has no empty fields", () => {
  const text = creation(CUE);
  assert.match(text, /"payload":\{"n":12345678901234567890123\}\}$/);
  assert.deepEqual(Object.keys(JSON.parse(text)), ["name", "schedule", "callback", "retry", "on_failure",
    "payload"]);
  assert.match(asCued(creationCall(CUE)), /^cued api POST \/v1\/cues -d '/);
});

test("a copied schedule has its interval, bounds and jitter", () => {
  const schedule = { type: "recurring", cron: null, every: "5m", at: null, timezone: "UTC",
    catch_up: "latest", start: "2030-01-01T08:00:00Z", end: null, jitter_seconds: 40 };
  assert.deepEqual(JSON.parse(creation({ ...CUE, schedule })).schedule, { type: "recurring", every: "5m",
    timezone: "UTC", catch_up: "latest", start: "2030-01-01T08:00:00Z", jitter_seconds: 40 });
  assert.equal(ruleText(schedule), "every 5m");
  assert.equal(ruleText(CUE.schedule), "@daily");
});

test("a copied cue has its policies and tags", () => {
  const policies = { overlap: "skip", max_age_seconds: 600, outcome_deadline_seconds: 60, tags: ["a"] };
  const copied = JSON.parse(creation({ ...CUE, ...policies }));
  for (const [name, value] of Object.entries(policies)) assert.deepEqual(copied[name], value, name);
});

test("a copied worker cue has no callback", () => {
  const body = JSON.parse(creation({ ...CUE, transport: "worker", payload_text: null,
    claim_within_minutes: 5 }));
  assert.equal(body.callback, undefined);
  assert.equal(body.claim_within_minutes, 5);
});

test("attempts follow one another, and the last wait repeats", () => {
  assert.deepEqual(attemptsOf({ max_attempts: 4, backoff_minutes: [0.5, 90] }), [0, 0.5, 90.5, 180.5]);
  assert.deepEqual(attemptsOf({ max_attempts: 1, backoff_minutes: [] }), [0]);
  assert.deepEqual(attemptsOf({ max_attempts: 3, backoff_minutes: [1, 2], backoff_seconds: [30, 90] }),
    [0, 0.5, 2]);
});

test("rows below the pointer keep their places and show what is new", () => {
  const rows = inPlace([{ id: "b", n: 1 }, { id: "a", n: 1 }, { id: "gone", n: 1 }], [{ id: "a", n: 2 },
    { id: "b", n: 2 }, { id: "new", n: 2 }]);
  assert.deepEqual(rows.map(({ id, n }) => id + n), ["b2", "a2", "gone1"]);
});

test("a local time is that of the zone, also beside a change of the clock", () => {
  const at = (text, zone) => new Date(localInstant(text, zone)).toISOString();
  assert.equal(at("2026-03-29T01:30", "Europe/Berlin"), "2026-03-29T00:30:00.000Z");
  assert.equal(at("2026-03-29T03:30", "Europe/Berlin"), "2026-03-29T01:30:00.000Z");
  assert.equal(at("2026-07-01T12:00", "America/New_York"), "2026-07-01T16:00:00.000Z");
  assert.equal(at("2026-07-01T12:00", "UTC"), "2026-07-01T12:00:00.000Z");
});

test("runs of cues on other pages cause no new request, unless they decide what is shown", () => {
  const asks = (type, id, query = {}) => event({ rows: [{ id: "here" }] }, type, { cue_id: id }, { query });
  assert.deepEqual([asks("execution.failed", "here"), asks("execution.failed", "there")], [true, false]);
  assert.ok(asks("execution.failed", "there", { failing: "true" }) && asks("execution.created", "there",
    { sort: "-last_run" }) && asks("cue.created", "new"));
});

test("a date that two zones share stands once", () => {
  assert.equal(twoZones("Thu 26 Nov, 02:00", "Berlin", "Thu 26 Nov, 01:00"),
    "Thu 26 Nov, 02:00 Berlin · 01:00 yours");
  assert.equal(twoZones("09:00", "Tokyo", "Thu 26 Nov, 00:00"), "09:00 Tokyo · Thu 26 Nov, 00:00 yours");
  assert.equal(twoZones("12:00", "Tokyo", "03:00"), "12:00 Tokyo · 03:00 yours");
});

test("the tags of an address, each once", () => {
  assert.deepEqual(tagsOf({ tag: "a,b,,a" }), ["a", "b"]);
  assert.deepEqual(tagsOf({}), []);
});
