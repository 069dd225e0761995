// The application: sends the invoices of a month when it ends in Berlin, and makes reports on request.

export class Invoices {
  sent = [];
  reports = [];

  constructor(cuedUrl, key, ownUrl) {
    Object.assign(this, { cuedUrl, key, ownUrl });
  }

  /** Runs once, when the application is deployed. */
  async install() {
    const schedule = { type: 'recurring', cron: '0 0 1 * *', timezone: 'Europe/Berlin' };
    await this.#call('POST', '/v1/cues', {
      name: 'invoices',
      schedule,
      callback: { url: `${this.ownUrl}/invoices` },
      payload: { send: 'invoices' },
      retry: { backoff_minutes: [1, 5] },
    });
    const report = { name: 'report', schedule, transport: 'worker', payload: { task: 'report' } };
    await this.#call('POST', '/v1/cues', report);
  }

  /** The handler of POST /invoices. */
  handle(payload) {
    this.sent.push(payload.send);
  }

  /** One turn of the worker: claims the runs that wait, and reports each. */
  async work() {
    const { executions } = await this.#call('GET', '/v1/executions/claimable');
    for (const { id } of executions) {
      const claim = await this.#call('POST', `/v1/executions/${id}/claim`, { worker_id: 'reports' });
      this.reports.push(claim.payload.task);
      await this.#call('POST', `/v1/executions/${id}/outcome`, { success: true, result: '1 page' });
    }
  }

  async #call(method, path, body) {
    const headers = { authorization: `Bearer ${this.key}`, 'content-type': 'application/json' };
    const response = await fetch(this.cuedUrl + path, { method, headers, body: JSON.stringify(body) });
    if (!response.ok) throw new Error(`${method} ${path}: ${await response.text()}`);
    return response.json();
  }
}
