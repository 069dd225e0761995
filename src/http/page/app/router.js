// Addresses: all that a screen shows is in the hash, so that it can be shared and bookmarked.
import { address } from "./api.js";
import { attempt } from "./state.js";

// Pattern of each screen's path; its group is the id. The first match counts.
const ROUTES = Object.entries({
  overview: /^$/,
  cues: /^cues$/,
  editor: /^cues\/(?:new|([^/]+)\/edit)$/,
  cue: /^cues\/([^/]+)$/,
  runs: /^runs$/,
  run: /^runs\/([^/]+)$/,
  day: /^day$/,
  workers: /^workers$/,
  alerts: /^alerts$/,
  notifications: /^notifications(?:\/(.+))?$/, // an id, "new" or "new/TYPE"
  plan: /^account\/plan$/,
  keys: /^account\/keys$/,
  settings: /^settings$/,
  admin: /^admin(?:\/(backups|health))?$/,
  sign_in: /^enter\/([^/]+)/, // another address may follow
  missing: /(?:)/,
});

/** `{screen, id, query, hash}` of a hash; `screen` is "missing" where no route fits. */
export function parse(hash) {
  const text = (hash || "").replace(/^#?\/?/, "");
  const [, path, search] = /^([^?]*?)\/*(?:\?([^]*))?$/.exec(text);
  const [screen, pattern] = ROUTES.find(([, pattern]) => pattern.test(path));
  const [, part = null] = pattern.exec(path);
  const id = part && attempt(() => decodeURIComponent(part), part);
  return { screen, id, query: Object.fromEntries(new URLSearchParams(search)), hash: "#/" + text };
}

/** Hash of a path, such as `link("cues", id, "edit")` or `link("runs", {status: "failed"})`. */
export function link(...parts) {
  const query = typeof parts.at(-1) === "object" ? parts.pop() : {};
  return address("#/" + parts.map(encodeURIComponent).join("/"), query);
}

/** Hash of the same screen, from page 1 on, with some filters changed; null and "" remove one. */
export function withQuery(route, changes) {
  const { page, cursor, ...others } = route.query;
  return address(route.hash.split("?")[0], { ...others, ...changes });
}

export function go(hash, { replace = false } = {}) {
  if (!replace) return void (location.hash = hash);
  history.replaceState(history.state, "", hash);
  reload();
}

export const reload = () => dispatchEvent(new HashChangeEvent("hashchange"));
/** Shows the screen as it is once something was done, if it was. */
export const reloadAfter = async (doing) => (await doing) && reload();
