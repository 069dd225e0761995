// The state of the server and its user, shared by all screens.
import { get, del, setAccount } from "./api.js";
import * as events from "./events.js";
import { freeze, instant } from "./time.js";
import { state, update } from "./state.js";

// Parts of the page that ask within this time share a response; less than the second between two
// fetches of a screen.
const FRESH_MS = 900;

/** Build of this page: a part of its own address, `…/ui/BUILD/app/server.js`. */
export const BUILD = import.meta.url.split("/").at(-3);

let asked = null;
let askedAt = 0;
let signedInHook = () => {};
let tabs = null;

/** Exchanges with other tabs of this server who is signed in: the id of an account, or null. */
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

/** Fetches `/v1/overview` into `state.overview`; calls within a second share one request. */
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

/** Number of cues of the account, from the counts by state. */
export const countOf = ({ active, paused, completed, failed }) =>
  active + paused + completed + failed;

async function loadInto(name, path) {
  const value = await get(path);
  update((s) => (s[name] = value));
  return value;
}
export const loadUser = () => loadInto("user", "v1/auth/me");
/** Needs no sign-in. */
export const loadInfo = () => loadInto("info", "v1/info");

/** Loads what every screen needs; errors are those of the screen's own calls, which it shows. */
export function begin(isFromTab = false) {
  const announced = loadUser().then(({ id }) => isFromTab || tabs.postMessage(id));
  for (const loading of [announced, loadInfo(), loadOverview()]) loading.catch(() => {});
}

export const onSignedIn = (fn) => (signedInHook = fn);

/** To be called after a sign-in: goes on where the address points. */
export function signedIn(isFromTab = false) {
  outdate();
  update((s) => (s.signedOut = false));
  begin(isFromTab);
  events.open();
  signedInHook();
}

/** Leaves nothing of this account in the tab: the next person may be another one. */
export async function signOut() {
  // A 401 says that the session has ended already.
  const refused = (error) => error.status === 401 || Promise.reject(error);
  await del("v1/auth/session", { quiet: true }).catch(refused);
  setAccount("");
  tabs.postMessage(null);
  events.stop();
  const none = { signedOut: true, user: null, overview: null, toasts: [] };
  update((s) => Object.assign(s, none));
  history.replaceState(null, "", "#/");
  location.reload();
}
