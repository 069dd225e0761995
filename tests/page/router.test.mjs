import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import vm from "node:vm";
import { address } from "../../src/http/page/app/api.js";
import { link, parse, withQuery } from "../../src/http/page/app/router.js";

const SCREENS = { "": "overview", "#/": "overview", "#/cues": "cues", "#/cues/new": "editor",
  "#/cues/cue_1": "cue", "#/cues/cue_1/edit": "editor", "#/runs": "runs", "#/runs/0198": "run",
  "#/day": "day", "#/workers": "workers", "#/alerts": "alerts",
  "#/notifications": "notifications", "#/notifications/new": "notifications",
  "#/notifications/new/ntfy": "notifications", "#/notifications/chn_1": "notifications",
  "#/account/plan": "plan", "#/account/keys": "keys",
  "#/settings": "settings",
  "#/admin": "admin", "#/admin/backups": "admin", "#/admin/health": "admin", "#/enter/tok": "sign_in" };

test("each screen has its address", () => {
  for (const [hash, screen] of Object.entries(SCREENS)) assert.equal(parse(hash).screen, screen, hash);
});

test("an address that no screen has is missing, not an error", () => {
  for (const hash of ["#/nope", "#/cues/a/b/c", "#/cues/%E0%A4%A", "#/enter/", "#main"])
    assert.doesNotThrow(() => parse(hash));
  for (const hash of ["#/nope", "#/admin/nope"]) assert.equal(parse(hash).screen, "missing");
  assert.equal(parse("#/cues/%E0%A4%A").id, "%E0%A4%A");
});

test("a sign-in by link may name the screen that follows", () => {
  const route = parse("#/enter/tok/runs?status=failed");
  assert.deepEqual([route.screen, route.id, route.hash], ["sign_in", "tok",
    "#/enter/tok/runs?status=failed"]);
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
  assert.equal(withQuery(route, { q: null, status: null, tag: "a,b" }), "#/cues?tag=a,b");
  assert.equal(address("v1/cues", { tag: ["a", "b"], q: "x & y" }), "v1/cues?tag=a&tag=b&q=x+%26+y");
});

test("the modules of the screen of the address are loaded before the first script of the page runs", () => {
  const source = readFileSync(new URL("../../src/http/page/theme.js", import.meta.url), "utf8");
  const names = ["overview", "cues", "cue", "editor", "runs", "run", "day", "workers", "alerts",
    "notifications", "plan", "keys", "settings", "admin", "sign_in"];
  const screens = names.map((name) => `${name}:screens/${name}.js parts/${name}.js;`).join("");
  const loaded = (hash, list = screens, account = "usr_1") => {
    const links = [];
    const document = { currentScript: { src: "https://cued.test/a/ui/B/theme.js",
      dataset: { screens: list } }, documentElement: { dataset: {} }, createElement: () => ({}),
      head: { append: (link) => links.push(link) } };
    const location = { hash, toString: () => "https://cued.test/a/" + hash };
    const getItem = (key) => (key === "cued account /a/" ? account : "{}");
    vm.runInNewContext(source, { document, location, localStorage: { getItem }, URL });
    return links.map(({ rel, href }) => `${rel} ${href}`);
  };
  const wanted = (name) => ["screens", "parts"].map((folder) =>
    `modulepreload https://cued.test/a/ui/B/${folder}/${name}.js`);
  const more = ["#/runs?status=failed", "#/cues/?page=2", "#/runs/0198?a=b/c", "#/enter/tok/runs"];
  for (const hash of [...Object.keys(SCREENS), ...more])
    assert.deepEqual(loaded(hash), wanted(parse(hash).screen), hash);
  for (const hash of ["#/nope", "#main", "#/account", "#/toString"]) assert.deepEqual(loaded(hash), [], hash);
  assert.deepEqual(loaded("#/runs", screens, null), wanted("sign_in"), "who is signed out needs no more");
  assert.deepEqual(loaded("#/settings", "settings:;"), []);
  assert.deepEqual(loaded("#/settings", "{{screens}}"), [], "files that no build script has touched");
});
