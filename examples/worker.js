#!/usr/bin/env node
// Does the work of cues with transport `worker`: no open port, no address of its own.
//
//     CUED_API_KEY=cue_sk_... node worker.js [URL [ID]]        (default http://127.0.0.1:8000, or $CUED_URL)
//
// Add a function to HANDLERS for each `payload.task` that it should do. Only Node's own library is used (18 or later).
'use strict';

const os = require('node:os');
const { setTimeout: sleep } = require('node:timers/promises');

const POLL_SECONDS = 25; // the server holds the request this long when there is no work
const HEARTBEAT_SECONDS = 60; // a worker that is silent for 180 seconds counts as stale
const LONGEST_PAUSE = 60;

// What a handler returns, or promises, is reported as `result`; what it throws is reported as `error`.
const HANDLERS = {
  'count-words': (payload) => `${payload.text.split(/\s+/).filter(Boolean).length} words`,
  echo: (payload) => JSON.stringify(payload.text),
  // As long as it wants: the claim is kept meanwhile.
  wait: async (payload) => {
    await sleep(payload.seconds * 1000);
    return `waited ${payload.seconds} s`;
  },
};

/** The server understood and said no: asking again gives the same answer. */
class Refused extends Error {
  retryAfter = 0;

  constructor(status, { code, message }) {
    super(`${status} ${code}: ${message}`);
    this.code = code;
  }
}

/** No answer, or one that asks for patience. */
class Unavailable extends Error {
  constructor(reason, retryAfter = 0) {
    super(reason);
    this.retryAfter = retryAfter;
  }
}

const url = (process.argv[2] ?? process.env.CUED_URL ?? 'http://127.0.0.1:8000').replace(/\/+$/, '');
// Unique per process, so that a claim tells who holds it.
const workerId = process.argv[3] ?? `${os.hostname()}-${process.pid}`;
const key = process.env.CUED_API_KEY;
// By task, what is under way from before a claim until its outcome is reported.
const busy = new Map();
let stopping = false;

async function call(method, path, body) {
  const headers = { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json', 'X-Worker-Id': workerId };
  const signal = AbortSignal.timeout((POLL_SECONDS + 15) * 1000);
  let response, answer;
  try {
    response = await fetch(url + path, { method, headers, signal, body: body && JSON.stringify(body) });
    answer = await response.json();
  } catch (error) { // refused, reset, timed out, or cut off in the middle
    throw new Unavailable(error.cause?.message ?? error.message);
  }
  if (response.ok) return answer;
  if (response.status === 429 || response.status >= 500) {
    throw new Unavailable(`${response.status}`, Number(response.headers.get('retry-after')) || 0);
  }
  throw new Refused(response.status, answer.error ?? {});
}

async function repeat(step, ...values) {
  for (let failures = 0; !stopping; ) {
    try {
      await step(...values);
      failures = 0;
    } catch (error) {
      if (!(error instanceof Refused || error instanceof Unavailable)) throw error;
      console.error(`worker ${workerId}: ${error.message}`);
      await pause(++failures, error);
    }
  }
}

/** Twice as long each time, and not in step with other workers that lost the same server. */
async function pause(failures, error) {
  const backoff = (0.5 + Math.random() / 2) * Math.min(LONGEST_PAUSE, 2 ** (failures - 1));
  await sleep(Math.max(backoff, error.retryAfter) * 1000);
}

async function heartbeat() {
  await call('POST', '/v1/worker/heartbeat', { worker_id: workerId, handlers: Object.keys(HANDLERS).sort() });
  await sleep(HEARTBEAT_SECONDS * 1000);
}

/** One loop per task, because `task` filters on the server: work that another worker must do is never seen here. */
async function takeOne(task) {
  const query = new URLSearchParams({ task, limit: 1, wait: POLL_SECONDS });
  const { executions } = await call('GET', `/v1/executions/claimable?${query}`);
  for (const { id } of executions) {
    if (stopping) return;
    busy.set(task, claimAndDo(id, HANDLERS[task]));
    try {
      await busy.get(task);
    } finally {
      busy.delete(task);
    }
  }
}

async function claimAndDo(executionId, handler) {
  let claim;
  try {
    claim = await call('POST', `/v1/executions/${executionId}/claim`, { worker_id: workerId });
  } catch (error) {
    // Another worker was faster, or the cue was deleted: both are daily life.
    if (['already_claimed', 'execution_not_found'].includes(error.code)) return;
    throw error;
  }
  const keeping = setInterval(() => keepClaim(executionId), (claim.lease_seconds ?? 900) * 1000 / 3);
  let outcome;
  try {
    outcome = { success: true, result: String(await handler(claim.payload ?? {})) };
  } catch (error) { // whatever it was: the user should read it beside the execution
    outcome = { success: false, error: String(error) };
  } finally {
    clearInterval(keeping);
  }
  await report(executionId, outcome);
}

/** A handler that computes for long without an `await` keeps this from running: give such work a thread of its own. */
async function keepClaim(executionId) {
  try {
    await call('POST', `/v1/executions/${executionId}/heartbeat`);
  } catch (error) { // when there was no answer, two more tries fit into the lease
    if (error instanceof Refused) console.error(`worker ${workerId}: lost ${executionId}: ${error.message}`);
  }
}

/**
 * The work is done and must not be done again for want of a report, so this does not give up;
 * a report that arrived although its answer was lost is a 409 the next time.
 */
async function report(executionId, outcome) {
  for (let failures = 1; ; failures++) {
    try {
      await call('POST', `/v1/executions/${executionId}/outcome`, outcome);
      return console.log(`${executionId} ${JSON.stringify(outcome)}`);
    } catch (error) {
      if (error instanceof Refused) return console.error(`${executionId} not recorded: ${error.message}`);
      if (stopping) return console.error(`${executionId} not reported: ${error.message}`);
      await pause(failures, error);
    }
  }
}

/** Ends what was begun, and nothing more. */
async function stop() {
  stopping = true;
  await Promise.allSettled(busy.values());
  process.exit(0);
}

if (!key) {
  console.error('set CUED_API_KEY to a key of the account (cue_sk_...)');
  process.exit(2);
}
process.on('SIGINT', stop).on('SIGTERM', stop);
console.log(`worker ${workerId} waits for: ${Object.keys(HANDLERS).join(', ')}`);
repeat(heartbeat);
for (const task of Object.keys(HANDLERS)) repeat(takeOne, task);
