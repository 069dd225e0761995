// Editor: makes a cue, changes one, or makes one like another.
import { html, nothing } from "../lit/lit-html.js";
import { bodyWith, get, patch, post, randomKey } from "../app/api.js";
import { go, link } from "../app/router.js";
import { set, settings } from "../app/settings.js";
import { state, update } from "../app/state.js";
import { instant, localText, yourZone } from "../app/time.js";
import { copy } from "../parts/copy.js";
import { act, note, toast } from "../parts/feedback.js";
import { prettyJson, readableJson } from "../parts/json_text.js";
import { menu } from "../parts/menu.js";
import { asCued, asCurl, asPython } from "../parts/snippets.js";
import { blank, createBody, defaultName, differing, formOf, headersProblem, inWords, merged, patchBody, problemsOf } from "./editor/model.js";
import { ask, preview, testDialog } from "./editor/preview.js";
import { forgetZones, headersCard, moreCards, payloadCard, readPayload, scheduleCard, showProblems, targetCard } from "./editor/form.js";

const RECENT_ZONES = 5; // zones that come first in the list

export const live = ["cue"];
export const event = (data, type, { cue_id: id }, route) => id === route.id && !data.busy;

const fetchCue = (id) => get("v1/cues/" + encodeURIComponent(id), { payload: "text", execution_limit: 1 });

function formOfAnswer(cue) {
  const { at, timezone: zone } = cue.schedule;
  return formOf(cue, { at: at ? localText(instant(at), zone) : "", payload: prettyJson(readableJson(cue.payload_text || "")) });
}

export async function load(data, { id, query }) {
  const from = id ? "" : query.from || "";
  if (data.form && !id && data.from === from) return {};
  const cue = id || from ? await fetchCue(id || from) : null;
  if (data.form && id) {
    compare(data, cue);
    return {};
  }
  const form = cue ? formOfAnswer(cue) : blank(yourZone());
  if (from) form.name = `${form.name} (copy)`.slice(0, 255);
  take(data, form, cue);
  return { from, isEdit: !!id };
}

function take(data, form, cue) {
  Object.assign(data, { form, was: structuredClone(form), cue, problems: {}, rest: [], error: null, remote: null });
  readPayload(data);
  ask(data);
}

/** Notes what somebody else changed since the form was filled: other fields, whatever `updated_at` says. */
function compare(data, cue) {
  const theirs = formOfAnswer(cue);
  data.remote = differing(theirs, data.was).length ? { cue, theirs } : null;
  if (!data.remote) data.cue = cue;
}

export function head({ form, was, cue }, { id, query }) {
  if (!id) return { title: query.from ? "Duplicate a cue" : "New cue", note: "An address and a time are enough." };
  const fields = form ? differing(form, was) : [];
  return { title: cue ? `Edit ${cue.name}` : "Edit a cue", note: fields.length ? `Changed: ${inWords(fields)}` : "Nothing changed yet" };
}

export function view(data, route) {
  const submit = (event) => {
    event.preventDefault();
    save(data, route, false);
  };
  const keys = (event) => (event.ctrlKey || event.metaKey) && event.key === "Enter" && save(data, route, false);
  return html`<form class="editor" novalidate @submit=${submit} @keydown=${keys} aria-busy=${data.busy ? "true" : "false"}><div class="stack">
    ${data.remote ? elsewhere(data) : nothing}
    ${data.rest.length ? html`<div class="note is-bad" role="alert" id="refused"><div>${data.rest.map((text) => html`<p><b>${text}</b></p>`)}${data.error?.requestId ? html`<p class="small muted">Request <code>${data.error.requestId}</code></p>` : nothing}</div></div>` : nothing}
    ${targetCard(data)}${scheduleCard(data)}${payloadCard(data)}${data.form.transport === "worker" ? nothing : headersCard(data)}${moreCards(data)}
    <div class="actions" id="more-acts">${data.form.transport === "worker" ? nothing : html`<button type="button" id="test" @click=${() => test(data)}>Test</button>`}
      ${menu("Copy as", [["curl", asCurl], ["Python", asPython], ["cued command", asCued]].map(([label, text]) => [label, () => copyAs(data, text, label)]), "copy-as")}<a class="button plain" href=${data.isEdit ? link("cues", route.id) : "#/cues"}>Cancel</a></div>
    <div class="bulk">
      <button class="primary" id="save" ?disabled=${data.busy}>${data.isEdit ? "Save" : "Create"}</button>
      <button type="button" id="save-fire" ?disabled=${data.busy} @click=${() => save(data, route, true)}>${data.isEdit ? "Save and fire" : "Create and fire"}</button>
    </div></div>${preview(data)}</form>`;
}

