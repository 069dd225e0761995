#!/usr/bin/env node
// Receives the deliveries of cues with transport `webhook`.
//
//     WEBHOOK_SECRET=whsec_... node receiver.js [PORT]        (default 9000; 0 takes a free port)
//
// The secret is the account's: GET /v1/auth/webhook-secret. Only Node's own library is used (18 or later).
'use strict';

const crypto = require('node:crypto');
const http = require('node:http');

// A signature stays valid for ever, so a recorded request could be sent again: five minutes cover any honest delay.
const TOLERANCE_SECONDS = 300;
// Payloads are at most 1 MiB, non-ASCII characters written as \uXXXX: nothing honest is larger than this.
const MAX_BODY = 8 * 1024 * 1024;
const REMEMBERED = 10_000;

/** Whether the headers of Standard Webhooks were made with `secret`, not long ago, for exactly these bytes. */
function isSigned(secret, headers, body) {
  const id = headers['webhook-id'] ?? '';
  const timestamp = headers['webhook-timestamp'] ?? '';
  const age = Math.abs(Date.now() / 1000 - Number(timestamp));
  if (!/^[0-9]+$/.test(timestamp) || age > TOLERANCE_SECONDS) return false;
  const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64');
  // Over the raw bytes: a body that was parsed and written again need not be the same.
  const expected = crypto.createHmac('sha256', key).update(`${id}.${timestamp}.`).update(body).digest();
  // There are two for a day after the secret was changed, one with each.
  return (headers['webhook-signature'] ?? '').split(' ').some((signature) => {
    const [version, value] = signature.split(',');
    const given = Buffer.from(value ?? '', 'base64');
    // `===` would stop at the first difference and so tell, by its time, how much of a guess was right.
    return version === 'v1' && given.length === expected.length && crypto.timingSafeEqual(given, expected);
  });
}

/**
 * The executions that were handled. Delivery is at least once: a lost answer means the same one again.
 *
 * A real receiver keeps this with its results, in one transaction, and not in memory.
 */
const seen = new Set();

/** The work. Keep it under 30 seconds, or note the payload down and do it after the answer. */
async function handlePayload(executionId, payload) {
  console.log(`${executionId} ${JSON.stringify(payload)}`);
}

/** Does with one delivery what is to be done, and answers the status to be sent. */
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
  const executionId = request.headers['x-cueapi-execution-id'] ?? '';
  if (seen.has(executionId)) {
    console.log(`${executionId} again, ignored`);
    return 200;
  }
  await handlePayload(executionId, JSON.parse(body));
  // After the work, not before: if it throws, the answer is 500 and the next attempt does it again.
  // Attempts of one execution never overlap, so nobody else is at it meanwhile.
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
