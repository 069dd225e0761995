import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

// lit-html looks for a document when it is loaded; these tests render nothing.
globalThis.document ??= { createTreeWalker: () => ({}), createComment: () => ({}) };
const page = "../../src/http/page/";
const { ALERTS, EVENTS, SERVICES, SETTINGS, createBody, eventsText, formOf, patchBody, problemsOf, quietText,
  targetOf, withEvent } = await import(page + "screens/channels/services.js");
const { outcome, withUnlisted } = await import(page + "screens/notifications.js");
const { isUnsaved } = await import(page + "screens/channels/form.js");
const { parse } = await import(page + "app/router.js");
const { spoken } = await import(page + "app/problems.js");
const { stateOf } = await import(page + "app/words.js");

const read = (path) => readFileSync(new URL("../../src/" + path, import.meta.url), "utf8");
const DEFAULT = ["execution.failed", "cue.recovered", "alert.*"];
const STORED = { type: "ntfy", name: "ntfy backups", url: "https://ntfy.sh/backups", token: "…9f3a",
  priority: null, events: DEFAULT, tags: ["nas"], quiet: null };

test("each service has the settings of the server, in its order", () => {
  const types = read("domain/channel/mod.rs").match(/pub enum ChannelType \{([^}]*)\}/)[1];
  assert.deepEqual(Object.keys(SERVICES), [...types.matchAll(/"(\w+)"/g)].map(([, type]) => type));
  assert.deepEqual(Object.keys(SETTINGS), Object.keys(SERVICES));
});

test("each service has a line, and a page about its settings that is https or of this page", () => {
  for (const [type, { name, line, how, guide }] of Object.entries(SERVICES)) {
    assert.ok(name && line && how.endsWith("."), type);
    assert.equal(!!guide, type !== "email", type);
    if (type === "webhook") assert.equal(parse(guide).screen, "keys");
    else if (guide) assert.equal(new URL(guide).protocol, "https:", type);
  }
});

test("every alert of the API is an event with words", () => {
  const { enum: types } = JSON.parse(read("http/openapi.json")).components.schemas.AlertType;
  assert.deepEqual(ALERTS.map(([event]) => event).sort(), types.map((type) => "alert." + type).sort());
});

test("a channel that fails or cannot send has a colour of its own", () => {
  const colours = ["active", "failing", "unconfirmed"].map((status) => stateOf(status).color);
  assert.deepEqual(colours, ["good", "bad", "warn"]);
});

test("events, quiet hours and the target in words", () => {
  assert.equal(eventsText(DEFAULT), "Failures, recoveries, all alerts");
  assert.equal(eventsText(["alert.claim_lost", "cue.paused", "alert.catch_up"]),
    "Pauses, alerts (Worker lost, Caught up)");
  assert.equal(eventsText(Object.keys(EVENTS)), "Failures, recoveries, pauses, all alerts");
  assert.equal(quietText(null), "");
  assert.equal(quietText({ from: "22:00", to: "07:00", timezone: "Europe/Berlin" }),
    "Quiet from 22:00 to 07:00, Europe/Berlin");
  assert.equal(targetOf(STORED), "https://ntfy.sh/backups");
  assert.equal(targetOf({ bot_token: "…AAAA", chat_id: "-100", api_url: null }), "-100");
  assert.equal(targetOf({ token: "…AAAA", user: "…BBBB" }), "…BBBB");
});

test("all alerts contain the single ones", () => {
  const single = ["execution.failed", "alert.claim_lost", "alert.unclaimed"];
  assert.deepEqual(withEvent(single, "alert.*", true), ["execution.failed", "alert.*"]);
  assert.deepEqual(withEvent(single, "alert.unclaimed", false), single.slice(0, 2));
  assert.deepEqual(withEvent([], "cue.paused", true), ["cue.paused"]);
  assert.deepEqual(withEvent(DEFAULT, "alert.*", false), DEFAULT.slice(0, 2));
});

test("a new channel is sent with what was written, and no empty setting", () => {
  const form = formOf("ntfy", { type: "ntfy", to: "ann@example.com" }, "Europe/Berlin");
  assert.deepEqual([form.url, form.events, form.timezone], ["", DEFAULT, "Europe/Berlin"]);
  assert.equal(form.to, undefined, "only a mail has it");
  assert.deepEqual(createBody("ntfy", { ...form, url: " https://ntfy.sh/x ", priority: "5" }),
    { type: "ntfy", url: "https://ntfy.sh/x", priority: 5, events: DEFAULT, tags: [], repeat: "first",
      remind_after_seconds: 86_400 });
  const quiet = { isQuiet: true, quietFrom: "21:30", quietTo: "06:00", timezone: "UTC" };
  assert.deepEqual(createBody("email", { ...formOf("email", { to: "ann@example.com" }, "UTC"),
    ...quiet, name: "me", events: ["cue.paused"], tags: ["prod"] }), { type: "email", name: "me",
    to: "ann@example.com", events: ["cue.paused"], tags: ["prod"],
    quiet: { from: "21:30", to: "06:00", timezone: "UTC" }, repeat: "first",
    remind_after_seconds: 86_400 });
});