function elsewhere(data) {
  const { cue, theirs } = data.remote;
  const mine = differing(data.form, data.was);
  const keep = () => update(() => {
    const form = merged(data.form, data.was, theirs);
    take(data, structuredClone(theirs), cue);
    data.form = form;
    readPayload(data);
  });
  return html`<div class="note is-warn" role="alert" id="elsewhere"><div><b>This cue was changed elsewhere: ${inWords(differing(theirs, data.was))}.</b>${mine.length ? html` Your changes: ${inWords(mine)}.` : nothing}</div>
    ${mine.length ? html`<button type="button" @click=${keep}>Take it, with my changes</button>` : nothing}<button type="button" @click=${() => update(() => take(data, theirs, cue))}>${mine.length ? "Take it, drop mine" : "Show it"}</button></div>`;
}

/** The form with its name filled in; nothing after telling what cannot be sent. */
function ready(data) {
  readPayload(data);
  const found = { payload: data.json.problem, headers: data.form.transport === "worker" ? "" : headersProblem(data.form.headers) };
  data.problems = Object.fromEntries(Object.entries(found).filter(([, text]) => text));
  if (Object.keys(data.problems).length) return showProblems();
  return { ...data.form, name: data.form.name.trim() || defaultName(data.form, data.json.task) || "Cue" };
}

const request = (data, form) =>
  data.isEdit ? { method: "PATCH", path: "v1/cues/" + encodeURIComponent(data.cue.id), ...patchBody(form, data.was) } : { method: "POST", path: "v1/cues", ...createBody(form) };

function copyAs(data, asText, label) {
  const form = ready(data);
  if (!form) return toast("Correct the form first.");
  const { method, path, body, raw } = request(data, form);
  return copy(asText({ method, path, body: bodyWith(body, raw) }), `Copied as ${label}`);
}

async function save(data, route, fire) {
  const form = data.busy ? null : ready(data);
  if (!form) return;
  update(() => Object.assign(data, { busy: true, rest: [], error: null }));
  let cue;
  try {
    cue = await send(data, form);
  } catch (error) {
    // The sign-in says it; what was written stays.
    if (error.status === 401) return update(() => (data.busy = false));
    Object.assign(data, { error, ...problemsOf(error, state.info?.callbacks) });
    showProblems();
    if (data.rest.length) setTimeout(() => document.getElementById("refused")?.scrollIntoView({ block: "center" }), 50);
  }
  if (!cue) return update(() => (data.busy = false));
  data.saved = true; // and still busy: nothing is sent twice
  set("recent_zones", [...new Set([form.zone, ...settings.recent_zones])].slice(0, RECENT_ZONES));
  forgetZones();
  if (cue.warning) toast(cue.warning);
  const run = fire && (await act(() => post(`v1/cues/${cue.id}/fire`, {}, { key: randomKey() }), "Saved and fired"));
  if (!fire) toast(data.isEdit ? "Saved" : `Created ${cue.name}`);
  go(run ? link("runs", run.id) : link("cues", cue.id));
}

/** Creates or changes the cue; resolves to nothing if it was changed elsewhere meanwhile. */
async function send(data, form) {
  if (!data.isEdit) {
    const { path, body, raw } = request(data, form);
    const text = bodyWith(body, raw);
    // The same form sent again after a broken connection makes no second cue.
    if (data.sent !== text) Object.assign(data, { sent: text, key: randomKey() });
    return post(path, body, { raw, key: data.key });
  }
  const cue = await fetchCue(data.cue.id);
  compare(data, cue);
  if (data.remote) {
    setTimeout(() => document.getElementById("elsewhere")?.scrollIntoView({ block: "center" }), 50);
    return null;
  }
  const { path, body, raw } = request(data, form);
  return Object.keys(body).length || raw.payload ? patch(path, body, { raw }) : cue;
}

function test(data) {
  const form = ready(data);
  if (form) testDialog(form);
}

export const mayLeave = ({ form, was, saved }) => (form && !saved && differing(form, was).length ? `Not saved: ${inWords(differing(form, was))}.` : "");

export function leave(data) {
  clearTimeout(data.timer);
  clearTimeout(data.reading);
}
