#!/usr/bin/env node
// Receives, verifies and prints deliveries of `webhook` cues.
//
//     WEBHOOK_SECRET=whsec_... node receiver.js [PORT]        (default 9000; 0 selects a free port)
//
// The body of a delivery is the payload of the cue itself, with nothing around it.
// GET /v1/auth/webhook-secret returns the secret. Requires Node 18 or later and no packages.
'use strict';

const crypto = require('node:crypto');
const http = require('node:http');

// A signature never expires, so a recorded request could be replayed. Five minutes cover every legitimate delay.
const TOLERANCE_SECONDS = 300;
// A payload has at most 1 MiB of compact UTF-8. Sending non-ASCII as \uXXXX makes it up to three times larger.
const MAX_BODY = 8 * 1024 * 1024;
const REMEMBERED = 10_000;

/** Returns true if the Standard Webhooks headers hold a recent signature of exactly these bytes with `secret`. */
function isSigned(secret, headers, body) {
  const id = headers['webhook-id'] ?? '';
  const timestamp = headers['webhook-timestamp'] ?? '';
  const age = Math.abs(Date.now() / 1000 - Number(timestamp));
  if (!/^[0-9]+$/.test(timestamp) || age > TOLERANCE_SECONDS) return false;
  const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64');
  // The signature covers the raw bytes. A body that is parsed and serialized again can differ.
  const expected = crypto.createHmac('sha256', key).update(`${id}.${timestamp}.`).update(body).digest();
  // For 24 hours after a rotation of the secret there are two signatures, one with each secret.
  return (headers['webhook-signature'] ?? '').split(' ').some((signature) => {
    const [version, value] = signature.split(',');
    const given = Buffer.from(value ?? '', 'base64');
    // `===` stops at the first difference, and its duration would reveal how much of a forged value is correct.
    return version === 'v1' && given.length === expected.length && crypto.timingSafeEqual(given, expected);
  });
}

/**
 * The ids of handled executions. Delivery is at least once: if a response is lost, the execution is sent again.
 *
 * A production receiver stores the ids in the transaction of its results, not in memory.
 */
const seen = new Set();

/** Does the work. It must take less than 30 seconds; otherwise store the payload and process it after responding. */
async function handlePayload(executionId, payload) {
  console.log(`${executionId} ${JSON.stringify(payload)}`);
}

/** Handles one delivery and returns the HTTP status of the response. */
async function receive(request, secret) {
  if (!['POST', 'PUT', 'PATCH'].includes(request.method)) return 405;
  const parts = [];
  let length = 0;
  for await (const part of request) {
    length += part.length;
    if (length > MAX_BODY) return 413;
    parts.push(part);
  }
  const body = Buffer.concat(parts);
  if (secret && !isSigned(secret, request.headers, body)) return 401;
  // The execution id. `X-CueAPI-Execution-Id` has it too, but the signature does not cover that header.
  const executionId = request.headers['webhook-id'] ?? '';
  if (seen.has(executionId)) {
    console.log(`${executionId} again, ignored`);
    return 200;
  }
  await handlePayload(executionId, JSON.parse(body));
  // After the work: if the work throws, the response is 500 and the next attempt repeats it.
  // Attempts of one execution never overlap, so no second request does the same work at the same time.
  seen.add(executionId);
  if (seen.size > REMEMBERED) seen.delete(seen.values().next().value);
  return 200;
}

const secret = process.env.WEBHOOK_SECRET;
const server = http.createServer(async (request, response) => {
  let status = 500;
  try {
    status = await receive(request, secret);
  } catch (error) {
    console.error(error);
  }
  response.writeHead(status, { 'Content-Length': 0 }).end();
});
server.requestTimeout = 60_000;
server.listen(Number(process.argv[2] ?? 9000), '127.0.0.1', () => {
  if (!secret) console.log('no secret given: signatures are NOT verified, anyone can post here');
  console.log(`receiver listening on http://127.0.0.1:${server.address().port}`);
});
