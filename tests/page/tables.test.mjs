// Tables that are looked up with a text of somebody else: an error text, a word of an address, a name of a header.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";

globalThis.document ??= { createTreeWalker: () => ({}), createComment: () => ({}) };
const FOLDER = new URL("../../src/http/page/", import.meta.url);
const load = (path) => import(new URL(path, FOLDER));
const words = await load("app/words.js");
const { attemptStory, headline } = await load("screens/runs/timeline.js");
const { historyPaths } = await load("parts/charts.js");
const { phrase, spoken } = await load("app/problems.js");
const { problemsOf } = await load("screens/editor/refusals.js");
const notifications = await load("screens/notifications.js");
const { loadForm } = await load("screens/channels/form.js");
const { parse } = await load("app/router.js");
const { spanOf } = await load("screens/day.js");

const WORDS = Object.getOwnPropertyNames(Object.prototype);
const sources = readdirSync(FOLDER, { recursive: true })
  .filter((path) => path.endsWith(".js") && !path.startsWith("lit"))
  .map((path) => [path, readFileSync(new URL(path, FOLDER), "utf8")]);

test("a table that is looked up by a variable has its own keys alone", () => {
  const all = sources.map(([, text]) => text).join("\n");
  const names = new Set([...all.matchAll(/\b([A-Z][A-Z_]+)\[[a-z]/g)].map(([, name]) => name));
  const tables = sources.flatMap(([path, text]) => [...text.matchAll(/const ([A-Z_]+) = \{\s*(\w*)/g)]
    .filter(([, name]) => names.has(name)).map(([, name, first]) => [path, name, first]));
  assert.ok(tables.length > 20, `${tables.length} tables`);
  assert.deepEqual(tables.filter(([, , first]) => first !== "__proto__"), []);
});

test("a word of every object is a word like any other", async () => {
  assert.ok(WORDS.includes("constructor") && WORDS.includes("__proto__") && WORDS.includes("toString"));
  for (const word of WORDS) {
    assert.equal(words.why({ error_message: word }), word);
    assert.equal(words.whyLine({ error_message: word }), word);
    assert.equal(words.why({ cause: word }), "unknown reason");
    assert.equal(words.why({ cause: word, http_status: 503 }), "the URL returned 503");
    const text = word.replaceAll("_", " ");
    assert.equal(words.causeShort({ cause: word }), text);
    for (const said of [words.triggerText, words.catchUpText, words.missReason, words.viaText]) {
      assert.equal(said(word), text);
    }
    assert.deepEqual(words.stateOf(word), { sign: "○", word: words.capital(text), color: "idle" });
    assert.equal(words.letterOf(word), "p");
    assert.equal(words.stateOfLetter(word), "pending");
    for (const path of Object.values(historyPaths(word))) assert.match(path, /^M/);
    const run = { status: "failed", attempts: 1, max_attempts: 1, error_message: word };
    assert.equal(headline(run)[1], `Failed after 1 attempt: ${word}.`);
    assert.equal(headline({ ...run, status: word }).length, 2);
    assert.equal(attemptStory({ result: word, error_message: word })[1], `${words.capital(word)}.`);
    assert.equal(phrase(word).toLowerCase(), word.toLowerCase());
    const refused = { code: "validation_error", problems: [{ loc: ["body", word], msg: "Field required" }] };
    assert.equal(spoken(refused).message, `${words.capital(text)}: This field is required`);
    assert.deepEqual(problemsOf(refused), { problems: {}, rest: ["Field required"], place: "" });
    assert.equal(notifications.outcome({ status: word, duration_ms: null }, word).color, "bad");
    assert.deepEqual(await loadForm("new/" + word), {});
    assert.equal(parse("#/" + word).screen, "missing");
    assert.equal(spanOf({ span: word }, 0, "UTC").span, "24h");
  }
});
