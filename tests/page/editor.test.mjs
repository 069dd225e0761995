import assert from "node:assert/strict";
import { test } from "node:test";
import { bodyWith } from "../../src/http/page/app/api.js";
import { spoken } from "../../src/http/page/app/problems.js";
import { PRESETS, attemptTimes, blank, createBody, defaultName, differing, flowKeyOf, formOf, hasMore,
  hasWords, headersProblem, inWords, networkOf, patchBody, saidOf, scheduleOf,
  secondsOf } from "../../src/http/page/screens/editor/model.js";
import { placeMeant, problemsOf } from "../../src/http/page/screens/editor/refusals.js";

// lit-html looks for a document when it is loaded; these tests render nothing.
globalThis.document ??= { createTreeWalker: () => ({}), createComment: () => ({}) };
const { merged } = await import("../../src/http/page/screens/editor/elsewhere.js");
const { bounds, limits, tags } = await import("../../src/http/page/screens/editor/more.js");
const { withScheme } = await import("../../src/http/page/screens/editor/left.js");
const { calling, outcome } = await import("../../src/http/page/screens/editor/test.js");
const { tagsProblem, withTags } = await import("../../src/http/page/parts/tag_field.js");

const CUE = {
  id: "cue_1", name: "backup", description: null, transport: "webhook", claim_within_minutes: null,
  schedule: { type: "recurring", cron: "0 3 * * *", every: null, at: null, timezone: "Europe/Berlin",
    catch_up: "all", start: null, end: null, jitter_seconds: 0 },
  callback: { url: "https://example.com/backup", method: "PUT", headers: { "X-A": "1" },
    outcome_from_response: false, timeout_seconds: 30, flow: null },
  overlap: "allow", max_age_seconds: null, outcome_deadline_seconds: null, tags: [],
  retry: { max_attempts: 2, backoff_minutes: [0.5, 5], backoff_seconds: null },
  on_failure: { email: true, webhook: null, pause: false }, verification: { mode: "manual" },
};
const BIG = '{"n": 12345678901234567890}';
const form = (changes) => ({ ...blank(), url: "https://example.com/x", name: "a", ...changes });

test("a new cue is sent with what the API asks for, and nothing that is its default", () => {
  assert.deepEqual(createBody(form()), { body: { name: "a", schedule: { type: "recurring",
    cron: "0 3 * * *" }, callback: { url: "https://example.com/x" } }, raw: { payload: "" } });
  assert.deepEqual(createBody(form({ zone: "Europe/Berlin", waits: "1; 2,5  x", attempts: "9",
    headers: [["X-A", "1"], ["", ""]] })).body, {
    name: "a",
    schedule: { type: "recurring", cron: "0 3 * * *", timezone: "Europe/Berlin" },
    callback: { url: "https://example.com/x", headers: { "X-A": "1" } },
    retry: { max_attempts: 9, backoff_minutes: [1, 2, 5, "x"] },
  });
});

test("a cue for a worker has no callback, a cue that runs once no cron", () => {
  assert.deepEqual(createBody(form({ transport: "worker", kind: "once", at: "2030-01-01T09:00" })).body,
    { name: "a", schedule: { type: "once", at: "2030-01-01T09:00" }, transport: "worker" });
  assert.equal(createBody(form({ transport: "worker", claim_within_minutes: "5" })).body.claim_within_minutes, 5);
  assert.equal(createBody(form({ claim_within_minutes: "5" })).body.claim_within_minutes, undefined);
});

test("a cue that is not touched changes nothing", () => {
  const was = formOf(CUE, { payload: BIG });
  assert.deepEqual(patchBody(structuredClone(was), was), { body: {}, raw: {} });
  assert.deepEqual(differing(structuredClone(was), was), []);
});

