// The form of the editor.
import { act, anchor, button, bytes, card, html, isSilent, link, localText, muted, nothing,
  serverNow, state, update } from "../../kit.js";
import { field, segments, zoneList } from "../../parts/form.js";
import { prettyJson, withMember } from "../../parts/json_text.js";
import { PRESETS, attemptTimes, attemptsText, defaultName, networkOf } from "./model.js";
import { bound, change, previewProblem, readPayload } from "./preview.js";

const HOUR_MS = 3_600_000;
const MOST_PAYLOAD = 1_048_576; // bytes that the server takes

/** A folded part; `showProblems` opens those with a problem. */
const folded = (title, summary, content, isOpen = false, toggle = nothing) => html`<details
  class="card" ?open=${isOpen} @toggle=${toggle}><summary><h2>${title}</h2>${
    summary ? html` <span class="muted small wrap">${summary}</span>` : ""}</summary>
  <div class="pad stack">${content}</div></details>`;

/** Opens the parts that have a problem, and moves the focus to the first one. */
export function showProblems() {
  update();
  requestAnimationFrame(() => {
    const parts = document.querySelectorAll("details:has([aria-invalid=true])");
    for (const part of parts) part.open = true;
    const first = document.querySelector("[aria-invalid=true]");
    first?.focus();
    first?.scrollIntoView({ block: "center" }); // its problem stands below it
  });
}

export function scheduleCard(data) {
  const { form } = data;
  const choose = (kind) => {
    const nextHour = Math.ceil(serverNow() / HOUR_MS + 0.5) * HOUR_MS;
    if (kind === "once") form.at ||= localText(nextHour, form.zone);
    else form.cron ||= "0 3 * * *";
    change(data, "kind", kind);
  };
  const kinds =
    segments("Kind of schedule", form.kind, [["recurring", "Repeats"], ["once", "Once"]], choose);
  return card("", "When", kinds, html`<div class="pad stack">
    ${form.kind === "once" ? once(data) : recurring(data)}
    ${bound(data, "zone", "Time zone", { list: "zones" })}${zoneList()}</div>`);
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

export function targetCard(data) {
  const { form, json, cue, problems } = data;
  const transport = !data.isEdit
    ? segments("Transport", form.transport, TRANSPORTS, (value) => change(data, "transport", value))
    : [muted(Object.fromEntries(TRANSPORTS)[form.transport]),
      anchor(link("cues", "new", { from: cue.id }), "Duplicate to change it", "button")];
  return card("", "What", transport, html`<div class="pad stack">
    ${form.transport === "worker" ? task(data) : html`<div class="pair">${bound(data, "url",
      "URL", { type: "url", help: problems.url ? "" : urlHelp(form.url) })}${
      bound(data, "method", "Method", { choices: METHODS })}</div>`}
    ${bound(data, "name", "Name", {
      placeholder: defaultName(form, json.task),
      help: data.twin || form.name ? data.twin
        : `Leave empty to use the ${form.transport === "worker" ? "task" : "URL"}.`,
    })}</div>`);
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
  const help = problem ? "Correct the payload first: the task is a part of it."
    : "Workers claim runs by this word, the task in the payload.";
  return field({ name: "task", label: "Task", value, oninput, help });
}

const NUMBERED = 100; // lines; all their numbers would slow typing

function numbers(from, lines) {
  const length = Math.max(0, Math.min(3 * NUMBERED, lines - from));
  return Array.from({ length }, (_, at) => from + at + 1).join("\n") + "\n\n";
}

export function payloadCard(data) {
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
      json.problem ? button("Go to the fault", jump) : ""}</div>`, !!data.was.payload);
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

export const loadMore = () => more ?? act(async () => {
  more = await import("./more.js");
  update();
});

/** A part of more.js. */
const later = (data, title, part, otherwise = "defaults") => folded(title,
  more?.[part].summary(data.form) || otherwise,
  more?.[part].fields(data) ?? muted("Loading"), false, loadMore);

export const headersCard = (data) => later(data, "Headers and response", "headers");
export const boundsCard = (data) =>
  later(data, data.form.kind === "once" ? "Jitter" : "Start, end, jitter", "bounds", "none");

export function moreCards(data) {
  const { form } = data;
  const times = attemptTimes(form.attempts, form.waits);
  return [
    later(data, "Retries", "retries", times ? attemptsText(times) : "not valid"),
    later(data, "If a run fails", "failure",
      isSilent() ? "no message (log only)" : "message"),
    later(data, "Overlap and limits", "limits"), later(data, "Tags and more", "tags", "none"),
  ];
}
