import { test } from 'node:test';
import { openCued } from './cued-testing.mjs';

test('a failed call is repeated', async (t) => {
  const cued = await openCued(t);
  const receiver = await cued.receiver();
  await cued.create({
    name: 'invoices',
    schedule: { type: 'recurring', cron: '0 0 1 * *', timezone: 'Europe/Berlin' },
    callback: { url: receiver.url },
  });
  receiver.answer(503);
  await cued.untilNext();
  await cued.untilNext();
  await receiver.expectDeliveries(2, { cue: 'invoices' });
});
