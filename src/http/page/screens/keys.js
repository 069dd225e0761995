// Keys and secrets: API keys, secrets that sign deliveries and alerts, and signed-in browsers.
import { act, ago, anchor, button, card, confirmed, copy, copyKey, copyMenu, del, get, html, noRows,
  note, panel, plural, post, prompt, reload, reloadAfter, showSecret, state, toast, update, viaText,
  when } from "../kit.js";
import { table } from "../parts/table.js";

const CALL = { method: "GET", path: "v1/auth/keys" };
const SECRETS = {
  __proto__: null,
  webhook: {
    title: "Webhook secret", path: "v1/auth/webhook-secret", field: "webhook_secret",
    text: "Signs each request of a cue: your receiver knows that it comes from this server.",
    replaced: `For 24 hours, webhook-signature has the signatures of both secrets: update your
      receivers in that time. X-CueAPI-Signature uses the new secret at once.`,
  },
  alert: {
    title: "Alert secret", path: "v1/auth/alert-webhook-secret", field: "alert_webhook_secret",
    text: "Signs alerts sent to your webhook.",
    replaced: "The old secret stops signing at once: update the receiver of your alerts now.",
  },
};

const VERIFY = anchor("docs/how-to/signatures", "Verify it in your receiver");

export const head = () => ({ actions: copyMenu(CALL) });
export const shortcuts = () => [["n", "New key", makeKey], copyKey(CALL)];

export async function load({ secrets = {} }) {
  const lists = [get("v1/auth/keys"), get("v1/auth/sessions")];
  const [{ keys }, { sessions }] = await Promise.all(lists);
  return { keys, sessions, secrets };
}

export const view = (data) => [
  keysCard(data.keys), secretCard(data, "webhook", VERIFY), secretCard(data, "alert", ""),
  sessionsCard(data.sessions),
];

const remove = (title, action, text, path, done) =>
  reloadAfter(confirmed(title, action, text, () => del(path), done));

const named = (name, isOwn) => html`<span class="name">${name}</span> ${
  isOwn ? html`<span class="tag">this one</span>` : ""}`;

// The key of the request; in a session, the key that began it, without which the session ends.
const isOwn = (key) => key.current || key.prefix === state.user?.api_key_prefix;

function keysCard(keys) {
  const removal = (key) => keys.length === 1
    ? html`<span class="muted small">The last key stays</span>`
    : button("Revoke", () => revoke(key), "plain danger", { label: `Revoke ${key.name}` });
  return card("keys", "API keys", button("New key", makeKey, "primary", { id: "new-key" }),
    table("API keys", [
      ["Name", (key) => named(key.name, isOwn(key))],
      ["Starts with", ({ prefix }) => html`<code class="id">${prefix}…</code>`],
      ["Created", (key) => when(key.created_at), "short"],
      ["", removal, "tight right"],
    ], keys));
}

async function makeKey() {
  const help = "Name the machine or the program that uses it.";
  const created = await prompt({
    title: "New API key", fields: [{ name: "name", label: "Name", help, required: true }],
    action: "Create", send: ({ name }) => post("v1/auth/keys", { name }),
  });
  if (!created) return;
  const use = "Programs send it as “Authorization: Bearer KEY”; cued reads it from CUED_API_KEY.";
  await showSecret("Your new key", `Copy it now: you cannot see it again. ${use}`, created.api_key);
  toast(`Created ${created.name}`);
  reload();
}

const revoke = (key) => remove(`Revoke ${key.name}?`, "Revoke", isOwn(key)
  ? `You are signed in with this key: you are signed out at once, here and in every browser that
    used it to sign in.`
  : "Programs and browsers that use it stop working at once. You cannot undo this.",
"v1/auth/keys/" + encodeURIComponent(key.id), `Revoked ${key.name}`);

function secretCard(data, kind, more) {
  const { title, text, field, path, replaced } = SECRETS[kind];
  const { value, until } = data.secrets[kind] || {};
  const name = title.toLowerCase();
  const keep = (fields) =>
    update(() => (data.secrets[kind] = { ...data.secrets[kind], ...fields }));
  const read = async () => value || (await get(path))[field];
  const show = () => act(async () => keep({ value: value ? "" : await read() }));
  const replace = async () => {
    const secret = await confirmed(`Replace the ${name}?`, "Replace", replaced,
      () => post(path + "/regenerate"), `Replaced the ${name}`);
    if (secret) keep({ value: secret[field], until: secret.previous_secret_expires_at });
  };
  const old = until && html`The old secret also signs until ${when(until, { only: "absolute" })}.`;
  const small = (verb, run) => button(verb, run, "plain small", { label: `${verb} the ${name}` });
  return panel(kind + "-secret", title, button("Replace", replace, "danger"), html`<p>${text}</p>
    ${old ? note(old, "warn") : ""}
    <div class="code"><code>${value || "whsec_" + "•".repeat(8)}</code>${
    small(value ? "Hide" : "Show", show)}${
    small("Copy", () => act(async () => copy(await read())))}</div>${more}`);
}

function sessionsCard(sessions) {
  const others = sessions.filter((session) => !session.current).length;
  const all = others === sessions.length ? "all" : "all others";
  const end = ({ id, device }) => reloadAfter(act(
    () => del("v1/auth/sessions/" + encodeURIComponent(id)), `Ended the session of ${device}`));
  const removal = (session) => session.current ? ""
    : button("End", () => end(session), "plain danger",
      { label: `End the session of ${session.device}` });
  const columns = [
    ["Browser", (session) => named(session.device || "Unknown", session.current)],
    ["Address", ({ address }) => html`<code class="id">${address}</code>`],
    ["Signed in by", (session) => viaText(session.via)],
    ["Since", (session) => ago(session.created_at), "short"],
    ["Last seen", (session) => (session.current ? "now" : ago(session.seen_at)), "short"],
    ["", removal, "tight right"],
  ];
  return card("sessions", "Signed-in browsers",
    others ? button(`End ${all}`, () => endOthers(others), "danger", { id: "end-others" }) : "",
    sessions.length ? html`${table("Signed-in browsers", columns, sessions)}
        <footer class="muted small">“Last seen” is updated once a day.</footer>`
      : noRows("No browser is signed in."));
}

const endOthers = (count) => remove("Sign out other browsers?", "End them",
  `${plural(count, "browser")} will be signed out at once, and unused sign-in links stop working.`,
  "v1/auth/sessions", ({ ended }) => `Ended ${plural(ended, "session")}`);
