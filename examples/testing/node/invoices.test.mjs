import assert from 'node:assert/strict';
import { test } from 'node:test';

import { HANG_UP, openCued } from './cued-testing.mjs';
import { Invoices } from './invoices.mjs';

async function start(t, options) {
  const cued = await openCued(t, options);
  const receiver = await cued.receiver();
  const app = new Invoices(cued.url, cued.key, receiver.url);
  receiver.always((delivery) => app.handle(delivery.body));
  await app.install();
  return { cued, receiver, app };
}

test('invoices are sent at midnight in Berlin', async (t) => {
  const { cued, receiver, app } = await start(t, { at: '2030-01-31T12:00:00Z' });
  await cued.advanceTo('2030-01-31T22:59:59Z');
  await receiver.expectDeliveries(0);
  await cued.advance('PT1S');
  const delivery = await receiver.waitForDelivery({ path: '/invoices' });
  assert.deepEqual(delivery.body, { send: 'invoices' });
  assert.deepEqual(app.sent, ['invoices']);
});

test('a call that fails is repeated', async (t) => {
  const { cued, receiver, app } = await start(t);
  receiver.answer(503, HANG_UP);
  await cued.untilNext();
  await receiver.expectDeliveries(1, { cue: 'invoices' });
  assert.deepEqual(app.sent, []);
  await cued.advance('PT10M');
  const [first, , third] = await receiver.expectDeliveries(3, { cue: 'invoices' });
  assert.equal(third.at - first.at, 6 * 60_000);
  assert.deepEqual(app.sent, ['invoices']);
  assert.deepEqual(
    (await cued.runs('invoices')).map((run) => run.status),
    ['success'],
  );
});

test('an answer that is too late is a failure', async (t) => {
  const cued = await openCued(t);
  const receiver = await cued.receiver();
  receiver.answer({ delay: 3000 });
  const callback = { url: receiver.url, timeout_seconds: 1 };
  const cue = await cued.create({
    name: 'slow',
    schedule: { type: 'recurring', cron: '@daily' },
    callback,
  });
  await cued.fire(cue);
  const [run] = await cued.runs(cue);
  assert.deepEqual([run.status, run.cause], ['retrying', 'timeout']);
});

test('a worker makes the report', async (t) => {
  const { cued, app } = await start(t);
  await app.work();
  assert.deepEqual(app.reports, []);
  await cued.untilNext();
  await app.work();
  assert.deepEqual(app.reports, ['report']);
  assert.deepEqual(
    (await cued.runs('report')).map((run) => run.status),
    ['success'],
  );
});
