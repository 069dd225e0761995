// Parts of the editor that few cues need, loaded when one is opened or has values.
import { OVERLAP, button, check, html, nothing, plural } from "../../kit.js";
import { tagsField } from "../../parts/tag_field.js";
import { bound, change } from "./form.js";
import { flowKeyOf, headersProblem, secondsOf } from "./model.js";

const CATCH_UP = { latest: "Run the latest one", all: "Run all, up to 100", none: "Skip them" };
const VERIFICATION = {
  none: "Not at all", manual: "By hand", require_external_id: "Needs an id of another system",
  require_result_url: "Needs the address of a result", require_artifacts: "Needs artifacts",
};

const boundCheck = (data, name, label, help) => check({
  name, label, help, checked: data.form[name], onchange: (value) => change(data, name, value),
});
const choice = (data, name, label, words) =>
  bound(data, name, label, { choices: Object.entries(words) });
const joined = (...parts) => parts.filter(Boolean).join(", ");

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
        : [time("start", "Start", "Local time there. No run is before it."),
          time("end", "End", "Local time there. No run is at or after it.")]),
      bound(data, "jitter", "Jitter (seconds)", { type: "number", help: `All runs come later by the
        same part of it, which spreads cues that are due at one time. 0 to 3,600.` }),
    ];
  },
};

export const headers = {
  summary: ({ headers, fromResponse, timeout }) => joined(
    headers.length && plural(headers.length, "header"), fromResponse && "the answer is the outcome",
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
      ${boundCheck(data, "fromResponse", "The response reports the outcome", `A 2xx answer with a
        JSON object such as {"success": true} is taken as the report of the run.`)}
      ${bound(data, "timeout", "Seconds for an attempt", { type: "number", help: "1 to 300" })}`;
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

export const failure = {
  summary: ({ email, pause, failureUrl }) =>
    joined(email && "mail", pause && "pause", failureUrl && "call") || "nothing",
  fields: (data) => [
    boundCheck(data, "email", "Send me a mail"),
    data.form.kind === "once" ? "" : boundCheck(data, "pause", "Pause the cue"),
    bound(data, "failureUrl", "Call this address",
      { type: "url", help: "A signed POST with what happened. Empty: none." }),
  ],
};

/** A field for a duration; a text that is none has a problem, and the server refuses it too. */
const time = (data, name, label, help) => bound(data, name, label, {
  help, placeholder: "10m", ...(typeof secondsOf(data.form[name]) === "string"
    && { problem: "Write a number with its unit, such as 90s, 10m, 2h or 1d." }),
});

export const limits = {
  summary({ kind, transport, overlap, catchUp, maxAge, ...form }) {
    const recurs = kind === "recurring";
    return joined(
      recurs && overlap !== "allow" && OVERLAP[overlap].toLowerCase(),
      recurs && catchUp !== "latest" && `missed: ${CATCH_UP[catchUp].toLowerCase()}`,
      maxAge && `give up after ${maxAge}`,
      ...(transport === "worker" ? [form.claimWithin && `taken within ${form.claimWithin} min`]
        : [form.outcomeWithin && `a result within ${form.outcomeWithin}`,
          (form.parallel || form.perMinute) && "a flow"]),
    );
  },
  fields(data) {
    const { kind, transport } = data.form;
    return [
      kind === "once" ? "" : [choice(data, "overlap", "If the earlier run is still going", OVERLAP),
        choice(data, "catchUp", "Times missed in an outage", CATCH_UP)],
      time(data, "maxAge", "Give up after",
        "From the time it was due; then the run has failed. Empty: after the last attempt."),
      transport === "worker"
        ? bound(data, "claimWithin", "Fails if no worker takes it within (minutes)",
          { type: "number", help: "Empty: it waits." })
        : [time(data, "outcomeWithin", "A result must be reported within",
          "From its delivery; else an alert is raised. Empty: a delivery is enough."),
        flow(data)],
    ];
  },
};

const flow = (data) => html`<div role="group" aria-labelledby="flow" class="stack"><div>
  <h3 id="flow">Flow</h3><p class="small muted">All cues with the same key keep within these limits
    together. Without a key it is host and port of the address.</p></div><div class="pair">${
  bound(data, "flowKey", "Key", { placeholder: flowKeyOf(data.form.url) })}${
  bound(data, "parallel", "At once", { type: "number" })}${
  bound(data, "perMinute", "A minute", { type: "number" })}</div></div>`;

export const tags = {
  summary: ({ tags, description }) => joined(...tags, description),
  fields: (data) => [
    tagsField(data, (list) => change(data, "tags", list),
      "Words to find the cue by. Enter or a comma adds one."),
    bound(data, "description", "Description", { lines: 3 }),
    choice(data, "verification", "Check a reported success", VERIFICATION),
  ],
};
