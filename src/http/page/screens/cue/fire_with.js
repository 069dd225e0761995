import { cuePath, fieldError, fromLocal, knowsZone, post, prompt, randomKey } from "../../kit.js";
import { checkJson, faultText, prettyJson, readableJson } from "../../parts/payload.js";

// Asks for a payload and a time, and fires the cue once. `own` is the payload of a run of the cue, if
// not the cue's.
export function fireWith(cue, own = null) {
  const zone = knowsZone(cue.schedule.timezone) ? cue.schedule.timezone : "UTC";
  const shown = prettyJson(readableJson(own ?? cue.payload_text ?? "{}"));
  const path = cuePath(cue.id) + "/fire";
  const key = randomKey();
  return prompt({
    title: `Fire ${cue.name}`, action: "Fire",
    text: `Runs the cue once with this payload${own ? ", which is the run's" : ""}. The cue keeps
      its own.`,
    fields: [
      { name: "payload_override", label: "Payload (JSON)", value: shown, lines: 10 },
      { name: "at", label: `At (${zone})`, type: "datetime-local",
        help: "Leave empty to fire now." },
    ],
    send({ payload_override, at }) {
      const fault = checkJson(payload_override);
      if (fault) throw fieldError("payload_override", faultText(fault));
      const send_at = fromLocal(at, zone) || undefined;
      if (own === null && payload_override === shown) return post(path, { send_at }, { key });
      return post(path, { send_at, merge_strategy: "replace" }, { raw: { payload_override }, key });
    },
  });
}
