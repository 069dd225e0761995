// The ways in: those that GET /v1/info offers. It covers the screen that was asked for, whose address stays as it is.
import { html, nothing } from "../lit/lit-html.js";
import { ApiError, get, post, setAccount } from "../app/api.js";
import { loadInfo, signedIn } from "../app/server.js";
import { state, update } from "../app/state.js";
import { copyButton, showSecret } from "../parts/copy.js";
import { confirm } from "../parts/dialog.js";
import { errorBox, note, toast } from "../parts/feedback.js";
import { field, focusProblem } from "../parts/form.js";
import { baseUrl } from "../parts/snippets.js";

const quiet = { quiet: true };

/** Nobody can have a key yet. */
const isFirst = () => state.info?.users === false && state.info.registration !== "closed";

export const head = () => ({ title: isFirst() ? "Welcome" : "Sign in", note: html`${isFirst() ? "This is" : "to"} cued on <bdi>${location.host}</bdi>` });

export async function load(data, { screen, id }) {
  if (screen === "sign_in" && id !== data.tried) {
    data.tried = id;
    update((s) => (s.signedOut = true));
    try {
      await enterByLink(id);
      return {};
    } catch (error) {
      if (isSpent(error) && (await enteredAlready())) return {};
      data.linkError = error;
    }
  }
  await loadInfo();
  setTimeout(() => document.querySelector("[data-screen=sign_in] :is(input, .primary)")?.focus(), 50);
  return {};
}

/** A link that is opened twice leads on where the first time signed this browser in. */
async function enteredAlready() {
  try {
    const { email } = await get("v1/auth/me", {}, quiet);
    signedIn();
    toast(`You are signed in as ${email}`);
    return true;
  } catch {
    return false;
  }
}

/** Any site can lead its visitor to a link: one of another account asks before it changes the account. */
async function enterByLink(token) {
  try {
    await enter({ link_token: token });
  } catch (error) {
    if (error.status !== 409) throw error;
    const { email } = await get("v1/auth/me", {}, quiet);
    const question = { title: "Change the account?", text: `You are signed in as ${email}. Sign in as the account of this link instead?`, action: "Change the account" };
    if (await confirm(question)) await enter({ link_token: token, switch_account: true });
    else signedIn();
  }
}

async function enter(credential) {
  const { user } = await post("v1/auth/session", credential, quiet);
  setAccount(user.id);
  await get("v1/auth/me", {}, quiet).catch(explain);
  const isAnother = credential.switch_account || (state.user && state.user.id !== user.id);
  signedIn();
  // Nothing of the other account stays in the tab.
  if (isAnother) location.reload();
}

/** A browser drops a cookie that does not fit the address of the page, without a word. */
async function explain(error) {
  if (error.status !== 401) throw error;
  const { public_url: url } = await loadInfo();
  const [own, here] = [url, baseUrl()].map((base) => new URL(base + "/"));
  const fits = own.protocol === here.protocol && own.pathname === here.pathname;
  throw new ApiError(0, "not_kept", "This browser did not keep the sign-in: " + (fits ? "allow cookies for this site." : `open the page at ${url} instead.`));
}

export function view(data) {
  const { sign_in: ways = ["key"], users = true, registration } = state.info;
  const offers = (way) => ways.includes(way);
  if (data.mail) return mailSent(data, data.mail);
  const key = offers("key") && users ? byKey(data) : nothing;
  return html`${data.linkError ? linkProblem(data.linkError) : nothing}
    ${users || isFirst() ? nothing : note(html`There is no account yet. Make one on the server: <code>cued user add EMAIL</code>`, "warn")}
    ${offers("dev") ? html`<section class="card pad stack" id="way-dev"><p>This server is in development mode.</p>${told(problem(data, "dev"))}<button class="primary" ?disabled=${isBusy(data)} @click=${() => send(data, "dev", () => enter({ dev: true }))}>Go in without a key</button></section>` : nothing}
    ${isFirst() ? newAccount(data, "Create the first account") : nothing}
    ${bySmtp() ? nothing : key}
    ${users && offers("mail") ? byMail(data) : nothing}
    ${bySmtp() ? key : nothing}
    ${users && registration === "open" ? newAccount(data, "Create an account") : nothing}
    ${users && offers("link") ? shell() : nothing}`;
}

const isSpent = ({ status }) => status === 401 || status === 422;
const linkProblem = (error) => (isSpent(error) ? note(html`<b>This link was used before, or it is too old.</b> It works once, within five minutes. Make another, or sign in here.`, "bad") : errorBox(error, error.code === "not_kept" ? null : () => location.reload()));

const secondsLeft = () => Math.ceil((state.waitUntil - Date.now()) / 1000);
const isBusy = (data) => data.busy || secondsLeft() > 0;

/** What went wrong with a way in, and how long to wait. */
function problem({ error, at }, way) {
  if (at !== way || !error || error.problems.length) return "";
  if (error.status !== 429) return error.message;
  const wait = secondsLeft();
  return wait > 0 ? `Too many tries: wait ${wait < 120 ? `${wait} s` : `${Math.ceil(wait / 60)} min`}.` : "";
}

