import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

globalThis.location = { href: "http://pi.lan:8000/cued/#/cues" };
const kept = new Map();
globalThis.localStorage = { getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key,
  value) };
globalThis.requestAnimationFrame = () => {};
const sent = [];
globalThis.fetch = async (path, { headers }) => {
  sent.push(headers["X-Account-Id"]);
  return { ok: true, headers: new Headers(), text: async () => "{}" };
};
const { get, setAccount } = await import("../../src/http/page/app/api.js");
const { state } = await import("../../src/http/page/app/state.js");

afterEach(() => (kept.clear(), (sent.length = 0), (state.user = null)));

test("a page without a sign-in uses no session, whatever cookies it has", async () => {
  await get("v1/auth/me");
  await get("v1/auth/me", {}, { quiet: true });
  assert.deepEqual(sent, ["", ""]);
});

test("a page uses the sessions of the account that signed in at its address only", async () => {
  setAccount("ada");
  await get("v1/auth/me");
  assert.deepEqual([...kept.keys()], ["cued account /cued/"]);
  state.user = { id: "ada" };
  setAccount("eve"); // in another tab
  await get("v1/cues");
  await get("v1/auth/me", {}, { quiet: true });
  assert.deepEqual(sent, ["ada", "ada", "eve"]);
});
