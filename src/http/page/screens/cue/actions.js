// Actions on one cue; both the list and its own screen use them.
import { cuePath, del, fieldError, get, patch, post } from "../../app/api.js";
import { go, link } from "../../app/router.js";
import { localInstant, localText, serverNow, yourZone } from "../../app/time.js";
import { plural } from "../../app/words.js";
import { confirm, confirmed, prompt } from "../../parts/ask.js";
import { act } from "../../parts/feedback.js";

const MOST_REPLAYED = 500; // ids that one call takes
const PAGE = 100; // runs that one call lists
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

export function remove({ id, name }) {
  const text = "Its runs and their results are deleted with it. This cannot be undone.";
  const question = { title: `Delete ${name}?`, text, action: "Delete" };
  return confirmed(question, () => del(cuePath(id)), `Deleted ${name}`);
}

async function failedSince(cue, since) {
  const found = [];
  for (let more = true; more && found.length < MOST_REPLAYED; ) {
    const query = { cue_id: cue.id, status: "failed", since, limit: PAGE, offset: found.length };
    const page = await get("v1/executions", query);
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
    fields: [{
      name: "since", label: `Failed since (${zone})`, type: "datetime-local", required: true,
      value: localText(serverNow() - DAY_MS, zone).slice(0, 16),
    }],
    action: "Next",
    async send({ since }) {
      const found = await failedSince(cue, new Date(localInstant(since, zone)).toISOString());
      if (!found.length) throw fieldError("since", "No run of this cue failed since then.");
      return found;
    },
  });
  if (!ids) return;
  const title = `Replay ${plural(ids.length, "run")}?`;
  const isAll = ids.length < MOST_REPLAYED;
  const text = isAll ? "" : "These are the newest that failed; one replay takes no more.";
  if (!(await confirm({ title, text, action: "Replay" }))) return;
  const code = ([skipped]) => skipped.code.replaceAll("_", " ");
  const done = ({ replayed, skipped }) => `Replayed ${plural(replayed, "run")}${
    skipped.length ? `, ${skipped.length} left out (${code(skipped)})` : ""}`;
  const answer = await act(() => post("v1/executions/replay", { ids }), done);
  if (!answer?.replayed) return;
  const query = { cue: cue.id, triggered_by: "replay" };
  go(link("runs", answer.replayed === 1 ? answer.execution_ids[0] : query));
}
