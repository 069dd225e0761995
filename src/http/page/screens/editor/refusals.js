// Refusals of the API at the fields of the editor, in its words. Loaded with the first one. Pure.
import { inThePast } from "../../app/problems.js";
import { FIELDS, LOCAL, NAMES } from "./model.js";

// `{problems: {field: text}, rest: [text], place}` of an ApiError; `rest` belongs to no field, `place`
// is the zone that was meant.
export function problemsOf(error, { kind, zone = "UTC" } = {}) {
  const problems = {};
  const rest = [];
  const found = error.problems?.length
    ? error.problems.map(({ loc, msg }) => [fieldAt(loc.slice(1).join(".")), msg])
    : [[fieldOf(error), inThePast(error.raw, zone) ?? error.message]];
  for (const [at, text] of found) {
    const field = at === "at" && kind === "recurring" ? "cron" : at; // words for one time
    if (field) problems[field] ??= inTheForm(text);
    else rest.push(text);
  }
  return { problems, rest, place: placeMeant(problems.zone, zone) };
}

const inTheForm = (text) => text.replace("use an IANA name such as Europe/Berlin",
  "use a large city of the zone, such as Berlin");

const OTHER = { __proto__: null, schedule: "cron", "schedule.every": "cron", callback: "url",
  "callback.flow": "parallel" };
const fieldAt = (path) => OTHER[path] ?? NAMES.find((name) =>
  (path.replace("backoff_seconds", "backoff_minutes") + ".").startsWith(FIELDS[name][1] + "."));

function fieldOf({ code, field, message, raw = message }) {
  if (code === "invalid_schedule") return LOCAL.includes(field) ? field : "cron";
  if (code === "invalid_timezone") return "zone";
  // Only the payload is text that a person wrote; the position would be that in the whole body.
  if (code === "invalid_payload_size" || code === "invalid_json") return "payload";
  if (code !== "invalid_callback_url" && code !== "invalid_callback") return null;
  if (raw.startsWith("on_failure")) return "failureUrl";
  return /^callback\.(headers|method)/.exec(raw)?.[1] || "url";
}

/** The zone of the place `text` that its refusal names, or "". */
export function placeMeant(problem, text) {
  const zone = /did you mean ([^ ,]+)\?$/.exec(problem)?.[1] ?? "";
  const place = text.trim().toLowerCase().replaceAll(" ", "_");
  return zone.toLowerCase().endsWith("/" + place) ? zone : "";
}
