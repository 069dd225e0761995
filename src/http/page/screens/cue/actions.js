// Actions on one cue; the list and the screens of a cue and a run use them.
import { cuePath, del, fieldError, get, patch, post, randomKey } from "../../app/api.js";
import { go, link } from "../../app/router.js";
import { knowsZone, localInstant, localText, serverNow, yourZone } from "../../app/time.js";
import { plural } from "../../app/words.js";
import { confirm, confirmed, prompt } from "../../parts/ask.js";
import { act } from "../../parts/feedback.js";
import { checkJson, faultText, prettyJson, readableJson } from "../../parts/json_text.js";

const DAY_MS = 86_400_000;

export function setPaused(cue) {
  const [status, done] = cue.status === "paused" ? ["active", "resumed"] : ["paused", "paused"];
  return act(() => patch(cuePath(cue.id), { status }), `${cue.name}: ${done}`);
}

/** Runs the cue and shows the new run. */
export async function fire({ id }) {
  const run = await act(() => post(cuePath(id) + "/fire"), "Fired");
  if (run) go(link("runs", run.id));
}

// Asks for a payload and a time, fires the cue once, and shows the new run. `own` is the payload of
// a run of the cue, if not the cue's.
export async function fireWith(cue, own = null) {
  const zone = knowsZone(cue.schedule.timezone) ? cue.schedule.timezone : "UTC";
  const shown = prettyJson(readableJson(own ?? cue.payload_text ?? "{}"));
  const path = cuePath(cue.id) + "/fire";
  const key = randomKey();
  const which = own ? ", which is that of the run" : "";
  const run = await prompt({
    title: `Fire ${cue.name}`,
    text: `Runs the cue once with this payload${which}. The cue keeps its own.`,
    action: "Fire",
    fields: [
      { name: "payload_override", label: "Payload (JSON)", value: shown, lines: 10 },
      { name: "at", label: `At (${zone})`, type: "datetime-local", help: "Empty: now." },
    ],
    send({ payload_override, at }) {
      const fault = checkJson(payload_override);
      if (fault) throw fieldError("payload_override", faultText(fault));
      const send_at = at ? new Date(localInstant(at, zone)).toISOString() : undefined;
      if (own === null && payload_override === shown) return post(path, { send_at }, { key });
      return post(path, { send_at, merge_strategy: "replace" }, { raw: { payload_override }, key });
    },
  });
  if (run) go(link("runs", run.id));
}

export function remove({ id, name }) {
  const text = "Its runs and their results are deleted with it. This cannot be undone.";
  const question = { title: `Delete ${name}?`, text, action: "Delete" };
  return confirmed(question, () => del(cuePath(id)), `Deleted ${name}`);
}

/** Asks since when, replays what failed since then, and shows the new runs. */
export async function replayFailed({ id }) {
  const zone = yourZone();
  const found = await prompt({
    title: "Replay failed runs",
    text: "Each failed run since then is repeated with its own payload, the oldest first.",
    fields: [{
      name: "since", label: `Failed since (${zone})`, type: "datetime-local", required: true,
      value: localText(serverNow() - DAY_MS, zone).slice(0, 16),
    }],
    action: "Next",
    async send(values) {
      const since = new Date(localInstant(values.since, zone)).toISOString();
      const filter = { cue_id: id, status: "failed", since };
      const { total } = await get("v1/executions", { ...filter, limit: 1 });
      if (!total) throw fieldError("since", "No run of this cue failed since then.");
      return { filter, total };
    },
  });
  if (!found) return;
  const title = `Replay ${plural(found.total, "run")}?`;
  if (!(await confirm({ title, action: "Replay" }))) return;
  const { replayMatching, showReplayed } = await import("../runs/bulk.js");
  const answer = await act(() => replayMatching(found.filter, found.total));
  if (answer?.replayed) go(showReplayed(answer, { cue: id, triggered_by: "replay" }));
}
