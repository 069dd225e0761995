// When the cue runs: presets, cron with the wrong part marked, a local time, the zone.
import { html, nothing } from "../lit/lit-html.js";
import { browserZone, knowsZone, offsetMinutes, serverNow, yourZone } from "../app/time.js";
import { settings } from "../app/settings.js";
import { segments } from "../parts/form.js";
import { note } from "../parts/feedback.js";
import { bound, change } from "./fields.js";
import { PRESETS } from "./model.js";
import { previewProblem } from "./preview.js";

const HOUR_MS = 3_600_000;

/** "2026-11-22T14:05" of an instant in a zone; seconds where it has some. */
export function localTime(ms, zone) {
  const local = new Date(ms + (offsetMinutes(ms, zone) ?? 0) * 60_000).toISOString();
  return local.slice(0, ms % 60_000 ? 19 : 16);
}

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
  if (value === "once" && !data.form.at) data.form.at = localTime(Math.ceil(serverNow() / HOUR_MS + 0.5) * HOUR_MS, data.form.zone);
  if (value === "recurring" && !data.form.cron) data.form.cron = "0 3 * * *";
  change(data, "kind", value);
}

export function scheduleCard(data) {
  const { form } = data;
  return html`<section class="card"><header><h2>When</h2>${segments({ label: "Kind of schedule", value: form.kind, options: [["recurring", "Repeats"], ["once", "Once"]], onchange: (value) => kind(data, value) })}</header>
    <div class="pad stack">${form.kind === "once" ? once(data) : recurring(data)}
    ${bound(data, "zone", { label: "Time zone", list: "zones", problem: data.problems.zone || previewProblem(data, "zone"), help: form.zone && !knowsZone(form.zone) ? "This browser does not know the zone; the server decides." : "" })}${zoneList()}</div></section>`;
}

const once = (data) =>
  bound(data, "at", { label: "Day and time there", type: "datetime-local", step: /:\d\d:/.test(data.form.at), problem: data.problems.at || previewProblem(data, "at"), help: noteOf(data) });

/** What a change of the clock does to the chosen time. */
const noteOf = ({ preview }) => preview?.answer?.occurrences[0]?.note?.replace(/^gap: (.*?),/, "The clock is set forward: $1,").replace(/^fold: (.*?),/, "The clock is set back: $1,");

function recurring(data) {
  const { cron } = data.form;
  const use = (value) => () => change(data, "cron", value);
  const monthEnd = data.monthEnd || /\bL\b|\bLW\b/i.test(cron);
  const chip = ([label, value]) => html`<button type="button" aria-pressed=${cron.trim() === value ? "true" : "false"} @click=${use(value)}>${label}</button>`;
  return html`<div class="row chips" role="group" aria-label="Examples">${PRESETS.map(chip)}<button type="button" aria-expanded=${monthEnd ? "true" : "false"} @click=${() => ((data.monthEnd = !data.monthEnd), change(data, "kind", "recurring"))}>Month's end…</button></div>
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
