// An API call as a text to run elsewhere. Pure. A call is `{method, path, body}`: `path` with its query and without a
// leading "/", `body` JSON text or an object. The key is never part of the text: it comes from CUED_API_KEY.

/** Address of the server as the browser sees it, without "/" at the end. */
export const baseUrl = () => location.href.split("#")[0].split("?")[0].replace(/\/+$/, "");

const bodyText = (body) => (body === undefined || body === null ? "" : typeof body === "string" ? body : JSON.stringify(body));

/** A word for a POSIX shell. */
export const shellWord = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

export function asCurl({ method, path, body }, base = baseUrl()) {
  const text = bodyText(body);
  const parts = ["curl -sS"];
  if (method !== "GET") parts.push(`-X ${method}`);
  parts.push(shellWord(`${base}/${path}`), `-H "Authorization: Bearer $CUED_API_KEY"`);
  if (text) parts.push(`-H 'Content-Type: application/json'`, `--data-binary ${shellWord(text)}`);
  return parts.join(" \\\n  ");
}

export function asCued({ method, path, body }) {
  const text = bodyText(body);
  return `cued api ${method} ${shellWord("/" + path)}${text ? " -d " + shellWord(text) : ""}`;
}

export function asPython({ method, path, body }, base = baseUrl()) {
  const text = bodyText(body);
  const lines = [
    "import os, urllib.request",
    "",
    "request = urllib.request.Request(",
    `    ${pythonText(`${base}/${path}`)},`,
    ...(text ? [`    data=${pythonText(text)}.encode(),`] : []),
    `    method="${method}",`,
    `    headers={"Authorization": "Bearer " + os.environ["CUED_API_KEY"]${text ? ', "Content-Type": "application/json"' : ""}},`,
    ")",
    "print(urllib.request.urlopen(request).read().decode())",
  ];
  return lines.join("\n");
}

// The escapes of a JSON string mean the same in Python.
const pythonText = (text) => JSON.stringify(text);
