// The ways in that GET /v1/info offers. It covers the screen that was asked for.
import { ApiError, account, baseUrl, busily, button, confirm, copyLine, duration, errorBox, get,
  html, loadInfo, note, post, setAccount, showSecret, signedIn, state, toast, update } from
  "../kit.js";
import { field, focusProblem } from "../parts/form.js";

const quiet = { quiet: true };
const send = (path, body) => post("v1/auth/" + path, body, quiet);
const getUser = () => get("v1/auth/me", {}, quiet);

/** No user can have a key yet. */
const isFirst = () => state.info?.users === false && state.info.registration !== "closed";
const bySmtp = () => state.info.mail === "smtp";

export const head = () => ({
  title: isFirst() ? "Welcome" : "Sign in",
  note: html`${isFirst() ? "This is" : "to"} cued on <bdi>${location.host}</bdi>`,
});

export async function load(data, { screen, id }) {
  if (screen === "sign_in" && id !== data.tried) {
    data.tried = id;
    update((s) => (s.signedOut = true));
    try {
      return await enterByLink(id);
    } catch (error) {
      if (isSpent(error) && (await enteredAlready())) return;
      data.linkError = error;
    }
  }
  await loadInfo();
  const first = () => document.querySelector("[data-screen=sign_in] :is(input, .primary)");
  setTimeout(() => first()?.focus(), 50);
}

/** A link that is opened twice leads on where the first time signed this browser in. */
async function enteredAlready() {
  const user = await getUser().catch(() => null);
  if (!user) return false;
  signedIn();
  toast(`You are signed in as ${user.email}`);
  return true;
}

/** Any site can lead its visitor to a link: one of another account asks first. */
async function enterByLink(token) {
  try {
    await enter({ link_token: token });
  } catch (error) {
    if (error.status !== 409) throw error;
    const { email } = await getUser();
    const text = `You are signed in as ${email}. Switch to the account of this link?`;
    const action = "Switch account";
    if (!(await confirm({ title: action + "?", text, action }))) return signedIn();
    await enter({ link_token: token, switch_account: true });
  }
}

async function enter(credential) {
  const { user } = await send("session", credential);
  setAccount(user.id);
  await getUser().catch(explain);
  const isAnother = credential.switch_account || (state.user && state.user.id !== user.id);
  signedIn();
  // Nothing of the other account stays in the tab.
  if (isAnother) location.reload();
}

/** A browser drops a cookie that does not fit the address of the page without an error. */
async function explain(error) {
  if (error.status !== 401) throw error;
  const { public_url: url } = await loadInfo();
  const [own, here] = [url, baseUrl()].map((base) => new URL(base + "/"));
  const fits = own.protocol === here.protocol && own.pathname === here.pathname;
  const remedy = fits ? "allow cookies for this site." : `open the page at ${url} instead.`;
  throw new ApiError(0, "not_kept", "This browser did not keep the sign-in: " + remedy);
}

export function view(data) {
  const { sign_in: ways = ["key"], users = true, registration } = state.info;
  if (data.mail) return mailSent(data, data.mail);
  const key = users && ways.includes("key") ? byKey(data) : "";
  const mail = users && ways.includes("mail") ? byMail(data) : "";
  const [first, second] = bySmtp() ? [mail, key] : [key, mail];
  const isDev = ways.includes("dev");
  const noAccount = html`There is no account yet. Create one on the server:
    <code>cued user add EMAIL</code>`;
  // Somebody is signed in here, as far as this browser knows: the session has ended elsewhere.
  const ended = "Your session has ended. Sign in again to continue where you were.";
  return html`${users && (state.user || account()) ? note(ended, "warn") : ""}
    ${data.linkError ? linkProblem(data.linkError) : ""}
    ${users || isFirst() ? "" : note(noAccount, "warn")}
    ${isDev ? development(data) : isFirst() ? newAccount(data, "Create the first account") : first}
    ${users ? folded("other-ways", "Other ways to sign in", [isDev ? first : "", second,
      ways.includes("link") ? shell() : ""]) : ""}
    ${(users && registration === "open") || (isDev && isFirst())
      ? folded("register", "Create an account", [newAccount(data, "Your account")]) : ""}`;
}

const folded = (id, title, parts) => html`<details id=${id}><summary>${title}</summary><div
  class="stack">${parts}</div></details>`;

const isSpent = ({ status }) => status === 401 || status === 422;
const linkProblem = (error) => isSpent(error)
  ? note(html`<b>This link was used before, or it has expired.</b> A link works once, within five
    minutes. Create another, or sign in here.`, "bad")
  : errorBox(error, error.code === "not_kept" ? null : () => location.reload());

const secondsLeft = () => Math.ceil((state.waitUntil - Date.now()) / 1000);
const isBusy = (data) => data.busy || secondsLeft() > 0;

function problem({ error, at }, way) {
  if (at !== way || !error || error.problems?.length) return "";
  if (error.status !== 429) return error.message;
  const wait = secondsLeft();
  return wait > 0 ? `Too many attempts: wait ${duration(wait * 1000)}.` : "";
}

function shownProblem(data, way) {
  const text = problem(data, way);
  return text ? html`<p class="bad wrap" role="alert">${text}</p>` : "";
}