test("only changed fields are sent; headers as a whole", () => {
  const was = formOf(CUE, { payload: BIG });
  const patch = (changes) => patchBody({ ...was, ...changes }, was);
  assert.deepEqual(patch({ cron: "0 4 * * *" }).body, { schedule: { cron: "0 4 * * *" } });
  assert.deepEqual(patch({ headers: [["X-B", "2"]] }).body, { callback: { headers: { "X-B": "2" } } });
  assert.deepEqual(patch({ waits: "1", failureUrl: "https://example.com/f" }).body,
    { retry: { backoff_minutes: [1] }, on_failure: { webhook: "https://example.com/f" } });
  assert.deepEqual(patch({ payload: " " }), { body: { payload: null }, raw: {} });
  assert.deepEqual(patch({ payload: '{"n":12345678901234567890}' }), { body: {}, raw: {} },
    "only laid out in another way");
  assert.deepEqual(patch({ kind: "once", at: "2030-01-01T09:00" }).body,
    { schedule: { type: "once", at: "2030-01-01T09:00" } });
});

const EVERY = {
  ...CUE, schedule: { ...CUE.schedule, cron: null, every: "5m", start: "2030-01-01T08:00:00Z",
    end: "2030-02-01T08:00:00.500Z", jitter_seconds: 40 },
  callback: { ...CUE.callback, timeout_seconds: 5 },
  retry: { max_attempts: 3, backoff_minutes: [1, 2, 60], backoff_seconds: [30, 120, 3_600] },
};
const BOUNDS = { start: "2030-01-01T09:00", end: "2030-02-01T09:00" };

test("an interval, bounds, jitter, a time limit and seconds come back as they were", () => {
  const was = formOf(EVERY, BOUNDS);
  assert.equal(was.cron, "@every 5m");
  assert.deepEqual([was.start, was.end, was.jitter], ["2030-01-01T09:00", "2030-02-01T09:00", "40"]);
  assert.deepEqual([was.timeout, was.waits], ["5", "30s, 2m, 1h"]);
  assert.deepEqual(patchBody(structuredClone(was), was).body, {});
  assert.deepEqual(createBody(was).body, { name: "backup",
    schedule: { type: "recurring", cron: "@every 5m", start: "2030-01-01T09:00", end: "2030-02-01T09:00",
      jitter_seconds: 40, timezone: "Europe/Berlin", catch_up: "all" },
    callback: { url: "https://example.com/backup", method: "PUT", headers: { "X-A": "1" },
      timeout_seconds: 5 },
    retry: { max_attempts: 3, backoff_seconds: [30, 120, 3_600] }, verification: { mode: "manual" } });
});

test("of an interval, bounds, jitter, time limit and seconds only what was changed is sent", () => {
  const was = formOf(EVERY, BOUNDS);
  const patch = (changes) => patchBody({ ...was, ...changes }, was).body;
  assert.deepEqual(patch({ cron: "@every 90s" }), { schedule: { cron: "@every 90s" } });
  assert.deepEqual(patch({ start: "", end: "2030-03-01T09:00" }),
    { schedule: { start: null, end: "2030-03-01T09:00" } });
  assert.deepEqual(patch({ jitter: "", timeout: "" }),
    { schedule: { jitter_seconds: 0 }, callback: { timeout_seconds: 30 } }, "empty is the default");
  assert.deepEqual(patch({ timeout: "x" }), { callback: { timeout_seconds: "x" } });
  assert.deepEqual(patch({ zone: "UTC", end: "" }), { schedule: { timezone: "UTC", end: null,
    start: "2030-01-01T09:00" } }, "a local time means another instant in another zone");
  assert.deepEqual(patch({ kind: "once", at: "2030-01-01T09:00" }),
    { schedule: { type: "once", at: "2030-01-01T09:00" } });
  assert.deepEqual(patch({ waits: "30s 120s 1h" }), {}, "written in another way");
  assert.deepEqual(patch({ waits: "1, 2, 60" }),
    { retry: { backoff_minutes: [1, 2, 60], backoff_seconds: null } }, "also those read as rounded up");
  const minutes = formOf(CUE);
  assert.deepEqual(patchBody({ ...minutes, waits: "0.5m; 5,2h  x" }, minutes).body,
    { retry: { backoff_seconds: [30, 300, 7_200, "x"] } });
});

