// Keys and secrets: API keys, the secrets that sign deliveries and alerts, and the browsers that are signed in.
import { html, nothing } from "../lit/lit-html.js";
import { del, get, post } from "../app/api.js";
import { go } from "../app/router.js";
import { state, update } from "../app/state.js";
import { plural, viaText } from "../app/words.js";
import { copy, copyButton, copyKey, copyMenu, showSecret } from "../parts/copy.js";
import { confirm, prompt } from "../parts/dialog.js";
import { act, note, toast } from "../parts/feedback.js";
import { field } from "../parts/form.js";
import { table } from "../parts/table.js";
import { when } from "../parts/values.js";
import { SNIPPETS } from "../parts/verify.js";

const CALL = { method: "GET", path: "v1/auth/keys" };
const SECRETS = {
  webhook: {
    title: "Webhook secret",
    text: "Signs each delivery of a cue, so that your receiver knows that it comes from here.",
    path: "v1/auth/webhook-secret",
    field: "webhook_secret",
    rotate: "For 24 hours each delivery is signed with both secrets in webhook-signature: change your receivers in that time. X-CueAPI-Signature uses the new one at once.",
  },
  alert: {
    title: "Alert secret",
    text: "Signs the alerts that go to your webhook.",
    path: "v1/auth/alert-webhook-secret",
    field: "alert_webhook_secret",
    rotate: "The old secret signs nothing from now on: change the receiver of your alerts at once.",
  },
};

export const head = () => ({ actions: copyMenu(CALL) });

export async function load({ secrets = {}, language = "Python" }) {
  const [{ keys }, { sessions }] = await Promise.all([get("v1/auth/keys"), get("v1/auth/sessions")]);
  return { keys, sessions, secrets, language };
}

export const shortcuts = () => [{ keys: "n", label: "New key", run: makeKey }, copyKey(CALL)];

const reload = () => go(location.hash, { replace: true });

export const view = (data) => [keysCard(data.keys), secretCard(data, "webhook", verify(data)), secretCard(data, "alert"), sessionsCard(data.sessions)];

// The key of the request; in a session, the key that began it, without which the session ends.
const isOwn = (key) => key.current || key.prefix === state.user?.api_key_prefix;

function keysCard(keys) {
  const columns = [
    { label: "Name", cell: (key) => html`<span class="name">${key.name}</span> ${isOwn(key) ? html`<span class="tag">this one</span>` : nothing}` },
    { label: "Begins with", cell: (key) => html`<code class="id">${key.prefix}…</code>` },
    { label: "Created", short: true, cell: (key) => when(key.created_at) },
    { label: "", kind: "tight right", cell: (key) => (keys.length === 1 ? html`<span class="muted small">the last key stays</span>` : html`<button class="plain danger" aria-label=${`Revoke ${key.name}`} @click=${() => revoke(key)}>Revoke</button>`) },
  ];
  return html`<section class="card" id="keys"><header><h2>API keys</h2><button class="primary" id="new-key" @click=${makeKey}>New key</button></header>
    ${table({ label: "API keys", columns, rows: keys, key: (key) => key.id })}</section>`;
}

async function makeKey() {
  const made = await prompt({
    title: "New API key",
    fields: [{ name: "name", label: "Name", help: "What it is for, such as the machine or the program.", required: true }],
    action: "Create",
    send: ({ name }) => post("v1/auth/keys", { name }),
  });
  if (!made) return;
  await showSecret({ title: "Your new key", text: "It is shown only now. Programs send it as “Authorization: Bearer KEY”; cued reads it from CUED_API_KEY.", value: made.api_key });
  toast(`Created ${made.name}`);
  reload();
}

async function revoke(key) {
  const text = isOwn(key) ? "You are signed in with this key: you are signed out at once, here and wherever else it was used to sign in." : "Programs and browsers that use it are refused at once. This cannot be undone.";
  const sure = await confirm({ title: `Revoke ${key.name}?`, text, action: "Revoke", danger: true });
  if (sure && (await act(() => del("v1/auth/keys/" + encodeURIComponent(key.id)), `Revoked ${key.name}`))) reload();
}

