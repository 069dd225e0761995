// Alerts: what went wrong, newest first, and where alerts are sent.
import { html, nothing } from "../lit/lit-html.js";
import { address, get, patch, post } from "../app/api.js";
import { go, link, withQuery } from "../app/router.js";
import { loadUser } from "../app/server.js";
import { state, update } from "../app/state.js";
import { duration, serverNow } from "../app/time.js";
import { plural } from "../app/words.js";
import { copyKey, copyMenu } from "../parts/copy.js";
import { confirm, prompt } from "../parts/dialog.js";
import { act, announce, toast } from "../parts/feedback.js";
import { pager, table } from "../parts/table.js";
import { when } from "../parts/values.js";

const PER_PAGE = 50;
const DAY_MS = 86_400_000;
const SPANS = [["", "At any time"], ["1", "Last 24 hours"], ["7", "Last 7 days"], ["30", "Last 30 days"]];
const TYPES = {
  consecutive_failures: "Failing",
  verification_failed: "Rejected",
  claim_lost: "Worker lost",
  unclaimed: "Not taken",
  catch_up: "Caught up",
  clock_behind: "Clock behind",
};
const SEVERITIES = { critical: ["✕", "bad"], warning: ["!", "warn"] };

export const live = ["alert"];

/** Query of the API for the filters of the address. Pure but for the present. */
export const question = ({ type, cue, days, page }) => ({
  alert_type: type,
  cue_id: cue,
  since: SPANS.some(([key]) => key && key === days) ? new Date(serverNow() - days * DAY_MS).toISOString() : null,
  limit: PER_PAGE,
  offset: (Math.max(1, Number(page) || 1) - 1) * PER_PAGE || null,
});
const listCall = (route) => ({ method: "GET", path: address("v1/alerts", question(route.query)) });

export function head(data, route) {
  const { cue } = route.query;
  const title = cue ? `Alerts of ${data.cueName || cue}` : "Alerts";
  return { title, note: data.total === undefined ? nothing : plural(data.total, "alert"), actions: copyMenu(listCall(route)) };
}

export async function load(data, { query }) {
  const [{ alerts, total }, cueName] = await Promise.all([get("v1/alerts", question(query)), nameOf(query.cue)]);
  return { alerts, total, cueName };
}

// A cue that was deleted still has alerts.
const nameOf = (id) => id && get("v1/cues/" + encodeURIComponent(id), { execution_limit: 1 }).then((cue) => cue.name, () => id);

export const shortcuts = (data, route) => [copyKey(listCall(route))];

export function view(data, route) {
  const { type = "", cue, days = "" } = route.query;
  const tab = ([key, text]) => html`<a href=${withQuery(route, { type: key })} aria-current=${key === type ? "true" : nothing}>${text}</a>`;
  return html`
    <section class="card">
      <nav class="tabs" aria-label="Type">${[["", "All"], ...Object.entries(TYPES)].map(tab)}</nav>
      <header><label><span class="sr">Raised</span><select class="small" @change=${(event) => go(withQuery(route, { days: event.target.value }))}>${SPANS.map(([key, text]) => html`<option value=${key} .selected=${key === days}>${text}</option>`)}</select></label>
        ${cue ? html`<a class="button" href=${withQuery(route, { cue: null })}>All cues</a>` : nothing}</header>
      ${data.alerts.length ? list(data, route) : none(type || cue || days || route.query.page, route)}
    </section>
    ${destinations(data)}`;
}

function list({ alerts, total }, route) {
  const columns = [
    { label: "Alert", cell: (alert) => sentence(alert) },
    { label: "Type", cell: ({ alert_type: type }) => html`<span class="tag">${TYPES[type] || type}</span>` },
    { label: "Raised", cell: (alert) => when(alert.created_at, { only: "relative" }) },
    { label: "", kind: "tight right", cell: (alert) => alert.cue_id ? html`<a href=${link("cues", alert.cue_id)}>Cue</a>${route.query.cue ? nothing : html` · <a href=${withQuery(route, { cue: alert.cue_id })}>Its alerts</a>`}` : nothing },
  ];
  return [table({ label: "Alerts", columns, rows: alerts, key: (alert) => alert.id }), pager(route, { total, perPage: PER_PAGE, noun: "alerts" })];
}

