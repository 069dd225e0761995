// The filter of the list of runs: the address, the API's query, the dialog.
import { html } from "../../lit/lit-html.js";
import { ApiError, get } from "../../app/api.js";
import { go, withQuery } from "../../app/router.js";
import { absolute, instant, offsetMinutes, yourZone } from "../../app/time.js";
import { CAUSE_NAMES, capital, causeShort, stateOf, triggerText } from "../../app/words.js";
import { prompt } from "../../parts/dialog.js";

// Word of the address -> [field of the API, label, text of a value]
const FILTERS = {
  cue: ["cue_id", "Cue"],
  cause: ["cause", "Cause", (cause) => capital(causeShort({ cause }))],
  triggered_by: ["triggered_by", "Started by", triggerText],
  outcome: ["outcome_state", "Outcome", (state) => stateOf(state).word],
  worker: ["worker_id", "Worker"],
  since: ["since", "From", timeText],
  until: ["until", "Before", timeText],
  failing: ["failing_cues", "Cues", () => "those that fail now"],
  replayed_from: ["replayed_from", "Replays of", (id) => "…" + id.slice(-8)],
};
const TRIGGERS = ["schedule", "manual_fire", "replay"];
const OUTCOMES = ["reported_success", "reported_failure", "verified_success", "verification_pending", "verification_failed"];

function timeText(text) {
  const ms = instant(text);
  return Number.isNaN(ms) ? text : absolute(ms, yourZone());
}

/** The query of the API for an address; `status` may be several, separated by commas. */
export function apiQuery({ status = "", ...query }) {
  const asked = status.includes(",") ? { status__in: status } : status ? { status } : {};
  for (const [word, [field]] of Object.entries(FILTERS)) if (query[word]) asked[field] = query[word];
  return asked;
}

/** The filter that `POST v1/executions/replay` takes, or `null` if it cannot say what is asked. */
export function replayFilter({ status, cue_id, cause, since, until, ...rest }) {
  if (status !== "failed" || Object.keys(rest).length) return null;
  return { status, cue_id, cause, since, until };
}

/** Filters that are set, `[word, label, text]`. */
export const activeFilters = (query, cueName) =>
  Object.entries(FILTERS).flatMap(([word, [, label, text]]) => (query[word] ? [[word, label, (word === "cue" && cueName) || (text ? text(query[word]) : query[word])]] : []));

/** One link per filter that removes it. */
export function chips(route, cueName) {
  const active = activeFilters(route.query, cueName);
  if (!active.length) return "";
  const none = Object.fromEntries(active.map(([word]) => [word, null]));
  return html`<div class="row" role="group" aria-label="Filters">${active.map(([word, label, text]) => html`<a class="button small chip" data-filter=${word} href=${withQuery(route, { [word]: null })} aria-label=${`Remove the filter ${label}: ${text}`}><span class="cut">${label}: <bdi>${text}</bdi></span> ✕</a>`)}
    ${active.length > 1 ? html`<a class="small" href=${withQuery(route, none)}>Clear all</a>` : ""}</div>`;
}

/** Local time of a zone as `<input type=datetime-local>` has it, to an instant of the API; "" of "". */
export function fromLocal(text, zone) {
  if (!text) return "";
  const local = Date.parse(text + "Z");
  const at = (ms) => local - (offsetMinutes(ms, zone) ?? 0) * 60_000;
  return new Date(at(at(local))).toISOString();
}

export function toLocal(text, zone) {
  const ms = text ? instant(text) : NaN;
  return Number.isNaN(ms) ? "" : new Date(ms + (offsetMinutes(ms, zone) ?? 0) * 60_000).toISOString().slice(0, 16);
}

/** Asks for all filters at once and goes to the list that they select. */
export async function askFilter(route, cueName) {
  const { query } = route;
  const zone = yourZone();
  const choices = (values, text) => [["", "any"], ...values.map((value) => [value, text(value)])];
  const select = (name, values) => ({ name, label: FILTERS[name][1], value: query[name] || "", options: choices(values, FILTERS[name][2]) });
  const time = (name, label) => ({ name, label, type: "datetime-local", value: toLocal(query[name], zone), help: `Local time of ${zone}` });
  const found = await prompt({
    title: "Filter runs",
    action: "Show",
    fields: [
      { name: "cue", label: "Cue", value: query.cue ? (cueName ?? query.cue) : "", help: "Its name or id" },
      select("cause", CAUSE_NAMES),
      select("triggered_by", TRIGGERS),
      select("outcome", OUTCOMES),
      { name: "worker", label: "Worker", value: query.worker || "" },
      time("since", "Created from"),
      time("until", "Created before"),
    ],
    async send({ cue, since, until, ...values }) {
      return { ...values, cue: await cueId(cue.trim(), query.cue, cueName), since: fromLocal(since, zone), until: fromLocal(until, zone) };
    },
  });
  if (found) go(withQuery(route, found));
}

async function cueId(text, before, nameBefore) {
  if (!text) return "";
  if (before && text === nameBefore) return before;
  const { cues } = await get("v1/cues", { q: text.slice(0, 100), limit: 100 });
  const exact = cues.filter((cue) => cue.name === text || cue.id === text);
  const fitting = exact.length ? exact : cues;
  if (fitting.length === 1) return fitting[0].id;
  const msg = fitting.length ? `${fitting.length} cues fit. Give the whole name, or the id of one.` : "There is no such cue.";
  throw new ApiError(422, "unknown_cue", msg, { problems: [{ loc: ["body", "cue"], msg }] });
}
