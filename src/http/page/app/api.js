// The only caller of fetch. Addresses are relative: the page works below any path.
import { sawServerTime } from "./time.js";
import { attempt, state, stored, update } from "./state.js";

const TIMEOUT_MS = 30_000;

const accountKey = () => "cued account " + new URL(".", location.href).pathname;

// The id of the account that signed in here; "" if none did. A program at another port of this host
// can set our cookie, but not this: a session that did not begin on this page is not used.
export const account = () => stored((storage) => storage.getItem(accountKey())) || "";
export const setAccount = (id) => stored((storage) => storage.setItem(accountKey(), id));

export class ApiError extends Error {
  problems = [];

  constructor(status, code, message, more) {
    super(message);
    Object.assign(this, { status, code, ...more });
  }
}

export const fieldError = (name, msg) =>
  new ApiError(422, "invalid_field", msg, { problems: [{ loc: ["body", name], msg }] });

// The JSON of a response, `null` of a 204. `raw`: see `bodyWith`; `key`: Idempotency-Key; `text`:
// the response as it is; `quiet`: a 401 does not open the sign-in; `patience` in ms.
export async function call(method, path, options = {}) {
  const { query, body, raw, key, text, quiet, patience = TIMEOUT_MS } = options;
  // Another tab may have signed in as another account: nothing of this one is done there.
  const owner = (!quiet && state.user?.id) || account();
  const headers = { Accept: "application/json", "X-Account-Id": owner };
  if (body || raw) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  const sent = Date.now();
  const response = await fetch(address(path, query), {
    method, headers, body: body || raw ? bodyWith(body || {}, raw) : undefined,
    credentials: "same-origin", cache: "no-store", signal: AbortSignal.timeout(patience),
  }).catch(() => {
    const message = "The server does not respond. It may be stopped, or the network is down.";
    throw new ApiError(0, "offline", message);
  });
  const date = response.headers.get("Date");
  // `Date` has whole seconds: on average half a second has passed since.
  if (date) sawServerTime(Date.parse(date) + 500, (sent + Date.now()) / 2);
  const content = await response.text().catch(() => "");
  if (!response.ok) throw await failure(response, content, quiet);
  if (method !== "GET" && state.readOnly) update((s) => (s.readOnly = false));
  return text ? content : content ? JSON.parse(content) : null;
}

export const get = (path, query, options) => call("GET", path, { query, ...options });
export const post = (path, body, options) => call("POST", path, { body: body || {}, ...options });
export const patch = (path, body, options) => call("PATCH", path, { body, ...options });
export const del = (path, options) => call("DELETE", path, options);

export const orNull = (promise, ...statuses) =>
  promise.catch((error) => (statuses.includes(error.status) ? null : Promise.reject(error)));

export const getCue = (id, runs = 1) =>
  get(cuePath(id), { payload: "text", execution_limit: runs });
export const cuePath = (id) => "v1/cues/" + encodeURIComponent(id);

/** Address of the server as the browser sees it, without "/" at the end. */
export const baseUrl = () => location.href.split(/[?#]/)[0].replace(/\/+$/, "");

/** Path with a query; values `null`, `undefined` and "" are left out, those of a list repeat. */
export function address(path, query = {}) {
  const given = Object.entries(query).flatMap(([name, value]) =>
    [value].flat().filter((one) => (one ?? "") !== "").map((one) => [name, one]));
  // A comma separates words within a value, and needs no escape.
  const text = new URLSearchParams(given).toString().replaceAll("%2C", ",");
  return text ? `${path}?${text}` : path;
}

// JSON text of an object; `raw` fields are inserted unchanged: a payload with integers beyond 2^53
// must never pass through JSON.parse. A raw field that is empty text is left out.
export function bodyWith(body, raw = {}) {
  const added = Object.entries(raw).map(([name, value]) =>
    value?.trim() && `${JSON.stringify(name)}:${value.trim()}`);
  return `{${[JSON.stringify(body).slice(1, -1), ...added].filter(Boolean).join(",")}}`;
}

/** A random text for `Idempotency-Key`; `crypto.randomUUID` does not exist over plain HTTP. */
export function randomKey() {
  const bytes = Array.from(crypto.getRandomValues(new Uint8Array(16)));
  return bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The error of a response; its texts in words of the page, `raw` as the API said it. */
async function failure({ status, headers }, content, quiet) {
  // A proxy in between answers with a page of its own.
  const parsed = attempt(() => JSON.parse(content), {});
  const { code, message, field, span } = parsed.error || {};
  const text = message || `The server returned ${status}.`;
  const error = new ApiError(status, code || "http_" + status, text, {
    problems: parsed.detail || [], requestId: headers.get("x-request-id"),
    retryAfter: Number(headers.get("Retry-After")), field, span, raw: text,
  });
  if (status === 401 && !quiet) {
    update((s) => (s.signedOut = true));
    if (state.user && account() && account() !== state.user.id) location.reload();
  }
  if (status === 429) update((s) => (s.waitUntil = Date.now() + (error.retryAfter || 5) * 1000));
  if (error.code === "storage_unavailable") update((s) => (s.readOnly = true));
  if (!message || (status === 401 && !quiet)) return error;
  const { spoken } = await import("./problems.js").catch(() => ({ spoken: () => ({}) }));
  return Object.assign(error, spoken(error));
}