const LIMITED = {
  ...CUE, overlap: "skip", max_age_seconds: 5_400, outcome_deadline_seconds: 86_400, tags: ["prod", "nas"],
  callback: { ...CUE.callback, flow: { key: "nas", parallelism: 2, per_minute: null } },
};

test("policies and tags come back as they were, and are sent in a new cue", () => {
  const was = formOf(LIMITED);
  assert.deepEqual([was.overlap, was.max_age_seconds, was.outcome_deadline_seconds, was.flowKey, was.parallel, was.perMinute],
    ["skip", "90m", "1d", "nas", "2", ""]);
  assert.deepEqual(patchBody(structuredClone(was), was).body, {});
  const { callback, overlap, max_age_seconds, outcome_deadline_seconds, tags } = createBody(was).body;
  assert.deepEqual({ flow: callback.flow, overlap, max_age_seconds, outcome_deadline_seconds, tags }, {
    flow: { key: "nas", parallelism: 2, per_minute: null }, overlap: "skip", max_age_seconds: 5_400,
    outcome_deadline_seconds: 86_400, tags: ["prod", "nas"] });
});

test("of policies and tags only what was changed is sent; a flow as a whole", () => {
  const was = formOf(LIMITED);
  const patch = (changes) => JSON.parse(JSON.stringify(patchBody({ ...was, ...changes }, was).body));
  assert.deepEqual(patch({ overlap: "allow", max_age_seconds: "", outcome_deadline_seconds: "1h 30m" }),
    { overlap: "allow", max_age_seconds: null, outcome_deadline_seconds: 5_400 });
  assert.deepEqual(patch({ tags: ["prod"] }), { tags: ["prod"] });
  assert.deepEqual(patch({ perMinute: "10" }),
    { callback: { flow: { key: "nas", parallelism: 2, per_minute: 10 } } });
  assert.deepEqual(patch({ flowKey: " " }), { callback: { flow: { parallelism: 2, per_minute: null } } });
  assert.deepEqual(patch({ flowKey: "", parallel: "" }), { callback: { flow: null } });
  assert.deepEqual(patch({ parallel: "0" }).callback.flow.parallelism, 0, "the server says what is wrong");
  assert.deepEqual(patch({ max_age_seconds: "soon" }), { max_age_seconds: "soon" });
  assert.equal(inWords(differing({ ...was, tags: [], parallel: "3", perMinute: "1" }, was)), "flow, tags");
});

test("a cue for a worker has no flow and no time for a result", () => {
  const worker = form({ transport: "worker", overlap: "skip", outcome_deadline_seconds: "10m", parallel: "1" });
  assert.deepEqual(createBody(worker).body, { name: "a", schedule: { type: "recurring", cron: "0 3 * * *" },
    transport: "worker", overlap: "skip" });
});

test("a key of a flow that is the host of the address is no key of its own", () => {
  const of = (url) => formOf({ ...CUE, callback: { ...CUE.callback, url, flow: { key: flowKeyOf(url),
    parallelism: 1, per_minute: null } } }).flowKey;
  assert.equal(flowKeyOf("http://nas.lan:8080/x"), "nas.lan:8080");
  assert.equal(flowKeyOf("https://example.com/x"), "example.com:443");
  assert.deepEqual([of("http://nas.lan/x"), flowKeyOf("nonsense"), flowKeyOf(null)], ["", "", ""]);
});

test("a duration has units", () => {
  assert.deepEqual(["90s", "10m", "1h30m", "1h 30m", "2d", ""].map(secondsOf),
    [90, 600, 5_400, 5_400, 172_800, null]);
  for (const text of ["10", "10 min", "m", "1.5h", "-5m"]) assert.equal(secondsOf(text), text);
});

test("tags are words of one kind, each once", () => {
  assert.deepEqual(withTags(["a"], " Prod,a, b.c\n"), ["a", "prod", "b.c"]);
  for (const tag of ["a", "0", "a.b_c-d", "x".repeat(32)]) assert.equal(tagsProblem([tag]), "", tag);
  for (const tag of ["-a", "ä", "a/b", "x".repeat(33)])
    assert.match(tagsProblem(["ok", tag]), /is not a tag/, tag);
  assert.match(tagsProblem(Array.from({ length: 11 }, (_, i) => `t${i}`)), /at most 10/);
});

