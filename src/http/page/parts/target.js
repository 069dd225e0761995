// What a cue calls, in short: "POST example.com/…/backup".
import { html } from "../lit/lit-html.js";
import { get } from "../app/api.js";
import { ruleText } from "../app/words.js";

const LONG = 20; // characters of a path that stand as they are
const ASKED = 100; // cues of a list

/** A long path by its end: "/…/daily/backup". Pure. */
function shortPath(path) {
  if (path.length <= LONG) return path === "/" ? "" : path;
  const end = path.slice(-LONG);
  return "/…" + (end.includes("/") ? end.slice(end.indexOf("/")) : end);
}

/** `[method, place]` of a cue as the API lists it with `runs`; of a worker cue its task. Pure. */
function targetOf({ transport, callback: { method, url }, task }) {
  if (transport === "worker") return task ? ["task", task] : ["worker", ""];
  const [, host, path] = /^\w+:\/\/([^/?#]*)([^?#]*)/.exec(url) ?? [null, url, ""];
  return [method, host + shortPath(path)];
}

/** The same as a text, "" of a cue that is not known. Pure. */
export const targetText = (cue) => (cue ? targetOf(cue).filter(Boolean).join(" ") : "");

/** The same in a list, with the whole URL in its title. */
export const targetLine = (cue, more = "") => !cue ? ""
  : html`<span class="calls" title=${cue.callback.url ?? ""}>${targetText(cue)}${more}</span>`;

export const whenText = ({ schedule, schedule_words: words }) => words ?? ruleText(schedule);

/** The same for one of `known` cues, with its schedule if another of them has its name. */
export function knownLine(known, id) {
  const cue = known.get(id);
  const isTwin = (other) => other && other.id !== id && other.name === cue.name;
  const hasTwin = cue && [...known.values()].some(isTwin);
  return targetLine(cue, hasTwin ? `, ${whenText(cue)}` : "");
}

// `known` cues by their ids, with those of `ids` as far as two lists have them: runs and the
// overview name a cue, but not what it calls. An id that is in neither is not asked for again.
export async function withCues(known, ids) {
  const missing = ids.filter((id) => !known.has(id));
  if (!missing.length) return known;
  const lists = [{ sort: "-last_run", limit: ASKED },
    { sort: "next_run", status: "active", limit: 10 }];
  const found = await Promise.all(lists.map((query) => get("v1/cues", { ...query, runs: 0 })))
    .catch(() => []); // a list without targets is one too
  const cues = found.flatMap(({ cues }) => cues).map((cue) => [cue.id, cue]);
  return new Map([...known, ...missing.map((id) => [id, null]), ...cues]);
}

/** A text as one word of a shell. */
export const shellWord = (text) =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;

/** The line that starts a worker for a task. */
export const workLine = (task) => `cued work --task ${shellWord(task || "TASK")} -- ./COMMAND`;
