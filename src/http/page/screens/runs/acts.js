// Acts on runs: on those of a selection, on one.
import { ApiError, call, get, post, randomKey } from "../../app/api.js";
import { go, link } from "../../app/router.js";
import { update } from "../../app/state.js";
import { instant, serverNow } from "../../app/time.js";
import { number, plural } from "../../app/words.js";
import { copyMenu } from "../../parts/copy.js";
import { confirm, prompt } from "../../parts/dialog.js";
import { act, toast, toastError } from "../../parts/feedback.js";
import { compactJson, prettyJson } from "../../parts/json_text.js";
import { shellWord } from "../../parts/snippets.js";
import { clearSelection, countSelected } from "../../parts/table.js";
import { fireWith } from "../cue/payload.js";
import { createdMs, isFinal } from "./timeline.js";

const PAGE = 100; // most runs that the API lists at once
const MOST_BY_ID = 500; // ids in one replay; above it a filter that the server applies is needed
const MOST_EXPORTED = 10_000; // runs of a file: 100 requests
const CAREFUL_FROM = 20; // above it the number is typed

/** Ids of the selection; of "all that match" those that the list names. */
async function idsOf({ selection, asked, total }) {
  if (!selection.all) return [...selection.ids];
  if (total > MOST_BY_ID) throw new Error(`${number(total)} runs are too many at once. Filter until at most ${MOST_BY_ID} match.`);
  const ids = [];
  for (let offset = 0; offset < total; offset += PAGE) {
    const { executions } = await patiently(() => get("v1/executions", { ...asked, limit: PAGE, offset }));
    ids.push(...executions.map((run) => run.id));
  }
  return ids;
}

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

const tellProgress = (data, text) => update(() => (data.progress = text));

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

