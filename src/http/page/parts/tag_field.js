// A field for tags of cues, which suggests those that there are.
import { announce, button, get, html, nothing, update } from "../kit.js";
import { live } from "../lit/directives/live.js";
import { field } from "./form.js";

const MOST_TAGS = 10;
const SUGGESTED = 100; // cues whose tags are suggested

/** The fault of a list of tags, or "". Pure. */
export function tagsProblem(tags) {
  const wrong = tags.find((tag) => !/^[a-z0-9][a-z0-9._-]{0,31}$/.test(tag));
  return wrong ? `“${wrong}” is not a tag: use up to 32 of a–z, 0–9, dot, dash and underscore,
    and begin with a letter or a digit.`
    : tags.length > MOST_TAGS ? `Use at most ${MOST_TAGS} tags.` : "";
}

/** A list of tags with those of a text. Pure. */
export const withTags = (tags, text) =>
  [...new Set([...tags, ...text.toLowerCase().split(/[\s,]+/).filter(Boolean)])];

/** Tags of cues, fetched once for the form. */
async function suggest(data) {
  if (data.known) return;
  data.known = [];
  const { cues } = await get("v1/cues", { limit: SUGGESTED }).catch(() => ({ cues: [] }));
  update(() => (data.known = withTags([], cues.flatMap((cue) => cue.tags).join()).sort()));
}

/** The field of the tags of `data.form`; `change(list)` sets them. */
export function tagsField(data, change, help) {
  const { form: { tags }, problems, tagText = "", known = [] } = data;
  const problem = problems.tags || tagsProblem(tags);
  const put = (list) => { // of the tags as they are now, which may not be drawn yet
    change(list);
    announce(list.length ? `Tags: ${list.join(", ")}` : "No tags");
  };
  const add = ({ target }) => {
    const text = target.value;
    target.value = data.tagText = ""; // at once: the next key may come before it is drawn
    if (text.trim()) put(withTags(data.form.tags, text));
  };
  const type = (event) => {
    data.tagText = event.target.value;
    if (data.tagText.includes(",")) add(event);
  };
  const press = (event) => {
    const { key, target: { value } } = event;
    if (key === "Backspace" && !value) put(data.form.tags.slice(0, -1));
    if (key !== "Enter" || !value || event.isComposing) return;
    event.preventDefault();
    add(event);
  };
  const remove = (tag) => () => {
    put(data.form.tags.filter((other) => other !== tag));
    document.getElementById("f-tags").focus();
  };
  const chip = (tag) => button(html`${tag} ✕`, remove(tag), "small chip",
    { label: `Remove the tag ${tag}` });
  const input = html`<div class="row">${tags.map(chip)}<input id="f-tags" list="known-tags"
    autocomplete="off" autocapitalize="off" spellcheck="false" .value=${live(tagText)}
    aria-invalid=${problem ? "true" : nothing} @input=${type} @keydown=${press}
    aria-describedby=${problem ? "f-tags-problem" : "f-tags-help"} @focus=${() => suggest(data)}
    @change=${add}><datalist id="known-tags">${known.map((tag) =>
      html`<option value=${tag}></option>`)}</datalist></div>`;
  return field({ name: "tags", label: "Tags", input, problem, help });
}
