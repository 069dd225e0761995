// Parts of the editor that few cues need, loaded when one is opened or has values.
import { PLAIN_FIELDS, button, duration, hasChannel, html, localInstant, mending, nothing, plural,
  sendsMail, serverNow } from "../../kit.js";
import { TEXTS, factOf } from "../../parts/cue_field_texts.js";
import { check } from "../../parts/form.js";
import { tagsField } from "../../parts/tag_field.js";
import { bound, change } from "./preview.js";
import { attemptTimes, flowKeyOf, headersProblem, secondsOf } from "./model.js";

const CATCH_UP = { __proto__: null,
  latest: "Fire the latest", all: "Fire all, up to 100", none: "Skip them" };
const VERIFICATION = {
  __proto__: null,
  none: "No", manual: "I confirm it", require_external_id: "An id in another system",
  require_result_url: "A result URL", require_artifacts: "Artifacts",
};

const boundCheck = (data, name, label, help) => check({
  name, label, help, checked: data.form[name], onchange: (value) => change(data, name, value),
});
const choice = (data, name, label, words) =>
  bound(data, name, label, { choices: Object.entries(words) });
const joined = (...parts) => parts.filter(Boolean).join(", ");

const isPast = ({ form: { start, zone }, was }) =>
  start && start !== was.start && localInstant(start, zone) < serverNow();

/** Start, end and jitter; a cue that runs once has only the last. */
export const bounds = {
  summary({ kind, start, end, jitter }) {
    const shown = (text) => text.replace("T", " ");
    const recurs = kind === "recurring";
    return joined(recurs && start && `from ${shown(start)}`, recurs && end && `until ${shown(end)}`,
      Number(jitter) && `up to ${jitter} s later`);
  },
  fields(data) {
    const time = (name, label, help) => bound(data, name, label, { type: "datetime-local", help });
    return [
      ...(data.form.kind === "once" ? []
        : [time("start", "Start", isPast(data) ? html`<span class="warn">This is in the past: the
          cue begins at once.</span>` : "In the time zone above. No run comes before it."),
          time("end", "End", "In the time zone above. No run comes at this time or later.")]),
      bound(data, "jitter", "Jitter (seconds)", { type: "number", help: `Delays
        the cue by a fixed, random part of this time, so that cues do not all start together. 0 to
        3,600.` }),
    ];
  },
};

export const headers = {
  summary: ({ headers, fromResponse, timeout }) => joined(
    headers.length && plural(headers.length, "header"), fromResponse && "outcome from the response",
    Number(timeout || 30) !== 30 && `${timeout} s`,
  ),
  fields(data) {
    const { headers } = data.form;
    const problem = data.problems.headers || headersProblem(headers);
    const add = () => {
      change(data, "headers", [...headers, ["", ""]]);
      setTimeout(() => document.getElementById(`h-${headers.length}-0`)?.focus(), 50);
    };
    return html`${headers.map((pair, row) => header(data, row, problem))}
      ${problem ? html`<p class="bad small" id="headers-problem">${problem}</p>` : ""}
      ${button("Add a header", add)}
      ${boundCheck(data, "fromResponse", "Read the outcome from the response", `A 2xx
        response with a JSON object such as {"success": true} reports the result of the run.`)}
      ${bound(data, "timeout", "Time limit of an attempt (seconds)",
        { type: "number", help: "1 to 300" })}`;
  },
};

function header(data, row, problem) {
  const { headers } = data.form;
  const put = (list) => change(data, "headers", list);
  const edit = (at) => ({ target }) =>
    put(headers.map((pair, i) => (i === row ? pair.with(at, target.value) : pair)));
  const name = headers[row][0] || `header ${row + 1}`;
  const input = (at, label) => html`<input aria-label=${label} id=${`h-${row}-${at}`}
    placeholder=${at ? "Value" : "Name"} autocomplete="off" spellcheck="false"
    aria-describedby=${problem ? "headers-problem" : nothing}
    aria-invalid=${problem && !at ? "true" : nothing} .value=${headers[row][at]}
    @input=${edit(at)}>`;
  return html`<div class="three">${input(0, `Name of header ${row + 1}`)}${
    input(1, `Value of ${name}`)}${
    button("✕", () => put(headers.toSpliced(row, 1)), "", { label: `Remove ${name}` })}</div>`;
}

