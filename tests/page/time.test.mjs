import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { settings } from "../../src/http/page/app/state.js";
import { absolute, duration, exact, freeze, inYourTime, instant, knowsZone, offsetMinutes, relative, sawServerTime,
  serverNow, shownZone, skewMs } from "../../src/http/page/app/time.js";

// A device that is not in UTC.
process.env.TZ = "America/New_York";

const NOON = instant("2026-11-22T12:00:00Z");

afterEach(() => {
  freeze(null);
  Object.assign(settings, { zone: "", zone_view: "yours", hour12: false });
});

test("an instant without a zone is UTC", () => {
  assert.equal(instant("2026-11-22T12:00:00"), NOON);
  assert.equal(instant("2026-11-22T13:00:00+01:00"), NOON);
});

test("times of today are a clock time, others have their date", () => {
  assert.equal(absolute(NOON, "Europe/Berlin", { now: NOON }), "13:00");
  assert.equal(absolute(NOON, "Europe/Berlin", { now: NOON, seconds: true }), "13:00:00");
  assert.equal(absolute(NOON + 86_400_000, "UTC", { now: NOON }), "Mon 23 Nov, 12:00");
  assert.equal(absolute(instant("2024-02-29T23:30:00Z"), "UTC", { now: NOON }), "Thu 29 Feb 2024, 23:30");
  assert.equal(absolute(instant("2027-09-01T12:00:00Z"), "UTC", { now: NOON }), "Wed 1 Sep 2027, 12:00");
});

test("today is today of the zone that is shown", () => {
  const late = instant("2026-11-22T23:30:00Z");
  assert.equal(absolute(late, "UTC", { now: NOON }), "23:30");
  assert.equal(absolute(late, "Asia/Tokyo", { now: NOON }), "Mon 23 Nov, 08:30");
});

test("midnight is 00:00, and with 12 hours 12:00 am", () => {
  const midnight = instant("2026-11-22T00:00:00Z");
  assert.equal(absolute(midnight, "UTC", { now: NOON }), "00:00");
  settings.hour12 = true;
  assert.match(absolute(midnight, "UTC", { now: NOON }), /^12:00.am$/i);
});

test("a zone that the browser does not know is shown in UTC, and says so", () => {
  assert.equal(knowsZone("Mars/Olympus"), false);
  assert.equal(absolute(NOON, "Mars/Olympus", { now: NOON }), "12:00 UTC");
  assert.equal(offsetMinutes(NOON, "Mars/Olympus"), null);
});

test("offsets follow daylight saving time", () => {
  assert.equal(offsetMinutes(NOON, "Europe/Berlin"), 60);
  assert.equal(offsetMinutes(instant("2026-07-01T12:00:00Z"), "Europe/Berlin"), 120);
  assert.equal(offsetMinutes(NOON, "America/St_Johns"), -210);
  assert.equal(offsetMinutes(NOON, "UTC"), 0);
});

test("relative times", () => {
  const cases = [[0, "now"], [999, "now"], [12_000, "in 12 s"], [-12_000, "12 s ago"], [59_999, "in 59 s"],
    [60_000, "in 1 min"], [-3_599_999, "59 min ago"], [3_600_000, "in 1 h"], [47.9 * 3_600_000, "in 47 h"],
    [-2 * 86_400_000, "2 days ago"], [90 * 86_400_000, "in 2 months"], [-3 * 31_557_600_000, "3 years ago"]];
  for (const [ms, text] of cases) assert.equal(relative(NOON + ms, NOON), text);
});

test("durations", () => {
  const cases = [[null, "–"], [0, "0 ms"], [87, "87 ms"], [1_234, "1.2 s"], [9_960, "10 s"], [30_000, "30 s"],
    [59_600, "1 min"], [125_000, "2 min 5 s"], [3_600_000, "1 h"], [11_400_000, "3 h 10 min"],
    [180_000_000, "2 days 2 h"]];
  for (const [ms, text] of cases) assert.equal(duration(ms), text);
});

test("exact times have milliseconds", () => assert.equal(exact(NOON + 120), "2026-11-22 12:00:00.120 UTC"));

test("the current time is the server's, and small differences of `Date` do not move it", () => {
  sawServerTime(NOON, NOON + 3_600_000);
  assert.equal(skewMs(), -3_600_000);
  sawServerTime(NOON + 400, NOON + 3_600_000);
  assert.equal(skewMs(), -3_600_000);
  sawServerTime(NaN, 0);
  assert.equal(skewMs(), -3_600_000);
});

test("under a test clock the time stands still", () => {
  freeze(NOON);
  assert.equal(serverNow(), NOON);
  assert.equal(skewMs(), 0);
  sawServerTime(NOON + 60_500);
  assert.equal(serverNow(), NOON + 60_000);
  sawServerTime(NOON - 60_000);
  assert.equal(serverNow(), NOON + 60_000, "an older answer does not move it back");
});

test("the switch of the header chooses the zone", () => {
  settings.zone = "Asia/Tokyo";
  assert.equal(shownZone("Europe/Berlin"), "Asia/Tokyo");
  settings.zone_view = "cue";
  assert.equal(shownZone("Europe/Berlin"), "Europe/Berlin");
  assert.equal(shownZone(null), "Asia/Tokyo");
  settings.zone_view = "utc";
  assert.equal(shownZone("Europe/Berlin"), "UTC");
});

test("instants and long spans in a sentence of the server are those of a person", () => {
  settings.zone = "Europe/Berlin";
  freeze(NOON);
  assert.equal(inYourTime("due from 2026-11-21T23:00:00Z to 2026-11-22T09:30:05.25+00:00; 2 runs"),
    "due from 00:00 to 10:30; 2 runs");
  assert.equal(inYourTime("no cue fires before 2026-12-24T17:00Z"), "no cue fires before Thu 24 Dec, 18:00");
  assert.equal(inYourTime("late by 7213963 ms"), "late by 2 h");
  assert.equal(inYourTime("not reported within 7200 s"), "not reported within 2 h");
  for (const text of ["within 60 s", "build 2026-03-01", "9000 msgs", "x12345 s"]) assert.equal(inYourTime(text), text);
});
