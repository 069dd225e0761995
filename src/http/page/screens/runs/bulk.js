// Actions on the runs of a selection or a cue, a fire that asks first, and the export of a list.
import { ApiError, act, busily, confirmMany, createdMs, cuePath, fieldError, fromLocal, get, go,
  knowsZone, link, localText, number, plural, post, prompt, randomKey, serverNow, toast, toastError,
  update, yourZone } from "../../kit.js";
import { checkJson, compactJson, faultText, prettyJson, readableJson } from
  "../../parts/payload.js";
import { clearSelection, countSelected } from "../../parts/table.js";

const DAY_MS = 86_400_000;
const PAGE = 100; // most runs that the API lists at once
const MOST_BY_ID = 500; // ids in one replay; above it a filter that the server applies is needed
const MOST_EXPORTED = 10_000; // runs of a file: 100 requests

/** Makes a call of many; where the server asks to wait, it waits, and tries again. */
async function patiently(send) {
  for (;;) {
    try {
      return await send();
    } catch (error) {
      if (error.status !== 429) throw error;
      await new Promise((resolve) => setTimeout(resolve, (error.retryAfter || 5) * 1_000));
    }
  }
}

/** All pages of a list, one after the other. */
async function* pagesOf(path, filter) {
  for (let offset = 0, more = true; more; offset += PAGE) {
    const page = await patiently(() => get(path, { ...filter, limit: PAGE, offset }));
    yield page;
    more = page.has_more;
  }
}

async function idsOf({ selection, filter, total }) {
  if (!selection.all) return [...selection.ids];
  if (total > MOST_BY_ID) {
    const most = `Filter the list to at most ${MOST_BY_ID}.`;
    throw new ApiError(0, "too_many", `${number(total)} runs are too many at once. ${most}`);
  }
  const pages = await Array.fromAsync(pagesOf("v1/executions", filter));
  return pages.flatMap(({ executions }) => executions.map((run) => run.id));
}

const showProgress = (data, text) => update(() => (data.progress = text));

const isSure = (verb, count, text, danger) => confirmMany(verb, count, "run", text, danger);

/** Runs one action at a time; its error is shown, and the selection ends with its success. */
const guarded = (data, run) => busily(data, async () => {
  if (await run()) clearSelection(data.selection);
}, toastError).then(() => showProgress(data, ""));

const REPLAYS = "Sends each again with its own payload, as a new run.";

export const replaySelected = (data) => guarded(data, async () => {
  const count = countSelected(data.selection, data.total);
  const filter = data.selection.all && replayFilter(data.filter);
  const answer = filter ? await replayMatching(filter, count)
    : (await isSure("Replay", count, REPLAYS)) && (await replay({ ids: await idsOf(data) }));
  if (answer) showReplayed(answer);
  return answer;
});

const replay = (body) => post("v1/executions/replay", body, { key: randomKey() });

/** The filter that `POST v1/executions/replay` takes, or `null` if it cannot say what is asked. */
export function replayFilter({ status, cue_id, cause, since, until, tag: tags, ...rest }) {
  if (status !== "failed" || Object.keys(rest).length) return null;
  return { status, cue_id, cause, since, until, tags };
}

/** Number of runs that a filter replays: it leaves out cancelled ones. */
const countMatching = async (filter) => (await replay({ filter, dry_run: true })).matched;

/** Asks, and replays what matches a filter; `listed` counts the runs of the list. */
async function replayMatching(filter, listed) {
  const expected = await countMatching(filter);
  const text = expected === listed ? REPLAYS
    : `You can replay ${number(expected)} of the ${number(listed)} together: this leaves out
      cancelled runs, and there may be new ones.`;
  return (await isSure("Replay", expected, text)) && replay({ filter, expected });
}

/** Says how many were replayed; returns the address of the new runs, by default by their time. */
function showReplayed({ replayed, skipped, execution_ids: ids }, query) {
  const codes = [...new Set(skipped.map(({ code }) => code.replaceAll("_", " ")))].join(", ");
  const left = skipped.length ? `, left out ${number(skipped.length)}: ${codes}` : "";
  const since = () => new Date(Math.min(...ids.map(createdMs))).toISOString();
  const href = ids.length && link("runs",
    ids.length === 1 ? ids[0] : query ?? { triggered_by: "replay", since: since() });
  toast(`Replayed ${plural(replayed, "run")}${left}`, href ? { label: "Show them", href } : {});
  return href;
}

