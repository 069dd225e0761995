// JSON as text: checked and laid out token by token. Values are never read: integers beyond 2^53
// stay as they are. Pure.

const MAX_DEPTH = 128; // as the server's parser

// One token per match; the group is whatever is no token.
const TOKEN = new RegExp([
  /[\t\n\r ]+|[{}[\],:]/,
  /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/,
  /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.+-])/,
  /(?:true|false|null)(?![\w.+-])|([\w.+-]+|[^])/,
].map(({ source }) => source).join("|"), "y");

class Fault extends Error {
  constructor(at, message) {
    super(message);
    this.at = at;
  }
}

function* tokens(text) {
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.length) {
    const at = TOKEN.lastIndex;
    const [token, wrong] = TOKEN.exec(text);
    if (!/^[\t\n\r ]/.test(token)) yield [token, at, wrong !== undefined];
    TOKEN.lastIndex = at + token.length;
  }
}

const isText = (token) => token.startsWith('"');

const KINDS = { "{": "open", "[": "open", "}": "close", "]": "close", ",": "comma", ":": "colon" };
const OPENS = { "}": "{", "]": "[" };

/**
 * Calls `emit(token, depth, kind, at)` for each token; throws a Fault at the first that does not
 * fit.
 */
function walk(text, emit) {
  const stack = []; // "{" or "["
  let want = "value"; // "value", "first" (value or "]"), "key", "first key" (or "}"), ":", "next"
  for (const [token, at, isWrong] of tokens(text)) {
    const inside = stack.at(-1);
    const kind = KINDS[token] ?? (want.endsWith("key") ? "key" : "value");
    const isFirst = want.startsWith("first");
    let fits = want === "value" || want === "first"; // "open" and "value"
    if (kind === "close") fits = inside === OPENS[token] && (want === "next" || isFirst);
    else if (kind === "comma") fits = want === "next" && stack.length > 0;
    else if (kind === "colon") fits = want === ":";
    else if (kind === "key") fits = isText(token);
    if (isWrong || !fits) throw new Fault(at, unexpected(token, want, inside));
    if (kind === "close") stack.pop();
    else if (kind === "open" && stack.length >= MAX_DEPTH) {
      throw new Fault(at, `deeper than ${MAX_DEPTH} levels`);
    }
    emit(token, stack.length, kind === "close" && isFirst ? "close empty" : kind, at);
    if (kind === "open") stack.push(token);
    if (kind === "open") want = token === "{" ? "first key" : "first";
    else if (kind === "comma") want = inside === "{" ? "key" : "value";
    else want = { key: ":", colon: "value" }[kind] ?? "next";
  }
  if (want === "next" && !stack.length) return;
  const missing = `the end is missing: ${expected(want, stack.at(-1))}`;
  throw new Fault(text.trimEnd().length, text.trim() ? missing : "there is no JSON");
}

const EXPECTED = {
  value: "a value expected",
  first: 'a value or "]" expected',
  key: "a name in double quotes expected",
  "first key": 'a name in double quotes or "}" expected',
  ":": '":" expected',
};

const expected = (want, inside) => EXPECTED[want]
  ?? (inside ? `"," or "${inside === "{" ? "}" : "]"}" expected` : "nothing more expected");

function unexpected(token, want, inside) {
  if (token === '"') return "a text that does not end, or has a line break or a wrong escape in it";
  const isNumber = /^[-+.\d]/.test(token) && want !== "next" && !want.endsWith("key");
  if (isNumber) return `${short(token)} is no JSON number`;
  return `${expected(want, inside)}, not ${short(token)}`;
}

const short = (token) => (token.length > 20 ? token.slice(0, 20) + "…" : token);

/**
 * All of a JSON text in one pass: its size in bytes without white space, and the value of a name;
 * else as `checkJson`.
 */
export function surveyJson(text, name) {
  let size = 0;
  try {
    const place = placeOf(text, name, (token) => (size += token.length));
    // Letters may take more than a byte; white space takes one.
    const others = byteLength(text) - text.length;
    return { size: size + others, value: place && text.slice(...place) };
  } catch (fault) {
    return { fault: faultOf(fault, text) };
  }
}