test("a folded part says what is in it, and only values that are no defaults open it early", () => {
  assert.equal(limits.summary(blank()), "");
  assert.equal(limits.summary(formOf(LIMITED)),
    "missed runs: fire all, up to 100, overlap: skip the new run, gives up 90m after it was due, "
      + "result due within 1d of its delivery, a flow");
  assert.equal(limits.summary(form({ transport: "worker", kind: "once", overlap: "skip", claim_within_minutes: "5" })),
    "claimed within 5 min");
  assert.equal(tags.summary(form({ tags: ["a", "b"], description: "x" })), "a, b, x");
  assert.equal(bounds.summary(form({ start: "2030-01-01T09:00", jitter: "40" })),
    "from 2030-01-01 09:00, up to 40 s later");
  assert.equal(hasMore(form({ cron: "1 1 * * *", payload: "{}" })), false);
  for (const changed of [{ tags: ["a"] }, { attempts: "2" }, { parallel: "1" }, { timeout: "5" }, { end: "2030-01-01T09:00" }])
    assert.equal(hasMore(form(changed)), true);
});

test("a preview keeps the stored bounds that were not touched", () => {
  const was = formOf(EVERY, BOUNDS);
  const { start, end } = EVERY.schedule;
  const schedule = { type: "recurring", cron: "@every 5m", start, end, jitter_seconds: 40,
    timezone: "Europe/Berlin", catch_up: "all" };
  assert.deepEqual(scheduleOf(was, was, EVERY), schedule);
  assert.deepEqual(scheduleOf({ ...was, end: "2030-03-01T09:00", start: "" }, was, EVERY),
    { ...schedule, end: "2030-03-01T09:00", start: null });
  assert.equal(scheduleOf({ ...was, zone: "UTC" }, was, EVERY).start, "2030-01-01T09:00");
  assert.equal(scheduleOf({ ...was, kind: "once", at: "2030-01-01T09:00" }, was, EVERY).start, undefined);
});

test("integers beyond 2^53 stay as they were typed", () => {
  const was = formOf(CUE, { payload: '{"n": 1}' });
  const { body, raw } = patchBody({ ...was, payload: BIG }, was);
  assert.equal(bodyWith(body, raw), `{"payload":${BIG}}`);
  assert.equal(bodyWith(...Object.values(createBody(form({ payload: BIG })))).includes(`"payload":${BIG}`),
    true);
});

test("a removed header, limit or description is sent as removed", () => {
  const was = formOf({ ...CUE, description: "x", claim_within_minutes: 5, transport: "worker",
    callback: { ...CUE.callback, url: null } });
  assert.deepEqual(patchBody({ ...was, description: "", claim_within_minutes: "" }, was).body, { description: null,
    claim_within_minutes: null });
  const web = formOf(CUE);
  assert.deepEqual(patchBody({ ...web, headers: [] }, web).body, { callback: { headers: {} } });
});

test("another zone moves the instant of a cue that runs once", () => {
  const cue = { ...CUE, schedule: { ...CUE.schedule, type: "once", cron: null, at: "2030-01-01T08:00:30Z" } };
  const was = formOf(cue, { at: "2030-01-01T09:00:30" });
  const moved = { ...was, zone: "UTC" };
  assert.deepEqual(patchBody(moved, was).body, { schedule: { timezone: "UTC", at: "2030-01-01T09:00:30" } });
  assert.equal(scheduleOf(was, was, cue).at, "2030-01-01T08:00:30Z",
    "what was not touched keeps its instant");
  assert.equal(scheduleOf(moved, was, cue).at, "2030-01-01T09:00:30");
});

test("changes made elsewhere meet those made here", () => {
  const was = formOf(CUE, { payload: "{}" });
  const mine = { ...was, cron: "1 1 * * *" };
  const theirs = { ...was, name: "other", cron: "2 2 * * *" };
  assert.equal(inWords(differing(theirs, was)), "name, schedule");
  assert.deepEqual(merged(mine, was, theirs), { ...theirs, cron: "1 1 * * *" });
  assert.deepEqual(patchBody(merged(mine, was, theirs), theirs).body, { schedule: { cron: "1 1 * * *" } });
});

