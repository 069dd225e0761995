// Each field of a cue in the editor and as JSON, by the list of which the tests in Rust hold that it is complete.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { createBody, formOf, patchBody } from "../../src/http/page/screens/editor/model.js";

// lit-html looks for a document when it is loaded; these tests render nothing.
globalThis.document ??= { createTreeWalker: () => ({}), createComment: () => ({}) };
const { creation } = await import("../../src/http/page/screens/cue/actions.js");

const LIST = new URL("../data/cue-fields.json", import.meta.url);
const { base, defaults, fields } = JSON.parse(readFileSync(LIST, "utf8"));
// A slug is a name for files and programs.
const ROWS = fields.filter(({ field }) => field !== "slug");
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** A cue with the parts, where `null` is a value. */
const withParts = (cue, parts) => Object.entries(parts ?? {}).reduce((result, [name, part]) =>
  ({ ...result, [name]: isObject(part) && isObject(cue?.[name]) ? withParts(cue[name], part) : part }), cue);
const atPath = (field, value) => field.split(".").reduceRight((part, name) => ({ [name]: part }), value);
const valueAt = (cue, field) => field.split(".").reduce((part, name) => part?.[name], cue);

/** The cue of a row as the API shows it. */
function shown({ field, with: beside }, value) {
  const cue = withParts(withParts(withParts(defaults, base), beside), atPath(field, value));
  return cue.callback ? cue : { ...cue, callback: { ...defaults.callback, url: null } };
}

/** The form of a cue, whose local times and payload are texts of their own. */
function form(cue) {
  const { at, start, end } = cue.schedule;
  const payload = cue.payload ? JSON.stringify(cue.payload) : "";
  return formOf(cue, { at: at ?? "", start: start ?? "", end: end ?? "", payload });
}

/** The whole body of a request; an interval is sent in the form of crontabs. */
function whole({ body, raw }) {
  const every = /^@every (.*)/.exec(body.schedule?.cron)?.[1];
  return { ...body, ...(every && { schedule: { ...body.schedule, every } }),
    ...(raw.payload && { payload: JSON.parse(raw.payload) }) };
}

for (const row of ROWS) {
  const { field, value, other } = row;
  test(`${field} is in the form, in its changes, and in the cue as JSON`, () => {
    const cue = shown(row, value);
    assert.deepEqual(valueAt(whole(createBody(form(cue))), field), value, "a new cue");
    const copy = JSON.parse(creation({ ...cue, payload_text: cue.payload && JSON.stringify(cue.payload) }));
    assert.deepEqual(valueAt(copy, field), value, "copied as JSON");
    if (other === undefined) return;
    const changed = withParts(shown(row, other), row.with_other);
    const patch = whole(patchBody(form(changed), form(cue)));
    assert.deepEqual(valueAt(patch, field), other, JSON.stringify(patch));
    assert.deepEqual(whole(patchBody(form(cue), form(cue))), {});
  });
}
