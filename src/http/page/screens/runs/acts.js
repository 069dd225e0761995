// Acts on many runs: replay, cancel, export.
import { get, post, randomKey } from "../../app/api.js";
import { link } from "../../app/router.js";
import { update } from "../../app/state.js";
import { number, plural } from "../../app/words.js";
import { confirm } from "../../parts/dialog.js";
import { toast, toastError } from "../../parts/feedback.js";
import { compactJson, prettyJson } from "../../parts/json_text.js";
import { clearSelection, countSelected } from "../../parts/table.js";
import { replayFilter } from "./filter.js";
import { createdMs } from "./story.js";

const PAGE = 100; // most runs that the API lists at once
const MOST_BY_ID = 500; // ids in one replay; above it a filter that the server applies is needed
const MOST_EXPORTED = 10_000; // runs of a file: 100 requests
const CAREFUL_FROM = 20; // above it the number is typed

/** Ids of the selection; of "all that match" those that the list names. */
async function idsOf({ selection, asked, total }) {
  if (!selection.all) return [...selection.ids];
  if (total > MOST_BY_ID) throw new Error(`${number(total)} runs are too many at once. Choose Failed, or a shorter time.`);
  const ids = [];
  for (let offset = 0; offset < total; offset += PAGE) {
    const { executions } = await get("v1/executions", { ...asked, limit: PAGE, offset });
    ids.push(...executions.map((run) => run.id));
  }
  return ids;
}

const sure = (verb, count, text, danger = false) =>
  confirm({ title: `${verb} ${plural(count, "run")}?`, text, action: verb, danger, type: count > CAREFUL_FROM ? count : null });

export async function replaySelected(data) {
  const count = countSelected(data.selection, data.total);
  if (!(await sure("Replay", count, "Each is sent again with its own payload, as a new run that counts like any other."))) return;
  await guarded(data, async () => {
    const filter = data.selection.all && replayFilter(data.asked);
    const answer = filter ? await replayMatching(filter, count) : await replayIds(await idsOf(data));
    if (answer) tellReplayed(answer);
    return answer;
  });
}

async function replayIds(ids) {
  const sum = { replayed: 0, skipped: [], execution_ids: [] };
  for (let at = 0; at < ids.length; at += MOST_BY_ID) {
    const answer = await post("v1/executions/replay", { ids: ids.slice(at, at + MOST_BY_ID) }, { key: randomKey() });
    sum.replayed += answer.replayed;
    sum.skipped.push(...answer.skipped);
    sum.execution_ids.push(...answer.execution_ids);
  }
  return sum;
}

async function replayMatching(filter, expected) {
  try {
    return await post("v1/executions/replay", { filter, expected }, { key: randomKey() });
  } catch (error) {
    // A filter leaves cancelled runs out, which the list counts among the failed: the server tells its number.
    const matched = error.code === "invalid_state" && Number(/matches (\d+)/.exec(error.message)?.[1]);
    if (!matched) throw error;
    if (await sure("Replay", matched, `${number(matched)} of the ${number(expected)} can be replayed together: cancelled runs are left out, and there may be new ones.`)) return replayMatching(filter, matched);
  }
}

function tellReplayed({ replayed, skipped, execution_ids: ids }) {
  const codes = [...new Set(skipped.map(({ code }) => code.replaceAll("_", " ")))];
  const text = `Replayed ${plural(replayed, "run")}` + (skipped.length ? `, left out ${number(skipped.length)}: ${codes.join(", ")}` : "");
  if (!ids.length) return toast(text);
  const since = new Date(Math.min(...ids.map(createdMs))).toISOString();
  toast(text, { label: "Show them", href: ids.length === 1 ? link("runs", ids[0]) : link("runs", { triggered_by: "replay", since }) });
}

export async function cancelSelected(data) {
  const count = countSelected(data.selection, data.total);
  if (!(await sure("Cancel", count, "Those that wait or are retried end now. Runs under way and ended ones stay as they are.", true))) return;
  await guarded(data, async () => {
    let done = 0;
    let refused = null;
    for (const id of await idsOf(data)) {
      try {
        await post(`v1/executions/${id}/cancel`);
        done++;
      } catch (error) {
        refused = error;
        if (error.status !== 409 && error.status !== 404) break;
      }
    }
    toast(`Cancelled ${number(done)} of ${plural(count, "run")}` + (refused ? `. ${refused.message}` : ""));
    return true;
  });
}

/** Runs one act at a time; its error is told, and the selection ends with its success. */
async function guarded(data, run) {
  if (data.busy) return;
  update(() => (data.busy = true));
  try {
    if (await run()) clearSelection(data.selection);
  } catch (error) {
    if (error.status === undefined) toast(error.message);
    else if (error.status !== 401) toastError(error);
  }
  update(() => (data.busy = false));
}

/** The runs of a page of the list as lines of JSON, letter for letter but for white space. Pure. */
export const jsonLines = (answer) => [...prettyJson(answer).matchAll(/^ {4}\{\n[^]*?\n {4}\}/gm)].map(([run]) => compactJson(run));

/** Saves all runs that match as a file of JSON lines. */
export const exportRuns = (data) =>
  guarded(data, async () => {
    const lines = [];
    const most = Math.min(data.total, MOST_EXPORTED);
    while (lines.length < most) {
      const page = jsonLines(await get("v1/executions", { ...data.asked, limit: PAGE, offset: lines.length }, { text: true }));
      if (!page.length) break;
      lines.push(...page);
    }
    save(new Blob([lines.join("\n") + "\n"], { type: "application/x-ndjson" }), "runs.jsonl");
    toast(`Saved ${plural(lines.length, "run")} as runs.jsonl` + (data.total > most ? ", the newest that match" : ""));
  });

function save(blob, name) {
  const anchor = document.createElement("a");
  anchor.href = URL.createObjectURL(blob);
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 60_000);
}
