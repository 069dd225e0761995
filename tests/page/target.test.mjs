import assert from "node:assert/strict";
import { test } from "node:test";

// lit-html looks for a document when it is loaded; these tests render nothing.
globalThis.document ??= { createTreeWalker: () => ({}), createComment: () => ({}) };
const asked = [];
let answer = () => [];
globalThis.location = { href: "http://pi.lan:8000/" };
globalThis.fetch = async (path) => {
  asked.push(path);
  return { ok: true, headers: new Headers(), text: async () => JSON.stringify({ cues: answer(path) }) };
};
const { knownLine, targetText, whenText, withCues, workLine } = await import("../../src/http/page/parts/target.js");
const { taskOf } = await import("../../src/http/page/parts/payload.js");

const cue = (url, more) => ({ transport: "webhook", callback: { method: "POST", url }, ...more });

test("a cue is named by method, host and the end of the path", () => {
  const cases = [
    ["https://example.com/", "POST example.com"],
    ["https://example.com", "POST example.com"],
    ["http://nas.lan:8080/backup?full=1", "POST nas.lan:8080/backup"],
    ["https://example.com/services/T000/B000/daily/backup", "POST example.com/…/B000/daily/backup"],
    ["https://example.com/" + "x".repeat(40), "POST example.com/…" + "x".repeat(20)],
    ["http://[::1]:9/a#b", "POST [::1]:9/a"],
  ];
  for (const [url, text] of cases) assert.equal(targetText(cue(url)), text);
  assert.equal(targetText({ transport: "worker", callback: {} }), "worker");
  assert.equal(targetText({ transport: "worker", callback: {}, task: "resize" }), "task resize");
  assert.equal(targetText(null), "");
  const task = (payload_text, transport = "worker") => taskOf({ transport, payload_text });
  assert.deepEqual([task('{"task": "a\\u0062"}'), task('{"task": 1}'), task(null), task('{"task": "x"}', "webhook")],
    ["ab", "", "", ""]);
});

test("cues that are not known are asked for once, found or not", async () => {
  answer = (path) => (path.includes("last_run") ? [{ id: "a" }] : [{ id: "b" }]);
  const known = await withCues(new Map(), ["a", "b", "gone"]);
  assert.deepEqual([...known], [["a", { id: "a" }], ["b", { id: "b" }], ["gone", null]]);
  assert.equal(asked.length, 2);
  assert.equal(await withCues(known, ["a", "gone"]), known);
  assert.equal(asked.length, 2);
});

test("the line of a worker quotes its task", () => {
  assert.equal(workLine("report"), "cued work --task report -- ./COMMAND");
  assert.equal(workLine("it's"), "cued work --task 'it'\\''s' -- ./COMMAND");
  assert.equal(workLine(""), "cued work --task TASK -- ./COMMAND");
});

test("among known cues those of one name have their schedules", () => {
  const known = new Map([
    ["a", cue("http://x/", { id: "a", name: "n", schedule: { cron: "@daily" } })],
    ["b", cue("http://x/", { id: "b", name: "n", schedule: { every: "5m" } })],
    ["c", cue("http://x/", { id: "c", name: "m", schedule: { at: "2030" }, schedule_words: null })],
    ["gone", null],
  ]);
  const text = (id) => (knownLine(known, id) || { values: [] }).values[2];
  assert.deepEqual(["a", "b", "c", "gone", "d"].map(text), [", @daily", ", every 5m", "", undefined, undefined]);
  assert.equal(whenText(known.get("c")), "once");
});
