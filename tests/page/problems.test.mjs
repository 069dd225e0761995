import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

globalThis.location = { protocol: "http:" };
const { phrase, spoken } = await import("../../src/http/page/app/problems.js");

const read = (path) => readFileSync(new URL("../../src/" + path, import.meta.url), "utf8");

test("what the validator says becomes words for people", () => {
  const cases = [
    ["Field required", "This field is required"],
    ["Input should be greater than or equal to 1", "Must be at least 1"],
    ["Input should be less than or equal to 300", "Must be at most 300"],
    ["Input should be a valid integer, unable to parse string as an integer", "Must be a whole number"],
    ["Input should be a valid boolean, unable to interpret input", "Must be true or false"],
    ["Input should be a valid dictionary or object to extract fields from", "Must be a JSON object: { … }"],
    ["Input should be 'active', 'paused' or 'failed'", "Must be active, paused or failed"],
    ["Input should be an instant like 2026-01-31T09:00:00Z (RFC 3339)",
      "Must be a date and a time, such as 2026-01-31T09:00:00Z"],
    ["String should have at most 255 characters", "Must have at most 255 characters"],
    ["List should have at most 10 items after validation, not 11", "Takes at most 10, not 11"],
    ["Value error, must have at most 32 characters", "Must have at most 32 characters"],
  ];
  for (const [said, shown] of cases) assert.equal(phrase(said), shown);
});

test("no phrase of the validator reaches the page", () => {
  const source = ["api/fields.rs", "http/list.rs"].map(read).join("");
  const found = [...source.matchAll(/"((?:Input|String|List) should [^"]*|Field required)"/g)];
  assert.ok(found.length > 12);
  for (const [, text] of found) {
    const filled = text.replace("{word}", "least").replace("{items}", "2 items");
    const shown = phrase(filled.replace(/\{[^}]*\}/g, "2"));
    assert.ok(!/should|Field required|dictionary|valid /.test(shown), `${text}: ${shown}`);
  }
});

test("other fields have the names of the page, and a field does not say its own", () => {
  assert.equal(phrase("callback.url: must be absolute and begin with http:// or https://; did you mean x?"),
    "Enter a full URL, such as http://example.com/hook");
  assert.equal(phrase("callback.url: has no host"), "Has no host");
  assert.equal(phrase("callback.headers.X-A: X-A has a value that cannot be sent"),
    "X-A has a value that cannot be sent");
  assert.equal(phrase("on_failure.webhook: must not contain a password; put it into callback.headers"),
    "Must not contain a password; put it into the list of headers");
  assert.equal(phrase("send_at: x is not in the future; use a later instant"),
    "X is not in the future; use a later instant");
  assert.match(phrase("at: 2026-01-01T09:00:00Z is not in the future; use a later instant"),
    /^Thu 1 Jan 2026, \d\d:00 is in the past\.$/);
  assert.equal(phrase("expression: it has 6 fields, a cron has five (minute hour day-of-month month " +
    "day-of-week); leave out seconds and years, and put no spaces into lists"),
  "Cron has five fields, this has 6: leave out seconds and years, and put no spaces into lists");
  assert.match(phrase("at: 2026-01-01T09:00:00+01:00 is not in the future; use a later instant"),
    /^Thu 1 Jan 2026, \d\d:00 is in the past\.$/);
  assert.equal(phrase("Value error, ann@example.com is not confirmed"),
    "ann@example.com is not confirmed");
});

test("an execution of the API is a run here", () => {
  assert.equal(phrase("The execution has ended: there is nothing to cancel"),
    "The run has ended: there is nothing to cancel");
  assert.equal(phrase("Another worker holds this execution"), "Another worker holds this run");
  assert.equal(phrase("report an execution first."), "Report a run first.");
  for (const text of ["execution_limit_exceeded", "An event must be execution.failed"])
    assert.equal(phrase(text), text);
});

test("a refusal of a filter names it", () => {
  const problem = (loc, msg) => ({ code: "validation_error", message: "…", problems: [{ loc, msg }] });
  const { message, problems } = spoken(problem(["query", "status"], "Input should be 'active' or 'paused'"));
  assert.equal(message, "Status: Must be active or paused");
  assert.equal(problems[0].msg, "Must be active or paused");
  assert.equal(spoken(problem(["query", "q"], "String should have at most 100 characters")).message,
    "The search: Must have at most 100 characters");
  assert.equal(spoken(problem(["body", "callback", "url"], "Field required")).message,
    "The URL: This field is required");
  assert.equal(spoken({ code: "cue_not_found", message: "Cue not found", problems: [] }).message,
    "Cue not found");
  assert.equal(spoken(problem(["body"], "Field required")).message, "The request: This field is required");
});
