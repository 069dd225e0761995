// The state of the server and its user, shared by all screens.
import { get, del, setAccount } from "./api.js";
import * as events from "./events.js";
import { freeze, instant } from "./time.js";
import { state, update } from "./state.js";

const FRESH_MS = 900; // two parts of the page that ask within this time share an answer; less than the second between two fetches of a screen

/** Build of this page: a part of its own address, `…/ui/BUILD/app/server.js`. */
export const BUILD = import.meta.url.split("/").at(-3);

let asked = null;
let askedAt = 0;
let signedInHook = () => {};
let tabs = null;

/** Hears from the other tabs of this server, and tells them, who is signed in: the id of an account, or null. */
export function joinTabs() {
  tabs = new BroadcastChannel("cued " + new URL(".", location.href).pathname);
  tabs.onmessage = ({ data: id }) => {
    if (state.user && id && id !== state.user.id) location.reload();
    else if (!id) update((s) => (s.signedOut = true));
    else if (state.signedOut) signedIn(true);
  };
}

/** Notes that something happened since the overview was asked for: its next reader asks again. */
export const outdate = () => (asked = null);

/** Fetches `/v1/overview` into `state.overview`; returns it. Calls within a second share one request, unless an event came. */
export function loadOverview() {
  if (!asked || Date.now() - askedAt > FRESH_MS) {
    askedAt = Date.now();
    asked = get("v1/overview").then((overview) => {
      freeze(overview.server.test_clock ? instant(overview.now) : null);
      update((s) => Object.assign(s, { overview, readOnly: !overview.server.writable }));
      return overview;
    });
  }
  return asked;
}

/** Fetches `/v1/auth/me` into `state.user`. */
export async function loadUser() {
  const user = await get("v1/auth/me");
  update((s) => (s.user = user));
  return user;
}

/** Fetches `/v1/info` into `state.info`; needs no sign-in. */
export async function loadInfo() {
  const info = await get("v1/info");
  update((s) => (s.info = info));
  return info;
}

/** Loads what every screen needs; errors are those of the screen's own calls, which it shows. */
export function begin(isTold = false) {
  const quiet = () => {};
  loadUser()
    .then(({ id }) => isTold || tabs.postMessage(id))
    .catch(quiet);
  loadInfo().catch(quiet);
  loadOverview().catch(quiet);
}

export function onSignedIn(fn) {
  signedInHook = fn;
}

/** To be called after a sign-in: goes on where the address points. */
export function signedIn(isTold = false) {
  asked = null;
  update((s) => (s.signedOut = false));
  begin(isTold);
  events.open();
  signedInHook();
}

/** Leaves nothing of this account in the tab: the next person may be another one. */
export async function signOut() {
  // A 401 says that the session has ended already.
  await del("v1/auth/session", { quiet: true }).catch((error) => error.status === 401 || Promise.reject(error));
  setAccount("");
  tabs.postMessage(null);
  events.stop();
  update((s) => Object.assign(s, { signedOut: true, user: null, overview: null, toasts: [] }));
  history.replaceState(null, "", "#/");
  location.reload();
}
