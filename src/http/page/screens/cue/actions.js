// What the screens of cues and runs do with a cue, and a cue as a request or as marks.
import { act, bodyWith, checkJson, confirmed, cuePath, del, faultText, fieldError, fromLocal, go,
  knowsZone, letterOf, link, localText, patch, post, prettyJson, prompt, randomKey, readableJson,
  serverNow, yourZone } from "../../kit.js";

const DAY_MS = 86_400_000;

export function setPaused(cue) {
  const [status, done] = cue.status === "paused" ? ["active", "resumed"] : ["paused", "paused"];
  return act(() => patch(cuePath(cue.id), { status }), `${cue.name}: ${done}`);
}

export const edit = ({ id }) => go(link("cues", id, "edit"));
const show = (run) => run && go(link("runs", run.id));

export const fire = async ({ id }) => show(await act(() => post(cuePath(id) + "/fire"), "Fired"));

// Asks for a payload and a time, fires the cue once, and shows the new run. `own` is the payload of
// a run of the cue, if not the cue's.
export async function fireWith(cue, own = null) {
  const zone = knowsZone(cue.schedule.timezone) ? cue.schedule.timezone : "UTC";
  const shown = prettyJson(readableJson(own ?? cue.payload_text ?? "{}"));
  const path = cuePath(cue.id) + "/fire";
  const key = randomKey();
  show(await prompt({
    title: `Fire ${cue.name}`, action: "Fire",
    text: `Runs the cue once with this payload${own ? ", which is that of the run" : ""}. The cue
      keeps its own.`,
    fields: [
      { name: "payload_override", label: "Payload (JSON)", value: shown, lines: 10 },
      { name: "at", label: `At (${zone})`, type: "datetime-local", help: "Empty: now." },
    ],
    send({ payload_override, at }) {
      const fault = checkJson(payload_override);
      if (fault) throw fieldError("payload_override", faultText(fault));
      const send_at = fromLocal(at, zone) || undefined;
      if (own === null && payload_override === shown) return post(path, { send_at }, { key });
      return post(path, { send_at, merge_strategy: "replace" }, { raw: { payload_override }, key });
    },
  }));
}

export const remove = ({ id, name }) => confirmed(`Delete ${name}?`, "Delete",
  "Its runs and their results are deleted with it. This cannot be undone.",
  () => del(cuePath(id)), `Deleted ${name}`);

export async function replayFailed({ id }) {
  const zone = yourZone();
  const { countMatching, replayMatching, showReplayed } = await import("../runs/bulk.js");
  const found = await prompt({
    title: "Replay failed runs", action: "Next",
    text: "Each failed run since then is repeated with its own payload, the oldest first.",
    fields: [{
      name: "since", label: `Failed since (${zone})`, type: "datetime-local", required: true,
      value: localText(serverNow() - DAY_MS, zone).slice(0, 16),
    }],
    async send({ since }) {
      const filter = { cue_id: id, status: "failed", since: fromLocal(since, zone) };
      const count = await countMatching(filter);
      if (!count) throw fieldError("since", "No run of this cue failed since then.");
      return { filter, count };
    },
  });
  const answer = found && (await act(() => replayMatching(found.filter, found.count)));
  if (answer?.replayed) go(showReplayed(answer, { cue: id, triggered_by: "replay" }));
}

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
  const claim_within_minutes = transport === "worker" && cue.claim_within_minutes;
  const { overlap, tags, max_age_seconds, outcome_deadline_seconds } = cue;
  return bodyWith({
    name, ...(description && { description }),
    schedule, ...(transport === "worker" ? { transport } : { callback }), retry, on_failure,
    ...(verification.mode !== "none" && { verification }),
    ...(claim_within_minutes && { claim_within_minutes }),
    ...(overlap !== "allow" && { overlap }), ...(max_age_seconds && { max_age_seconds }),
    ...(outcome_deadline_seconds && { outcome_deadline_seconds }), ...(tags.length && { tags }),
  }, { payload: cue.payload_text });
}
export const creationCall = (cue) => ({ method: "POST", path: "v1/cues", body: creation(cue) });
