import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

// lit-html looks for a document when it is loaded; these tests render nothing.
globalThis.document ??= { createTreeWalker: () => ({}), createComment: () => ({}) };
const page = "../../src/http/page/";
const { barPaths, historyPaths, historyText, linePath, scale } = await import(page + "parts/charts.js");
const selection = await import(page + "parts/table.js");
const { asCued, asCurl, asPython } = await import(page + "parts/snippets.js");
const { shellWord } = await import(page + "parts/target.js");
const { address, bodyWith, randomKey } = await import(page + "app/api.js");
const { bannerList } = await import(page + "app/banners.js");
const { find } = await import(page + "app/keyboard.js");
const { matches } = await import(page + "app/events.js");
const { problemAt } = await import(page + "parts/form.js");

test("a history has one path per state, whatever its length", () => {
  assert.deepEqual(Object.keys(historyPaths("ssfsrdpm".repeat(7))).sort(), [..."dfmprs"]);
  assert.deepEqual(historyPaths(""), {});
});

test("the newest run stands at the right end", () => {
  assert.equal(historyPaths("s", 3).s, historyPaths("fps", 3).s);
  assert.equal(historyPaths("fffs", 1).f, undefined);
});

test("a history has a text for readers", () => {
  assert.equal(historyText("ssf"), "last 3 runs: 2 succeeded, 1 failed; newest failed");
  assert.equal(historyText("s"), "last run: 1 succeeded; newest succeeded");
  assert.equal(historyText(""), "no runs yet");
});

test("bars: one failure among thousands is still seen", () => {
  assert.equal(scale(1, 10_000, 100), 3);
  assert.equal(scale(0, 10, 100), 0);
  const { good, bad, most } = barPaths([{ succeeded: 9_999, failed: 1 }, { succeeded: 0, failed: 0 }]);
  assert.equal(most, 10_000);
  assert.ok(good && bad);
  assert.ok(!/NaN|-\d+v/.test(good + bad));
});

test("a line breaks where nothing was measured", () => {
  assert.equal(linePath([0, 10, null, 5], 30, 12), "M0 11L10 1M30 6");
  assert.equal(linePath([], 10, 10), "");
});

test("shift selects the rows between", () => {
  const chosen = selection.newSelection();
  const ids = ["a", "b", "c", "d", "e"];
  selection.toggle(chosen, "b", ids);
  selection.toggle(chosen, "d", ids, true);
  assert.deepEqual([...chosen.ids], ["b", "c", "d"]);
  selection.toggle(chosen, "c", ids);
  assert.deepEqual([...chosen.ids], ["b", "d"]);
  assert.equal(selection.countSelected(chosen, 600), 2);
});

test("all that match: releasing one row falls back to the page", () => {
  const chosen = selection.newSelection();
  chosen.all = true;
  assert.equal(selection.countSelected(chosen, 600), 600);
  selection.toggle(chosen, "a", ["a", "b"]);
  assert.equal(chosen.all, false);
  assert.deepEqual([...chosen.ids], ["b"]);
  selection.selectAll(chosen, ["a", "b"], true);
  assert.equal(selection.countSelected(chosen, 600), 2);
});

test("snippets quote for the shell", () => {
  assert.equal(shellWord("it's"), `'it'\\''s'`);
  for (const text of ["a b", "$HOME `x` \"y\" 'z' \\", "größe\n2"])
    assert.equal(execFileSync("sh", ["-c", `printf %s ${shellWord(text)}`]).toString(), text);
});

const FIRE = { method: "POST", path: "v1/cues/cue_1/fire",
  body: `{"payload":{"n":12345678901234567890,"it's":"\\"x\\""}}` };

test("snippets keep the body letter for letter and never hold a key", () => {
  const curl = asCurl(FIRE, "//host/cued");
  assert.ok(curl.includes("$CUED_API_KEY") && curl.includes("12345678901234567890"));
  assert.ok(curl.includes("//host/cued/v1/cues/cue_1/fire"));
  assert.equal(asCued({ method: "GET", path: "v1/cues?limit=5&q=a b" }),
    "cued api GET '/v1/cues?limit=5&q=a%20b'");
  const python = asPython(FIRE, "//host");
  const data = execFileSync("python3",
    ["-c", `print(${/data=(".*")\.encode/.exec(python)[1]}, end="")`]).toString();
  assert.equal(data, FIRE.body);
  execFileSync("python3", ["-c", "import ast, sys; ast.parse(sys.argv[1])", python]);
});

