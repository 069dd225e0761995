// Editor: makes a cue, changes one, or makes one like another.
import { act, anchor, bodyWith, button, bytes, copyMenu, cuePath, getCue, go, html, isSilent, link,
  localText, managed, muted, note, nothing, panel, patch, post, randomKey, requestOf, serverNow,
  state, toast, update, yourZone } from "../kit.js";
import { field, segments, usedZone, zoneList } from "../parts/form.js";
import { prettyJson, withMember } from "../parts/json_text.js";
import { PRESETS, attemptTimes, attemptsText, blank, createBody, defaultName, differing,
  formOfAnswer, hasMore, headersProblem, inWords, networkOf, patchBody } from "./editor/model.js";
import { ask, bound, change, isLater, preview, previewProblem, readPayload, refused, understand
} from "./editor/preview.js";

const HOUR_MS = 3_600_000;
const MOST_PAYLOAD = 1_048_576; // bytes that the server takes

export const live = ["cue"];
export const event = (data, type, { cue_id: id }, route) => id === route.id && !data.busy;

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
  data.problems = { payload: data.json.problem, headers };
  if (data.json.problem || headers) return showProblems();
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

/** A folded part; `showProblems` opens those with a problem. */
const folded = (title, summary, content, isOpen = false, toggle = nothing) => html`<details
  class="card" ?open=${isOpen} @toggle=${toggle}><summary><h2>${title}</h2>${
    summary ? html` <span class="muted small wrap">${summary}</span>` : ""}</summary>
  <div class="pad stack">${content}</div></details>`;

/** Opens the parts that have a problem, and moves the focus to the first one. */
function showProblems() {
  update();
  requestAnimationFrame(() => {
    const parts = document.querySelectorAll("details:has([aria-invalid=true])");
    for (const part of parts) part.open = true;
    const first = document.querySelector("[aria-invalid=true]");
    first?.focus();
    first?.scrollIntoView({ block: "center" }); // its problem stands below it
  });
}

function scheduleCard(data) {
  const { form } = data;
  const choose = (kind) => {
    const nextHour = Math.ceil(serverNow() / HOUR_MS + 0.5) * HOUR_MS;
    if (kind === "once") form.at ||= localText(nextHour, form.zone);
    else form.cron ||= "0 3 * * *";
    change(data, "kind", kind);
  };
  const kinds =
    segments("Kind of schedule", form.kind, [["recurring", "Repeats"], ["once", "Once"]], choose);
  return panel("", "When", kinds, form.kind === "once" ? once(data) : recurring(data),
    bound(data, "zone", "Time zone", { list: "zones" }), zoneList());
}

const once = (data) => bound(data, "at", "Date and time", {
  type: "datetime-local",
  // What a change of the clock does to the chosen time
  help: data.preview?.answer?.occurrences[0]?.note
    ?.replace(/^gap: (.*?),/, "The clock is set forward: $1,")
    .replace(/^fold: (.*?),/, "The clock is set back: $1,"),
});

function recurring(data) {
  const { cron, meant, said } = data.form;
  const use = (value) => () => change(data, "cron", value);
  const preset = ([label, value]) => html`<button type="button" @click=${use(value)}
    aria-pressed=${cron.trim() === value ? "true" : "false"}>${label}</button>`;
  return html`<div class="row chips" role="group" aria-label="Examples">${PRESETS.map(preset)}</div>
    ${bound(data, "cron", "Schedule", {
      problem: cronProblem(data),
      help: meant ? `Understood: ${said}`
        : html`every weekday at 9, every 5m, …; or cron: minute, hour, day, month, weekday.
          <a href="docs/reference/schedules" target="_blank">About schedules</a>`,
    })}`;
}

function cronProblem(data) {
  const text = data.problems.cron || previewProblem(data, "cron");
  if (!text) return "";
  const error = data.problems.cron ? data.error : data.preview.error;
  const letters = [...data.form.cron];
  const [from, to] = error?.span || [0, 0];
  if (from >= to || data.asking) return text;
  const part = (...span) => letters.slice(...span).join("");
  const wrong = part(from, to);
  return html`${text}<span class="sr">. The wrong part is ${wrong}</span><code class="wrong"
    aria-hidden="true">${part(0, from)}<mark>${wrong}</mark>${part(to)}</code>`;
}

const METHODS = ["POST", "PUT", "PATCH", "GET", "DELETE"].map((word) => [word, word]);
const TRANSPORTS = [["webhook", "Call a URL"], ["worker", "Run on a worker"]];

