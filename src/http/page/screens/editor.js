// Editor: makes a cue, changes one, or makes one like another.
import { act, anchor, bodyWith, button, copyMenu, cuePath, getCue, go, html, instant, link,
  localText, note, patch, post, prettyJson, randomKey, readableJson, requestOf, state, toast,
  update, usedZone, yourZone } from "../kit.js";
import { LOCAL, blank, createBody, defaultName, differing, formOf, hasMore, headersProblem,
  inWords, merged, patchBody, problemsOf } from "./editor/model.js";
import { ask, preview } from "./editor/preview.js";
import { boundsCard, headersCard, loadMore, moreCards, payloadCard, readPayload, scheduleCard,
  showProblems, targetCard } from "./editor/form.js";

export const live = ["cue"];
export const event = (data, type, { cue_id: id }, route) => id === route.id && !data.busy;

function formOfAnswer(cue) {
  const { schedule } = cue;
  const local = (at) => (at ? localText(instant(at), schedule.timezone) : "");
  const times = Object.fromEntries(LOCAL.map((name) => [name, local(schedule[name])]));
  return formOf(cue, { ...times, payload: prettyJson(readableJson(cue.payload_text || "")) });
}

export async function load(data, { id, query }) {
  const from = id ? "" : query.from || "";
  if (data.form && !id && data.from === from) return {};
  const cue = id || from ? await getCue(id || from) : null;
  if (data.form && id) return compare(data, cue);
  const form = cue ? formOfAnswer(cue) : blank(yourZone());
  if (from) form.name = `${form.name} (copy)`.slice(0, 255);
  take(data, form, cue);
  return { from, isEdit: !!id };
}

function take(data, form, cue) {
  const none = { problems: {}, rest: [], error: null, remote: null };
  Object.assign(data, { form, was: structuredClone(form), cue, ...none });
  readPayload(data);
  ask(data);
  if (hasMore(form)) loadMore();
}

/** Notes the fields that another client changed since the form was filled. */
function compare(data, cue) {
  const theirs = formOfAnswer(cue);
  const remote = differing(theirs, data.was).length ? { cue, theirs } : null;
  Object.assign(data, { remote, cue: remote ? data.cue : cue });
}

export function head({ form, was, cue }, { id, query }) {
  const title = query.from ? "Duplicate a cue" : "New cue";
  if (!id) return { title, note: "An address and a time are enough." };
  const fields = form ? differing(form, was) : [];
  const note = fields.length ? `Changed: ${inWords(fields)}` : "Nothing changed yet";
  return { title: cue ? `Edit ${cue.name}` : "Edit a cue", note };
}

export function view(data, route) {
  const { form, isEdit, rest, error, busy: off } = data;
  const isWorker = form.transport === "worker";
  const submit = (event) => (event.preventDefault(), save(data, route, false));
  const keys = ({ ctrlKey, metaKey, key }) =>
    (ctrlKey || metaKey) && key === "Enter" && save(data, route, false);
  const refused = () =>
    [rest.map((text) => html`<p><b>${text}</b></p>`), error && requestOf(error)];
  const [verb, fire] = isEdit ? ["Save", "Save and fire"] : ["Create", "Create and fire"];
  return html`<form class="editor" novalidate @submit=${submit} @keydown=${keys}
    aria-busy=${off ? "true" : "false"}><div class="stack">
    ${data.remote ? elsewhere(data) : ""}${rest.length ? note(refused(), "bad", "", "refused") : ""}
    ${targetCard(data)}${scheduleCard(data)}${boundsCard(data)}${payloadCard(data)}
    ${isWorker ? "" : headersCard(data)}${moreCards(data)}
    <div class="actions" id="more-actions">
      ${isWorker ? "" : button("Test", () => test(data), "", { id: "test" })}
      ${copyMenu(() => callOf(data))}
      ${anchor(isEdit ? link("cues", route.id) : "#/cues", "Cancel", "button plain")}</div>
    <div class="bulk"><button class="primary" id="save" ?disabled=${off}>${verb}</button>
      ${button(fire, () => save(data, route, true), "", { id: "save-fire", off })}</div></div>
    ${preview(data)}</form>`;
}

