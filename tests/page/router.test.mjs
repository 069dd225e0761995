import assert from "node:assert/strict";
import { test } from "node:test";
import { link, parse, withQuery } from "../../src/http/page/app/router.js";

test("each screen has its address", () => {
  const screens = { "": "overview", "#/": "overview", "#/cues": "cues", "#/cues/new": "editor", "#/cues/cue_1": "cue", "#/cues/cue_1/edit": "editor", "#/runs": "runs", "#/runs/0198": "run", "#/workers": "workers", "#/alerts": "alerts", "#/account/plan": "plan", "#/account/keys": "keys", "#/settings": "settings", "#/enter/tok": "sign_in" };
  for (const [hash, screen] of Object.entries(screens)) assert.equal(parse(hash).screen, screen, hash);
});

test("an address that no screen has is missing, not an error", () => {
  for (const hash of ["#/nope", "#/cues/a/b/c", "#/cues/%E0%A4%A", "#/enter/", "#main"]) assert.doesNotThrow(() => parse(hash));
  assert.equal(parse("#/nope").screen, "missing");
  assert.equal(parse("#/cues/%E0%A4%A").id, "%E0%A4%A");
});

test("a sign-in by link may name the screen that follows", () => {
  const route = parse("#/enter/tok/runs?status=failed");
  assert.deepEqual([route.screen, route.id, route.hash], ["sign_in", "tok", "#/enter/tok/runs?status=failed"]);
});

test("ids and filters survive the way through an address", () => {
  const hash = link("cues", "a/b c", "edit");
  assert.equal(hash, "#/cues/a%2Fb%20c/edit");
  assert.equal(parse(hash).id, "a/b c");
  const filtered = parse(link("runs", { status: "failed", q: "größe & more", cue: null, since: "" }));
  assert.deepEqual(filtered.query, { status: "failed", q: "größe & more" });
});

test("a changed filter keeps the others and starts paging again", () => {
  const route = parse("#/cues?q=a&status=active&page=4");
  assert.equal(withQuery(route, { status: "paused" }), "#/cues?q=a&status=paused");
  assert.equal(withQuery(route, { page: 5 }), "#/cues?q=a&status=active&page=5");
  assert.equal(withQuery(route, { q: null, status: "" }), "#/cues");
});
