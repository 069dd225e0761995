// Tests of what cued calls: a server whose clock moves when the test says so. For Node's test runner and vitest.
//
// Copy this file beside your tests. It needs Node 20 and no package. The server is the program that CUED_BIN
// names, or `cued` on the PATH.

import { AssertionError } from 'node:assert';
import { spawn } from 'node:child_process';
import { createHmac, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { accessSync, constants } from 'node:fs';
import { createServer } from 'node:http';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';

const START = '2030-01-01T00:00:00Z';
// A shell that ends the server when its own input ends, so also when the process of the tests is killed.
const GUARD = '"$@" </dev/null & exec >&-; read -r _; kill $! 2>/dev/null; wait';
const SHOWN = 20;
const CUE_ID = /^cue_[0-9a-z]{12}$/;

/** The answer that is none: the connection is closed. */
export const HANG_UP = { hangUp: true };

let shared;
let accounts = 0;

/**
 * An account on the server that the tests of a file share, or on a server of its own whose clock begins `at` an
 * instant. It ends with the test if it gets the test's context, else with `close()` or `await using`.
 */
export async function openCued(context, { at } = {}) {
  let server;
  if (at === undefined) {
    shared ??= Server.start(START);
    server = await shared;
  } else {
    server = await Server.start(at);
  }
  const cued = new Cued(server, at !== undefined);
  // Node's test runner has `after`, vitest `onTestFinished`.
  const atEnd = context?.after ?? context?.onTestFinished;
  atEnd?.call(context, () => cued.close());
  await cued._signUp();
  return cued;
}

/** The server has refused a request. */
export class CuedError extends Error {
  constructor(request, status, { code, message }) {
    super(`${request}: ${status} ${code}: ${message}`);
    Object.assign(this, { name: 'CuedError', status, code });
  }
}

/** A process `cued serve` with an empty temporary database. */
class Server {
  static async start(at) {
    const flags = ['--ephemeral', '--limits', 'off', '--listen', '127.0.0.1:0', '--test-clock', at];
    const program = binary();
    const server = new Server();
    // Settings of the developer's own server are not for this one.
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('CUED_')));
    // Detached: Ctrl-C is for the tests.
    const options = { env, detached: true };
    server.process = spawn('sh', ['-c', GUARD, 'sh', program, 'serve', ...flags], options);
    let log = '';
    server.process.stderr.on('data', (text) => (log = (log + text).slice(-10_000)));
    // The first line is "cued listening on http://127.0.0.1:PORT".
    let line = '';
    for await (const text of server.process.stdout) {
      line += text;
      if (line.includes('\n')) break;
    }
    server.url = line.trim().split(' ').at(-1);
    if (!server.url) {
      await server.stop();
      throw new Error(`${program} serve did not start: ${log.trim() || 'it said nothing'}`);
    }
    // The process of the tests may end while this one runs.
    for (const handle of [server.process, server.process.stdin, server.process.stderr]) handle.unref();
    await server.registerOperator();
    return server;
  }

  async stop() {
    this.process.ref();
    this.process.stdin.end();
    if (this.process.exitCode === null) await once(this.process, 'close');
  }

  async registerOperator() {
    const operator = await this.call('POST', '/v1/auth/register', { email: 'operator@example.com' });
    this.key = operator.api_key;
  }

  addAccount() {
    accounts += 1;
    return this.call('POST', '/v1/admin/users', { email: `test-${accounts}@example.com` }, this.key);
  }

  async call(method, path, body, key) {
    const headers = { 'content-type': 'application/json' };
    if (key) headers.authorization = `Bearer ${key}`;
    const response = await fetch(this.url + path, { method, headers, body: JSON.stringify(body) });
    const text = await response.text();
    const answer = text ? JSON.parse(text) : null;
    if (!response.ok) throw new CuedError(`${method} ${path}`, response.status, answer.error);
    return answer;
  }
}

