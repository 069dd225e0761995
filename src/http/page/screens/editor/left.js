// What follows when a field is left: a URL gets its scheme, and another cue that has the name is
// noted: names may be the same, but are seldom meant to be.
import { anchor, get, html, link, update } from "../../kit.js";
import { targetText, whenText } from "../../parts/target.js";
import { defaultName, networkOf } from "./model.js";

/** A URL with its scheme: if it has none, https for a name of the internet without a port. */
export function withScheme(url) {
  const text = url.trim();
  if (!/^([\w-]+\.|localhost\b|[\w-]+:\d)/.test(text)) return url;
  return `http${/:\d/.test(text) || networkOf("ftp://" + text) ? "" : "s"}://${text}`;
}

/** URLs with their schemes. */
export function tidy(form) {
  for (const name of ["url", "failureUrl"]) form[name] = withScheme(form[name]);
}

/** Looks for another cue, once for each name; `twin` becomes a note. */
export async function findTwin(data) {
  const name = data.form.name.trim() || defaultName(data.form, data.json.task);
  if (name === data.named) return;
  Object.assign(data, { named: name, twin: "" });
  if (!name) return;
  const list = get("v1/cues", { q: name.slice(0, 100), limit: 100, runs: 0 });
  const { cues } = await list.catch(() => ({ cues: [] })); // saving does not depend on it
  const twin = cues.find((cue) => cue.name === name && cue.id !== data.cue?.id);
  if (twin && name === data.named) update(() => (data.twin = note(twin)));
}

const note = (cue) => html`<span class="warn">Another cue has this name: ${
  anchor(link("cues", cue.id), `${targetText(cue)}, ${whenText(cue)}`)}</span>`;
