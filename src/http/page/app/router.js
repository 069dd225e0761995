// Addresses: all that a screen shows is in the hash, so that it can be shared and bookmarked.
import { address } from "./api.js";

// Path of each screen; `:id` takes one segment. The first that fits counts. A sign-in may be
// followed by another address.
const ROUTES = [
  ["overview", ""],
  ["cues", "cues"],
  ["editor", "cues/new"],
  ["editor", "cues/:id/edit"],
  ["cue", "cues/:id"],
  ["runs", "runs"],
  ["run", "runs/:id"],
  ["workers", "workers"],
  ["alerts", "alerts"],
  ["plan", "account/plan"],
  ["keys", "account/keys"],
  ["settings", "settings"],
  ["sign_in", "enter/:id"],
].map(([screen, path]) => [screen, path.split("/")]);

/** `{screen, id, query, hash}` of a hash; `screen` is "missing" where no route fits. */
export function parse(hash) {
  const text = (hash || "").replace(/^#?\/?/, "");
  const [, path, query = ""] = /^([^?]*)\??([^]*)$/.exec(text);
  const segments = path.replace(/\/+$/, "").split("/").map(decode);
  for (const [screen, parts] of ROUTES) {
    const mayBeLonger = screen === "sign_in" && parts.length < segments.length;
    if (parts.length !== segments.length && !mayBeLonger) continue;
    let id = null;
    const fits = parts.every((part, i) =>
      part === ":id" ? ((id = segments[i]), id !== "") : part === segments[i]);
    if (!fits) continue;
    return { screen, id, query: Object.fromEntries(new URLSearchParams(query)), hash: "#/" + text };
  }
  return { screen: "missing", id: null, query: {}, hash: "#/" + text };
}

/** Hash of a path, such as `link("cues", id, "edit")` or `link("runs", {status: "failed"})`. */
export function link(...parts) {
  const query = typeof parts.at(-1) === "object" ? parts.pop() : {};
  return address("#/" + parts.map(encodeURIComponent).join("/"), query);
}

/**
 * Hash of the same screen with some filters changed; `null` and "" remove one. From page 1 again.
 */
export function withQuery(route, changes) {
  const { page, cursor, ...others } = route.query;
  return address(route.hash.split("?")[0], { ...others, ...changes });
}

export function go(hash, { replace = false } = {}) {
  if (!replace) return void (location.hash = hash);
  history.replaceState(history.state, "", hash);
  reload();
}

/** Fetches the screen again. */
export const reload = () => dispatchEvent(new HashChangeEvent("hashchange"));

function decode(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
