import assert from "node:assert/strict";
import { test } from "node:test";

// lit-html looks for a document when it is loaded; these tests render nothing.
globalThis.document ??= { createTreeWalker: () => ({}), createComment: () => ({}) };
const { HOUR, gapsOf, hoursOf, loadPath, overlapsOf, rowPaths, rowsOf, spanOf, ticksOf } =
  await import("../../src/http/page/screens/day.js");

const ms = Date.parse;
const FROM = ms("2030-01-02T00:00:00Z");
const DAY = { from: FROM, hours: 24 };
const cue = (id, at, more) => ({ cue_id: id, name: id, at, per_hour: null, expected_ms: null, ...more });
const at = (...clocks) => clocks.map((clock) => `2030-01-02T${clock}:00Z`);
const rows = (cues, waiting = []) => rowsOf({ cues, waiting });
const iso = (time) => new Date(time).toISOString().slice(5, 16);

test("24 hours begin with the hour of the zone and 7 days with its day, or later", () => {
  const now = ms("2030-01-02T10:40:00Z");
  const from = (query, zone) => iso(spanOf(query, now, zone).from);
  assert.equal(from({}, "UTC"), "01-02T10:00");
  assert.equal(from({}, "Asia/Kolkata"), "01-02T10:30", "16:10 there");
  assert.equal(from({ span: "7d" }, "Asia/Kolkata"), "01-01T18:30");
  assert.equal(from({ from: "2030-01-05T10:00:00Z" }, "UTC"), "01-05T10:00");
  for (const odd of ["2029-01-01T00:00:00Z", "noon", ""]) assert.equal(from({ from: odd }, "UTC"), "01-02T10:00");
  assert.deepEqual([spanOf({ span: "8d" }, now, "UTC").hours, spanOf({ span: "7d" }, now, "UTC").hours], [24, 168]);
});

test("what runs first comes first, a run that waits belongs to its cue, and frequent cues come last", () => {
  const often = cue("often", null, { per_hour: Array(24).fill(60) });
  const found = rows([cue("late", at("09:00")), often, cue("early", at("01:00"))],
    [{ cue_id: "paused", name: "paused", at: "2030-01-02T05:00:00Z", attempts: 0, execution_id: "e" },
      { cue_id: "late", name: "late", at: "2030-01-02T00:30:00Z", attempts: 2, execution_id: "f" }]);
  assert.deepEqual(found.map(({ name }) => name), ["late", "early", "paused", "often"]);
  assert.deepEqual(found[0].later, [{ ms: FROM + HOUR / 2, attempts: 2, run: "f" }]);
});

test("each hour has the runs of rare cues with their times and of frequent ones as a number", () => {
  const often = cue("often", null, { per_hour: [0, 60, ...Array(22).fill(0)] });
  const found = hoursOf(rows([cue("a", at("01:05", "01:50", "03:00")), often]), DAY);
  assert.deepEqual(found.filter(({ count }) => count).map(({ ms: hour, count, runs }) =>
    [iso(hour), count, runs.map(({ row, times }) => `${row.name} ${times.length}`)]),
  [["01-02T01:00", 62, ["a 2", "often 0"]], ["01-02T03:00", 1, ["a 1"]]]);
  const [hour] = hoursOf(rows([cue("late", at("00:20", "02:40")), cue("soon", at("00:30", "02:10")), often]), DAY)
    .filter(({ ms: hour }) => hour === FROM + 2 * HOUR);
  assert.deepEqual(hour.runs.map(({ row }) => row.name), ["soon", "late"], "in the order of the hour");
});

test("three cues in one minute overlap, and the same three on other days are one line", () => {
  const daily = (clock) => ["2030-01-02", "2030-01-03"].map((day) => `${day}T${clock}:00Z`);
  const found = overlapsOf(rows([cue("a", daily("03:00")), cue("b", daily("03:00")),
    cue("c", [daily("03:00")[0], ...daily("03:00")]), cue("d", at("07:00")), cue("e", at("07:00")),
    ...["f", "g", "h", "i"].map((id) => cue(id, at("23:00")))]), "UTC");
  assert.deepEqual(found.map(({ at, days, rows }) => [iso(at), days, rows.map(({ name }) => name).join("")]),
    [["01-02T23:00", 1, "fghi"], ["01-02T03:00", 2, "abc"]]);
});

test("a gap is hours in a row without a run, and begins now at the earliest", () => {
  const hours = hoursOf(rows([cue("a", at("03:59", "04:00", "22:00"))]), DAY);
  const gaps = (now) => gapsOf(hours, now).map((ends) => ends.map(iso).join(" "));
  assert.deepEqual(gaps(FROM), ["01-02T00:00 01-02T03:00", "01-02T05:00 01-02T22:00", "01-02T23:00 01-03T00:00"]);
  assert.deepEqual(gaps(ms("2030-01-02T06:30:00Z")), ["01-02T06:30 01-02T22:00", "01-02T23:00 01-03T00:00"]);
});

test("a mark is as wide as its run is expected to take, and ends with the chart", () => {
  const path = (clock, expected) => rowPaths(rows([cue("a", at(clock), { expected_ms: expected })])[0], DAY).runs;
  assert.equal(path("12:00", null), "M500 3h3v14h-3z");
  assert.equal(path("12:00", 2.4 * HOUR), "M500 3h100v14h-100z");
  assert.equal(path("22:48", 12 * HOUR), "M950 3h50v14h-50z");
  const often = cue("often", null, { per_hour: [60, 60, ...Array(22).fill(0)] });
  assert.equal(rowPaths(rows([often])[0], DAY).band, "M0 7H41.7V13H0zM41.7 7H83.3V13H41.7z");
  assert.equal(loadPath(hoursOf([], DAY)), "");
  assert.equal(loadPath([{ count: 0 }, { count: 4 }]), "M503 40V2H997V40z");
});

test("the lines of a week are at the midnights of the zone, also after a clock change", () => {
  const week = { from: ms("2030-03-28T23:00:00Z"), hours: 168 };
  assert.deepEqual(ticksOf(week, "Europe/Berlin").map(iso), ["03-28T23:00", "03-29T23:00", "03-30T23:00",
    "03-31T22:00", "04-01T22:00", "04-02T22:00", "04-03T22:00", "04-04T22:00"]);
  assert.equal(ticksOf(DAY, "UTC").length, 8);
});
