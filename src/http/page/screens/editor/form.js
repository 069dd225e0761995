// The form of the editor: what the cue does, when, its payload and headers, and what follows a failure.
import { html, nothing } from "../../lit/lit-html.js";
import { link } from "../../app/router.js";
import { settings } from "../../app/settings.js";
import { state, update } from "../../app/state.js";
import { browserZone, duration, knowsZone, localText, serverNow, yourZone } from "../../app/time.js";
import { bytes, plural } from "../../app/words.js";
import { note } from "../../parts/feedback.js";
import { check, field, segments } from "../../parts/form.js";
import { prettyJson, surveyJson, withMember } from "../../parts/json_text.js";
import { attemptLine } from "../cue/attempts.js";
import { PRESETS, attemptTimes, defaultName, headersProblem, networkOf } from "./model.js";
import { ask, previewProblem } from "./preview.js";

const TYPING_MS = 250;
const LETTERS_PER_MS = 1_000; // a text of a megabyte is read after a longer pause
const OF_SCHEDULE = ["kind", "cron", "at", "zone"];

export function change(data, name, value) {
  data.form[name] = value;
  delete data.problems[name];
  if (OF_SCHEDULE.includes(name)) ask(data, TYPING_MS);
  if (name === "payload") {
    clearTimeout(data.reading);
    data.reading = setTimeout(() => update(() => readPayload(data)), TYPING_MS + value.length / LETTERS_PER_MS);
  }
  update();
}

/** What is known of the payload's text: `{problem, size, task}`. */
export function readPayload(data) {
  clearTimeout(data.reading);
  const text = data.form.payload;
  const found = { problem: "", size: 0, task: "" };
  data.json = found;
  if (!text.trim()) return;
  const { fault, size, value } = surveyJson(text, "task");
  if (fault) Object.assign(found, { at: fault.at, problem: `Line ${fault.line}, column ${fault.column}: ${fault.message}.` });
  else if (!text.trim().startsWith("{")) Object.assign(found, { at: 0, problem: "A payload is an object: { … }." });
  else Object.assign(found, { size, task: value?.startsWith('"') ? JSON.parse(value) : "" });
}

/** A text field of the form; `more` as `field` of form.js takes it. */
export const bound = (data, name, more) => field({ name, value: data.form[name], problem: data.problems[name], oninput: (value) => change(data, name, value), ...more });

export const boundCheck = (data, name, label, help) => check({ name, label, help, checked: data.form[name], onchange: (value) => change(data, name, value) });

/** A part that is folded until it is wanted; `showProblems` opens those with a problem. */
export const folded = (title, summary, content, isOpen = false) =>
  html`<details class="card" ?open=${isOpen}><summary><h2>${title}</h2>${summary ? html` <span class="muted small wrap">${summary}</span>` : nothing}</summary><div class="pad stack">${content}</div></details>`;

/** Shows the parts that have a problem, and moves the focus to the first one, once they are drawn. */
export function showProblems() {
  update();
  requestAnimationFrame(() => {
    for (const part of document.querySelectorAll("details:has([aria-invalid=true])")) part.open = true;
    const first = document.querySelector("[aria-invalid=true]");
    first?.focus();
    first?.scrollIntoView({ block: "center" }); // its problem stands below it
  });
}

const HOUR_MS = 3_600_000;

let zones = null;

/** The list of zones, yours and recent ones first; one node, made once. */
function zoneList() {
  if (zones) return zones;
  zones = document.createElement("datalist");
  zones.id = "zones";
  const all = [yourZone(), browserZone(), ...settings.recent_zones, "UTC", ...(Intl.supportedValuesOf?.("timeZone") || [])];
  zones.append(...[...new Set(all)].map((zone) => Object.assign(document.createElement("option"), { value: zone })));
  return zones;
}

/** After a zone was used: it comes first next time. */
export function forgetZones() {
  zones = null;
}

function kind(data, value) {
  if (value === "once" && !data.form.at) data.form.at = localText(Math.ceil(serverNow() / HOUR_MS + 0.5) * HOUR_MS, data.form.zone);
  if (value === "recurring" && !data.form.cron) data.form.cron = "0 3 * * *";
  change(data, "kind", value);
}

export function scheduleCard(data) {
  const { form } = data;
  const zoneProblem = data.problems.zone || previewProblem(data, "zone");
  return html`<section class="card"><header><h2>When</h2>${segments({ label: "Kind of schedule", value: form.kind, options: [["recurring", "Repeats"], ["once", "Once"]], onchange: (value) => kind(data, value) })}</header>
    <div class="pad stack">${form.kind === "once" ? once(data) : recurring(data)}
    ${bound(data, "zone", { label: "Time zone", list: "zones", problem: zoneProblem, help: form.zone && !zoneProblem && !knowsZone(form.zone) ? "This browser does not know the zone; the server decides." : "" })}${zoneList()}</div></section>`;
}

const once = (data) =>
  bound(data, "at", { label: "Day and time there", type: "datetime-local", problem: data.problems.at || previewProblem(data, "at"), help: noteOf(data) });

