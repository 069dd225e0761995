// Plan and usage: what is used of what the plan allows, the last twelve months, and other plans.
import { absolute, busily, button, bytes, capital, card, copyKey, copyLine, copyMenu, errorBox,
  facts, folded, get, html, instant, isLimited, isPrivate, meter, muted, number, panel, plural,
  post, serverNow, state, sumOf, update } from "../kit.js";
import { bars } from "../parts/charts.js";
import { segments } from "../parts/form.js";
import { table } from "../parts/table.js";

const MONTHS = 12;
const GRACE = 2; // runs go on for 24 hours up to this many times the limit
const CALL = { method: "GET", path: "v1/usage" };

export const live = ["quota", "cue.created", "cue.deleted", "cue.paused", "cue.resumed", "server"];
export const shortcuts = () => [copyKey(CALL)];

const hasLimits = ({ executions, cues }) => isLimited(executions.limit) || isLimited(cues.limit);

export function head({ usage }) {
  const { name, interval } = usage?.plan || {};
  const paid = interval ? `, paid each ${interval === "annual" ? "year" : "month"}` : "";
  // Without limits nothing speaks of plans.
  const plan = usage && hasLimits(usage)
    && { title: "Plan and usage", note: `Plan ${name}${paid}` };
  return { ...plan, actions: copyMenu(CALL) };
}

export async function load({ interval = "monthly" }) {
  const now = serverNow();
  const from = new Date(monthStart(now, 1 - MONTHS)).toISOString();
  const stats = get("v1/stats", { step: "day", from });
  const [usage, { series }] = await Promise.all([get("v1/usage"), stats]);
  return { usage, months: byMonth(series, now), interval };
}

/** Begin of the month `away` months from that of `ms`, in UTC. Pure. */
export function monthStart(ms, away = 0) {
  const date = new Date(ms);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + away);
}

/** Days of `/v1/stats` as `[{at, succeeded, failed}]`, one per month, that of `now` last. Pure. */
export const byMonth = (series, now) => Array.from({ length: MONTHS }, (_, i) => {
  const at = monthStart(now, i + 1 - MONTHS);
  const days = series.filter((day) => monthStart(instant(day.at)) === at);
  return { at, succeeded: sumOf(days, "succeeded"), failed: sumOf(days, "failed") };
});

export function view(data) {
  const { usage, months } = data;
  const limited = hasLimits(usage);
  return html`${limited ? "" : html`<p id="no-limits">This server has no limits on runs,
    cues and requests.</p>`}${used(usage)}${history(months)}${
    atLimit(usage, limited)}${!limited || state.info?.limits === false ? ""
    : isPrivate() ? lifting() : plans(data)}`;
}

const lifting = () => panel("lift", "Lift the limits", "", html`<p>On a server of your own you need
  no limits. Start it with <code>--limits off</code>:</p>`, copyLine("cued serve --limits off"));

function used({ cues, executions: runs, storage, rate_limit: rate, billing_period: period }) {
  const bar = (id, name, value, most, more, text = number) => {
    const of = text === bytes || isLimited(most) ? ` of ${text(most)}` : "";
    const figures = text(value) + of;
    return html`<div data-meter=${id}><p class="row spread"><b>${name}</b><span
      class="num">${figures}</span></p>${of ? meter(value, most, `${name}: ${figures}`) : ""}
      <p class="muted small">${more}</p></div>`;
  };
  return html`<section class="card pad stack" id="used">
    ${bar("runs", "Runs this month", runs.used, runs.limit,
      isLimited(runs.limit) ? `Resets on ${day(period.end)} (UTC).` : "")}
    ${bar("cues", "Active cues", cues.active, cues.limit,
      `${number(cues.total)} of ${number(cues.total_limit)} in all states.`)}
    ${bar("storage", "Storage", storage.used_bytes, storage.limit_bytes,
      "Payloads, headers, results and stored responses.", bytes)}
    ${!isLimited(rate.limit) ? "" : bar("requests", "Requests in the last minute",
      rate.current_usage, rate.limit,
      "By all your API keys; browsers have their own limit.")}</section>`;
}

const day = (text) => absolute(instant(text), "UTC", { full: true }).split(",")[0];

function history(months) {
  const name = (at, form) =>
    new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", ...form }).format(at);
  const long = ({ at }) => name(at, { month: "long", year: "numeric" });
  const total = ({ succeeded, failed }) => succeeded + failed;
  const all = plural(months.reduce((sum, month) => sum + total(month), 0), "run");
  const title = (month) =>
    `${long(month)}: ${plural(total(month), "run")}, ${number(month.failed)} failed`;
  const label = `Runs of each month, ${all} in all; the table below has the figures`;
  return panel("months", "Twelve months", muted(`${all} ended`), html`<div>${
    bars(months, { label, titles: months.map(title) })}<div class="months muted"
      aria-hidden="true">${months.map(({ at }) =>
        html`<span>${name(at, { month: "narrow" })}</span>`)}</div></div>`,
  folded("As a table", table("Runs by month", [
    ["Month", long], ["Runs", (month) => number(total(month)), "num right short"],
    ["Failed", (month) => number(month.failed), "num right short"],
  ], months.toReversed(), { key: (month) => String(month.at) })));
}

function atLimit({ cues, executions, storage, rate_limit: rate, billing_period: period }, limited) {
  const most = executions.limit;
  return card("at-limit", limited ? "What happens at the limit" : "Limits", "", facts([
    isLimited(most) && ["Runs", html`After ${plural(most, "run")} a month, cues keep running for
      24 hours or until ${number(most * GRACE)} runs. Then scheduled runs fail, and you cannot fire
      cues until ${day(period.end)}.`],
    isLimited(cues.limit) && ["Cues", `You cannot have more than ${number(cues.limit)} active
      ones. Those you have keep running.`],
    ["Storage", `You cannot store more than ${bytes(storage.limit_bytes)}, such as a cue with a
      large payload. A worker's report still counts, without its result.`],
    isLimited(rate.limit) && ["Requests", `Above ${number(rate.limit)} a minute the response is
      429 and says how long to wait. Runs are not affected.`],
  ], "long pad"));
}

function plans(data) {
  const { usage, interval, busy: off, failed } = data;
  const isPaid = state.info?.billing === "stripe";
  const isOwn = (plan) => plan === usage.plan.name && usage.plan.interval === interval;
  const choose = (value) => update(() => (data.interval = value));
  const order = (plan) => leaveFor(data, "v1/billing/checkout", { plan, interval }, "checkout_url");
  const manage = () => leaveFor(data, "v1/billing/portal", {}, "portal_url");
  const how = isPaid ? "You pay at Stripe and come back here."
    : "You pay nothing here: you ask on the next page, and the operator of this server decides.";
  const verb = isPaid ? "Go to" : "Ask for";
  return panel("plans", "Change the plan",
    segments("Paid", interval, [["monthly", "Monthly"], ["annual", "Annually"]], choose),
    html`<p class="muted">${how}</p>${failed ? errorBox(failed) : ""}
      <div class="actions">${["pro", "scale"].filter((plan) => !isOwn(plan)).map((plan) =>
        button(`${verb} ${capital(plan)}`, () => order(plan), "primary", { off }))}${
      button(isPaid ? "Payments and invoices" : "See or end the plan", manage, "",
        { id: "portal", off })}</div>`);
}

const leaveFor = (data, path, body, field) => busily(data, async () => {
  data.failed = null;
  location.assign((await post(path, body))[field]);
}, (error) => (data.failed = error));
