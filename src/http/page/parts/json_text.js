// JSON as text: checked and laid out token by token. Values are never read: integers beyond 2^53
// stay as they are. Pure.

const MAX_DEPTH = 128; // as the server's parser

// One token per match; the group is whatever is no token.
const TOKEN = new RegExp([
  /[\t\n\r ]+|[{}[\],:]/,
  /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/,
  /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.+-])/,
  /(?:true|false|null)(?![\w.+-])|([\w.+-]+|[^])/,
].map(({ source }) => source).join("|"), "g");

const KINDS = { __proto__: null,
  "{": "open", "[": "open", "}": "close", "]": "close", ",": "comma", ":": "colon" };
const OPENS = { __proto__: null, "}": "{", "]": "[" };

/** Calls `emit(token, depth, kind, at)` for each token; returns the first fault or null. */
export function walk(text, emit) {
  const stack = []; // "{" or "["
  let want = "value"; // "value", "first" (value or "]"), "key", "first key" (or "}"), ":", "next"
  for (const { 0: token, 1: wrong, index: at } of text.matchAll(TOKEN)) {
    if (/^[\t\n\r ]/.test(token)) continue;
    const inside = stack.at(-1);
    const kind = KINDS[token] ?? (want.endsWith("key") ? "key" : "value");
    const isEmpty = kind === "close" && want.startsWith("first");
    const fits = {
      close: inside === OPENS[token] && (want === "next" || isEmpty),
      comma: want === "next" && stack.length > 0, colon: want === ":", key: token.startsWith('"'),
    }[kind] ?? (want === "value" || want === "first");
    if (wrong !== undefined || !fits) return { at, message: unexpected(token, want, inside) };
    if (kind === "close") stack.pop();
    emit(token, stack.length, isEmpty ? "close empty" : kind, at);
    if (kind === "open" && stack.push(token) > MAX_DEPTH) {
      return { at, message: `deeper than ${MAX_DEPTH} levels` };
    }
    if (kind === "open") want = token === "{" ? "first key" : "first";
    else if (kind === "comma") want = inside === "{" ? "key" : "value";
    else want = { key: ":", colon: "value" }[kind] ?? "next";
  }
  if (want === "next" && !stack.length) return null;
  const missing = `the end is missing: ${expected(want, stack.at(-1))}`;
  return { at: text.trimEnd().length, message: text.trim() ? missing : "no JSON here" };
}

const expected = (want, inside) => ({
  value: "expected a value", first: 'a value or "]" expected', ":": '":" expected',
  key: "a name in double quotes expected", "first key": 'a name in double quotes or "}" expected',
})[want] ?? (inside ? `"," or "${inside === "{" ? "}" : "]"}" expected` : "unexpected text after the end");

function unexpected(token, want, inside) {
  if (token === '"') return "a text that does not end, or has a line break or a wrong escape in it";
  const short = token.length > 20 ? token.slice(0, 20) + "…" : token;
  const isNumber = /^[-+.\d]/.test(token) && want !== "next" && !want.endsWith("key");
  return isNumber ? `${short} is no JSON number` : `${expected(want, inside)}, not ${short}`;
}

export function checkJson(text, emit = () => {}) {
  const fault = walk(text, emit);
  if (!fault) return null;
  const lines = text.slice(0, fault.at).split("\n");
  return { line: lines.length, column: [...lines.at(-1)].length + 1, ...fault };
}

export const faultText = ({ line, column, message }) =>
  `Line ${line}, column ${column}: ${message}`;

// Bytes of a text without white space, and place `[from, to]` and text of the last value of a name
// of the outermost object; or `{fault}`.
export function surveyJson(text, name) {
  let size = byteLength(text) - text.length; // letters may take more than a byte, white space one
  let key = null;
  let from = 0;
  let place = null;
  const fault = checkJson(text, (token, depth, kind, at) => {
    size += token.length;
    if (depth !== 1 || kind === "colon" || kind === "comma") return;
    if (kind === "key") key = JSON.parse(token);
    else if (kind === "open") from = at;
    else if (key === name) place = [kind === "value" ? at : from, at + token.length];
  });
  return fault ? { fault } : { size, place, value: place && text.slice(...place) };
}

/** An object's text with another value (JSON text) at a name; all else stays letter for letter. */
export function withMember(text, name, value) {
  const member = `${JSON.stringify(name)}: ${value}`;
  if (!text.trim()) return `{\n  ${member}\n}`;
  const { place } = surveyJson(text, name);
  if (place) return text.slice(0, place[0]) + value + text.slice(place[1]);
  const [, head, rest] = /^(\s*\{)([^]*)$/.exec(text);
  const comma = /^\s*\}/.test(rest) ? "" : /^\s/.test(rest) ? "," : ", ";
  return `${head}${/^\s*\n/.test(rest) ? "\n  " : ""}${member}${comma}${rest}`;
}

function rewrite(text, form) {
  let out = "";
  let before = "";
  const fault = walk(text, (token, depth, kind) => {
    out += form(token, depth, kind, before);
    before = kind;
  });
  return fault ? text : out;
}

/** The text without white space between tokens; a text that is no JSON as it is. */
export const compactJson = (text) => rewrite(text, (token) => token);

/** The text laid out with two spaces a level; a text that is no JSON as it is. */
export const prettyJson = (text) => rewrite(text, (token, depth, kind, before) => {
  if (kind === "colon") return ": ";
  const isNewLine = kind === "close"
    || (!/^(comma|close empty)$/.test(kind) && /^(open|comma)$/.test(before));
  return (isNewLine ? "\n" + "  ".repeat(depth) : "") + token;
});

// JSON with letters in place of escapes: the server keeps "é" as "\u00e9". Escapes of what cannot be
// seen, or turns the text around, stay.
export function readableJson(text) {
  const escapes = /\\u(d[89ab][\da-f]{2})\\u(d[c-f][\da-f]{2})|\\u([\da-f]{4})|\\[^u]/gi;
  return text.replace(escapes, (escape, ...codes) => {
    const units = codes.slice(0, 3).filter(Boolean).map((code) => parseInt(code, 16));
    const letter = String.fromCharCode(...units);
    return letter > "\u007f" && /^[\p{L}\p{M}\p{N}\p{P}\p{S}]$/u.test(letter) ? letter : escape;
  });
}

export const byteLength = (text) => new TextEncoder().encode(text).length;
