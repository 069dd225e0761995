import assert from "node:assert/strict";
import { test } from "node:test";
import { byteLength, checkJson, compactJson, prettyJson, readableJson, surveyJson, withMember } from
  "../../src/http/page/parts/json_text.js";

// lit-html looks for a document when it is loaded; these tests render nothing.
globalThis.document ??= { createTreeWalker: () => ({}), createComment: () => ({}) };
globalThis.location ??= { href: "http://pi.lan:8000/" };
const { jsonParts } = await import("../../src/http/page/parts/payload.js");

const GOOD = ["0", "-0", "-1.5e+10", '""', '"\\u00e9 \\" \\\\ \\n"', "true", "null", "[]", "{}", " { } ",
  "[1, 2]", '{"a": {"b": [{}, [], ""]}}', '"größe 😀"', "12345678901234567890", "1E400", '{"a":1,"a":2}'];
const BAD = ["", " ", "{", "[", "]", "[1,]", "[,1]", '{"a"}', '{"a":}', '{"a":1,}', "{a:1}", "{'a':1}", "01",
  "1.", ".5", "+1", "--1", "1e", "tru", "True", "nullx", '"a', '"a\nb"', '"\\x"', '"\\u12"', "[1 2]",
  '{"a" 1}', "1 2", "NaN", "[1}", '{"a":1]', "\u00a01", "//x"];

test("accepts what is JSON", () => {
  for (const text of GOOD) assert.equal(checkJson(text), null, text);
});

test("rejects what is not, as JSON.parse does", () => {
  for (const text of BAD) {
    assert.throws(() => JSON.parse(text), text);
    assert.ok(checkJson(text)?.message, text);
  }
});

test("agrees with JSON.parse on texts made by chance", () => {
  const pieces = ["{", "}", "[", "]", ",", ":", '"a"', '"', "1", "-", "0", ".5", "e3", "true", "nul", " ",
    "\n", "\\", "é", "x"];
  let seed = 7;
  const next = (most) => (seed = (seed * 1103515245 + 12345) & 0x7fffffff) % most;
  for (let round = 0; round < 20_000; round++) {
    const text = Array.from({ length: 1 + next(9) }, () => pieces[next(pieces.length)]).join("");
    let fits = true;
    try {
      JSON.parse(text);
    } catch {
      fits = false;
    }
    assert.equal(checkJson(text) === null, fits, JSON.stringify(text));
    if (fits) assert.deepEqual(JSON.parse(prettyJson(text)), JSON.parse(text));
  }
});

test("says line and column in characters", () => {
  assert.deepEqual(checkJson('{\n  "a": 1,\n  "😀": tru\n}'), { line: 3, column: 8,
    message: "expected a value, not tru", at: 20 });
  assert.equal(checkJson("[1,\n").line, 1);
  assert.equal(checkJson("[.5]").message, ".5 is no JSON number");
});

test("integers beyond 2^53 and repeated names stay letter for letter", () => {
  const text = '{"n":12345678901234567890,"n":1.10,"e":1E400}';
  assert.equal(prettyJson(text), '{\n  "n": 12345678901234567890,\n  "n": 1.10,\n  "e": 1E400\n}');
  assert.equal(compactJson(prettyJson(text)), text);
});

test("lays out nested and empty values", () => {
  assert.equal(prettyJson('{"a":[1,{"b":[]},{}],"c":{}}'),
    '{\n  "a": [\n    1,\n    {\n      "b": []\n    },\n    {}\n  ],\n  "c": {}\n}');
  assert.equal(prettyJson("[broken"), "[broken");
});

test("depth is bounded", () => {
  assert.equal(checkJson("[".repeat(128) + "]".repeat(128)), null);
  assert.match(checkJson("[".repeat(129) + "]".repeat(129)).message, /128 levels/);
});

test("parts for colours are the whole text", () => {
  const text = '{"a":[1,"x",null,{"a":true}]}';
  const parts = jsonParts(text);
  assert.equal(parts.map(([, part]) => part).join(""), prettyJson(text));
  assert.deepEqual(parts.filter(([kind]) => kind).map(([kind]) => kind), ["key", "number", "text", "word",
    "key", "word"]);
  assert.equal(jsonParts("{"), null);
});

test("size is that in UTF-8", () => assert.equal(byteLength("é😀"), 6));

test("faults name the whole word", () => {
  assert.match(checkJson('{"a": True}').message, /not True$/);
  assert.match(checkJson('{"a": 01}').message, /^01 is no JSON number/);
  assert.match(checkJson("{a: 1}").message, /name in double quotes.*not a$/);
  assert.match(checkJson('{"a": 1 2}').message, /"," or "}" expected, not 2$/);
});

test("a member's value is found where it counts", () => {
  const at = (text, name = "task") => surveyJson(text, name).value;
  assert.equal(at('{"x": {"task": 1}, "task": "a"}'), '"a"');
  assert.equal(at('{"task": 1, "task": [2, {"task": 3}]}'), '[2, {"task": 3}]');
  assert.equal(at('{"t\\u0061sk": 12345678901234567890}'), "12345678901234567890");
  assert.equal(at('{"task": {}}'), "{}");
  assert.equal(at('["task", 1]'), null);
  assert.equal(at('{"a": "task"}'), null);
  assert.equal(at('{"__proto__": 1}', "__proto__"), "1");
});

test("a member is set and all else stays letter for letter", () => {
  assert.equal(withMember("", "task", '"a"'), '{\n  "task": "a"\n}');
  assert.equal(withMember('{"n": 12345678901234567890, "task" :"a" }', "task", '"b"'),
    '{"n": 12345678901234567890, "task" :"b" }');
  assert.equal(withMember('{"n": 1.10}', "task", '"b"'), '{"task": "b", "n": 1.10}');
  for (const text of ["{}", " { } ", "{\n}", '{\n  "a": 1\n}', '{ "a": 1 }']) {
    const made = withMember(text, "task", '"b"');
    assert.deepEqual(JSON.parse(made), { ...JSON.parse(text), task: "b" }, made);
  }
});

test("escapes of letters are read as letters, and the value stays the same", () => {
  const text = String.raw`{"gr\u00f6\u00dfe": "\ud83d\ude00 \u05e9\u4E2D", "kept": "\\u00e9 \u0022 \u005c \n \u202e \u200b \ufeff \u00a0 \u2028 \ud83d \ude00 \u007f"}`;
  const read = readableJson(text);
  assert.equal(read,
    String.raw`{"größe": "😀 ש中", "kept": "\\u00e9 \u0022 \u005c \n \u202e \u200b \ufeff \u00a0 \u2028 \ud83d \ude00 \u007f"}`);
  assert.deepEqual(JSON.parse(read), JSON.parse(text));
});

test("one pass over a text returns its size, the value of a name, or the fault", () => {
  for (const text of ['{ "task" : "é€😀", "a": [1, { "task": 2 }] }', "{}", '{"a":  "\\u00e9  "}',
    ' [ "x y" ] ']) assert.equal(surveyJson(text, "task").size, byteLength(compactJson(text)), text);
  assert.equal(surveyJson('{ "task": "é", "a": {"task": 2} }', "task").value, '"é"');
  assert.equal(surveyJson("{}", "task").value, null);
  for (const text of ['{"a" 1}', "", '{\n"é": x']) assert.deepEqual(surveyJson(text, "task").fault,
    checkJson(text));
});
