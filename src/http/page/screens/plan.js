// Plan and usage: what is used of what the plan allows, the last twelve months, and other plans.
import { html, nothing } from "../lit/lit-html.js";
import { get, post } from "../app/api.js";
import { state, update } from "../app/state.js";
import { absolute, instant, serverNow } from "../app/time.js";
import { bytes, capital, isLimited, number, plural } from "../app/words.js";
import { bars, meter } from "../parts/chart.js";
import { copyKey, copyMenu } from "../parts/copy.js";
import { errorBox } from "../parts/feedback.js";
import { segments } from "../parts/form.js";
import { table } from "../parts/table.js";

const MONTHS = 12;
const PAID = ["pro", "scale"];
const GRACE = 2; // runs go on for 24 hours up to this many times the limit
const CALL = { method: "GET", path: "v1/usage" };

export const live = ["quota", "cue.created", "cue.deleted", "cue.paused", "cue.resumed", "server"];

export const shortcuts = () => [copyKey(CALL)];

export function head({ usage }) {
  const { name, interval } = usage?.plan || {};
  return { note: usage ? `Plan ${name}${interval ? `, paid ${interval === "annual" ? "each year" : "each month"}` : ""}` : nothing, actions: copyMenu(CALL) };
}

export async function load({ interval = "monthly" }) {
  const from = new Date(monthStart(serverNow(), 1 - MONTHS)).toISOString();
  const [usage, stats] = await Promise.all([get("v1/usage"), get("v1/stats", { step: "day", from })]);
  return { usage, months: byMonth(stats.series, serverNow()), interval };
}

/** Begin of the month `away` months from that of `ms`, in UTC. Pure. */
export function monthStart(ms, away = 0) {
  const date = new Date(ms);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + away);
}

/** Days of `/v1/stats` summed up as `[{at, succeeded, failed}]`, one per month, the month of `now` last. Pure. */
export function byMonth(series, now) {
  const months = Array.from({ length: MONTHS }, (_, i) => ({ at: monthStart(now, i + 1 - MONTHS), succeeded: 0, failed: 0 }));
  const of = new Map(months.map((month) => [month.at, month]));
  for (const { at, succeeded, failed } of series) {
    const month = of.get(monthStart(instant(at)));
    if (month) ((month.succeeded += succeeded), (month.failed += failed));
  }
  return months;
}

export function view(data) {
  const { usage, months } = data;
  const limited = isLimited(usage.executions.limit) || isLimited(usage.cues.limit);
  return html`
    ${used(usage, limited)}
    ${history(months)}
    ${atLimit(usage, limited)}
    ${state.info?.limits === false || !limited ? nothing : plans(data)}`;
}

function used({ cues, executions, storage, rate_limit: rate, billing_period: period }, limited) {
  const bar = (id, name, value, most, text, more) => {
    const of = text === bytes || isLimited(most) ? ` of ${text(most)}` : "";
    return html`<div data-meter=${id}><p class="row spread"><b>${name}</b><span class="num">${text(value)}${of}</span></p>${of ? meter(value, most, `${name}: ${text(value)}${of}`) : nothing}<p class="muted small">${more}</p></div>`;
  };
  return html`${limited ? nothing : html`<p id="no-limits">The limits are switched off on this server: runs, cues and requests are not counted against a plan.</p>`}
    <section class="card pad stack" id="used">
      ${bar("runs", "Runs this month", executions.used, executions.limit, number, `Counted in UTC; begins anew on ${day(period.end)}.`)}
      ${bar("cues", "Active cues", cues.active, cues.limit, number, `${number(cues.total)} of ${number(cues.total_limit)} in all states.`)}
      ${bar("storage", "Storage", storage.used_bytes, storage.limit_bytes, bytes, "Payloads, headers, results and kept answers.")}
      ${isLimited(rate.limit) ? bar("requests", "Requests in the last minute", rate.current_usage, rate.limit, number, "Of all API keys; signed-in browsers have a limit of their own.") : nothing}
    </section>`;
}

const day = (text) => absolute(instant(text), "UTC", { full: true }).split(",")[0];

