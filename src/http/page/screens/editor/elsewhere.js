// The notice that another client changed the cue since the form was filled. Loaded when it did.
import { button, html, note as notice, update } from "../../kit.js";
import { readPayload } from "./preview.js";
import { differing, inWords } from "./model.js";

/** Their form with my changes. Pure. */
export const merged = (form, was, theirs) => ({
  ...theirs, ...Object.fromEntries(differing(form, was).map((name) => [name, form[name]])),
});

/** `take` fills the form again. */
export function note(data, take) {
  const { cue, theirs } = data.remote;
  const { form, was } = data;
  const mine = differing(form, was);
  const keep = () => update(() => {
    take(data, structuredClone(theirs), cue);
    data.form = merged(form, was, theirs);
    readPayload(data);
  });
  const drop = () => update(() => take(data, theirs, cue));
  const text = html`<b>This cue was changed elsewhere: ${inWords(differing(theirs, was))}.</b>${
    mine.length ? ` Your changes: ${inWords(mine)}.` : ""}`;
  const actions = mine.length
    ? [button("Merge with my changes", keep), button("Discard my changes", drop)]
    : button("Show it", drop);
  return notice(text, "warn", actions, "elsewhere");
}