/** Asks since when, and replays the failed runs of a cue from then on. */
export async function replayFailed({ id }) {
  const zone = yourZone();
  const found = await prompt({
    title: "Replay failed runs", action: "Next",
    text: "Repeats each failed run since then with its own payload, the oldest first.",
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

// Asks for a payload and a time, and fires the cue once. `own` is the payload of a run of the cue,
// if not the cue's.
export function fireWith(cue, own = null) {
  const zone = knowsZone(cue.schedule.timezone) ? cue.schedule.timezone : "UTC";
  const shown = prettyJson(readableJson(own ?? cue.payload_text ?? "{}"));
  const path = cuePath(cue.id) + "/fire";
  const key = randomKey();
  return prompt({
    title: `Fire ${cue.name}`, action: "Fire",
    text: `Runs the cue once with this payload${own ? ", which is the run's" : ""}. The cue keeps
      its own.`,
    fields: [
      { name: "payload_override", label: "Payload (JSON)", value: shown, lines: 10 },
      { name: "at", label: `At (${zone})`, type: "datetime-local",
        help: "Leave empty to fire now." },
    ],
    send({ payload_override, at }) {
      const fault = checkJson(payload_override);
      if (fault) throw fieldError("payload_override", faultText(fault));
      const send_at = fromLocal(at, zone) || undefined;
      if (own === null && payload_override === shown) return post(path, { send_at }, { key });
      return post(path, { send_at, merge_strategy: "replace" }, { raw: { payload_override }, key });
    },
  });
}

export const cancelSelected = (data) => guarded(data, async () => {
  const count = countSelected(data.selection, data.total);
  const text = "Runs that wait or are retried end now. Others stay as they are.";
  if (!(await isSure("Cancel", count, text, true))) return;
  let done = 0;
  let refused = null;
  const ids = await idsOf(data);
  for (const [i, id] of ids.entries()) {
    showProgress(data, `${number(i)} of ${number(ids.length)}`);
    try {
      await patiently(() => post(`v1/executions/${id}/cancel`));
      done++;
    } catch (error) {
      refused = error;
      if (error.status !== 409 && error.status !== 404) break;
    }
  }
  const why = refused ? `. ${refused.message}` : "";
  toast(`Cancelled ${number(done)} of ${plural(count, "run")}${why}`);
  return true;
});

/** The runs of a page of the list as lines of JSON, letter for letter but for white space. Pure. */
export const jsonLines = (answer) =>
  [...prettyJson(answer).matchAll(/^ {4}\{\n[^]*?\n {4}\}/gm)].map(([run]) => compactJson(run));

const COLUMNS = ["id", "cue_id", "cue_name", "status", "triggered_by", "scheduled_for",
  "started_at", "delivered_at", "attempts", "max_attempts", "http_status", "cause",
  "error_message", "duration_ms", "late_ms", "outcome_state", "claimed_by_worker", "replayed_from", "calls"];

/** A field of CSV. A text that a spreadsheet would take for a formula begins with an apostrophe. */
const csvField = (value) => {
  const text = String(value ?? "").replace(/^[=+\-@\t\r]/, "'$&");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

/** Lines of JSON as CSV (RFC 4180), with a line of names and what the `cues` by id call. Pure. */
export const csvOf = (lines, cues = new Map()) => [COLUMNS, ...lines.map((line) => {
  const run = JSON.parse(line);
  return COLUMNS.map((name) => (name === "calls" ? cues.get(run.cue_id) : run[name]));
})].map((row) => row.map(csvField).join(",") + "\r\n").join("");

/** What all cues call, by their ids: a run does not say it. */
async function callsById() {
  const pages = await Array.fromAsync(pagesOf("v1/cues"));
  const callOf = ({ id, transport, callback: { method, url } }) =>
    [id, transport === "worker" ? transport : `${method} ${url}`];
  return new Map(pages.flatMap(({ cues }) => cues.map(callOf)));
}

export const exportRuns = (data, form) => guarded(data, async () => {
  const lines = [];
  const { filter, total } = data; // the filter at the start: the address may change
  const most = Math.min(total, MOST_EXPORTED);
  while (lines.length < most) {
    const query = { ...filter, limit: PAGE, offset: lines.length };
    const found = jsonLines(await patiently(() => get("v1/executions", query, { text: true })));
    if (!found.length) break;
    lines.push(...found);
    showProgress(data, `Saving: ${number(lines.length)} of ${number(most)}`);
  }
  const [content, type] = form === "csv" ? [csvOf(lines, await callsById()), "text/csv"]
    : [lines.join("\n") + "\n", "application/x-ndjson"];
  const blob = new Blob([content], { type });
  const href = URL.createObjectURL(blob);
  Object.assign(document.createElement("a"), { href, download: "runs." + form }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
  const which = total > most ? ", the newest that match" : "";
  toast(`Saved ${plural(lines.length, "run")} as runs.${form}${which}`);
});
