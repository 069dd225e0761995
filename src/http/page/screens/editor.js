// Editor: makes a cue, changes one, or makes one like another.
import { act, anchor, bodyWith, button, copyMenu, cuePath, getCue, go, html, instant, link,
  localText, managed, note, patch, post, randomKey, requestOf, toast, update, yourZone } from
  "../kit.js";
import { usedZone } from "../parts/form.js";
import { prettyJson, readableJson } from "../parts/json_text.js";
import { LOCAL, blank, createBody, defaultName, differing, formOf, hasMore, headersProblem,
  inWords, patchBody } from "./editor/model.js";
import { ask, isLater, preview, readPayload, refused, understand } from "./editor/preview.js";
import { boundsCard, headersCard, loadMore, moreCards, payloadCard, scheduleCard, showProblems,
  targetCard } from "./editor/form.js";

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
async function compare(data, cue) {
  const theirs = formOfAnswer(cue);
  const remote = differing(theirs, data.was).length
    ? { cue, theirs, note: (await import("./editor/elsewhere.js")).note } : null;
  Object.assign(data, { remote, cue: remote ? data.cue : cue });
}

export function head({ form, was, cue }, { id, query }) {
  const title = query.from ? "Duplicate a cue" : "New cue";
  if (!id) return { title, note: "All it needs is a URL and a schedule." };
  const fields = form ? differing(form, was) : [];
  const note = fields.length ? `Changed: ${inWords(fields)}` : "No changes yet";
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
    @focusout=${() => left(data)}
    aria-busy=${off ? "true" : "false"}><div class="stack">
    ${isEdit ? managed(data.cue) : ""}${data.remote?.note(data, take) ?? ""}${rest.length ? note(refused(), "bad", "", "refused") : ""}
    ${targetCard(data)}${scheduleCard(data)}${boundsCard(data)}${payloadCard(data)}
    ${isWorker ? "" : headersCard(data)}${moreCards(data)}
    <div class="actions" id="more-actions">
      ${isWorker ? "" : button("Show request", () => show(data, "requestDialog"))}
      ${copyMenu(() => callOf(data))}
      ${anchor(isEdit ? link("cues", route.id) : "#/cues", "Cancel", "button plain")}</div>
    <div class="bulk"><button class="primary" id="save" ?disabled=${off}>${verb}</button>
      ${button(fire, () => save(data, route, true), "", { id: "save-fire", off })}
      ${isWorker ? "" : button("Test", () => show(data, "testDialog"))}</div></div>
    ${preview(data)}</form>`;
}

/** A help only: without the module there is none. */
const left = (data) => import("./editor/left.js").then(({ tidy, findTwin }) => {
  tidy(data.form);
  update(); // also the problem of a zone
  findTwin(data);
}, () => {});

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
  await left(data);
  const form = data.busy ? null : ready(data);
  if (!form) return;
  const again = isLater(data);
  update(() => Object.assign(data, { busy: true, rest: [], error: null }));
  let cue;
  try {
    await understand(form, again);
    data.form.meant &&= form.meant;
    cue = await send(data, form);
  } catch (error) {
    // The sign-in covers a 401; what was written stays.
    if (error.status !== 401) {
      Object.assign(data, await refused(error, form));
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
  await compare(data, cue);
  if (data.remote) return void showSoon("elsewhere");
  const { path, body, raw } = request(data, form);
  return Object.keys(body).length || raw.payload ? patch(path, body, { raw }) : cue;
}

function show(data, dialog) {
  const form = ready(data);
  if (form) act(async () => void (await import("./editor/test.js"))[dialog](form));
}

export function mayLeave({ form, was, isSaved }) {
  const fields = form && !isSaved ? differing(form, was) : [];
  return fields.length ? `Not saved: ${inWords(fields)}.` : "";
}

export function leave(data) {
  clearTimeout(data.timer);
  clearTimeout(data.reading);
}
