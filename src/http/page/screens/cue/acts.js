// Acts on one cue; both the list and its own screen use them.
import { del, get, patch, post } from "../../app/api.js";
import { go, link } from "../../app/router.js";
import { localInstant, localText, serverNow, yourZone } from "../../app/time.js";
import { plural } from "../../app/words.js";
import { confirm, prompt } from "../../parts/dialog.js";
import { act } from "../../parts/feedback.js";

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

const wrong = (name, msg) => Object.assign(new Error(msg), { problems: [{ loc: ["body", name], msg }] });

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
    fields: [{ name: "since", label: `Failed since (${zone})`, type: "datetime-local", required: true, value: localText(serverNow() - DAY_MS, zone).slice(0, 16) }],
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
