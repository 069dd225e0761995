// Tests of the kit itself: you need not copy them.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';

import { HANG_UP, openCued } from './cued-testing.mjs';

const schedule = { type: 'recurring', cron: '@hourly' };

async function failure(promise) {
  const error = await promise.then(assert.fail, (reason) => reason);
  return error.message;
}

test('an expectation that fails says what was delivered instead', async (t) => {
  const cued = await openCued(t, { at: '2030-01-31T22:30:00Z' });
  const receiver = await cued.receiver();
  receiver.answer(503, HANG_UP);
  const callback = { url: `${receiver.url}/a` };
  const cue = await cued.create({ name: 'invoices', schedule, callback, payload: { send: 1 } });
  assert.equal(
    await failure(receiver.expectDeliveries(1, { cue })),
    `expected 1 delivery of cue 'invoices', got 0; it is 2030-01-31T22:30:00Z
deliveries:
  none
runs:
  none
cues:
  'invoices' active, next run at 2030-01-31T23:00:00+00:00`,
  );
  await cued.advance('PT31M');
  assert.equal(
    await failure(receiver.expectDeliveries(3, { cue: 'invoices' })),
    `expected 3 deliveries of cue 'invoices', got 2; it is 2030-01-31T23:01:00Z
deliveries:
  2030-01-31T23:00:00Z POST /a attempt 1 of 'invoices' → 503 {"send":1}
  2030-01-31T23:01:00Z POST /a attempt 2 of 'invoices' → hung up {"send":1}
runs:
  2030-01-31T23:00:00Z 'invoices' retrying, 2 of 4 attempts, the connection was closed before the response was complete, next attempt at 2030-01-31T23:06:00Z`,
  );
  const waited = await failure(receiver.waitForDelivery({ path: '/b', timeout: 10 }));
  assert.match(waited, /^expected 1 delivery at \/b, got 0 in 10 ms; it is 2030-01-31T23:01:00Z\n/);
  assert.match(waited, /attempt 2 of 'invoices'/);
});

test('a request that is not signed is no delivery', async (t) => {
  const cued = await openCued(t);
  const receiver = await cued.receiver();
  const forged = await fetch(`${receiver.url}/forged`, { method: 'POST', body: '{"send": "money"}' });
  assert.equal(forged.status, 401);
  assert.match(
    await failure(receiver.expectDeliveries(1)),
    /no time POST \/forged → 401, not signed {"send":"money"}/,
  );
});

test('an alert is signed too', async (t) => {
  const cued = await openCued(t);
  const receiver = await cued.receiver();
  await cued.patch('/v1/auth/me', { alert_webhook_url: `${receiver.url}/alert` });
  await cued.post('/v1/alerts/test');
  assert.ok((await receiver.waitForDelivery({ path: '/alert' })).body.test);
});

test('an answer has headers and a body', async (t) => {
  const cued = await openCued(t);
  const receiver = await cued.receiver();
  receiver.answer({ status: 429, body: { too: 'many' }, headers: { 'retry-after': '7200' } });
  await cued.fire(await cued.create({ name: 'a', schedule, callback: { url: receiver.url } }));
  const [run] = await cued.runs('a');
  assert.equal(run.response_body, '{"too":"many"}');
  assert.equal(new Date(run.next_retry) - (await cued.now()), 7200_000);
});

test('an application that throws answers 500', async (t) => {
  const cued = await openCued(t);
  const receiver = await cued.receiver();
  receiver.always((delivery) => delivery.missing.field);
  await cued.fire(await cued.create({ name: 'a', schedule, callback: { url: receiver.url } }));
  assert.equal((await receiver.waitForDelivery()).answer.status, 500);
  const [run] = await cued.runs('a');
  assert.match(run.response_body, /TypeError/);
});

test('the clock of a shared server only moves forward', async (t) => {
  const cued = await openCued(t);
  const before = await cued.now();
  await cued.advance('PT1H');
  assert.match(await failure(cued.advanceTo(before)), /openCued\(t, { at: INSTANT }\) gives/);
});

test('a cue of another test is never due again', async (t) => {
  const other = await openCued();
  await other.create({ name: 'a', schedule, transport: 'worker' });
  await other.close();
  const cued = await openCued(t);
  assert.equal((await cued.untilNext()).next, null);
});

test('a reset leaves an empty server and a new account', async (t) => {
  const cued = await openCued(t);
  await cued.create({ name: 'a', schedule, transport: 'worker' });
  const [key, now] = [cued.key, await cued.now()];
  await cued.reset();
  assert.equal((await cued.get('/v1/cues')).total, 0);
  assert.deepEqual(await cued.now(), now);
  assert.notEqual(cued.key, key);
});

test('an unknown name and a refused request say so', async (t) => {
  const cued = await openCued(t);
  assert.equal(await failure(cued.fire('a')), "the account has no cues with the name 'a'");
  assert.match(await failure(cued.create({ schedule })), /^POST \/v1\/cues: 422 validation_error: .*name/);
});

test('a server that does not start says why', async (t) => {
  assert.match(
    await failure(openCued(t, { at: 'soon' })),
    /serve did not start: cued: --test-clock "soon" is not/,
  );
  // In a process of its own: the others need their environment.
  const started = (env) => {
    const program = "import { openCued } from './cued-testing.mjs'; await openCued()";
    const options = { cwd: new URL('.', import.meta.url), env, encoding: 'utf8' };
    return spawnSync(process.execPath, ['--input-type=module', '-e', program], options).stderr;
  };
  assert.match(started({ CUED_BIN: '/nowhere/cued' }), /CUED_BIN is \/nowhere\/cued, which is no program/);
  assert.match(started({ PATH: '/nowhere' }), /no cued on the PATH: install it, or set CUED_BIN/);
});

test('mails about many failures do not stop the server', async (t) => {
  const cued = await openCued(t, { at: '2030-01-01T00:00:00Z' });
  const receiver = await cued.receiver();
  receiver.always(500);
  const retry = { max_attempts: 1, backoff_minutes: [1] };
  for (let number = 0; number < 10; number += 1) {
    const name = `${number}`.repeat(100);
    await cued.create({ name, schedule, callback: { url: receiver.url }, retry });
  }
  // Ten mails an hour of some 200 bytes: more than a pipe holds.
  await cued.advance('PT40H');
  await receiver.expectDeliveries(400);
});

test('ten cues in each of a hundred tests', async (t) => {
  for (let number = 1; number <= 100; number += 1) {
    await t.test(`test ${number}`, async (t) => {
      const cued = await openCued(t);
      const receiver = await cued.receiver();
      const numbers = Array.from({ length: 10 }, (_, number) => number);
      for (const number of numbers) {
        const callback = { url: receiver.url };
        await cued.fire(
          await cued.create({ name: `cue-${number}`, schedule, callback, payload: { number } }),
        );
      }
      const delivered = await receiver.expectDeliveries(10);
      assert.deepEqual(delivered.map(({ body }) => body.number).sort(), numbers);
    });
  }
});
