import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHmac, randomBytes } from "node:crypto";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";

// lit-html looks for a document when it is loaded; these tests render nothing.
globalThis.document ??= { createTreeWalker: () => ({}), createComment: () => ({}) };
const { LANGUAGES } = await import("../../src/http/page/screens/keys.js");
const SNIPPETS = new URL("../../src/http/page/verify/", import.meta.url);

const folder = mkdtempSync(join(tmpdir(), "verify-"));
after(() => rmSync(folder, { recursive: true }));
const file = (name, content) => {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
};

const newSecret = () => "whsec_" + randomBytes(32).toString("hex");
const sign = (secret, id, at, body) => "v1," + createHmac("sha256", Buffer.from(secret.slice(6),
  "base64")).update(`${id}.${at}.`).update(body).digest("base64");

// Bytes that a text would change: no UTF-8, a zero, line ends.
const BODY = Buffer.from([0x7b, 0xff, 0, 0x0d, 0x0a, 0x0a, 0x7d, 0x0a]);
const SECRET = newSecret();
const ID = "0198c0de-7a10-7c3e-9d52-1f0a6b3c4d5e";

function delivery(change = {}) {
  const at = change.at ?? String(Math.floor(Date.now() / 1000));
  const signatures = change.signatures ?? sign(change.secret ?? SECRET, ID, at, BODY);
  return { id: change.id ?? ID, at, signatures, body: change.body ?? BODY };
}

const code = (language) => readFileSync(new URL(language + ".txt", SNIPPETS), "utf8");
const headers = ({ id, at, signatures }) => ({ "webhook-id": id, "webhook-timestamp": at,
  "webhook-signature": signatures });
// What a program prints for deliveries, one word each.
const words = (program, args, given) => {
  const cases = file("cases.json", JSON.stringify(given.map((one) => [headers(one), one.body.toString(
    "hex")])));
  return execFileSync(program, [...args, SECRET, cases], { encoding: "utf8" }).trim().split("\n");
};

// Language -> the deliveries' answers, as booleans
const RUN = {
  Python(given) {
    const program =
      `import sys, json\n${code("Python")}\nfor headers, body in json.load(open(sys.argv[2])):\n    print(is_signed(sys.argv[1], headers, bytes.fromhex(body)))\n`;
    return words("python3", [file("check.py", program)], given).map((word) => word === "True");
  },
  JavaScript(given) {
    const program =
      `${code("JavaScript")}\nfor (const [headers, body] of require(process.argv[3])) console.log(isSigned(process.argv[2], headers, Buffer.from(body, "hex")));\n`;
    return words("node", [file("check.cjs", program)], given).map((word) => word === "true");
  },
  Shell(given) {
    const program = file("check.sh",
      `set -u\n${code("Shell")}\nif is_signed "$@"; then echo yes; else echo no; fi\n`);
    const env = { ...process.env, WEBHOOK_SECRET: SECRET };
    return given.map(({ id, at, signatures, body }) => execFileSync("sh", [program, id, at, signatures,
      file("body", body)], { encoding: "utf8", env }) === "yes\n");
  },
};

for (const [language, run] of Object.entries(RUN)) {
  test(`the ${language} snippet takes a delivery as it was signed, also during a rotation`, () => {
    const plain = delivery();
    const other = sign(newSecret(), ID, plain.at, BODY);
    const rotated = [delivery({ at: plain.at, signatures: `${other} ${plain.signatures}` }),
      delivery({ at: plain.at, signatures: `${plain.signatures} ${other}` })];
    assert.deepEqual(run([plain, ...rotated]), [true, true, true]);
  });

  test(`the ${language} snippet refuses what was changed, what is old, and what is no signature`, () => {
    const seconds = Math.floor(Date.now() / 1000);
    const signed = (at) => ({ at, signatures: sign(SECRET, ID, at, BODY) });
    const changes = [
      { body: BODY.subarray(1) },
      { id: "another" },
      { secret: newSecret() },
      signed(String(seconds - 400)),
      signed(String(seconds + 400)),
      signed(""),
      signed("1e9"),
      signed("9".repeat(30)),
      { signatures: "" },
      { signatures: "v1," },
      { signatures: "v1,\u00e4 v2,x" },
    ];
    const taken = run(changes.map(delivery)).map((answer, i) => (answer ? changes[i] : null));
    assert.deepEqual(taken.filter(Boolean), []);
  });
}

test("there is a snippet in each of six languages", () => {
  assert.deepEqual(readdirSync(SNIPPETS).sort(), LANGUAGES.map((name) => name + ".txt").sort());
  for (const name of LANGUAGES) for (const line of code(name).split("\n")) assert.ok(line.length <= 140,
    line);
});
