// The state of the page and the settings of this browser.

/** Build of this page: a part of its own address, `…/ui/BUILD/app/state.js`. */
export const BUILD = import.meta.url.split("/").at(-3);

export const state = {
  route: null,
  user: null, // GET /v1/auth/me
  info: null, // GET /v1/info
  overview: null, // GET /v1/overview
  signedOut: false,
  live: "connecting", // "connecting" | "live" | "polling"
  newBuild: false,
  readOnly: false, // the database cannot be written
  waitUntil: 0, // the server asked to wait (429), in ms of this device
  toasts: [],
  unread: 0, // alerts
};

/** Nothing is sold, and nobody else can register or the reader runs the server. */
export const isPrivate = ({ info, user } = state) => info?.billing === "manual"
  && (info.registration !== "open" || user?.is_operator);

let draw = () => {};
let isAsked = false;

export const onRender = (fn) => (draw = fn);

export function update(change) {
  change?.(state);
  if (isAsked) return;
  isAsked = true;
  requestAnimationFrame(() => {
    isAsked = false;
    draw();
  });
}

/** Marks the data of a screen as busy during `run`, whose error goes to `fail`; one at a time. */
export async function busily(data, run, fail = console.error) {
  if (data.busy) return;
  update(() => (data.busy = true));
  await run().catch(fail);
  update(() => (data.busy = false));
}

// One object under one key of localStorage, which theme.js reads before the first paint.
const KEY = "cued";
const DEFAULTS = {
  theme: "", // "" = as the system, "light", "dark"
  density: "", // "" = comfortable, "compact"
  zone: "", // "" = the browser's
  hour12: false,
  shortcuts: true,
  zone_view: "yours", // "yours" | "cue" | "utc"
  recent_zones: [],
  channel_hints: [], // ids of the accounts that have seen the hint
  alerts_seen: {}, // id of an account -> the instant after its newest alert that was shown
};

/** What `run` returns, or `otherwise`: a browser may keep nothing in localStorage. */
export function stored(run, otherwise) {
  try {
    return run(localStorage);
  } catch {
    return otherwise;
  }
}

export const settings = { ...DEFAULTS, ...stored((storage) => JSON.parse(storage.getItem(KEY))) };

export function set(name, value) {
  settings[name] = value;
  stored((storage) => storage.setItem(KEY, JSON.stringify(settings)));
  if (name !== "theme" && name !== "density") return;
  if (value) document.documentElement.dataset[name] = value;
  else delete document.documentElement.dataset[name];
}

/** Shows the next choice of a setting, such as `next("theme", ["", "light", "dark"])`. */
export const next = (name, values) =>
  update(() => set(name, values[(values.indexOf(settings[name]) + 1) % values.length]));
export const nextTheme = () => next("theme", ["", "light", "dark"]);