test("a header named like a part of every object is a header", () => {
  const { body } = createBody(form({ headers: [["__proto__", "1"], ["constructor", "2"]] }));
  assert.equal(JSON.stringify(body.callback.headers), '{"__proto__":"1","constructor":"2"}');
});

test("a cue without a name is called by its address or task", () => {
  assert.equal(defaultName(form({ url: " https://example.com:8443/a/b/?q=1 " })), "example.com:8443/a/b");
  assert.equal(defaultName(form({ url: "https://example.com" })), "example.com");
  assert.equal(defaultName(form({ url: "nonsense" })), "");
  assert.equal(defaultName(form({ transport: "worker" }), "report"), "report");
});

test("addresses that visibly are not public", () => {
  const of = (host) => networkOf(`http://${host}/x`);
  for (const host of ["localhost", "127.0.0.1:9", "[::1]", "a.localhost"])
    assert.equal(of(host), "loopback", host);
  for (const host of ["10.1.2.3", "192.168.0.1:80", "172.31.0.1", "pi.local", "[fd00::1]", "nas.home.arpa"])
    assert.equal(of(host), "private", host);
  for (const host of ["example.com", "172.32.0.1", "10.example.com", "11.0.0.1", "local"])
    assert.equal(of(host), "", host);
  assert.equal(networkOf("nonsense"), "");
});

test("headers: names once, and none without a name", () => {
  assert.equal(headersProblem([["A", "1"], ["B", ""], ["", ""]]), "");
  assert.match(headersProblem([["A", "1"], ["a", "2"]]), /twice/);
  assert.match(headersProblem([["", "2"]]), /no name/);
});

const refusal = (code, message, more = {}) => {
  const error = { code, message, problems: [], ...more };
  return { ...error, ...spoken(error), raw: message };
};

test("every problem of an answer stands at its field", () => {
  const at = (...loc) => ({ loc: ["body", ...loc], msg: `wrong ${loc.join(".")}` });
  const error = refusal("validation_error", "…", { problems: [at("name"), at("retry", "backoff_minutes", 0),
    at("retry", "max_attempts"), at("on_failure", "webhook"), at("callback"), at("verification", "mode"),
    at("claim_within_minutes"), at("new_thing")] });
  const { problems, rest } = problemsOf(error);
  assert.deepEqual(Object.keys(problems).sort(), ["attempts", "claim_within_minutes", "failureUrl", "name", "url",
    "verification", "waits"]);
  assert.deepEqual(rest, ["Wrong new_thing"]);
  const fields = (...places) => Object.keys(problemsOf(refusal("validation_error", "…",
    { problems: places.map((place) => at(...place.split("."))) })).problems);
  assert.deepEqual(fields("schedule.every", "schedule.start", "schedule.end", "schedule.jitter_seconds",
    "callback.timeout_seconds", "retry.backoff_seconds"),
  ["cron", "start", "end", "jitter", "timeout", "waits"]);
  assert.deepEqual(fields("retry.backoff_seconds.1"), ["waits"]);
  assert.deepEqual(fields("overlap", "max_age_seconds", "outcome_deadline_seconds", "callback.flow.key",
    "callback.flow", "callback.flow.per_minute", "tags.3"),
  ["overlap", "max_age_seconds", "outcome_deadline_seconds", "flowKey", "parallel", "perMinute", "tags"]);
});

