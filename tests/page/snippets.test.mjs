// Runs the texts of parts/snippets.js, as a person does who pastes them: what arrives must be what was meant.
import assert from "node:assert/strict";
import { execFile, spawnSync } from "node:child_process";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { promisify } from "node:util";

// lit-html looks for a document when it is loaded; these tests render nothing.
globalThis.document ??= { createTreeWalker: () => ({}), createComment: () => ({}) };
const { asCued, asCurl, asPython } = await import("../../src/http/page/parts/snippets.js");

const run = promisify(execFile);
const exists = (program) => spawnSync(program, ["--version"]).status === 0;
const env = { ...process.env, CUED_API_KEY: "cue_sk_test", no_proxy: "*" };

let base;
let seen;
const server = createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => {
    seen = { method: request.method, url: request.url, key: request.headers.authorization,
      type: request.headers["content-type"], body: Buffer.concat(parts).toString() };
    response.end("{}");
  });
});
before(() => new Promise((resolve) => server.listen(0, "127.0.0.1",
  () => resolve((base = `http://127.0.0.1:${server.address().port}/cued`)))));
after(() => server.close());

const HOSTILE = [
  "it's", "'; touch /tmp/owned; '", "$(id) `id` $HOME ${HOME}", '"quoted" \\ back\\\\slash',
    "line\nbreak\ttab\r\n", "größe 😀 \u2028\u2029 שלום", "!history #comment ~ * ? [a] {b,c}", "@/etc/passwd",
    "-x --help", "%s %00 \\u0000 \u007f", "END", "'END'\nEND\n", "\u0000\u0001\u001b[31m",
];
const body = `{"n":12345678901234567890,"texts":${JSON.stringify(HOSTILE)},"names":${JSON.stringify(Object.fromEntries(HOSTILE.map((text) => [text, 1])))}}`;
const calls = [
  { method: "POST", path: "v1/cues/a%2Fb/fire?limit=5&q=" + encodeURIComponent(HOSTILE.join(" ")), body },
  { method: "PUT", path: "v1/echo/a", body: JSON.stringify("it's") },
  { method: "POST", path: "v1/echo/a", body: "@/etc/passwd" },
];
const RAW_PATH = { method: "PATCH", path: "v1/cues?q=[1-3]{a,b} ü|^<>\"'`\\", body: '{\n  "laid": "out"\n}' };
const LONG = { method: "POST", path: "v1/cues", body: `{"text":"${"it's $HOME ".repeat(100_000)}"}` };

const wanted = ({ method, path, body = "" }) => ({ method, url: "/cued/" + path, key: "Bearer cue_sk_test",
  type: body ? "application/json" : undefined, body });

/** What arrives is what was meant, but for the line break at the end that a shell adds to a long text. */
function arrived(call, path = call.path) {
  assert.deepEqual({ ...seen, body: seen.body.replace(/\n$/, "") }, wanted({ ...call, path }));
}

const encoded = "v1/cues?q=%5B1-3%5D%7Ba,b%7D%20%C3%BC%7C%5E%3C%3E%22'%60%5C";

/** Pastes the snippets of all calls into an interpreter; returns the function that pastes one. */
async function pasteAll(command, argument, snippet) {
  const paste = async (call) => {
    seen = null;
    const child = run(command, [argument], { env });
    child.child.stdin.end(snippet(call, base) + "\n");
    await child;
  };
  for (const call of [...calls, LONG, { method: "GET", path: "v1/cues" }]) {
    await paste(call);
    arrived(call);
  }
  await paste(RAW_PATH);
  arrived(RAW_PATH, encoded);
  return paste;
}

test("curl sends what was meant, whatever the text", { skip: !exists("curl") }, async () => {
  await pasteAll("sh", "-s", asCurl);
});

test("Python sends what was meant, whatever the text", { skip: !exists("python3") }, async () => {
  const paste = await pasteAll("python3", "-", asPython);
  await paste({ method: "POST", path: "v1/cues", body: '{"half":"\ud83d"}' });
  assert.equal(seen.body, '{"half":"\ufffd"}', "half of a pair has no UTF-8");
});

test("a cued line has the body as one word, a long one on standard input", async () => {
  const words = async (line) => {
    const child = run("sh", ["-s"]);
    child.child.stdin.end(`cued() { for word; do printf '%s\\0' "$word"; done; }\n${line}\n`);
    return (await child).stdout.split("\0").slice(0, -1);
  };
  for (const call of calls) assert.deepEqual(await words(asCued(call)), ["api", call.method, "/" + call.path,
    "-d", call.body]);
  const long = asCued(LONG);
  assert.ok(long.startsWith("cued api POST /v1/cues -d - <<'END'\n"));
  assert.deepEqual(await words(long), ["api", "POST", "/v1/cues", "-d", "-"]);
});
