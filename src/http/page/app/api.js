// The only caller of fetch. Addresses are relative to the document, so that the page works below any path.
import { sawServerTime } from "./time.js";
import { state, update } from "./state.js";

const LONGEST_WAIT_MS = 30_000; // a call takes no longer than this; the server's own limit is 30 s

const accountKey = () => "cued account " + new URL(".", location.href).pathname;

/**
 * The id of the account that signed in here; "" if none did. A program at another port of this host can set our cookie, but
 * not this: a session that did not begin on this page is not used.
 */
export function account() {
  try {
    return localStorage.getItem(accountKey()) || "";
  } catch {
    return "";
  }
}

export function setAccount(id) {
  try {
    localStorage.setItem(accountKey(), id);
  } catch {
    // A browser that keeps nothing is told so after the sign-in.
  }
}

export class ApiError extends Error {
  constructor(status, code, message, more = {}) {
    super(message);
    Object.assign(this, { status, code, problems: [], requestId: null, retryAfter: null, field: null, span: null }, more);
  }
}

/**
 * Calls the API; returns the JSON of the answer, or `null` of a 204.
 * Options: `query` (object), `body` (object), `raw` (fields of the body whose value is JSON text, see `bodyWith`),
 * `key` (Idempotency-Key), `text` (return the text as it is), `quiet` (a 401 does not open the sign-in),
 * `signal`.
 */
export async function call(method, path, { query, body, raw, key, text, quiet, signal } = {}) {
  // Another tab may have signed in as another account: nothing of this one is done there.
  const headers = { Accept: "application/json", "X-Account-Id": (!quiet && state.user?.id) || account() };
  if (body || raw) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  const sent = Date.now();
  let answer;
  try {
    answer = await fetch(address(path, query), {
      method,
      headers,
      body: body || raw ? bodyWith(body || {}, raw) : undefined,
      credentials: "same-origin",
      cache: "no-store",
      signal: signal ?? AbortSignal.timeout(LONGEST_WAIT_MS),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "offline", "The server does not answer. It may be stopped, or the network is down.");
  }
  const date = answer.headers.get("Date");
  // `Date` has whole seconds: on average half a second has passed since.
  if (date) sawServerTime(Date.parse(date) + 500, (sent + Date.now()) / 2);
  const content = await answer.text().catch(() => "");
  if (!answer.ok) throw failure(answer, content, quiet);
  if (method !== "GET" && state.readOnly) update((s) => (s.readOnly = false));
  return text ? content : content ? JSON.parse(content) : null;
}

export const get = (path, query, options) => call("GET", path, { query, ...options });
export const post = (path, body, options) => call("POST", path, { body: body || {}, ...options });
export const patch = (path, body, options) => call("PATCH", path, { body, ...options });
export const del = (path, options) => call("DELETE", path, options);

/** Path with a query; values `null`, `undefined` and "" are left out. */
export function address(path, query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return kept.length ? path + "?" + new URLSearchParams(kept) : path;
}

/**
 * JSON text of an object, in which fields of `raw` stand letter for letter: a payload with integers beyond 2^53
 * must never pass through JSON.parse. A raw field that is empty text is left out.
 */
export function bodyWith(body, raw = {}) {
  const fields = Object.entries(raw).filter(([, value]) => value && value.trim());
  const added = fields.map(([name, value]) => `${JSON.stringify(name)}:${value.trim()}`);
  const text = JSON.stringify(body);
  if (!added.length) return text;
  return text === "{}" ? `{${added.join(",")}}` : `${text.slice(0, -1)},${added.join(",")}}`;
}

/** A random text for `Idempotency-Key`; `crypto.randomUUID` does not exist over plain HTTP. */
export function randomKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function failure(answer, content, quiet) {
  let told = {};
  try {
    told = JSON.parse(content);
  } catch {
    // A proxy in between answers with a page of its own.
  }
  const { code, message, field, span } = told.error || {};
  const error = new ApiError(answer.status, code || "http_" + answer.status, message || `The server returned ${answer.status}.`, {
    problems: told.detail || [],
    requestId: answer.headers.get("x-request-id"),
    retryAfter: Number(answer.headers.get("Retry-After")) || null,
    field: field ?? null,
    span: span ?? null,
  });
  if (error.status === 401 && !quiet) {
    update((s) => (s.signedOut = true));
    // Shows what the browser is signed in as now.
    if (state.user && account() && account() !== state.user.id) location.reload();
  }
  if (error.status === 429) update((s) => (s.waitUntil = Date.now() + (error.retryAfter || 5) * 1000));
  if (error.code === "storage_unavailable") update((s) => (s.readOnly = true));
  return error;
}