function targetCard(data) {
  const { form, json, cue, problems } = data;
  const transport = !data.isEdit
    ? segments("Transport", form.transport, TRANSPORTS, (value) => change(data, "transport", value))
    : [muted(Object.fromEntries(TRANSPORTS)[form.transport]),
      anchor(link("cues", "new", { from: cue.id }), "Duplicate to change it", "button")];
  const help = problems.url ? "" : urlHelp(form.url);
  return panel("", "What", transport, form.transport === "worker" ? task(data)
    : html`<div class="pair">${bound(data, "url", "URL", { type: "url", help })}${
      bound(data, "method", "Method", { choices: METHODS })}</div>`,
  bound(data, "name", "Name", {
    placeholder: defaultName(form, json.task),
    help: data.twin || form.name ? data.twin
      : `Leave empty to use the ${form.transport === "worker" ? "task" : "URL"}.`,
  }));
}

function urlHelp(url) {
  const network = networkOf(url);
  const allowed = state.info?.callbacks;
  if (!network || !allowed || allowed.includes(network)) return "";
  return html`<span class="warn">This server does not call ${network} addresses. Its operator can
    allow them: cued serve --allow-callbacks-to ${[...allowed, network].join(",")}</span>`;
}

function task(data) {
  const { problem, task: value } = data.json;
  const oninput = (value) => {
    if (problem) return update();
    data.form.payload = withMember(data.form.payload, "task", JSON.stringify(value));
    readPayload(data);
    update();
  };
  const help = problem ? "Fix the payload first; it contains the task."
    : "Workers claim runs by this word, the task in the payload.";
  return field({ name: "task", label: "Task", value, oninput, help });
}

const NUMBERED = 100; // lines; all their numbers would slow typing

function numbers(from, lines) {
  const length = Math.max(0, Math.min(3 * NUMBERED, lines - from));
  return Array.from({ length }, (_, at) => from + at + 1).join("\n") + "\n\n";
}

function payloadCard(data) {
  const { form, json } = data;
  const size = bytes(json.size);
  const tooLarge = json.size > MOST_PAYLOAD ? `${size} is more than 1 MiB.` : "";
  const problem = data.problems.payload || json.problem || tooLarge;
  const summary = json.problem ? "not valid" : json.size ? size : "none";
  const help = json.size ? `${size} of 1 MiB` : "A JSON object to send with each run.";
  const jump = () => {
    const area = document.getElementById("f-payload");
    area.focus();
    area.setSelectionRange(json.at, json.at + 1);
  };
  const format = () => change(data, "payload", prettyJson(form.payload));
  return folded("Payload", summary, html`
    ${field({ name: "payload", label: "JSON", input: payloadArea(data, problem), problem, help })}
    <div class="row">${button("Format", format, "", { off: !json.size })}${
      json.problem ? button("Go to the error", jump) : ""}</div>`, !!data.was.payload);
}

function payloadArea(data, problem) {
  const lines = data.form.payload.split("\n").length;
  const scroll = ({ target: area }) => {
    const height = parseFloat(getComputedStyle(area).lineHeight);
    const from = Math.floor(area.scrollTop / height / NUMBERED) * NUMBERED;
    if (from !== (data.numberedFrom ?? 0)) update(() => (data.numberedFrom = from));
    // After the render, which comes first in the next frame.
    requestAnimationFrame(() =>
      (area.previousElementSibling.scrollTop = area.scrollTop - from * height));
  };
  return html`<div class="lines"><pre aria-hidden="true">${numbers(data.numberedFrom ?? 0,
    lines)}</pre
    ><textarea id="f-payload" name="payload" rows=${Math.min(20, Math.max(5, lines + 1))} wrap="off"
    spellcheck="false" autocapitalize="off" aria-invalid=${problem ? "true" : nothing}
    aria-describedby=${problem ? "f-payload-problem" : "f-payload-help"} .value=${data.form.payload}
    @input=${(event) => change(data, "payload", event.target.value)}
      @scroll=${scroll}></textarea></div>`;
}

let more = null;

const loadMore = () => more ?? act(async () => {
  more = await import("./editor/more.js");
  update();
});

/** A part of more.js. */
const later = (data, title, part, otherwise = "defaults") => folded(title,
  more?.[part].summary(data.form) || otherwise,
  more?.[part].fields(data) ?? muted("Loading"), false, loadMore);

const headersCard = (data) => later(data, "Headers and response", "headers");
const boundsCard = (data) =>
  later(data, data.form.kind === "once" ? "Jitter" : "Start, end, jitter", "bounds", "none");

function moreCards(data) {
  const { form } = data;
  const times = attemptTimes(form.attempts, form.waits);
  return [
    later(data, "Retries", "retries", times ? attemptsText(times) : "not valid"),
    later(data, "If a run fails", "failure", isSilent() ? "no message (log only)" : "message"),
    later(data, "Overlap and limits", "limits"), later(data, "Tags and more", "tags", "none"),
  ];
}