test("a change sends what was changed: a masked secret stays at the server", () => {
  const was = formOf("ntfy", STORED, "UTC");
  const patch = (changes) => patchBody("ntfy", { ...was, ...changes }, was);
  assert.equal(was.token, "…9f3a", "it is shown as it reads back");
  assert.deepEqual(patch({}), {});
  assert.deepEqual(patch({ priority: "2" }), { priority: 2 });
  assert.deepEqual(patch({ token: "", name: " " }), { token: null }, "a name stays, a token goes");
  assert.deepEqual(patch({ isQuiet: true }), { quiet: { from: "22:00", to: "07:00", timezone: "UTC" } });
  const quiet = formOf("ntfy", { ...STORED, quiet: { from: "01:00", to: "02:00", timezone: "UTC" } });
  assert.deepEqual(patchBody("ntfy", { ...quiet, isQuiet: false }, quiet), { quiet: null });
  assert.equal(isUnsaved({ form: structuredClone(was), was }), false);
  assert.equal(isUnsaved({ form: { ...was, tags: [] }, was }), true);
  assert.equal(isUnsaved({ form: { ...was, tags: [] }, was, isSaved: true }), false);
});

test("problems of the API stand at their fields, others above the form", () => {
  const at = (...loc) => (msg) => ({ loc: ["body", ...loc], msg });
  const found = problemsOf(spoken({ problems: [
    at("url")("Value error, points to 127.0.0.1, a loopback address"), at("token")("Field required"),
    at("quiet", "to")("Value error, must differ from `from`"), at("quiet")("Input should be an object"),
    at("events", 1)("Value error, must be execution.failed"), at("tags", 0)("Value error, must have 1 to 32"),
    at("color")("Extra inputs are not permitted"),
  ] }), "ntfy");
  assert.deepEqual(found, { problems: {
    url: "Points to 127.0.0.1, a loopback address", token: "This field is required",
    quietTo: "Must differ from the start", quietFrom: "Must be a JSON object: { … }",
    events: "Must be execution.failed", tags: "Must have 1 to 32",
  }, rest: ["color: This field is not known"] });
  assert.deepEqual(problemsOf({ problems: [at("token")("Field required")] }, "slack").rest,
    ["token: Field required"], "slack has no token");
  const other = problemsOf(spoken({ message: "", problems:
    [at("url")("Value error, this is a URL of Slack; use the type slack")] }), "ntfy");
  assert.equal(other.problems.url, "This is a URL of Slack; add a channel for Slack instead");
  const mail = { problems: [at("to")("Value error, ann@example.com is not confirmed yet")] };
  assert.equal(problemsOf(spoken(mail), "email").problems.to, "ann@example.com is not confirmed yet");
  assert.deepEqual(problemsOf({ problems: [], message: "The account has 20 channels" }, "ntfy"),
    { problems: {}, rest: ["The account has 20 channels"] });
});

test("the answer to a test in words", () => {
  const answer = { status: "delivered", http_status: 200, duration_ms: 12, error_message: null,
    response: '{"id":"x"}' };
  const shown = (more, mail) => {
    const { color, text, pairs } = outcome({ ...answer, ...more }, mail);
    return [color, text, Object.fromEntries(pairs.filter(([, value]) => value))];
  };
  assert.deepEqual(shown({}), ["good", "The test arrived.",
    { "HTTP status": 200, Took: "12 ms", Response: '{"id":"x"}' }]);
  assert.deepEqual(shown({ http_status: null, response: null }, true).slice(0, 2),
    ["good", "The mail was sent."]);
  assert.equal(shown({ status: "failed" }, true)[1], "The test failed.");
  assert.deepEqual(shown({ status: "failed", http_status: 403, error_message: "ntfy answered 403",
    response: null }), ["bad", "The test failed: ntfy answered 403",
    { "HTTP status": 403, Took: "12 ms" }]);
  assert.deepEqual(shown({ status: "waiting", http_status: null, duration_ms: null, response: null }),
    ["warn", "The test is on its way: there is no response yet.", {}]);
  assert.equal(shown({ status: "failed", error_message: "the URL returned 500",
    next_retry: "2026-03-31T00:00:00Z" })[1],
    "The test failed: the URL returned 500. It will be sent again.");
  assert.deepEqual(shown({ error: { status: 429, message: "One test at a time" } }),
    ["bad", "One test at a time", {}]);
});

test("what the API does not list has a row: webhooks of cues, and an alert webhook that is not set", () => {
  const mails = { id: "email", built_in: true };
  const alerts = { id: "alert_webhook", built_in: true, status: "active" };
  const own = { id: "chn_1", built_in: false };
  const shown = (...channels) => withUnlisted(channels).map(({ id, status }) => [id, !!status]);
  assert.deepEqual(shown(mails, own),
    [["email", false], ["alert_webhook", false], ["cue_webhooks", false], ["chn_1", false]]);
  assert.deepEqual(shown(mails, alerts, own),
    [["email", false], ["alert_webhook", true], ["cue_webhooks", false], ["chn_1", false]]);
});