test("raw JSON is spliced into a body", () => {
  const big = '{"n": 12345678901234567890}';
  assert.equal(bodyWith({ name: "a" }, { payload: big }), `{"name":"a","payload":${big}}`);
  assert.equal(bodyWith({}, { payload: " 1 " }), '{"payload":1}');
  assert.equal(bodyWith({ a: 1 }, { payload: "  " }), '{"a":1}');
  assert.equal(bodyWith({}), "{}");
});

test("addresses leave out what is empty", () => {
  assert.equal(address("v1/cues", { q: "", status: null, limit: 5, failing: false }),
    "v1/cues?limit=5&failing=false");
  assert.match(randomKey(), /^[0-9a-f]{32}$/);
});

test("banners: the strongest first, none where all is well", () => {
  const server = { status: "healthy", reason: null, held_since: null, writable: true };
  assert.deepEqual(bannerList({ overview: { server }, live: "live" }), []);
  const usage = { executions: { used: 300, limit: 300 }, cues: { active: 10, limit: 10 } };
  const all = bannerList({ overview: { server: { ...server, status: "degraded",
    held_since: "2026-01-01T00:00:00Z", reason: "held: …" }, usage }, readOnly: true, live: "polling",
    newBuild: true, waitUntil: 5_000 }, { now: 0, skew: -3 * 3_600_000, frozen: true });
  assert.deepEqual(all.map(({ id }) => id), ["disk", "held", "clock", "skew", "wait", "quota", "cues", "live",
    "build"]);
  assert.equal(all[3].text, "This server's clock is 3 h behind this device's.");
  assert.equal(bannerList({ overview: { server: { ...server, status: "degraded",
    reason: "the database file is damaged: stop" } } })[0].id, "damaged");
  assert.equal(bannerList({ overview: { server: { ...server, status: "degraded" } } })[0].id, "scheduler");
  const wrong = bannerList({ overview: { server: { ...server, status: "degraded",
    reason: "the clock shows 2026: run `cued clock accept`" } } });
  assert.deepEqual(wrong.map(({ id, more }) => [id, more]),
    [["wrong-clock", "The clock shows 2026: run `cued clock accept`."]]);
  const quota = (used) => bannerList({ overview: { server, usage: { executions: { used, limit: 100 } } } })[
    0];
  assert.equal(quota(79), undefined);
  assert.equal(quota(80).kind, "warn");
  assert.deepEqual([quota(99).text, quota(100).text, quota(100).more, quota(200).text], [
    "This month's runs are nearly used up.", "Runs used up: cues stop at 200 or after 24 hours.", "100 of 100.",
    "Runs used up until the month ends."]);
  const info = { billing: "manual", registration: "first-user" };
  const own = (more) => bannerList({ info: { ...info, ...more }, overview: { server, usage: { executions:
    { used: 9, limit: 10 } } } })[0].more;
  assert.equal(own({}), "9 of 10. To lift the limits, start the server with `--limits off`.");
  assert.equal(own({ registration: "open" }), "9 of 10.");
  assert.match(bannerList({ info: { ...info, registration: "open" }, user: { is_operator: true }, overview:
    { server, usage: { executions: { used: 9, limit: 10 } } } })[0].more, /--limits off/);
  assert.deepEqual(bannerList({ overview: { server, usage: { executions: { used: 9e9, limit: 1e9 },
    cues: { active: 1e9, limit: 1e9 } } } }), [], "limits that are off");
});

test("shortcuts: single keys and sequences", () => {
  const list = [["n"], ["g c"]];
  assert.equal(find(list, "", "n"), list[0]);
  assert.equal(find(list, "", "g"), "part");
  assert.equal(find(list, "g", "c"), list[1]);
  assert.equal(find(list, "g", "n"), null);
  assert.equal(find([["Enter"]], "", "E"), null);
});

test("events match by type and by first word", () => {
  assert.ok(matches(["execution"], "execution.failed"));
  assert.ok(matches(["worker.seen"], "worker.seen"));
  assert.ok(!matches(["exec", "cue"], "execution.failed"));
});

test("problems of the API find their field", () => {
  const error = { problems: [{ loc: ["body", "callback", "url"], msg: "Field required" },
    { loc: ["body", "name"], msg: "too long" }] };
  assert.equal(problemAt(error, "callback.url"), "Field required");
  assert.equal(problemAt(error, "schedule"), "");
  assert.equal(problemAt(null, "name"), "");
});
