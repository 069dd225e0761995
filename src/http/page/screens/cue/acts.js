// What can be done with one cue; both the list and its own screen use them.
import { del, get, patch, post } from "../../app/api.js";
import { go, link } from "../../app/router.js";
import { serverNow, instant, knowsZone, offsetMinutes, yourZone } from "../../app/time.js";
import { plural } from "../../app/words.js";
import { confirm, prompt } from "../../parts/dialog.js";
import { act } from "../../parts/feedback.js";
import { checkJson, prettyJson } from "../../parts/json_text.js";

const MOST_REPLAYED = 500; // ids that one call takes
const PAGE = 100; // runs that one call lists
const DAY_MS = 86_400_000;

export const pathOf = ({ id }) => "v1/cues/" + encodeURIComponent(id);

export const setPaused = (cue, paused = cue.status !== "paused") => act(() => patch(pathOf(cue), { status: paused ? "paused" : "active" }), `${cue.name}: ${paused ? "paused" : "resumed"}`);

/** Runs the cue and shows the new run. */
export async function fire(cue) {
  const run = await act(() => post(pathOf(cue) + "/fire"), "Fired");
  if (run) go(link("runs", run.id));
}

export async function remove(cue) {
  const sure = await confirm({ title: `Delete ${cue.name}?`, text: "Its runs and their results are deleted with it. This cannot be undone.", action: "Delete", danger: true });
  return sure && act(async () => (await del(pathOf(cue)), true), `Deleted ${cue.name}`);
}

/** Milliseconds of a local time such as "2026-03-29T02:30" in a zone; UTC where the browser does not know the zone. */
export function localInstant(text, zone) {
  const wall = instant(text);
  const shift = (ms) => (offsetMinutes(ms, zone) || 0) * 60_000;
  return wall - shift(wall - shift(wall));
}

const localText = (ms, zone) => new Date(ms + (offsetMinutes(ms, zone) || 0) * 60_000).toISOString().slice(0, 16);
const wrong = (name, msg) => Object.assign(new Error(msg), { problems: [{ loc: ["body", name], msg }] });

/** Asks for a payload and a time, fires, and shows the new run. */
export async function fireWith(cue) {
  const zone = knowsZone(cue.schedule.timezone) ? cue.schedule.timezone : "UTC";
  const shown = prettyJson(cue.payload_text || "{}");
  const run = await prompt({
    title: `Fire ${cue.name}`,
    action: "Fire",
    fields: [
      { name: "payload", label: "Payload of this run", value: shown, lines: 10, help: "A JSON object. The cue keeps its own." },
      { name: "at", label: `At (${zone})`, type: "datetime-local", help: "Empty: now." },
    ],
    send({ payload, at }) {
      const fault = checkJson(payload);
      if (fault) throw wrong("payload", `Line ${fault.line}, column ${fault.column}: ${fault.message}`);
      const send_at = at ? new Date(localInstant(at, zone)).toISOString() : undefined;
      return payload === shown ? post(pathOf(cue) + "/fire", { send_at }) : post(pathOf(cue) + "/fire", { merge_strategy: "replace", send_at }, { raw: { payload_override: payload } });
    },
  });
  if (run) go(link("runs", run.id));
}

async function failedSince(cue, since) {
  const found = [];
  for (let more = true; more && found.length < MOST_REPLAYED; ) {
    const page = await get("v1/executions", { cue_id: cue.id, status: "failed", since, limit: PAGE, offset: found.length });
    found.push(...page.executions);
    more = page.has_more;
  }
  // As the server's own filter: what a person cancelled is not replayed.
  return found.filter((run) => run.error_message !== "cancelled").map((run) => run.id);
}

/** Asks since when, replays what failed since then, and shows the new runs. */
export async function replayFailed(cue) {
  const zone = yourZone();
  const ids = await prompt({
    title: "Replay failed runs",
    text: "Each failed run since then is repeated with its own payload, the oldest first.",
    fields: [{ name: "since", label: `Failed since (${zone})`, type: "datetime-local", required: true, value: localText(serverNow() - DAY_MS, zone) }],
    action: "Next",
    async send({ since }) {
      const found = await failedSince(cue, new Date(localInstant(since, zone)).toISOString());
      if (!found.length) throw wrong("since", "No run of this cue failed since then.");
      return found;
    },
  });
  if (!ids) return;
  const text = ids.length < MOST_REPLAYED ? "" : "These are the newest that failed; one act replays no more.";
  if (!(await confirm({ title: `Replay ${plural(ids.length, "run")}?`, text, action: "Replay" }))) return;
  const skipped = (answer) => (answer.skipped.length ? `, ${answer.skipped.length} left out (${answer.skipped[0].code.replaceAll("_", " ")})` : "");
  const answer = await act(() => post("v1/executions/replay", { ids }), (answer) => `Replayed ${plural(answer.replayed, "run")}${skipped(answer)}`);
  if (!answer?.replayed) return;
  go(answer.replayed === 1 ? link("runs", answer.execution_ids[0]) : link("runs", { cue: cue.id, triggered_by: "replay" }));
}
