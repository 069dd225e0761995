// Addresses: everything that a screen shows is in the hash, so that it can be shared and bookmarked.

// Path of each screen; `:id` takes one segment. The first that fits counts. A sign-in may be followed by another address.
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
  const [path, query = ""] = split(text, "?");
  const segments = path.replace(/\/+$/, "").split("/").map(decode);
  for (const [screen, parts] of ROUTES) {
    if (parts.length !== segments.length && !(screen === "sign_in" && parts.length < segments.length)) continue;
    let id = null;
    const fits = parts.every((part, i) => (part === ":id" ? ((id = segments[i]), id !== "") : part === segments[i]));
    if (fits) return { screen, id, query: Object.fromEntries(new URLSearchParams(query)), hash: "#/" + text };
  }
  return { screen: "missing", id: null, query: {}, hash: "#/" + text };
}

/** Hash of a path, such as `link("cues", id, "edit")` or `link("runs", {status: "failed"})`. */
export function link(...parts) {
  const query = typeof parts.at(-1) === "object" ? parts.pop() : {};
  return "#/" + parts.map(encodeURIComponent).join("/") + search(query);
}

/** Hash of the same screen with some filters changed; `null` and "" remove one. Paging starts again. */
export function withQuery(route, changes) {
  const { page, cursor, ...kept } = route.query;
  return split(route.hash, "?")[0] + search({ ...kept, ...changes });
}

export function go(hash, { replace = false } = {}) {
  if (!replace) location.hash = hash;
  else {
    history.replaceState(history.state, "", hash);
    dispatchEvent(new HashChangeEvent("hashchange"));
  }
}

function search(query) {
  const kept = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return kept.length ? "?" + new URLSearchParams(kept) : "";
}

function split(text, mark) {
  const at = text.indexOf(mark);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

function decode(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
