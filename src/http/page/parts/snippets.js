// An API call as a text to run elsewhere. Pure. A call is `{method, path, body}`: `path` with its
// query and without a leading "/", `body` JSON text or an object. The key comes from CUED_API_KEY.
import { baseUrl } from "../app/api.js";
import { shellWord } from "./target.js";

const LONGEST_WORD = 100_000; // Linux takes 131,072 bytes in one argument; a letter has at most 4

const bodyText = (body) => (typeof body === "string" ? body : body ? JSON.stringify(body) : "");

// Characters that an address must not have, and braces and brackets, which are patterns for curl. A
// lone half of a pair cannot be encoded.
const safePath = (path) => path.replace(/[^\w%~!$&'()*+,;=:@/?.-]+/g, (part) =>
  encodeURIComponent(part.toWellFormed()));

/** `word(text)`, or a long text on standard input. JSON has no line that is the bare word END. */
const given = (text, word, input) => text.length * 4 > LONGEST_WORD
  ? `${input} <<'END'\n${text}\nEND` : `${word} ${shellWord(text)}`;

export function asCurl({ method, path, body }, base = baseUrl()) {
  const text = bodyText(body);
  const verb = method === "GET" ? "" : `-X ${method} `;
  return [
    `curl -sS ${verb}${shellWord(`${base}/${safePath(path)}`)}`,
    `-H "Authorization: Bearer $CUED_API_KEY"`,
    // `--data-raw` sends a text that begins with "@" as it is; `--data-binary` would read a file.
    ...(text ? ["-H 'Content-Type: application/json'",
      given(text, "--data-raw", "--data-binary @-")] : []),
  ].join(" \\\n  ");
}

export function asCued({ method, path, body }) {
  const text = bodyText(body);
  const words = `cued api ${method} ${shellWord("/" + safePath(path))}`;
  return words + (text && given(text, " -d", " -d -"));
}

export function asPython({ method, path, body }, base = baseUrl()) {
  const text = bodyText(body);
  const more = text ? ', "Content-Type": "application/json"' : "";
  return `import os, urllib.request

request = urllib.request.Request(
    ${pythonText(`${base}/${safePath(path)}`)},
${text && `    data=${pythonText(text)}.encode(),\n`}    method="${method}",
    headers={"Authorization": "Bearer " + os.environ["CUED_API_KEY"]${more}},
)
print(urllib.request.urlopen(request).read().decode())`;
}

// The escapes of a JSON string mean the same in Python.
const pythonText = (text) => JSON.stringify(text.toWellFormed());
