// JSON as text: checked and laid out token by token. Values are never read: integers beyond 2^53 stay as they are. Pure.

const MAX_DEPTH = 128; // as the server's parser

// One token per match; the last alternative is whatever is no token.
const TOKEN = /[\t\n\r ]+|[{}[\],:]|"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|(?:true|false|null)\b|[^]/y;

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
    const [token] = TOKEN.exec(text);
    if (!/^[\t\n\r ]/.test(token)) yield [token, at];
    TOKEN.lastIndex = at + token.length;
  }
}

const isValue = (token) => /^(?:".*"|-?\d.*|true|false|null)$/s.test(token);
const isText = (token) => /^".*"$/s.test(token);

/** Calls `emit(token, depth, kind)` for each token; throws a Fault at the first that does not fit. */
function walk(text, emit) {
  const stack = []; // "{" or "["
  let want = "value"; // "value", "first" (value or "]"), "key" , "first key" (key or "}"), ":", "next" ("," or the end)
  for (const [token, at] of tokens(text)) {
    const inside = stack.at(-1);
    if (token === "{" || token === "[") {
      if (want !== "value" && want !== "first") throw new Fault(at, unexpected(token, want, inside));
      if (stack.length >= MAX_DEPTH) throw new Fault(at, `deeper than ${MAX_DEPTH} levels`);
      emit(token, stack.length, "open");
      stack.push(token);
      want = token === "{" ? "first key" : "first";
    } else if (token === "}" || token === "]") {
      const fits = inside === (token === "}" ? "{" : "[") && (want === "next" || want === "first key" || want === "first");
      if (!fits) throw new Fault(at, unexpected(token, want, inside));
      stack.pop();
      emit(token, stack.length, want === "next" ? "close" : "close empty");
      want = "next";
    } else if (token === ",") {
      if (want !== "next" || !inside) throw new Fault(at, unexpected(token, want, inside));
      emit(token, stack.length, "comma");
      want = inside === "{" ? "key" : "value";
    } else if (token === ":") {
      if (want !== ":") throw new Fault(at, unexpected(token, want, inside));
      emit(token, stack.length, "colon");
      want = "value";
    } else if (want === "key" || want === "first key") {
      if (!isText(token)) throw new Fault(at, unexpected(token, want, inside));
      emit(token, stack.length, "key");
      want = ":";
    } else {
      if (!isValue(token) || (want !== "value" && want !== "first")) throw new Fault(at, unexpected(token, want, inside));
      emit(token, stack.length, "value");
      want = "next";
    }
  }
  if (want !== "next" || stack.length) throw new Fault(text.trimEnd().length, text.trim() ? `the end is missing: ${expected(want, stack.at(-1))}` : "there is no JSON");
}

function expected(want, inside) {
  if (want === "next") return inside ? `"," or "${inside === "{" ? "}" : "]"}" expected` : "nothing more expected";
  return { value: "a value expected", first: 'a value or "]" expected', key: "a name in double quotes expected", "first key": 'a name in double quotes or "}" expected', ":": '":" expected' }[want];
}

function unexpected(token, want, inside) {
  if (token === '"') return "a text that does not end, or has a line break or a wrong escape in it";
  if (/^[-.\d]/.test(token) && want !== "next") return "no JSON number";
  return `${expected(want, inside)}, not ${token.length > 20 ? token.slice(0, 20) + "…" : token}`;
}

/** `null` if the text is JSON, else `{line, column, message}` (from 1, in characters). */
export function checkJson(text) {
  try {
    walk(text, () => {});
    return null;
  } catch (fault) {
    if (!(fault instanceof Fault)) throw fault;
    const lines = text.slice(0, fault.at).split("\n");
    return { line: lines.length, column: [...lines.at(-1)].length + 1, message: fault.message };
  }
}

/** The text laid out with two spaces a level; a text that is no JSON comes back as it is. */
export function prettyJson(text, indent = "  ") {
  return rewrite(text, (token, depth, kind, before) => {
    const line = (level) => "\n" + indent.repeat(level);
    if (kind === "colon") return ": ";
    if (kind === "comma" || kind === "close empty") return token;
    if (kind === "close") return line(depth) + token;
    return (before === "open" || before === "comma" ? line(depth) : "") + token;
  });
}

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

/** Tokens for showing JSON in colours: `[[kind, text]]`, kind "key", "text", "number", "word" or ""; `null` if no JSON. */
export function jsonParts(text) {
  const pretty = prettyJson(text);
  const parts = [];
  if (checkJson(text)) return null;
  let at = 0;
  walk(pretty, (token, _, kind) => {
    const start = pretty.indexOf(token, at);
    if (start > at) parts.push(["", pretty.slice(at, start)]);
    at = start + token.length;
    parts.push([kind === "key" ? "key" : kind !== "value" ? "" : isText(token) ? "text" : /^[tfn]/.test(token) ? "word" : "number", token]);
  });
  return parts;
}

/** Bytes of a text in UTF-8. */
export const byteLength = (text) => new TextEncoder().encode(text).length;