function elsewhere(data) {
  const { cue, theirs } = data.remote;
  const { form, was } = data;
  const mine = differing(form, was);
  const keep = () => update(() => {
    take(data, structuredClone(theirs), cue);
    data.form = merged(form, was, theirs);
    readPayload(data);
  });
  const drop = () => update(() => take(data, theirs, cue));
  const text = html`<b>This cue was changed elsewhere: ${inWords(differing(theirs, was))}.</b>${
    mine.length ? ` Your changes: ${inWords(mine)}.` : ""}`;
  const actions = mine.length
    ? [button("Take it, with my changes", keep), button("Take it, drop mine", drop)]
    : button("Show it", drop);
  return note(text, "warn", actions, "elsewhere");
}

/** The form with its name filled in; nothing after showing what cannot be sent. */
function ready(data) {
  const { form } = data;
  readPayload(data);
  const headers = form.transport === "worker" ? "" : headersProblem(form.headers);
  const found = { payload: data.json.problem, headers };
  data.problems = Object.fromEntries(Object.entries(found).filter(([, text]) => text));
  if (Object.keys(data.problems).length) return showProblems();
  return { ...form, name: form.name.trim() || defaultName(form, data.json.task) || "Cue" };
}

const request = (data, form) => data.isEdit
  ? { method: "PATCH", path: cuePath(data.cue.id), ...patchBody(form, data.was) }
  : { method: "POST", path: "v1/cues", ...createBody(form) };

function callOf(data) {
  const form = ready(data);
  if (!form) return toast("Correct the form first.");
  const { method, path, body, raw } = request(data, form);
  return { method, path, body: bodyWith(body, raw) };
}

const showSoon = (id) =>
  setTimeout(() => document.getElementById(id)?.scrollIntoView({ block: "center" }), 50);

async function save(data, route, fire) {
  const form = data.busy ? null : ready(data);
  if (!form) return;
  update(() => Object.assign(data, { busy: true, rest: [], error: null }));
  let cue;
  try {
    cue = await send(data, form);
  } catch (error) {
    // The sign-in covers a 401; what was written stays.
    if (error.status !== 401) {
      Object.assign(data, { error, ...problemsOf(error, state.info?.callbacks) });
      showProblems();
      if (data.rest.length) showSoon("refused");
    }
  }
  if (!cue) return update(() => (data.busy = false));
  data.isSaved = true; // and still busy: nothing is sent twice
  usedZone(form.zone);
  if (cue.warning) toast(cue.warning);
  const fireIt = () => post(cuePath(cue.id) + "/fire", {}, { key: randomKey() });
  const run = fire && (await act(fireIt, "Saved and fired"));
  if (!fire) toast(data.isEdit ? "Saved" : `Created ${cue.name}`);
  go(run ? link("runs", run.id) : link("cues", cue.id));
}

/** Creates or changes the cue; resolves to nothing if it was changed elsewhere since. */
async function send(data, form) {
  if (!data.isEdit) {
    const { path, body, raw } = request(data, form);
    const text = bodyWith(body, raw);
    // The same form sent again after a broken connection makes no second cue.
    if (data.sent !== text) Object.assign(data, { sent: text, key: randomKey() });
    return post(path, body, { raw, key: data.key });
  }
  const cue = await getCue(data.cue.id);
  compare(data, cue);
  if (data.remote) return void showSoon("elsewhere");
  const { path, body, raw } = request(data, form);
  return Object.keys(body).length || raw.payload ? patch(path, body, { raw }) : cue;
}

function test(data) {
  const form = ready(data);
  if (form) act(async () => void (await import("./editor/test.js")).testDialog(form));
}

export function mayLeave({ form, was, isSaved }) {
  const fields = form && !isSaved ? differing(form, was) : [];
  return fields.length ? `Not saved: ${inWords(fields)}.` : "";
}

export function leave(data) {
  clearTimeout(data.timer);
  clearTimeout(data.reading);
}