/** The filter that `POST v1/executions/replay` takes, or `null` if it cannot say what is asked. */
export function replayFilter({ status, cue_id, cause, since, until, ...rest }) {
  if (status !== "failed" || Object.keys(rest).length) return null;
  return { status, cue_id, cause, since, until };
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
    const ids = await idsOf(data);
    for (const [i, id] of ids.entries()) {
      tellProgress(data, `${number(i)} of ${number(ids.length)}`);
      try {
        await patiently(() => post(`v1/executions/${id}/cancel`));
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
  update(() => Object.assign(data, { busy: false, progress: "" }));
}

/** The runs of a page of the list as lines of JSON, letter for letter but for white space. Pure. */
export const jsonLines = (answer) => [...prettyJson(answer).matchAll(/^ {4}\{\n[^]*?\n {4}\}/gm)].map(([run]) => compactJson(run));

/** Saves all runs that match as a file of JSON lines. */
export const exportRuns = (data) =>
  guarded(data, async () => {
    const lines = [];
    const { asked } = data; // the filter of the moment: the address may change meanwhile
    const most = Math.min(data.total, MOST_EXPORTED);
    while (lines.length < most) {
      const page = jsonLines(await patiently(() => get("v1/executions", { ...asked, limit: PAGE, offset: lines.length }, { text: true })));
      if (!page.length) break;
      lines.push(...page);
      tellProgress(data, `Saving: ${number(lines.length)} of ${number(most)}`);
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

const NEIGHBOURS = 100; // runs of the cue that are looked at to find the next one

const path = (run, verb) => `v1/executions/${run.id}/${verb}`;
const show = (id) => id && go(link("runs", id));

const waits = (run) => run.status === "pending" || run.status === "retrying";

/** `[id, label, act]` of what can be done with a run now, the likeliest first. */
export function actsOf(data) {
  const { run, cue } = data;
  const isDueLater = run.status === "retrying" || (run.status === "pending" && instant(run.scheduled_for) > serverNow());
  const state = run.outcome_state;
  const toVerify = ["reported_success", "reported_failure", "verification_pending"].includes(state);
  const verify = toVerify ? [["accept", "Accept", () => verdict(run, true)], ["reject", "Reject", () => verdict(run, false), "danger"]] : [];
  return [
    isDueLater && ["retry", run.attempts ? "Retry now" : "Send now", () => act(() => post(path(run, "retry")), "It is sent now")],
    ...(state === "verification_pending" ? verify.splice(0) : []),
    isFinal(run) && ["replay", "Replay", () => replay(run)],
    waits(run) && ["cancel", "Cancel", () => cancel(run), "danger"],
    cue && ["edited", "Edit and fire", () => fireWith(cue, data.request?.body)],
    ...verify,
    run.outcome && ["evidence", "Add evidence", () => evidence(run)],
    run.outcome && !toVerify && ["reopen", "Verify again", () => act(() => post(path(run, "verification-pending")), "It is to be verified again")],
  ].filter(Boolean);
}

async function replay(run) {
  const made = await act(() => post(path(run, "replay")), "Replayed. This is the new run.");
  show(made?.id);
}

async function cancel(run) {
  if (await confirm({ title: "Cancel this run?", text: "It ends now and is not sent any more. Nobody is notified.", action: "Cancel the run", danger: true })) await act(() => post(path(run, "cancel")), "Cancelled");
}

async function verdict(run, valid) {
  const done = await prompt({
    title: valid ? "Accept the outcome?" : "Reject the outcome?",
    text: valid ? "" : "This raises an alert. The state of the run stays.",
    action: valid ? "Accept" : "Reject",
    danger: !valid,
    fields: [{ name: "reason", label: "Reason (optional)", lines: 3 }],
    send: ({ reason }) => post(path(run, "verify"), { valid, reason: reason.trim() || null }),
  });
  if (done) toast(valid ? "Accepted" : "Rejected");
}

const EVIDENCE = { external_id: "Id in another system", result_url: "Address of the result", result_ref: "Reference", result_type: "Type", summary: "Summary" };

async function evidence(run) {
  const before = run.evidence || {};
  const done = await prompt({
    title: "Add evidence",
    text: "What proves the result. A field that is given replaces the one before.",
    fields: Object.entries(EVIDENCE).map(([name, label]) => ({ name, label, value: before[name] || "", lines: name === "summary" ? 3 : 0 })),
    async send(values) {
      const changed = Object.entries(values).filter(([name, value]) => value !== (before[name] || ""));
      if (!changed.length) throw new ApiError(422, "nothing", "Nothing was changed.");
      return call("PATCH", path(run, "evidence"), { body: Object.fromEntries(changed) });
    },
  });
  if (done) toast("Added");
}

/** Goes to the next run of the same cue, `step` 1 older, -1 newer. */
export async function neighbour(run, step) {
  const at = (ms) => new Date(ms).toISOString();
  const created = createdMs(run.id);
  const query = { cue_id: run.cue_id, ...(step > 0 ? { until: at(created + 1) } : { since: at(created) }), limit: NEIGHBOURS };
  const found = await act(async () => {
    const page = await get("v1/executions", query);
    // The list is newest first: the nearest newer ones are at its end.
    return step < 0 && page.has_more ? get("v1/executions", { ...query, offset: page.total - NEIGHBOURS }) : page;
  });
  const runs = found?.executions ?? [];
  const next = runs[runs.findIndex(({ id }) => id === run.id) + step];
  if (next) show(next.id);
  else if (found) toast(step > 0 ? "There is no older run of this cue." : "There is no newer run of this cue.");
}

export function copyOf({ run, attempts, request }) {
  const last = attempts.findLast((attempt) => attempt.response_body)?.response_body;
  const more = [["id", run.id], request?.body && ["payload", request.body], last && ["answer", last]].filter(Boolean);
  return copyMenu({ method: "GET", path: `v1/executions/${run.id}` }, more);
}

/** The callback's request as a line for a shell. Pure. */
export const requestAsCurl = ({ method, url, headers, body }) =>
  [`curl -sS -X ${method} ${shellWord(url)}`, ...headers.map((header) => "-H " + shellWord(header.join(": "))), ...(body ? ["--data-binary " + shellWord(body)] : [])].join(" \\\n  ");
