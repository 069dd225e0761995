import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as words from "../../src/http/page/app/words.js";

const schemas = JSON.parse(readFileSync(new URL("../../src/http/openapi.json",
  import.meta.url))).components.schemas;

test("every state of the API has a sign and a word of its own", () => {
  for (const name of ["ExecutionStatus", "CueStatus", "HeartbeatStatus", "AttemptResult", "OutcomeState"])
    for (const state of schemas[name].enum) {
      const { word } = words.stateOf(state);
      assert.ok(word && words.stateOf(state).sign, state);
      assert.ok(!word.includes("_"), state);
    }
});

test("a state that is not known shows its own name", () => {
  assert.equal(words.stateOf("brand_new").word, "Brand new");
  assert.equal(words.stateOf(null).word, "Unknown");
});

test("every cause, trigger and catch-up of the API has words", () => {
  assert.deepEqual([...words.CAUSE_NAMES].sort(), [...schemas.Cause.enum].sort());
  for (const cause of schemas.Cause.enum) assert.ok(words.why({ cause }).includes(" "), cause);
  for (const trigger of schemas.Trigger.enum) assert.ok(words.triggerText(trigger), trigger);
  for (const word of schemas.CatchUp.enum) assert.notEqual(words.catchUpText(word), word);
  for (const word of schemas.MissReason.enum) assert.notEqual(words.missReason(word), word);
});

test("the reason is the server's message, else the status, else the cause", () => {
  assert.equal(words.why({ cause: "status_5xx", http_status: 503,
    error_message: "the callback answered 503: busy" }), "the URL answered 503: busy");
  assert.equal(words.why({ cause: "status_5xx", http_status: 503, error_message: null }),
    "the URL returned 503");
  assert.equal(words.why({ cause: "timeout", http_status: null, error_message: null }),
    "the URL did not respond in time");
  assert.equal(words.why({ error_message: "execution_limit_exceeded" }),
    "this month's runs were used up");
  assert.equal(words.whyLine({ error_message: "cannot open x\n  exit code 3\n" }), "cannot open x · exit code 3");
  assert.equal(words.why({}), "unknown reason");
  const expired = (more) => words.why({ cause: "expired",
    error_message: `not successful within 60 s of its scheduled time (max_age_seconds)${more}` });
  assert.equal(expired(""), "it did not succeed in time");
  assert.equal(expired("; the last attempt: the URL returned 503"),
    "it did not succeed in time; the last attempt: the URL returned 503");
});

test("what a run waits for, and what a flow lets through", () => {
  assert.equal(words.waitText({ waits_for: null }), "");
  assert.equal(words.waitText({ waits_for: { reason: "overlap" } }), "waits for the earlier run");
  assert.equal(words.waitText({ waits_for: { reason: "flow", key: "nas:80" } }),
    "waits for its turn (flow nas:80)");
  assert.equal(words.flowText({ parallelism: 2, per_minute: 1000 }), "2 at once, 1,000 a minute");
  assert.equal(words.flowText({ parallelism: null, per_minute: 10 }), "10 a minute");
});

test("a delivered run has not succeeded before its result is there", () => {
  const run = { status: "success", outcome_state: null, outcome_due_at: null };
  const outcome_due_at = "2030-01-01T09:00:00Z";
  const state = (more) => words.stateOfRun({ ...run, ...more });
  assert.equal(state({}), "success");
  assert.equal(state({ outcome_due_at }), "delivered");
  assert.equal(state({ outcome_due_at, outcome_state: "reported_success" }), "success");
  assert.equal(state({ outcome_state: "missing" }), "delivered");
  assert.equal(state({ status: "failed", outcome_state: "missing" }), "failed");
});

test("numbers, sizes and plurals", () => {
  assert.equal(words.number(1234567), "1,234,567");
  assert.equal(words.plural(1, "run"), "1 run");
  assert.equal(words.plural(1200, "run"), "1,200 runs");
  assert.equal(words.bytes(0), "0 bytes");
  assert.equal(words.bytes(1536), "1.5 KiB");
  assert.equal(words.bytes(67_108_864), "64 MiB");
  assert.equal(words.isLimited(1_000_000_000), false);
  assert.equal(words.isLimited(300), true);
});
