// Fields of the editor: each is bound to one text of the form, and a change asks for what follows from it.
import { html, nothing } from "../lit/lit-html.js";
import { update } from "../app/state.js";
import { byteLength, checkJson, compactJson, placeOf } from "../parts/json_text.js";
import { check, field, focusProblem } from "../parts/form.js";
import { ask } from "./preview.js";

const TYPING_MS = 250;
const OF_SCHEDULE = ["kind", "cron", "at", "zone"];

export function change(data, name, value) {
  data.form[name] = value;
  delete data.problems[name];
  if (OF_SCHEDULE.includes(name)) ask(data, TYPING_MS);
  if (name === "payload") {
    clearTimeout(data.reading);
    data.reading = setTimeout(() => update(() => readPayload(data)), TYPING_MS);
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
  const fault = checkJson(text);
  if (fault) Object.assign(found, { at: fault.at, problem: `Line ${fault.line}, column ${fault.column}: ${fault.message}.` });
  else if (!text.trim().startsWith("{")) Object.assign(found, { at: 0, problem: "A payload is an object: { … }." });
  else {
    const place = placeOf(text, "task");
    const task = place ? text.slice(...place) : "";
    Object.assign(found, { size: byteLength(compactJson(text)), task: task.startsWith('"') ? JSON.parse(task) : "" });
  }
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
    focusProblem();
  });
}