function sentence({ severity, message, execution_id: run }) {
  const [sign, color] = SEVERITIES[severity] || SEVERITIES.warning;
  return html`<span class=${color}><span class="sign" aria-hidden="true">${sign}</span><span class="sr">${severity}: </span></span> ${run ? html`<a class="name" href=${link("runs", run)}>${message}</a>` : html`<span class="name">${message}</span>`}`;
}

const none = (filtered, route) => html`<div class="empty"><h2>${filtered ? "No alert matches" : "No alert"}</h2>
  <p>${filtered
    ? html`<a class="button" href=${withQuery(route, { type: null, cue: null, days: null })}>Show all alerts</a>`
    : "An alert is raised when a cue fails 3 times in a row, a result is rejected, a worker is lost, no worker takes a run, or runs are caught up after an outage."}</p></div>`;

function destinations(data) {
  const url = state.user?.alert_webhook_url;
  const mails = state.info?.mail === "smtp";
  return html`<section class="card" id="destinations"><header><h2>Where alerts go</h2></header>
    <dl class="facts long pad">
      <dt>This list</dt><dd>Always. The newest 1,000 are kept.</dd>
      <dt>Webhook</dt><dd class="stack"><p>${url ? html`<code>${url}</code>` : "Not set. An address of yours can get each alert as a signed POST."}</p>
        <div class="row"><button id="set-webhook" @click=${() => setWebhook(url)}>${url ? "Change" : "Set a webhook"}</button>${url ? [html`<button id="send-test" ?disabled=${data.busy} @click=${() => sendTest(data, url)}>Send a test</button>`, html`<button class="danger" id="remove-webhook" @click=${() => removeWebhook(url)}>Remove</button>`, html`<a href=${link("account", "keys")}>Secret that signs it</a>`] : nothing}</div>
        ${data.test?.url === url ? html`<p id="test-result" class=${data.test.color}>${data.test.text}</p>` : nothing}</dd>
      <dt>Mail</dt><dd>Alerts are not mailed. Runs that fail are, if their cue says so${mails ? "." : "; this server sends no mail, it writes it to its log."}</dd>
    </dl></section>`;
}

async function change(url) {
  await patch("v1/auth/me", { alert_webhook_url: url });
  return loadUser();
}

async function setWebhook(url) {
  const saved = await prompt({
    title: "Webhook for alerts",
    text: "Each alert is sent there as a POST, signed with the alert secret. It is tried up to three times in six minutes.",
    fields: [{ name: "alert_webhook_url", label: "Address", type: "url", value: url || "", required: true }],
    send: ({ alert_webhook_url: to }) => change(to),
  });
  if (saved) toast("Alerts go to the webhook");
}

async function removeWebhook(url) {
  const sure = await confirm({ title: "Remove the webhook?", text: `Alerts are no longer sent to ${url}.`, action: "Remove", danger: true });
  if (sure) await act(() => change(null), "Removed the webhook");
}

async function sendTest(data, url) {
  update(() => Object.assign(data, { busy: true, test: null }));
  const answer = await act(() => post("v1/alerts/test"));
  const [color, text] = answer ? outcome(answer) : [];
  if (text) announce(text);
  update(() => Object.assign(data, { busy: false, test: answer && { url, color, text } }));
}

/** Colour and words of the answer to a test. Pure. */
export function outcome({ status, http_status: code, duration_ms: ms, error_message: error, next_retry: next }) {
  if (status === "delivered") return ["good", `The test arrived: the webhook answered ${code} in ${duration(ms)}.`];
  if (status === "waiting") return ["warn", "The test is on its way: the webhook has not answered yet."];
  return ["bad", `The test failed after ${duration(ms)}: ${error}. It is ${next ? "" : "not "}sent again.`];
}