function history(months) {
  const name = (at, form) => new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", ...form }).format(at);
  const long = ({ at }) => name(at, { month: "long", year: "numeric" });
  const total = ({ succeeded, failed }) => succeeded + failed;
  const all = months.reduce((sum, month) => sum + total(month), 0);
  const columns = [
    { label: "Month", cell: long },
    { label: "Runs", kind: "num right", short: true, cell: (month) => number(total(month)) },
    { label: "Failed", kind: "num right", short: true, cell: (month) => number(month.failed) },
  ];
  return html`<section class="card" id="months"><header><h2>Twelve months</h2><span class="muted">${plural(all, "run")} ended</span></header>
    <div class="pad stack"><div>${bars(months, { label: `Runs of each month, ${plural(all, "run")} in all; the table below has the figures`, titles: months.map((month) => `${long(month)}: ${plural(total(month), "run")}, ${number(month.failed)} failed`) })}
      <div class="months muted" aria-hidden="true">${months.map(({ at }) => html`<span>${name(at, { month: "narrow" })}</span>`)}</div></div>
    <details><summary>As a table</summary>${table({ label: "Runs by month", columns, rows: months.toReversed(), key: (month) => String(month.at) })}</details></div></section>`;
}

function atLimit({ cues, executions, storage, rate_limit: rate, billing_period: period }, limited) {
  const most = executions.limit;
  return html`<section class="card" id="at-limit"><header><h2>What happens at the limit</h2></header><dl class="facts long pad">
    ${isLimited(most) ? html`<dt>Runs</dt><dd>Above ${number(most)} a month all goes on for 24 hours, up to ${number(most * GRACE)} runs. After that scheduled runs fail with <code>execution_limit_exceeded</code> and are not sent, and runs by hand are refused, until ${day(period.end)}.</dd>` : nothing}
    ${isLimited(cues.limit) ? html`<dt>Cues</dt><dd>A new or resumed cue above ${number(cues.limit)} is refused. Those that are active go on.</dd>` : nothing}
    <dt>Storage</dt><dd>What would store more than ${bytes(storage.limit_bytes)} is refused, such as a cue with a large payload. A worker's report is always taken, without its result.</dd>
    ${isLimited(rate.limit) ? html`<dt>Requests</dt><dd>Above ${number(rate.limit)} a minute the answer is 429 and says how long to wait. Runs are not affected.</dd>` : nothing}
    ${limited ? nothing : html`<dt>Runs, cues</dt><dd>There is no limit.</dd>`}
  </dl></section>`;
}

function plans(data) {
  const { usage, interval, busy, failed } = data;
  const stripe = state.info?.billing === "stripe";
  const own = usage.plan.name;
  const others = PAID.filter((plan) => plan !== own || usage.plan.interval !== interval);
  return html`<section class="card" id="plans"><header><h2>Change the plan</h2>${segments({ label: "Paid", value: interval, options: [["monthly", "Monthly"], ["annual", "Annually"]], onchange: (value) => update(() => (data.interval = value)) })}</header>
    <div class="pad stack">
      <p class="muted">${stripe ? "You pay on a page of Stripe and come back here." : "Nothing is paid here: you ask on the next page, and the operator of this server decides."}</p>
      ${failed ? errorBox(failed) : nothing}
      <div class="actions">${others.map((plan) => html`<button class="primary" data-plan=${plan} ?disabled=${busy} @click=${() => leaveFor(data, "v1/billing/checkout", { plan, interval }, "checkout_url")}>${stripe ? "Go to" : "Ask for"} ${capital(plan)}</button>`)}
        <button id="portal" ?disabled=${busy} @click=${() => leaveFor(data, "v1/billing/portal", {}, "portal_url")}>${stripe ? "Payments and invoices" : "See or end the plan"}</button></div>
    </div></section>`;
}

async function leaveFor(data, path, body, field) {
  update(() => Object.assign(data, { busy: true, failed: null }));
  try {
    location.assign((await post(path, body))[field]);
  } catch (failed) {
    update(() => (data.failed = failed));
  }
  update(() => (data.busy = false));
}