test("refusals with a code stand at their field, a blocked address with its flag", () => {
  const field = (error) => problemsOf(error).problems;
  assert.deepEqual(field(refusal("invalid_schedule", "month: 25 is out of range 1-12", { field: "month" })),
    { cron: "Month: 25 is out of range 1-12" });
  assert.deepEqual(Object.keys(field(refusal("invalid_schedule", "at: late", { field: "at" }))), ["at"]);
  assert.deepEqual(field(refusal("invalid_schedule",
    "end: no run is left before 2026-01-05T09:05:00Z; use a later end, or null", { field: "end" })),
  { end: "No run is left before 2026-01-05T09:05:00Z; use a later end, or none" });
  assert.deepEqual(Object.keys(field(refusal("invalid_timezone", "x"))), ["zone"]);
  assert.deepEqual(Object.keys(field(refusal("invalid_callback", "callback.headers: must not set Host"))),
    ["headers"]);
  assert.deepEqual(Object.keys(field(refusal("invalid_callback", "callback.method: X"))), ["method"]);
  assert.deepEqual(field(refusal("invalid_json",
    "The JSON cannot be read: a number is too large for a double (line 1, column 314)")),
    { payload: "A number is too large for a double" });
  const blocked = "points to 10.0.0.1, a private address, which callbacks may not reach";
  assert.equal(field(refusal("invalid_callback_url", `callback.url: ${blocked}`)).url, `Points${blocked.slice(6)}`);
  assert.ok(field(refusal("invalid_callback_url", `on_failure.webhook: ${blocked}`)).failureUrl);
  assert.deepEqual(problemsOf(refusal("cue_limit_exceeded", "The plan has 10 cues.")).rest,
    ["The plan has 10 cues."]);
});

test("attempts as instants; the last wait repeats", () => {
  assert.deepEqual(attemptTimes("4", "1, 5, 15"), [0, 1, 6, 21]);
  assert.deepEqual(attemptTimes("4", "2"), [0, 2, 4, 6]);
  assert.deepEqual(attemptTimes("1", ""), [0]);
  assert.deepEqual(attemptTimes("4", "30s, 5m 1"), [0, 0.5, 5.5, 6.5]);
  const wrong = [["0", "1"], ["11", "1"], ["2.5", "1"], ["x", "1"], ["3", "-1"], ["3", "a"], ["3", "5s, a"]];
  for (const [attempts, waits] of wrong) assert.equal(attemptTimes(attempts, waits), null);
});

test("presets have five fields or an interval, but for the last day of a month, which the server explains", () => {
  for (const [, cron] of PRESETS.slice(0, -1)) {
    assert.match(cron, /^(@every \d+s|\S+( \S+){4})$/);
    assert.equal(hasWords(cron), false);
  }
  assert.deepEqual(PRESETS.at(-1).slice(1).map(hasWords), [true]);
});

test("words are told from cron expressions", () => {
  for (const text of ["every weekday at 9", "mon,wed 18:30", "+10m", "9:00 daily", "9 am daily", "9am", "1st at 8",
    "Weekends", "tomorrow", "2030-12-24 18:00", " in 10 minutes", ""]) assert.ok(hasWords(text), text);
  for (const text of ["0 9 * * 1-5", " */5 * * * *", "@daily", "@every 90s", "0 9 * * mon", "* *", "5,10 1-3/2"])
    assert.ok(!hasWords(text), text);
});

test("a cue is sent with the schedule that its words mean", () => {
  const words = (meant, changes) => form({ cron: "…", zone: "Europe/Berlin", meant: { ...meant,
    timezone: "Europe/Berlin" }, ...changes });
  const schedule = (given) => createBody(given).body.schedule;
  const weekdays = { type: "recurring", cron: "0 9 * * 1-5" };
  assert.deepEqual(schedule(words(weekdays)), { ...weekdays, timezone: "Europe/Berlin" });
  assert.deepEqual(schedule(words({ type: "recurring", every: "5m" }, { end: "2030-02-01T09:00" })),
    { type: "recurring", every: "5m", end: "2030-02-01T09:00", timezone: "Europe/Berlin" });
  const once = { type: "once", at: "2030-01-01T08:00:00Z" };
  assert.deepEqual(schedule(words(once, { end: "2030-02-01T09:00", catchUp: "all" })),
    { ...once, timezone: "Europe/Berlin", catch_up: "all" }, "a single run has no end");
  assert.deepEqual(schedule(words(weekdays, { kind: "once", at: "2030-01-01T09:00" })),
    { type: "once", at: "2030-01-01T09:00", timezone: "Europe/Berlin" }, "of a field that is not shown");
  const was = formOf(CUE);
  const patch = (meant) => patchBody({ ...was, cron: "…", meant: { ...meant, timezone: "Europe/Berlin" } }, was).body;
  assert.deepEqual(patch(weekdays), { schedule: { cron: "0 9 * * 1-5" } });
  assert.deepEqual(patch({ type: "recurring", cron: "0 3 * * *" }), {}, "the same in words");
  assert.deepEqual(patch(once), { schedule: once });
  assert.deepEqual(scheduleOf(words(once), was), { ...once, timezone: "Europe/Berlin", catch_up: "latest",
    jitter_seconds: 0 });
});

