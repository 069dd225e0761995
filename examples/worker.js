#!/usr/bin/env node
// Executes `worker` cues: polls for executions, claims them, does the work, reports. Needs no open port.
//
//     CUED_API_KEY=cue_sk_... node worker.js [URL [ID]]        (default http://127.0.0.1:8000, or $CUED_URL)
//
// Add a function to HANDLERS for each `payload.task`. Requires Node 18 or later and no packages.
'use strict';

const os = require('node:os');
const { setTimeout: sleep } = require('node:timers/promises');

const POLL_SECONDS = 25; // how long the server waits for work before it returns an empty list
const HEARTBEAT_SECONDS = 60; // the server marks a worker as stale after 180 seconds without one
const MAX_PAUSE_SECONDS = 60;
// A response holds at most one payload of 1 MiB and its frame.
const MAX_RESPONSE = 8 * 1024 * 1024;

// The return value of a handler, or of its promise, is reported as `result`, an exception as `error`.
const HANDLERS = {
  'count-words': (payload) => `${payload.text.split(/\s+/).filter(Boolean).length} words`,
  echo: (payload) => JSON.stringify(payload.text),
  // Takes any time: the claim is extended while it runs.
  wait: async (payload) => {
    await sleep(payload.seconds * 1000);
    return `waited ${payload.seconds} s`;
  },
};

/** The server rejected the request. Repeating it would fail in the same way. */
class Refused extends Error {
  retryAfter = 0;

  constructor(status, { code, message }) {
    super(`${status} ${code}: ${message}`);
    this.code = code;
  }
}

/** There was no response, or one that asks for a retry. */
class Unavailable extends Error {
  constructor(reason, retryAfter = 0) {
    super(reason);
    this.retryAfter = retryAfter;
  }
}

const url = (process.argv[2] ?? process.env.CUED_URL ?? 'http://127.0.0.1:8000').replace(/\/+$/, '');
// Unique per process, so that a claim identifies its holder.
const workerId = process.argv[3] ?? `${os.hostname()}-${process.pid}`;
const key = process.env.CUED_API_KEY;
// The execution in progress of each task, from before the claim until the outcome is reported.
const busy = new Map();
let stopping = false;

async function call(method, path, body) {
  const headers = { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json', 'X-Worker-Id': workerId };
  const signal = AbortSignal.timeout((POLL_SECONDS + 15) * 1000);
  let response, result;
  try {
    response = await fetch(url + path, { method, headers, signal, body: body && JSON.stringify(body) });
    result = JSON.parse(await readBounded(response));
  } catch (error) { // connection refused, reset, timed out or interrupted
    throw new Unavailable(error.cause?.message ?? error.message);
  }
  if (response.ok) return result;
  if (response.status === 429 || response.status >= 500) {
    throw new Unavailable(`${response.status}`, Number(response.headers.get('retry-after')) || 0);
  }
  throw new Refused(response.status, result.error ?? {});
}

async function readBounded(response) {
  const parts = [];
  let length = 0;
  for await (const part of response.body ?? []) {
    length += part.length;
    if (length > MAX_RESPONSE) throw new Error(`the response has more than ${MAX_RESPONSE} bytes`);
    parts.push(part);
  }
  return Buffer.concat(parts);
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

/** Exponential backoff with jitter, so that many workers do not retry at the same moments. */
async function pause(failures, error) {
  const backoff = (0.5 + Math.random() / 2) * Math.min(MAX_PAUSE_SECONDS, 2 ** (failures - 1));
  await sleep(Math.max(backoff, error.retryAfter) * 1000);
}

async function heartbeat() {
  await call('POST', '/v1/worker/heartbeat', { worker_id: workerId, handlers: Object.keys(HANDLERS).sort() });
  await sleep(HEARTBEAT_SECONDS * 1000);
}

/** One loop per task: the server filters by `task`, so executions for other workers are never received. */
async function poll(task) {
  const query = new URLSearchParams({ task, limit: 1, wait: POLL_SECONDS });
  const { executions } = await call('GET', `/v1/executions/claimable?${query}`);
  for (const { id } of executions) {
    if (stopping) return;
    busy.set(task, claimAndRun(id, HANDLERS[task]));
    try {
      await busy.get(task);
    } finally {
      busy.delete(task);
    }
  }
}

async function claimAndRun(executionId, handler) {
  let claim;
  try {
    claim = await call('POST', `/v1/executions/${executionId}/claim`, { worker_id: workerId });
  } catch (error) {
    // Another worker was faster, or the cue was deleted: both are normal.
    if (['already_claimed', 'execution_not_found'].includes(error.code)) return;
    throw error;
  }
  const timer = setInterval(() => keepClaim(executionId), (claim.lease_seconds ?? 900) * 1000 / 3);
  let outcome;
  try {
    outcome = { success: true, result: String(await handler(claim.payload ?? {})) };
  } catch (error) { // any error belongs in the report, where the user sees it
    outcome = { success: false, error: String(error) };
  } finally {
    clearInterval(timer);
  }
  await report(executionId, outcome);
}

/** Extends a claim. A handler that computes for minutes without an `await` blocks this: run such work in a thread. */
async function keepClaim(executionId) {
  try {
    await call('POST', `/v1/executions/${executionId}/heartbeat`);
  } catch (error) { // without a response, the lease leaves time for two more attempts
    if (error instanceof Refused) console.error(`worker ${workerId}: lost ${executionId}: ${error.message}`);
  }
}

/**
 * Without a report the work would be done again, so this retries until the server responds. If an earlier report was
 * recorded and only its response was lost, the next one returns 409.
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

/** Finishes the executions in progress, then exits. */
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
for (const task of Object.keys(HANDLERS)) repeat(poll, task);