const told = (text) => (text ? html`<p class="bad wrap" role="alert">${text}</p>` : nothing);

async function send(data, at, run) {
  update(() => Object.assign(data, { busy: true, at, error: null }));
  try {
    await run();
  } catch (error) {
    if (error.status === undefined) console.error(error);
    data.error = Object.assign(error, { problems: error.problems || [] });
    focusProblem();
  }
  update(() => (data.busy = false));
}

/** A card with one field and one button; `name` is the field of the API. */
function form(data, { id, title, name, label, type, autocomplete, help, action, run, primary = true }) {
  const submit = (event) => {
    event.preventDefault();
    const value = new FormData(event.target).get(name).trim();
    send(data, id, () => run(value));
  };
  const error = data.at === id ? data.error : null;
  return html`<form class="card pad stack" id=${"way-" + id} @submit=${submit}>${title ? html`<h2>${title}</h2>` : nothing}
    ${field({ name, prefix: id + "-", label, type, autocomplete, help, required: true, error, problem: problem(data, id) })}
    <button class=${primary ? "primary" : ""} ?disabled=${isBusy(data)}>${action}</button></form>`;
}

const byKey = (data) => form(data, {
  id: "key", title: "With an API key", name: "api_key", label: "API key", type: "password", autocomplete: "current-password", action: "Sign in", primary: !bySmtp() && !state.info.sign_in?.includes("dev"),
  help: html`It begins with <code>cue_sk_</code>. The sign-in ends when the key is revoked.`,
  run: (key) => enter({ api_key: key }),
});

const newAccount = (data, title) => form(data, {
  id: "new", title, name: "email", label: "Email address", type: "email", autocomplete: "email", action: "Create account", primary: !state.info.users, help: state.info.users ? "" : "Cues belong to an account. Next you get its key.",
  async run(email) {
    const { api_key: key } = await post("v1/auth/register", { email }, quiet);
    await showSecret({ title: "Your API key", text: "Programs and the command line use it, and you can sign in with it here. It is shown only now: store it where you keep passwords.", value: key });
    await enter({ api_key: key });
  },
});

const bySmtp = () => state.info.mail === "smtp";

const byMail = (data) => form(data, {
  id: "mail", title: bySmtp() ? "With a link by mail" : "With a link from the server's log", name: "email", label: "Email address", type: "email", autocomplete: "email", action: bySmtp() ? "Send me a link" : "Write a link", primary: bySmtp(),
  async run(email) {
    const { device_code: code, user_code: eyes, expires_in: life, interval } = await post("v1/auth/device-code", { for: "session" }, quiet);
    await post("v1/auth/device-code/submit-email", { device_code: code, email }, quiet);
    data.mail = { code, eyes, email, interval, until: Date.now() + life * 1000 };
    poll(data, data.mail);
  },
});

function mailSent(data, { email, eyes, expired }) {
  return html`<section class="card pad stack" id="way-mail" aria-live="polite"><h2>${expired ? "The link is too old" : bySmtp() ? "Look into your mail" : "Look into the server's log"}</h2>
    ${expired ? nothing : html`<p>If <b class="wrap">${email}</b> may sign in, a link is ${bySmtp() ? "on its way" : "in the log"}. Open it on any device and confirm there that this code is shown:</p>
    <p class="eyes mono">${eyes}</p><p class="muted small">This page goes on by itself then.</p>`}${told(problem(data, "poll"))}
    <button @click=${() => update(() => (data.mail = null))}>${expired ? "Send another" : "Another address or way"}</button></section>`;
}

async function poll(data, mail) {
  // Another way in, another address, or another screen may have come before the confirmation.
  const isOver = () => data.mail !== mail || !state.signedOut;
  while (!isOver()) {
    await new Promise((resolve) => setTimeout(resolve, Math.max(mail.interval * 1000, state.waitUntil - Date.now())));
    if (isOver()) return;
    if (Date.now() > mail.until) return update(() => (mail.expired = true));
    try {
      const { status } = await post("v1/auth/device-code/poll", { device_code: mail.code }, quiet);
      if (status === "expired" || status === "claimed") return update(() => (mail.expired = true));
      if (status === "approved") return await enter({ device_code: mail.code });
      update(() => (data.error = null));
    } catch (error) {
      if (error.status === 404) return update(() => (mail.expired = true));
      // The network or the server may come back: go on asking until the link is too old.
      update(() => Object.assign(data, { error, at: "poll" }));
    }
  }
}

function shell() {
  const line = (text, about) => html`<p class="small">${about}</p><div class="code"><code>${text}</code>${copyButton(text)}</div>`;
  return html`<details class="card pad" id="way-link"><summary>From a command line</summary><div class="stack">${line("cued open", "Where you are logged in:")}${line(`cued user link EMAIL --public-url ${baseUrl()}`, "On the machine of the server, for any account:")}</div></details>`;
}

export const leave = (data) => (data.mail = null);