test("what is wrong with words for one time stands at the words", () => {
  const past = refusal("invalid_schedule", "at: 2026-01-01T00:00:00Z is not in the future", { field: "at" });
  assert.deepEqual(problemsOf(past, { kind: "recurring", zone: "Europe/Berlin" }).problems,
    { cron: "Thu 1 Jan 2026, 01:00 is in the past." });
  assert.deepEqual(Object.keys(problemsOf(past, { kind: "once" }).problems), ["at"]);
  assert.deepEqual(Object.keys(problemsOf(refusal("invalid_schedule", "x", { field: "text" })).problems), ["cron"]);
});

test("words are shown as they were understood", () => {
  assert.equal(saidOf({ cron: "0 9 * * 1-5", timezone: "Europe/Berlin" }, "At 09:00, Monday to Friday, Europe/Berlin"),
    "At 09:00, Monday to Friday (0 9 * * 1-5)");
  assert.equal(saidOf({ cron: null, timezone: "UTC" }, "Every 7 minutes, UTC"), "Every 7 minutes");
});

test("a zone is the place that was meant only if it has the same name", () => {
  const of = (text, zones) => placeMeant(`\`${text}\` is not a time zone; did you mean ${zones}?`, text);
  assert.equal(of("Kolkata", "Asia/Kolkata"), "Asia/Kolkata");
  assert.equal(of("buenos aires ", "America/Buenos_Aires"), "America/Buenos_Aires");
  assert.equal(of("Berln", "Europe/Berlin"), "");
  assert.equal(of("louisville", "America/Louisville or America/Kentucky/Louisville"), "");
  assert.equal(placeMeant(undefined, "UTC"), "");
});

test("a URL typed without its scheme gets one", () => {
  for (const [typed, url] of [
    ["127.0.0.1:19000/ok", "http://127.0.0.1:19000/ok"], ["localhost/x", "http://localhost/x"],
    ["nas:8080", "http://nas:8080"], ["192.168.1.2/x", "http://192.168.1.2/x"],
    [" example.com/hook?a=1 ", "https://example.com/hook?a=1"],
    ["https://example.com", "https://example.com"], ["ftp://example.com", "ftp://example.com"], ["hook", "hook"],
    ["/hook", "/hook"], ["", ""],
  ]) assert.equal(withScheme(typed), url);
});

test("a test call says the status and the time, or why it failed", () => {
  assert.equal(calling({ method: "PUT", url: "https://example.com:8443/a?key=1", timeout: "5" }),
    "Calling PUT example.com:8443/a, at most 5 s…");
  const end = { result: "success", http_status: 204, duration_ms: 84, cause: null, error_message: null };
  assert.deepEqual(outcome(end), { color: "good", text: "The response is 204, after 84 ms." });
  const failed = { ...end, result: "failed", http_status: 503, cause: "status_5xx",
    error_message: "the URL returned 503" };
  assert.deepEqual(outcome(failed), { color: "bad", text: "The URL returned 503, after 84 ms." });
  const blocked = { ...failed, http_status: null, cause: "blocked_address", error_message: null };
  assert.deepEqual(outcome(blocked),
    { color: "bad", text: "The URL resolves to a blocked address, after 84 ms." });
  assert.deepEqual(outcome({ problem: "It was refused." }), { color: "bad", text: "It was refused." });
});
