// An API call as a text to run elsewhere. Pure. A call is `{method, path, body}`: `path` with its
// query and without a leading "/", `body` JSON text or an object. The key is never part of the
// text: it comes from CUED_API_KEY.

const LONGEST_WORD = 100_000; // Linux takes 131,072 bytes in one argument; a letter has at most 4

/** Address of the server as the browser sees it, without "/" at the end. */
export const baseUrl = () => location.href.split(/[?#]/)[0].replace(/\/+$/, "");
const bodyText = (body) => (typeof body === "string" ? body : body ? JSON.stringify(body) : "");

// A lone half of a pair cannot be encoded.
const wellFormed = (text) => text.toWellFormed?.() ?? text;

// Characters that an address must not have are written as %XX. Braces and brackets would be
// patterns for curl.
const safePath = (path) =>
  path.replace(/[^\w%~!$&'()*+,;=:@/?.-]+/g, (part) => encodeURIComponent(wellFormed(part)));

/** A word for a POSIX shell. */
export const shellWord = (text) =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;

// A long body goes through standard input. JSON has no line that is the bare word END.
const isLong = (text) => text.length * 4 > LONGEST_WORD;
const hereText = (text) => `<<'END'\n${text}\nEND`;

export function asCurl({ method, path, body }, base = baseUrl()) {
  const text = bodyText(body);
  const verb = method === "GET" ? "" : `-X ${method} `;
  return [
    `curl -sS ${verb}${shellWord(`${base}/${safePath(path)}`)}`,
    `-H "Authorization: Bearer $CUED_API_KEY"`,
    ...(text ? [
      `-H 'Content-Type: application/json'`,
      // `--data-raw` sends a text that begins with "@" as it is; `--data-binary` would read a file.
      isLong(text) ? `--data-binary @- ${hereText(text)}` : `--data-raw ${shellWord(text)}`,
    ] : []),
  ].join(" \\\n  ");
}

export function asCued({ method, path, body }) {
  const text = bodyText(body);
  const data = !text ? "" : isLong(text) ? ` -d - ${hereText(text)}` : ` -d ${shellWord(text)}`;
  return `cued api ${method} ${shellWord("/" + safePath(path))}${data}`;
}

export function asPython({ method, path, body }, base = baseUrl()) {
  const text = bodyText(body);
  const more = text ? ', "Content-Type": "application/json"' : "";
  return [
    "import os, urllib.request", "", "request = urllib.request.Request(",
    `    ${pythonText(`${base}/${safePath(path)}`)},`,
    ...(text ? [`    data=${pythonText(text)}.encode(),`] : []),
    `    method="${method}",`,
    `    headers={"Authorization": "Bearer " + os.environ["CUED_API_KEY"]${more}},`,
    ")", "print(urllib.request.urlopen(request).read().decode())",
  ].join("\n");
}

// The escapes of a JSON string mean the same in Python.
const pythonText = (text) => JSON.stringify(wellFormed(text));