function binary() {
  const named = process.env.CUED_BIN;
  if (named) {
    if (!isProgram(named)) throw new Error(`CUED_BIN is ${named}, which is no program`);
    return named;
  }
  const folders = (process.env.PATH ?? '').split(delimiter);
  const found = folders.map((folder) => join(folder, 'cued')).find(isProgram);
  if (!found) throw new Error('there is no cued on the PATH: install it, or set CUED_BIN to its path');
  return found;
}

function isProgram(path) {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** An account, the API with its key, and the clock of the server. */
class Cued {
  #server;
  #isAlone;
  #id;
  #receivers = [];

  constructor(server, isAlone) {
    this.#server = server;
    this.#isAlone = isAlone;
    this.url = server.url;
  }

  async _signUp() {
    const account = await this.#server.addAccount();
    this.#id = account.id;
    this.key = account.api_key;
    this.email = account.email;
    this.secret = (await this.get('/v1/auth/webhook-secret')).webhook_secret;
    this.alertSecret = (await this.get('/v1/auth/alert-webhook-secret')).alert_webhook_secret;
  }

  async close() {
    if (this.#isAlone) {
      await this.#server.stop();
    } else {
      // What the account has left would be due in later tests.
      const path = `/v1/admin/users/${this.#id}`;
      await this.#server.call('PATCH', path, { is_disabled: true }, this.#server.key);
    }
    for (const receiver of this.#receivers) receiver.close();
  }

  async [Symbol.asyncDispose]() {
    await this.close();
  }

  get(path) {
    return this.#server.call('GET', path, undefined, this.key);
  }

  post(path, body) {
    return this.#server.call('POST', path, body, this.key);
  }

  patch(path, body) {
    return this.#server.call('PATCH', path, body, this.key);
  }

  delete(path) {
    return this.#server.call('DELETE', path, undefined, this.key);
  }

  /** Creates a cue; the fields are those of `POST /v1/cues`. */
  create(fields) {
    return this.post('/v1/cues', fields);
  }

  /** Runs a cue now. A cue is its name, its id or what `create` has returned. */
  async fire(cue, fields = {}) {
    return this.post(`/v1/cues/${await this._cueId(cue)}/fire`, fields);
  }

  /** The runs of a cue, or of all, oldest first, once the deliveries under way have ended. */
  async runs(cue, filters = {}) {
    await this.advance('PT0S');
    const query = new URLSearchParams({ ...filters, limit: 100 });
    if (cue !== undefined) query.set('cue_id', await this._cueId(cue));
    const runs = [];
    for (let hasMore = true; hasMore;) {
      query.set('offset', runs.length);
      const page = await this.get(`/v1/executions?${query}`);
      runs.push(...page.executions);
      hasMore = page.has_more;
    }
    return runs.reverse();
  }

  /** The instant of the server. It stands still until the clock is moved. */
  async now() {
    return new Date((await this.get('/v1/test/clock')).now);
  }

  /** Moves the clock by an ISO 8601 duration, and returns once all that became due is done. */
  advance(span) {
    return this.post('/v1/test/clock', { advance: span });
  }

  /** Moves the clock to an instant. */
  async advanceTo(instant) {
    try {
      return await this.post('/v1/test/clock', { to: instant });
    } catch (error) {
      if (error.message.includes('forward')) {
        const hint = 'openCued(t, { at: INSTANT }) gives the test a server of its own';
        error.message += `; it is ${text(await this.now())}. ${hint}`;
      }
      throw error;
    }
  }

  /** Moves the clock to the next instant at which something is due: `next` in the result, null without one. */
  untilNext() {
    return this.post('/v1/test/clock', { until: 'next' });
  }

  /** Empties the server, for all, and gives this object a new account. The clock stays where it is. */
  async reset() {
    await this.#server.call('POST', '/v1/test/reset');
    await this.#server.registerOperator();
    await this._signUp();
  }

  /** Stands for your application: an HTTP server that records deliveries and answers as the test says. */
  async receiver() {
    const receiver = new Receiver(this);
    this.#receivers.push(receiver);
    await receiver._listen();
    return receiver;
  }

  async _cueId(cue) {
    if (typeof cue !== 'string') return cue.id;
    if (CUE_ID.test(cue)) return cue;
    const query = new URLSearchParams({ q: cue.slice(0, 100), limit: 100 });
    const { cues } = await this.get(`/v1/cues?${query}`);
    const found = cues.filter(({ name }) => cue === name);
    if (found.length !== 1) {
      throw new Error(`the account has ${found.length || 'no'} cues with the name '${cue}'`);
    }
    return found[0].id;
  }
}

/**
 * An HTTP server on 127.0.0.1 that records deliveries. It answers 200 unless the test says otherwise: with a
 * status, with `{ status, body, headers, delay, hangUp }` (`delay` in milliseconds), or with what a function of the
 * delivery returns.
 */
class Receiver {
  #cued;
  #script = [];
  #otherwise = 200;
  #waiting = [];
  #closing = new AbortController();
  #http = createServer((request, response) => this.#receive(request, response));

  /** All requests in their order, also those that are not signed. */
  deliveries = [];

  constructor(cued) {
    this.#cued = cued;
  }

  async _listen() {
    this.#http.listen(0, '127.0.0.1').unref();
    await once(this.#http, 'listening');
    this.url = `http://127.0.0.1:${this.#http.address().port}`;
  }

  close() {
    this.#closing.abort();
    this.#http.close();
    this.#http.closeAllConnections();
  }

  /** Answers the next deliveries, in this order. */
  answer(...script) {
    this.#script.push(...script);
  }

  /** Answers all deliveries that no script is left for. */
  always(answer) {
    this.#otherwise = answer;
  }

  /** Waits until `count` signed deliveries of the cue and at the path have come; returns the last. */
  async waitForDelivery({ count = 1, cue, path, timeout = 5000 } = {}) {
    const cueId = cue && (await this.#cued._cueId(cue));
    const deadline = Date.now() + timeout;
    while (this.#matching(cueId, path).length < count && Date.now() < deadline) {
      await this.#nextDelivery(deadline - Date.now());
    }
    const found = this.#matching(cueId, path);
    if (found.length < count) {
      await this.#fail(this.waitForDelivery, count, found, cue, path, ` in ${timeout} ms`);
    }
    return found[count - 1];
  }

  /** Fails unless exactly so many have come, once those under way have ended; returns them. */
  async expectDeliveries(count, { cue, path } = {}) {
    await this.#cued.advance('PT0S');
    const found = this.#matching(cue && (await this.#cued._cueId(cue)), path);
    if (found.length !== count) await this.#fail(this.expectDeliveries, count, found, cue, path);
    return found;
  }

  #nextDelivery(timeout) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, timeout);
      this.#waiting.push(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  #matching(cueId, path) {
    return this.deliveries.filter(
      (delivery) =>
        delivery.isSigned &&
        delivery.cueId === (cueId ?? delivery.cueId) &&
        delivery.path === (path ?? delivery.path),
    );
  }

  async #fail(caller, count, found, cue, path, waited = '') {
    const runs = await this.#cued.runs(cue);
    const names = new Map((cue ? await this.#cued.runs() : runs).map((run) => [run.id, run.cue_name]));
    const what = [count === 1 ? '1 delivery' : `${count} deliveries`];
    if (cue) what.push(` of cue '${cue.name ?? cue}'`);
    if (path) what.push(` at ${path}`);
    const lines = [
      `expected ${what.join('')}, got ${found.length}${waited}; it is ${text(await this.#cued.now())}`,
      'deliveries:',
      ...listed(this.deliveries.map((delivery) => describeDelivery(delivery, names))),
      'runs:',
      ...listed(runs.map(describeRun)),
    ];
    if (runs.length === 0) {
      const { cues } = await this.#cued.get('/v1/cues?limit=100');
      lines.push('cues:', ...listed(cues.map(describeCue)));
    }
    throw new AssertionError({
      message: lines.join('\n'),
      actual: found.length,
      expected: count,
      stackStartFn: caller,
    });
  }

  async #receive(request, response) {
    const parts = [];
    for await (const part of request) parts.push(part);
    const raw = Buffer.concat(parts);
    const { headers, method, url: path } = request;
    const timestamp = headers['x-cueapi-timestamp'] ?? '';
    const delivery = {
      at: timestamp ? new Date(timestamp * 1000) : null,
      method,
      path,
      headers,
      body: parsed(raw),
      cueId: headers['x-cueapi-cue-id'],
      executionId: headers['x-cueapi-execution-id'],
      attempt: Number(headers['x-cueapi-attempt']),
      isSigned: isSigned(headers, timestamp, raw, this.#cued),
    };
    const answer = await this.#answerTo(delivery);
    delivery.answer = answer;
    this.deliveries.push(delivery);
    for (const wake of this.#waiting.splice(0)) wake();
    if (answer.delay) await sleep(answer.delay, undefined, { signal: this.#closing.signal }).catch(() => {});
    if (answer.hangUp) {
      // A kept connection that closes without a byte was idle for too long: the server repeats the request at once.
      request.socket.end('HTTP/1.1 ');
    } else {
      response
        .writeHead(answer.status ?? 200, answer.headers)
        .end(answer.body === undefined ? '' : JSON.stringify(answer.body));
    }
  }

  async #answerTo(delivery) {
    if (!delivery.isSigned) return { status: 401 };
    const scripted = this.#script.length > 0 ? this.#script.shift() : this.#otherwise;
    try {
      const answer = typeof scripted === 'function' ? await scripted(delivery) : scripted;
      return typeof answer === 'object' && answer !== null ? answer : { status: answer ?? 200 };
    } catch (error) {
      // An application that fails answers 500.
      return { status: 500, body: inspect(error) };
    }
  }
}

function isSigned(headers, timestamp, raw, { secret, alertSecret }) {
  const given = Buffer.from(headers['x-cueapi-signature'] ?? '');
  return [secret, alertSecret].some((key) => {
    const made = createHmac('sha256', key).update(`${timestamp}.`).update(raw).digest('hex');
    const expected = Buffer.from(`v1=${made}`);
    return given.length === expected.length && timingSafeEqual(given, expected);
  });
}

function parsed(raw) {
  try {
    return raw.length > 0 ? JSON.parse(raw) : null;
  } catch {
    return raw.toString();
  }
}

function text(instant) {
  return instant ? instant.toISOString().replace('.000Z', 'Z') : 'no time';
}

function listed(lines) {
  if (lines.length === 0) return ['  none'];
  const more = lines.length > SHOWN ? [`  and ${lines.length - SHOWN} before these`] : [];
  return [...more, ...lines.slice(-SHOWN).map((line) => `  ${line}`)];
}

function describeDelivery({ at, method, path, executionId, attempt, isSigned, body, answer }, names) {
  const name = names.get(executionId);
  const of = name === undefined ? '' : ` attempt ${attempt} of '${name}'`;
  const answered = answer.hangUp ? 'hung up' : (answer.status ?? 200);
  return `${text(at)} ${method} ${path}${of} → ${answered}${isSigned ? '' : ', not signed'} ${JSON.stringify(body)}`;
}

function describeRun(run) {
  const reason = run.error_message ? `, ${run.error_message}` : '';
  const again = run.next_retry ? `, next attempt at ${run.next_retry}` : '';
  const attempts = `${run.attempts} of ${run.max_attempts} attempts`;
  return `${run.scheduled_for} '${run.cue_name}' ${run.status}, ${attempts}${reason}${again}`;
}

function describeCue(cue) {
  return `'${cue.name}' ${cue.status}, next run at ${cue.next_run}`;
}