/** A fault as a text for people. */
export const faultText = ({ line, column, message }) =>
  `Line ${line}, column ${column}: ${message}`;

/**
 * `null` if the text is JSON, else `{line, column, message, at}`: from 1 in characters; `at` is the
 * place in the string.
 */
export function checkJson(text) {
  try {
    walk(text, () => {});
    return null;
  } catch (fault) {
    return faultOf(fault, text);
  }
}

function faultOf(fault, text) {
  if (!(fault instanceof Fault)) throw fault;
  const lines = text.slice(0, fault.at).split("\n");
  const { message, at } = fault;
  return { line: lines.length, column: [...lines.at(-1)].length + 1, message, at };
}

/** The text laid out with two spaces a level; a text that is no JSON comes back as it is. */
export function prettyJson(text) {
  return rewrite(text, (token, depth, kind, before) => {
    const line = (level) => "\n" + "  ".repeat(level);
    if (kind === "colon") return ": ";
    if (kind === "comma" || kind === "close empty") return token;
    if (kind === "close") return line(depth) + token;
    return (before === "open" || before === "comma" ? line(depth) : "") + token;
  });
}

/**
 * JSON with the letters in place of their escapes: the server keeps "é" as "\u00e9". Escapes of
 * what cannot be seen, or turns the direction of the text, stay. The value is the same.
 */
export const readableJson = (text) =>
  text.replace(/\\u(d[89ab][\da-f]{2})\\u(d[c-f][\da-f]{2})|\\u([\da-f]{4})|\\[^u]/gi,
    (escape, ...codes) => {
    const letter = String.fromCharCode(...codes.slice(0, 3).filter(Boolean).map((code) =>
        parseInt(code, 16)));
    return letter > "\u007f" && /^[\p{L}\p{M}\p{N}\p{P}\p{S}]$/u.test(letter) ? letter : escape;
  });

/** The text without white space between tokens. */
export const compactJson = (text) => rewrite(text, (token) => token);

function rewrite(text, form) {
  const out = [];
  let before = "";
  try {
    walk(text, (token, depth, kind) => {
      out.push(form(token, depth, kind, before));
      before = kind;
    });
  } catch {
    return text;
  }
  return out.join("");
}

/** `[[kind, text]]` for colours, kind "key", "text", "number", "word" or ""; `null` if no JSON. */
export function jsonParts(text) {
  if (checkJson(text)) return null;
  const pretty = prettyJson(text);
  const parts = [];
  let end = 0;
  const valueKind = (token) => (isText(token) ? "text" : /^[tfn]/.test(token) ? "word" : "number");
  walk(pretty, (token, _, kind, at) => {
    if (at > end) parts.push(["", pretty.slice(end, at)]);
    end = at + token.length;
    parts.push([kind === "key" ? kind : kind === "value" ? valueKind(token) : "", token]);
  });
  return parts;
}

/**
 * The place of the value of a name of the outermost object: `[from, to]`, of the last one that
 * counts; else `null`.
 */
export function placeOf(text, name, more = () => {}) {
  let key = null;
  let from = 0;
  let found = null;
  walk(text, (token, depth, kind, at) => {
    more(token);
    if (depth !== 1 || kind === "colon" || kind === "comma") return;
    if (kind === "key") key = JSON.parse(token);
    else if (kind === "open") from = at;
    else if (key === name) found = [kind === "value" ? at : from, at + token.length];
  });
  return found;
}

/** An object's text with another value (JSON text) at a name; all else stays letter for letter. */
export function withMember(text, name, value) {
  const member = `${JSON.stringify(name)}: ${value}`;
  if (!text.trim()) return `{\n  ${member}\n}`;
  const place = placeOf(text, name);
  if (place) return text.slice(0, place[0]) + value + text.slice(place[1]);
  const [, head, rest] = /^(\s*\{)([^]*)$/.exec(text);
  const comma = /^\s*\}/.test(rest) ? "" : /^\s/.test(rest) ? "," : ", ";
  return `${head}${/^\s*\n/.test(rest) ? "\n  " : ""}${member}${comma}${rest}`;
}

/** Bytes of a text in UTF-8. */
export const byteLength = (text) => new TextEncoder().encode(text).length;
