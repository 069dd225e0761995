// Acts on one run.
import { ApiError, call, get, post, randomKey } from "../../app/api.js";
import { go, link } from "../../app/router.js";
import { instant, serverNow } from "../../app/time.js";
import { copy, copyMenu } from "../../parts/copy.js";
import { confirm, prompt } from "../../parts/dialog.js";
import { act, toast } from "../../parts/feedback.js";
import { checkJson, prettyJson } from "../../parts/json_text.js";
import { shellWord } from "../../parts/snippets.js";
import { createdMs, isFinal } from "./story.js";

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
    isDueLater && ["retry", "Retry now", () => act(() => post(path(run, "retry")), "It is sent now")],
    ...(state === "verification_pending" ? verify.splice(0) : []),
    isFinal(run) && ["replay", "Replay", () => replay(run)],
    waits(run) && ["cancel", "Cancel", () => cancel(run), "danger"],
    cue && ["edited", "Fire with another payload", () => fireEdited(data)],
    ...verify,
    run.outcome && ["evidence", "Add evidence", () => evidence(run)],
    run.outcome && !toVerify && ["reopen", "Verify again", () => act(() => post(path(run, "verification-pending")), "It is to be verified again")],
  ].filter(Boolean);
}

export async function replay(run) {
  const made = await act(() => post(path(run, "replay")), "Replayed. This is the new run.");
  show(made?.id);
}

async function cancel(run) {
  if (await confirm({ title: "Cancel this run?", text: "It ends now and is not sent any more. Nobody is notified.", action: "Cancel the run", danger: true })) await act(() => post(path(run, "cancel")), "Cancelled");
}

/** The API's replay takes no payload: the cue is fired once with the edited one in place of its own. */
async function fireEdited({ run, cue, request }) {
  const own = request?.body ?? null;
  const key = randomKey();
  const made = await prompt({
    title: "Fire with another payload",
    text: `Fires ${cue.name} once, now, with this payload in place of its own. The cue itself is not changed. ${own ? "Below is the payload of this run." : "Below is the payload of the cue."}`,
    action: "Fire",
    fields: [{ name: "payload_override", label: "Payload (JSON)", lines: 12, value: prettyJson(own ?? cue.payload_text ?? "{}") }],
    async send({ payload_override: text }) {
      const fault = checkJson(text);
      if (fault) {
        const msg = `Line ${fault.line}, column ${fault.column}: ${fault.message}`;
        throw new ApiError(422, "invalid_json", msg, { problems: [{ loc: ["body", "payload_override"], msg }] });
      }
      return post(`v1/cues/${encodeURIComponent(cue.id)}/fire`, { merge_strategy: "replace" }, { raw: { payload_override: text }, key });
    },
  });
  if (made) toast("Fired. This is the new run.");
  show(made?.id);
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
  const more = [["id", run.id], request?.body && ["payload", request.body], request && ["request (curl)", requestAsCurl(request)], last && ["answer", last]].filter(Boolean);
  return copyMenu({ method: "GET", path: `v1/executions/${run.id}` }, more);
}

export const copyId = (run) => copy(run.id, "Copied the id");

/** The callback's request as a line for a shell. Pure. */
export const requestAsCurl = ({ method, url, headers, body }) =>
  [`curl -sS -X ${method} ${shellWord(url)}`, ...headers.map((header) => "-H " + shellWord(header.join(": "))), ...(body ? ["--data-binary " + shellWord(body)] : [])].join(" \\\n  ");