/** What a change of the clock does to the chosen time. */
const noteOf = ({ preview }) => preview?.answer?.occurrences[0]?.note?.replace(/^gap: (.*?),/, "The clock is set forward: $1,").replace(/^fold: (.*?),/, "The clock is set back: $1,");

function recurring(data) {
  const { cron } = data.form;
  const use = (value) => () => change(data, "cron", value);
  const monthEnd = data.monthEnd || /\bL\b|\bLW\b/i.test(cron);
  const chip = ([label, value]) => html`<button type="button" aria-pressed=${cron.trim() === value ? "true" : "false"} @click=${use(value)}>${label}</button>`;
  return html`<div class="row chips" role="group" aria-label="Examples">${PRESETS.map(chip)}<button type="button" aria-expanded=${monthEnd ? "true" : "false"} @click=${() => update(() => (data.monthEnd = !data.monthEnd))}>Month's end…</button></div>
    ${monthEnd ? note(html`<b>Cron has no last day of a month</b>, as months differ in length. Run at the start of the next month instead, or on the days 28 to 31 and let the receiver look whether tomorrow is the 1st.`, "warn", html`<span class="row"><button type="button" @click=${use("0 0 1 * *")}>1st, 00:00</button><button type="button" @click=${use("0 23 28-31 * *")}>28–31, 23:00</button></span>`) : nothing}
    ${bound(data, "cron", { label: "Cron", problem: cronProblem(data), help: "minute, hour, day of month, month, day of week" })}`;
}

function cronProblem(data) {
  const text = data.problems.cron || previewProblem(data, "cron");
  if (!text) return "";
  const error = data.problems.cron ? data.error : data.preview.error;
  const letters = [...data.form.cron];
  const [from, to] = error?.span || [0, 0];
  if (from >= to || data.asking) return text;
  const wrong = letters.slice(from, to).join("");
  return html`${text}<span class="sr">. The wrong part is ${wrong}</span><code class="wrong" aria-hidden="true">${letters.slice(0, from).join("")}<mark>${wrong}</mark>${letters.slice(to).join("")}</code>`;
}

const MOST_PAYLOAD = 1_048_576; // bytes that the server takes
const METHODS = ["POST", "PUT", "PATCH", "GET", "DELETE"].map((word) => [word, word]);

export function targetCard(data) {
  const { form, json, cue } = data;
  const isWorker = form.transport === "worker";
  const kinds = [["webhook", "Call an address"], ["worker", "For a worker"]];
  const kind = data.isEdit ? html`<span class="muted">${kinds.find(([word]) => word === form.transport)[1]}</span><a class="button" href=${link("cues", "new", { from: cue.id })}>Duplicate to change it</a>` : segments({ label: "Transport", value: form.transport, options: kinds, onchange: (value) => change(data, "transport", value) });
  return html`<section class="card"><header><h2>What</h2>${kind}</header><div class="pad stack">
    ${isWorker ? task(data) : html`<div class="pair">${bound(data, "url", { label: "Address", type: "url", help: data.problems.url ? "" : urlHelp(form.url) })}${bound(data, "method", { label: "Method", options: METHODS })}</div>`}
    ${bound(data, "name", { label: "Name", placeholder: defaultName(form, json.task), help: form.name ? "" : "Left empty, it is made from the above." })}
  </div></section>`;
}

function urlHelp(url) {
  const network = networkOf(url);
  const allowed = state.info?.callbacks;
  if (!network || !allowed || allowed.includes(network)) return "";
  return html`<span class="warn">This server does not call ${network} addresses. Its operator can allow them: --allow-callbacks-to ${[...allowed, network].join(",")}</span>`;
}

function task(data) {
  const set = (value) => {
    data.form.payload = withMember(data.form.payload, "task", JSON.stringify(value));
    readPayload(data);
    update();
  };
  const { problem } = data.json;
  return field({ name: "task", label: "Task", value: data.json.task, oninput: problem ? () => update() : set, help: problem ? "Correct the payload first: the task is a part of it." : "Workers fetch runs by this word. It is the task of the payload." });
}

const NUMBERED = 100; // lines; the numbers of three times as many are there, of all they would make typing slow

const numbers = (from, lines) => Array.from({ length: Math.max(0, Math.min(3 * NUMBERED, lines - from)) }, (_, at) => from + at + 1).join("\n") + "\n\n";

function linesOf(data) {
  const text = data.form.payload;
  if (data.counted !== text) {
    let lines = 1;
    for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) lines++;
    Object.assign(data, { counted: text, lines });
  }
  return data.lines;
}