function secretCard(data, kind, more = nothing) {
  const { title, text, field, path } = SECRETS[kind];
  const { value, until } = data.secrets[kind] || {};
  const shown = value || "whsec_" + "•".repeat(8);
  const eye = html`<svg viewBox="0 0 24 24" width="18" height="18" fill="none" stroke="currentColor" stroke-width="1.75" aria-hidden="true"><path d=${"M2.5 12S6 5.5 12 5.5 21.5 12 21.5 12 18 18.5 12 18.5 2.5 12 2.5 12z" + (value ? "M4 4l16 16" : "")}></path><circle cx="12" cy="12" r="3"></circle></svg>`;
  const read = async () => (await get(path))[field];
  return html`<section class="card" data-secret=${kind}><header><h2>${title}</h2><button class="danger" @click=${() => rotate(data, kind)}>Replace</button></header>
    <div class="pad stack"><p>${text}</p>
      ${until ? note(html`The old secret signs as well until ${when(until, { only: "absolute" })}.`, "warn") : nothing}
      <div class="code"><code>${shown}</code>
        <button class="plain small" aria-pressed=${value ? "true" : "false"} aria-label=${`Show the ${title.toLowerCase()}`} @click=${() => act(async () => keep(data, kind, { value: value ? "" : await read() }))}>${eye}</button>
        <button class="plain small" aria-label=${`Copy the ${title.toLowerCase()}`} @click=${() => act(async () => void copy(value || (await read())))}>Copy</button></div>
      ${more}</div></section>`;
}

const keep = (data, kind, fields) => update(() => (data.secrets[kind] = { ...data.secrets[kind], ...fields }));

async function rotate(data, kind) {
  const { title, path, field, rotate: text } = SECRETS[kind];
  const sure = await confirm({ title: `Replace the ${title.toLowerCase()}?`, text, action: "Replace", danger: true });
  const made = sure && (await act(() => post(path + "/regenerate"), `Replaced the ${title.toLowerCase()}`));
  if (made) keep(data, kind, { value: made[field], until: made.previous_secret_expires_at });
}

function verify(data) {
  const code = () => SNIPPETS[data.language].join("\n");
  const options = Object.keys(SNIPPETS).map((name) => [name, name]);
  return html`<details><summary>Check it in your receiver</summary><div class="stack">
    <p class="muted">The signature covers the id, the time and the bytes of the body as they came: check it before you parse the body. Refuse what is older than five minutes, and an id that you have handled.</p>
    ${field({ name: "language", label: "Language", value: data.language, options, oninput: (name) => update(() => (data.language = name)) })}
    <div class="code"><pre id="verify" tabindex="0">${code()}</pre></div><div class="actions">${copyButton(code, "Copy the code")}</div></div></details>`;
}

function sessionsCard(sessions) {
  const others = sessions.filter((session) => !session.current);
  const columns = [
    { label: "Browser", cell: (session) => html`<span class="name">${session.device || "Unknown"}</span> ${session.current ? html`<span class="tag">this one</span>` : nothing}` },
    { label: "Address", cell: (session) => html`<code class="id">${session.address}</code>` },
    { label: "Signed in by", cell: (session) => viaText(session.via) },
    { label: "Since", short: true, cell: (session) => when(session.created_at, { only: "relative" }) },
    { label: "Last seen", short: true, cell: (session) => (session.current ? "now" : when(session.seen_at, { only: "relative" })) },
    { label: "", kind: "tight right", cell: (session) => (session.current ? nothing : html`<button class="plain danger" aria-label=${`End the session of ${session.device}`} @click=${() => end(session)}>End</button>`) },
  ];
  return html`<section class="card" id="sessions"><header><h2>Signed-in browsers</h2>${others.length ? html`<button id="end-others" class="danger" @click=${() => endOthers(others.length)}>End ${others.length === sessions.length ? "all" : "all others"}</button>` : nothing}</header>
    ${sessions.length ? table({ label: "Signed-in browsers", columns, rows: sessions, key: (session) => session.id }) : html`<p class="pad muted">No browser is signed in.</p>`}
    ${sessions.length ? html`<footer class="muted small">“Last seen” is noted once a day.</footer>` : nothing}</section>`;
}

async function end({ id, device }) {
  if (await act(() => del("v1/auth/sessions/" + encodeURIComponent(id)), `Ended the session of ${device}`)) reload();
}

async function endOthers(count) {
  const sure = await confirm({ title: "End the other sessions?", text: `${plural(count, "browser")} will be signed out at once, and unused sign-in links stop working.`, action: "End them", danger: true });
  if (sure && (await act(() => del("v1/auth/sessions"), ({ ended }) => `Ended ${plural(ended, "session")}`))) reload();
}
