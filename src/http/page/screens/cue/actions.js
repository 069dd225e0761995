// What the screens of cues and runs do with a cue, and a cue as a request or as marks.
import { PLAIN_FIELDS, act, bodyWith, confirmed, cuePath, del, go, instant, letterOf, link, patch,
  post, serverNow, state } from "../../kit.js";
import { targetText, whenText } from "../../parts/target.js";

/** On hold: what is due, as at `at`, is sent once the copy is promoted. */
export const isHeld = (at) =>
  state.overview?.server.held_since && !(at && instant(at) > serverNow());

export function setPaused(cue) {
  const [status, done] = cue.status === "paused" ? ["active", "resumed"] : ["paused", "paused"];
  return act(() => patch(cuePath(cue.id), { status }), `${cue.name}: ${done}`);
}

export const edit = ({ id }) => go(link("cues", id, "edit"));
/** Goes to a run, if there is one. */
export const show = (run) => run && go(link("runs", run.id));

export const fire = async ({ id }) => show(await act(() => post(cuePath(id) + "/fire"),
  isHeld() ? "On hold: not sent until promoted" : "Fired"));

export const fireWith = async (...args) =>
  show(await (await import("../runs/bulk.js")).fireWith(...args));

export const remove = ({ id, name, slug, ...cue }) => confirmed(`Delete ${name}?`, "Delete",
  `${targetText(cue)}, ${whenText(cue)}. This also deletes its runs and their results. You cannot
    undo it.${slug ? " If it is in a file, cued apply creates it again." : ""}`,
  () => del(cuePath(id)), `Deleted ${name}`);

export const replayFailed = async (cue) => (await import("../runs/bulk.js")).replayFailed(cue);

/** Failed runs in a row, the newest first in `runs`; unfinished ones do not count. Pure. */
export function streakOf(runs) {
  const ended = runs.filter(({ status }) => status === "success" || status === "failed");
  const good = ended.findIndex(({ status }) => status === "success");
  return good < 0 ? ended.length : good;
}

/** The newest `slots` of runs (newest first) and missed runs as letters, the newest last. Pure. */
export function lettersOf(runs, missed, slots) {
  const marks = runs.map((run) => [run.scheduled_for, letterOf(run.status)]).reverse();
  for (const { last, count } of missed) {
    marks.push(...Array.from({ length: Math.min(count, slots) }, () => [last, "m"]));
  }
  marks.sort(([a], [b]) => (a < b ? -1 : +(a > b)));
  return marks.slice(-slots).map(([, letter]) => letter).join("");
}

/** JSON text that creates such a cue; the payload stands letter for letter. Pure. */
export function creation(cue) {
  const { name, description, transport, callback, retry, on_failure, verification } = cue;
  const schedule = Object.fromEntries(Object.entries(cue.schedule).filter(([, value]) => value));
  const plain = PLAIN_FIELDS.filter(({ name, words }) => cue[name] && cue[name] !== words?.[0]);
  return bodyWith({
    name, ...(description && { description }),
    schedule, ...(transport === "worker" ? { transport } : { callback }), retry, on_failure,
    ...(verification.mode !== "none" && { verification }),
    ...Object.fromEntries(plain.map(({ name }) => [name, cue[name]])),
    ...(cue.tags.length && { tags: cue.tags }),
  }, { payload: cue.payload_text });
}
export const creationCall = (cue) => ({ method: "POST", path: "v1/cues", body: creation(cue) });