export function payloadCard(data) {
  const { form, json } = data;
  const problem = data.problems.payload || json.problem || (json.size > MOST_PAYLOAD ? `${bytes(json.size)} are more than 1 MiB.` : "");
  const lines = linesOf(data);
  const scroll = ({ target: area }) => {
    const height = parseFloat(getComputedStyle(area).lineHeight);
    const from = Math.floor(area.scrollTop / height / NUMBERED) * NUMBERED;
    if (from !== (data.numberedFrom ?? 0)) update(() => (data.numberedFrom = from));
    // After the render, which comes first in the next frame.
    requestAnimationFrame(() => (area.previousElementSibling.scrollTop = area.scrollTop - from * height));
  };
  const summary = json.problem ? "not correct" : json.size ? bytes(json.size) : "none";
  const input = html`<div class="lines"><pre aria-hidden="true">${numbers(data.numberedFrom ?? 0, lines)}</pre><textarea id="f-payload" name="payload" rows=${Math.min(20, Math.max(5, lines + 1))} wrap="off" spellcheck="false" autocapitalize="off" aria-describedby=${problem ? "f-payload-problem" : "f-payload-help"} aria-invalid=${problem ? "true" : nothing} .value=${form.payload} @input=${(event) => change(data, "payload", event.target.value)} @scroll=${scroll}></textarea></div>`;
  const jump = () => {
    const area = document.getElementById("f-payload");
    area.focus();
    area.setSelectionRange(json.at, json.at + 1);
  };
  return folded("Payload", summary, html`
    ${field({ name: "payload", label: "JSON", input, problem, help: json.size ? `${bytes(json.size)} of 1 MiB` : "An object that is sent with each run." })}
    <div class="row"><button type="button" ?disabled=${!json.size} @click=${() => change(data, "payload", prettyJson(form.payload))}>Format</button>${json.problem ? html`<button type="button" @click=${jump}>Go to the fault</button>` : nothing}</div>`, !!data.was.payload);
}

export function headersCard(data) {
  const { headers, fromResponse } = data.form;
  const problem = data.problems.headers || headersProblem(headers);
  const put = (list) => change(data, "headers", list);
  const edit = (row, at, value) => put(headers.map((pair, i) => (i === row ? pair.with(at, value) : pair)));
  const input = (row, at, label) => html`<input aria-label=${label} id=${`h-${row}-${at}`} placeholder=${at ? "Value" : "Name"} autocomplete="off" spellcheck="false" aria-describedby=${problem ? "headers-problem" : nothing} aria-invalid=${problem && !at ? "true" : nothing} .value=${headers[row][at]} @input=${(event) => edit(row, at, event.target.value)}>`;
  const add = () => {
    put([...headers, ["", ""]]);
    setTimeout(() => document.getElementById(`h-${headers.length}-0`)?.focus(), 50);
  };
  return folded("Headers and answer", [headers.length && plural(headers.length, "header"), fromResponse && "the answer is the outcome"].filter(Boolean).join(", ") || "defaults", html`
    ${headers.map(([name], row) => html`<div class="three">${input(row, 0, `Name of header ${row + 1}`)}${input(row, 1, `Value of ${name || `header ${row + 1}`}`)}<button type="button" aria-label=${`Remove ${name || `header ${row + 1}`}`} @click=${() => put(headers.toSpliced(row, 1))}>✕</button></div>`)}
    ${problem ? html`<p class="bad small" id="headers-problem">${problem}</p>` : nothing}
    <button type="button" @click=${add}>Add a header</button>
    ${boundCheck(data, "fromResponse", "The answer tells the outcome", "A 2xx answer with a JSON object such as {\"success\": true} is taken as the report of the run.")}`);
}

const VERIFICATION = [["none", "Not at all"], ["manual", "By hand"], ["require_external_id", "Needs an id of another system"], ["require_result_url", "Needs the address of a result"], ["require_artifacts", "Needs artifacts"]];
const CATCH_UP = [["latest", "Run the latest one"], ["all", "Run all, up to 100"], ["none", "Skip them"]];

export function moreCards(data) {
  const { form } = data;
  const times = attemptTimes(form.attempts, form.waits);
  const total = times ? (times.length > 1 ? `${times.length} attempts within ${duration(times.at(-1) * 60_000)}` : "one attempt") : "not correct";
  const after = [form.email && "mail", form.pause && "pause", form.failureUrl && "call"].filter(Boolean).join(", ") || "nothing";
  return html`${folded("Retries", total, html`<div class="pair">
      ${bound(data, "waits", { label: "Minutes between attempts", help: "Such as 1, 5, 15. The last one repeats." })}
      ${bound(data, "attempts", { label: "Attempts", type: "number", help: "1 to 10" })}</div>${times ? attemptLine(times) : nothing}`)}
    ${folded("If a run fails", after, html`${boundCheck(data, "email", "Send me a mail")}${form.kind === "recurring" ? boundCheck(data, "pause", "Pause the cue") : nothing}${bound(data, "failureUrl", { label: "Call this address", type: "url", help: "A signed POST with what happened. Empty: none." })}`)}
    ${folded("More", form.description, html`${bound(data, "description", { label: "Description", lines: 3 })}
      ${form.kind === "recurring" ? bound(data, "catchUp", { label: "Times missed in an outage", options: CATCH_UP }) : nothing}
      ${bound(data, "verification", { label: "Check a reported success", options: VERIFICATION })}
      ${form.transport === "worker" ? bound(data, "claimWithin", { label: "Fails if no worker takes it within (minutes)", type: "number", help: "Empty: it waits." }) : nothing}`)}`;
}