export const retries = {
  summary: () => "",
  fields(data) {
    const times = attemptTimes(data.form.attempts, data.form.waits);
    return html`<div class="pair">${bound(data, "waits", "Minutes between attempts",
      { help: "Such as 1, 5, 15, or with units: 30s, 5m. The last wait repeats." })}${
      bound(data, "attempts", "Attempts", { type: "number", help: "1 to 10" })}</div>${
      times ? html`<p class="small muted">Attempts: ${times.map((time) => time
        ? `after ${duration(time * 60_000)}` : "at once").join(", ")}.</p>` : ""}`;
  },
};

export const failure = {
  summary: ({ email, pause, failureUrl }) =>
    joined((email && sendsMail() || hasChannel()) && "message", pause && "pause",
      failureUrl && "call") || (email ? "no message (log only)" : "nothing"),
  fields: (data) => [
    boundCheck(data, "email", "Email me", sendsMail() ? ""
      : html`This server cannot send email: messages go to its log. ${mending()}`),
    data.form.kind === "once" ? "" : boundCheck(data, "pause", "Pause the cue"),
    bound(data, "failureUrl", "Call this URL",
      { type: "url", help: "Receives a signed POST about the failure. Leave empty for none." }),
  ],
};

/** The input of a plain field. */
function plain(data, { name, words, unit }) {
  const { ask, help, choices } = TEXTS[name];
  if (words) return choice(data, name, ask, choices);
  const isNoTime = typeof secondsOf(data.form[name]) === "string";
  return bound(data, name, ask, { help, ...(unit === "minutes" ? { type: "number" }
    : { placeholder: "10m", ...(isNoTime
      && { problem: "Write a number with its unit, such as 90s, 10m, 2h or 1d." }) }) });
}

const fitting = ({ kind, transport }) => PLAIN_FIELDS.filter(({ only = transport, words }) =>
  only === transport && !(words && kind === "once"));

export const limits = {
  summary(form) {
    const { kind, transport, catchUp } = form;
    return joined(
      kind === "recurring" && catchUp !== "latest" && `missed runs: ${CATCH_UP[catchUp]}`,
      ...fitting(form).map((field) => {
        const text = form[field.name];
        const fact = factOf(field, field.unit === "minutes" && text ? `${text} min` : text);
        return fact && fact.join(field.words ? ": " : " ");
      }),
      transport === "webhook" && (form.parallel || form.perMinute) && "a flow",
    ).toLowerCase();
  },
  fields: (data) => [
    data.form.kind === "once" ? "" : choice(data, "catchUp", "Missed runs", CATCH_UP),
    ...fitting(data.form).map((field) => plain(data, field)),
    data.form.transport === "worker" ? "" : flow(data),
  ],
};

const flow = (data) => html`<div role="group" aria-labelledby="flow" class="stack"><div>
  <h3 id="flow">Flow</h3><p class="small muted">All cues with the same key share these limits. Leave
    the key empty to use the host and port of the URL.</p></div><div class="pair">${
  bound(data, "flowKey", "Key", { placeholder: flowKeyOf(data.form.url) })}${
  bound(data, "parallel", "At once", { type: "number" })}${
  bound(data, "perMinute", "Per minute", { type: "number" })}</div></div>`;

export const tags = {
  summary: ({ tags, description }) => joined(...tags, description),
  fields: (data) => [
    tagsField(data, (list) => change(data, "tags", list),
      "Labels for filtering. Press Enter or a comma after each."),
    bound(data, "description", "Description", { lines: 3 }),
    choice(data, "verification", "Require proof of success", VERIFICATION),
  ],
};
