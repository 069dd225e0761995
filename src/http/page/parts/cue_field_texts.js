// What the page says of the plain fields of a cue, apart from them: the editor needs it late. Pure.

/** What a field says of a cue, as `[label, text]`; "" if it has its default. */
export function factOf({ name, words }, value) {
  if (!value || value === words?.[0]) return "";
  const { fact: [label, text], choices } = TEXTS[name];
  return [label, text.replace("{}", choices?.[value] ?? value)];
}

// The rest is written by the tests from `src/domain/cue_fields.rs`.
export const TEXTS = {
  __proto__: null,
  claim_within_minutes: { ask: "Fail if no worker claims it within (minutes)", fact: ["Claimed", "within {}"],
    help: "Leave empty to wait indefinitely." },
  overlap: { ask: "If the earlier run is still going", fact: ["Overlap", "{}"],
    choices: { __proto__: null, allow: "Run anyway", skip: "Skip the new run", buffer_one: "Wait for the earlier run (at most one waits)" } },
  max_age_seconds: { ask: "Give up after", fact: ["Gives up", "{} after it was due"],
    help: "After the due time; then the run fails. Leave empty to give up after the last attempt." },
  outcome_deadline_seconds: { ask: "Require a reported result within", fact: ["Result", "due within {} of its delivery"],
    help: "After its delivery; otherwise you get an alert. Leave empty if delivery is enough." },
};
