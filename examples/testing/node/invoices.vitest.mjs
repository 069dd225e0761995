import { expect, test } from 'vitest';

import { openCued } from './cued-testing.mjs';
import { Invoices } from './invoices.mjs';

test('invoices are sent at midnight in Berlin', async (context) => {
  const cued = await openCued(context, { at: '2030-01-31T12:00:00Z' });
  const receiver = await cued.receiver();
  const app = new Invoices(cued.url, cued.key, receiver.url);
  receiver.always((delivery) => app.handle(delivery.body));
  await app.install();
  await cued.advanceTo('2030-01-31T22:59:59Z');
  await receiver.expectDeliveries(0);
  await cued.advance('PT1S');
  const delivery = await receiver.waitForDelivery({ path: '/invoices' });
  expect(delivery.body).toEqual({ send: 'invoices' });
  expect(app.sent).toEqual(['invoices']);
});

test('an expectation that fails says what was delivered instead', async (context) => {
  const cued = await openCued(context);
  const receiver = await cued.receiver();
  const cue = await cued.create({
    name: 'invoices',
    schedule: { type: 'recurring', cron: '@hourly' },
    callback: { url: receiver.url },
  });
  await cued.fire(cue);
  await expect(receiver.expectDeliveries(2, { cue })).rejects.toThrow(
    /^expected 2 deliveries of cue 'invoices', got 1; it is .*\ndeliveries:\n  .* POST \/ attempt 1 of 'invoices' → 200 {}\n/,
  );
});
