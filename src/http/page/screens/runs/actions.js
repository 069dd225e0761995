// Actions on one run.
import { ApiError, call, get, post } from "../../app/api.js";
import { go, link } from "../../app/router.js";
import { createdMs, instant, serverNow } from "../../app/time.js";
import { confirmed, prompt } from "../../parts/ask.js";
import { copyMenu } from "../../parts/copy.js";
import { act, toast } from "../../parts/feedback.js";
import { shellWord } from "../../parts/snippets.js";
import { fireWith } from "../cue/payload.js";
import { isFinal, waits } from "./timeline.js";

const NEIGHBOURS = 100; // runs of the cue that are looked at to find the next one

const path = (run, verb) => `v1/executions/${run.id}/${verb}`;

/** `[id, label, action, kind]` of what can be done with a run now, the likeliest first. */
export function actionsOf(data) {
  const { run, cue } = data;
  const { outcome, outcome_state: state, status } = run;
  const isDueLater = status === "retrying"
    || (status === "pending" && instant(run.scheduled_for) > serverNow());
  const send = (verb, done) => () => act(() => post(path(run, verb)), done);
  const isOpen = ["reported_success", "reported_failure", "verification_pending"].includes(state);
  const verify = !isOpen ? [] : [
    ["accept", "Accept", () => verdict(run, true)],
    ["reject", "Reject", () => verdict(run, false), "danger"],
  ];
  return [
    isDueLater && ["retry", run.attempts ? "Retry now" : "Send now",
      send("retry", "It is sent now")],
    ...(state === "verification_pending" ? verify.splice(0) : []),
    isFinal(run) && ["replay", "Replay", () => replay(run)],
    waits(run) && ["cancel", "Cancel", () => cancel(run), "danger"],
    cue && ["edited", "Edit and fire", () => fireWith(cue, data.request?.body)],
    ...verify,
    outcome && ["evidence", "Add evidence", () => evidence(run)],
    outcome && !isOpen &&
      ["reopen", "Verify again", send("verification-pending", "It is to be verified again")],
  ].filter(Boolean);
}

async function replay(run) {
  const made = await act(() => post(path(run, "replay")), "Replayed. This is the new run.");
  if (made) go(link("runs", made.id));
}

function cancel(run) {
  const text = "It ends now and is not sent any more. Nobody is notified.";
  const question = { title: "Cancel this run?", text, action: "Cancel the run" };
  return confirmed(question, () => post(path(run, "cancel")), "Cancelled");
}

async function verdict(run, valid) {
  const action = valid ? "Accept" : "Reject";
  const done = await prompt({
    title: `${action} the outcome?`,
    text: valid ? "" : "This raises an alert. The state of the run stays.",
    action, danger: !valid,
    fields: [{ name: "reason", label: "Reason (optional)", lines: 3 }],
    send: ({ reason }) => post(path(run, "verify"), { valid, reason: reason.trim() || null }),
  });
  if (done) toast(`${action}ed`);
}

const EVIDENCE = {
  external_id: "Id in another system",
  result_url: "Address of the result",
  result_ref: "Reference",
  result_type: "Type",
  summary: "Summary",
};

async function evidence(run) {
  const before = run.evidence || {};
  const done = await prompt({
    title: "Add evidence",
    text: "What proves the result. A field that is given replaces the one before.",
    fields: Object.entries(EVIDENCE).map(([name, label]) =>
      ({ name, label, value: before[name] || "", lines: name === "summary" ? 3 : 0 })),
    async send(values) {
      const isNew = ([name, value]) => value !== (before[name] || "");
      const changed = Object.entries(values).filter(isNew);
      if (!changed.length) throw new ApiError(422, "nothing", "Nothing was changed.");
      return call("PATCH", path(run, "evidence"), { body: Object.fromEntries(changed) });
    },
  });
  if (done) toast("Added");
}

/** Goes to the next run of the same cue, `step` 1 older, -1 newer. */
export async function neighbour({ id, cue_id }, step) {
  const at = (ms) => new Date(ms).toISOString();
  const created = createdMs(id);
  const span = step > 0 ? { until: at(created + 1) } : { since: at(created) };
  const query = { cue_id, ...span, limit: NEIGHBOURS };
  const found = await act(async () => {
    const page = await get("v1/executions", query);
    // The list is newest first: the nearest newer ones are at its end.
    const isLast = step > 0 || !page.has_more;
    return isLast ? page : get("v1/executions", { ...query, offset: page.total - NEIGHBOURS });
  });
  const runs = found?.executions ?? [];
  const next = runs[runs.findIndex((run) => run.id === id) + step];
  if (next) go(link("runs", next.id));
  else if (found) toast(`There is no ${step > 0 ? "older" : "newer"} run of this cue.`);
}

export function copyOf({ run, attempts, request }) {
  const last = attempts.findLast((attempt) => attempt.response_body)?.response_body;
  const texts = [["id", run.id], ["payload", request?.body], ["answer", last]];
  const call = { method: "GET", path: `v1/executions/${run.id}` };
  return copyMenu(call, texts.filter(([, text]) => text));
}

/** The callback's request as a line for a shell. Pure. */
export const requestAsCurl = ({ method, url, headers, body }) => [
  `curl -sS -X ${method} ${shellWord(url)}`,
  ...headers.map((header) => "-H " + shellWord(header.join(": "))),
  ...(body ? ["--data-binary " + shellWord(body)] : []),
].join(" \\\n  ");