const tryIn = (data, at, run) => busily(data, async () => {
  Object.assign(data, { at, error: null });
  await run();
}, (error) => {
  if (error.status === undefined) console.error(error);
  data.error = error;
  focusProblem();
});

/** Of several accounts the button enters the first. */
const devAction = (accounts = []) => accounts.length < 2 ? "Continue without a key"
  : html`Continue as <bdi class="wrap">${accounts[0]}</bdi>`;

const development = (data) => html`<section class="card pad stack" id="way-dev">
  <p>This server is in development mode.</p>${shownProblem(data, "dev")}
  ${button(devAction(state.info.accounts), () => tryIn(data, "dev", () => enter({ dev: true })),
    "primary", { off: isBusy(data) })}</section>`;

/** A card with one field and one button; `name` is the field of the API. */
function form(data, { id, title, action, run, isPrimary, ...about }) {
  const submit = (event) => {
    event.preventDefault();
    const value = new FormData(event.target).get(about.name).trim();
    tryIn(data, id, () => run(value));
  };
  const error = data.at === id ? data.error : null;
  return html`<form class="card pad stack" novalidate id=${"way-" + id}
    @submit=${submit}><h2>${title}</h2>
    ${field({ ...about, prefix: id + "-", required: true, error, problem: problem(data, id) })}
    <button class=${isPrimary ? "primary" : ""}
      ?disabled=${isBusy(data)}>${action}</button></form>`;
}

const byKey = (data) => form(data, {
  id: "key", title: "With an API key", name: "api_key", label: "API key", type: "password",
  autocomplete: "current-password", action: "Sign in", run: (key) => enter({ api_key: key }),
  help: html`It begins with <code>cue_sk_</code>. Revoking it signs you out.`,
  isPrimary: !bySmtp() && !state.info.sign_in?.includes("dev"),
});

const EMAIL = { name: "email", label: "Email address", type: "email", autocomplete: "email" };

const newAccount = (data, title) => form(data, {
  ...EMAIL, id: "new", title, action: "Create account", isPrimary: !state.info.users,
  help: state.info.users ? "" : "Your cues belong to this account. You'll see its API key next.",
  async run(email) {
    const { api_key: key } = await send("register", { email });
    const use = "Programs and the command line use it, and you can sign in with it.";
    const store = "Store it where you keep passwords: you cannot see it again.";
    await showSecret("Your API key", `${use} ${store}`, key);
    await enter({ api_key: key });
  },
});

const byMail = (data) => form(data, {
  ...EMAIL, id: "mail", isPrimary: bySmtp(),
  action: bySmtp() ? "Send me a link" : "Create a sign-in link",
  title: bySmtp() ? "With a mailed link" : "With a link from the server log",
  async run(email) {
    const device = await send("device-code", { for: "session" });
    const { device_code: code, user_code: userCode, expires_in: life, interval } = device;
    await send("device-code/submit-email", { device_code: code, email });
    data.mail = { code, userCode, email, interval, until: Date.now() + life * 1000 };
    poll(data, data.mail);
  },
});

function mailSent(data, { email, userCode, expired }) {
  const title = expired ? "The link has expired"
    : bySmtp() ? "Check your mail" : "Check the server log";
  const again = expired ? "Send another" : "Use another way";
  return html`<section class="card pad stack" id="way-mail" aria-live="polite"><h2>${title}</h2>
    ${expired ? "" : html`<p>If <b class="wrap">${email}</b> has an account, its link is ${bySmtp()
      ? "on its way" : "in the log"}. Open it on any device and confirm that you see this code
      there:</p><p class="eyes mono">${userCode}</p>
      <p class="muted small">This page continues once you confirm.</p>`}
    ${shownProblem(data, "poll")}
    ${button(again, () => update(() => (data.mail = null)))}</section>`;
}

async function poll(data, mail) {
  // Another way in, another address, or another screen may have come before the confirmation.
  const isOver = () => data.mail !== mail || !state.signedOut;
  const expire = () => update(() => (mail.expired = true));
  while (!isOver()) {
    const wait = Math.max(mail.interval * 1000, state.waitUntil - Date.now());
    await new Promise((resolve) => setTimeout(resolve, wait));
    if (isOver()) return;
    if (Date.now() > mail.until) return expire();
    try {
      const { status } = await send("device-code/poll", { device_code: mail.code });
      if (status === "expired" || status === "claimed") return expire();
      if (status === "approved") return await enter({ device_code: mail.code });
      update(() => (data.error = null));
    } catch (error) {
      if (error.status === 404) return expire();
      // The network or the server may come back: go on asking until the link is too old.
      update(() => Object.assign(data, { error, at: "poll" }));
    }
  }
}

function shell() {
  const line = (text, about) => html`<p class="small">${about}</p>${copyLine(text)}`;
  return html`<section class="card pad stack" id="way-link"><h2>From a command line</h2>
    ${line("cued open", "On a machine where you are logged in:")}${
      line(`cued user link EMAIL --public-url ${baseUrl()}`,
        "On the server, for any account:")}</section>`;
}

export const leave = (data) => (data.mail = null);
