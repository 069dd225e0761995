// The state of the server and its user, shared by all screens.
import { account, del, get, orNull, setAccount } from "./api.js";
import * as events from "./events.js";
import { freeze, instant } from "./time.js";
import { settings, state, update } from "./state.js";

const FRESH_MS = 900; // callers within this time share a response; below REFETCH_MS of main.js

let request = null;
let requestedAt = 0;
let signedInHook = () => {};
let tabs = null;

/** Tabs of this server tell each other who is signed in: the id of an account, or null. */
export function joinTabs() {
  tabs = new BroadcastChannel("cued " + new URL(".", location.href).pathname);
  tabs.onmessage = ({ data: id }) => {
    if (state.user && id && id !== state.user.id) location.reload();
    else if (!id) update((s) => (s.signedOut = true));
    else if (state.signedOut) signedIn(true);
  };
}

/** Something happened: the next reader of the overview asks again. */
export const outdate = () => (request = null);

/** Fetches `/v1/overview` into `state.overview`; calls within a second share one request. */
export function loadOverview() {
  if (!request || Date.now() - requestedAt > FRESH_MS) {
    requestedAt = Date.now();
    request = get("v1/overview").then((overview) => {
      freeze(overview.server.test_clock ? instant(overview.now) : null);
      update((s) => Object.assign(s, { overview, readOnly: !overview.server.writable }));
      return overview;
    });
  }
  return request;
}

export const countOf = ({ active, paused, completed, failed }) =>
  active + paused + completed + failed;

async function loadInto(name, path) {
  const value = await get(path);
  update((s) => (s[name] = value));
  return value;
}
export const loadUser = () => loadInto("user", "v1/auth/me");
export const loadInfo = () => loadInto("info", "v1/info");

export async function loadUnread() {
  const seen = () => settings.alerts_seen[account()];
  const since = seen();
  const { total } = await get("v1/alerts", { since, limit: 1 });
  // The screen of the alerts may have shown them meanwhile.
  if (seen() === since) update((s) => (s.unread = total));
}

export function begin(isFromTab = false) {
  const announced = loadUser().then(({ id }) => {
    loadUnread().catch(() => {});
    return isFromTab || tabs.postMessage(id);
  });
  for (const loading of [announced, loadInfo(), loadOverview()]) loading.catch(() => {});
}

export const onSignedIn = (fn) => (signedInHook = fn);

/** After a sign-in: goes on where the address points. */
export function signedIn(isFromTab = false) {
  outdate();
  update((s) => (s.signedOut = false));
  begin(isFromTab);
  events.open();
  signedInHook();
}

/** Leaves nothing of this account in the tab: the next person may be another one. */
export async function signOut() {
  await orNull(del("v1/auth/session", { quiet: true }), 401); // 401: it has ended already
  setAccount("");
  tabs.postMessage(null);
  events.stop();
  update((s) => Object.assign(s, { signedOut: true, user: null, overview: null, toasts: [] }));
  history.replaceState(null, "", "#/");
  location.reload();
}
