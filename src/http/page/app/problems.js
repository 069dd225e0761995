// Refusals of the API in words for people: what the validator says, and names of fields. A message
// stands after the label of its field and does not name it. Loaded with the first refusal.
import { absolute, instant, yourZone } from "./time.js";
import { capital } from "./words.js";

// Place of a field, or the end of it -> its name on the page
const NAMES = {
  __proto__: null,
  "callback.url": "the URL", "callback.headers": "the list of headers",
  "callback.method": "the method", "callback.timeout_seconds": "the time limit",
  "on_failure.webhook": "the URL to call", alert_webhook_url: "the URL",
  payload_override: "the payload", send_at: "the time",
  alert_type: "the type", cue_id: "the cue", worker_id: "the worker", q: "the search",
  status__in: "the status",
};
const LONG = Object.keys(NAMES).filter((name) => name !== "q");
const NAMED = new RegExp(`\\b(${LONG.join("|")})\\b`, "g");

/** "The URL" of `["body", "callback", "url"]`. */
function nameOf(loc) {
  const words = loc.slice(1).filter((part) => typeof part === "string");
  return NAMES[words.join(".")] ?? NAMES[words.at(-1)]
    ?? (words.at(-1) ?? "the request").replaceAll("_", " ");
}

const example = () => `Enter a full URL, such as ${location.protocol}//example.com/hook`;
const PHRASES = [
  [/^Value error, /, ""],
  [/^(expression|at|end|send_at|on_failure\.webhook|alert_webhook_url|callback\.\S+): /, ""],
  [/^it has (\d+) fields?, a cron has five \(.*?\); /, "Cron has five fields, this has $1: "],
  [/^Field required$/, "This field is required"],
  [/^The API key is missing or invalid;.*/, "This API key is not valid"],
  [/^Extra inputs are not permitted$/, "This field is not known"],
  [/^Input should be greater than or equal to /, "Must be at least "],
  [/^Input should be less than or equal to /, "Must be at most "],
  [/^Input should be a valid (integer|number|boolean|list|string).*/, (_, type) => "Must be " + {
    integer: "a whole number", number: "a number", boolean: "true or false", list: "a list",
    string: "a text",
  }[type]],
  [/^Input should be (an object|a valid dictionary).*/, "Must be a JSON object: { … }"],
  [/^Input should be an instant like (\S+).*/, "Must be a date and a time, such as $1"],
  [/^Input should be (.*)/, (_, choices) => "Must be " + choices.replaceAll("'", "")],
  [/^String should have /, "Must have "],
  [/^List should have (at \w+ \d+) items? after validation, not (\d+)$/, "Takes $1, not $2"],
  [/^must be absolute and begin with .*/, example],
  [/^must differ from `from`/, "must differ from the start"],
  [/^The JSON cannot be read: (.*) \(line \d+, column \d+\)$/, "$1"],
  [/, or null$/, ", or none"],
  [/`([^`]*)`/g, "“$1”"],
  // A run is an execution in the API alone.
  [/\b([Aa])n execution\b/g, "$1 run"],
  [/(?<![\w.])([Ee])xecution(s?)\b(?!\.?\w)/g, (_, e, s) => (e === "E" ? "Run" : "run") + s],
  [NAMED, (name) => NAMES[name]],
  [/^[a-z]+(?=[ :])/, capital], // an address stays as it is
];

/** What the API says of an instant in the past, as a time of `zone`; null for other texts. Pure. */
export function inThePast(text, zone) {
  const at = /^(?:\w+: )?(\d{4}-\S+) is not in the future/.exec(text)?.[1];
  return at ? `${absolute(instant(at), zone, { full: true })} is in the past.` : null;
}

/** A sentence of the API, without the name of its field. Pure. */
export function phrase(text) {
  return inThePast(text, yourZone())
    ?? PHRASES.reduce((said, [found, better]) => said.replace(found, better), text);
}

/** `{message, problems}` of a refusal as the page shows them. Pure. */
export function spoken({ code, message = "", problems }) {
  const told = problems.map((problem) => ({ ...problem, msg: phrase(problem.msg) }));
  const [first] = code === "validation_error" ? told : [];
  const said = first ? `${capital(nameOf(first.loc))}: ${first.msg}` : phrase(message);
  return { message: said, problems: told };
}
