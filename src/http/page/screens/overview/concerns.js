// What keeps an account from being well, besides the cues that fail. Pure.
import { bytes, isLimited, number, plural, sumOf } from "../../app/words.js";
import { absolute, instant, yourZone } from "../../app/time.js";
import { link } from "../../app/router.js";

const DAY_MS = 86_400_000;
const LISTED = 5; // gaps of an overview, at most
export const LOW_DISK = 1 << 30;

// `[{text, href, more, isTold}]`, the strongest first: a sentence and where to see it. A banner or
// a notice says those that are told. `free` bytes of the disk, `unserved` tasks with waiting runs.
export function concerns(overview, free = null, unserved = []) {
  const { now, server, cues, hours, waiting, workers, usage, missed, channels } = overview;
  const { executions: runs } = usage;
  const failed = sumOf(hours, "failed");
  const since = instant(now) - DAY_MS;
  const gaps = missed.filter(({ last }) => instant(last) >= since);
  const lost = sumOf(gaps, "count");
  const from = Math.min(...gaps.map(({ first }) => instant(first)));
  const span = () => from >= since ? "in the last 24 hours"
    : `since ${absolute(from, yourZone(), { now: instant(now) })}`;
  const tasks = unserved.map(({ task }) => task ?? "none").join(", ");
  const { retry } = waiting;
  return [
    [!server.writable || server.status !== "healthy"],
    [server.held_since],
    [isLimited(runs.limit) && runs.used >= runs.limit],
    [channels.failing.length],
    [waiting.claim && !workers.active, `${waiting.claim === 1 ? "1 run is"
      : `${number(waiting.claim)} runs are`} waiting for a worker, and no worker is active.`,
      "#/workers", "Show workers"],
    [tasks, `Runs of task ${tasks} are waiting; no active worker takes them.`,
      "#/workers", "Show workers"],
    [free !== null && free < LOW_DISK, `Only ${bytes(free ?? 0)} of disk space is left.`],
    // There are more than the server lists.
    [lost, lost && `${missed.length < LISTED ? "" : "At least "}${plural(lost, "run")} missed ${span()}.`],
    // Where cues fail, their list says so.
    [retry && !cues.failing, `${plural(retry, "run")} ${retry === 1 ? "is" : "are"} being retried.`,
      link("runs", { status: "retrying" }), "Show"],
    [failed && !cues.failing, `${plural(failed, "run")} failed in the last 24 hours.`,
      link("runs", { status: "failed", since: hours[0].at }), "Show failed runs"],
  ].filter(([is]) => is)
    .map(([, text = "", href = "", more = ""]) => ({ text, href, more, isTold: !text }));
}
