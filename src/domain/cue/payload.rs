//! Payloads: the text that is stored, sent and returned, and the words that workers filter by (contract §4.6).

use serde_json::Value;

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::json::{JsonObject, JsonStr, JsonText, merged, read};
use crate::domain::webhook::canonical_json::canonical;

/// The largest payload, in bytes of compact UTF-8 (contract §4.6).
pub const MAX_PAYLOAD: usize = 1 << 20;

/// Characters of a `task` or `agent` that workers can filter by. They are copied into every execution and into an
/// index; longer ones match nothing (contract §7.1).
pub const MAX_FILTER_CHARS: usize = 255;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// The canonical JSON: the body of a delivery.
    pub body: String,
    /// `payload.task`, if workers can filter by it.
    pub task: Option<String>,
    /// `payload.agent`, if workers can filter by it.
    pub agent: Option<String>,
}

impl Payload {
    /// The payload of a request.
    pub fn new(json: JsonStr<'_>) -> Result<Self, Refusal> {
        let size = json.as_str().len();
        if size <= MAX_PAYLOAD {
            return Ok(Self::of(json));
        }
        let message =
            format!("The payload has {size} bytes as compact JSON; at most {MAX_PAYLOAD} are allowed");
        Err(Refusal::new(ErrorCode::InvalidPayloadSize, message))
    }

    /// The stored payload `own` with the top-level entries of `over` merged into it (`merge_strategy`, contract
    /// §4.11).
    /// Errors: `invalid_payload_size`, and `invalid_json` if `own` is not what [`Payload::body`] was.
    pub fn merged(own: &str, over: JsonStr<'_>) -> Result<Self, Refusal> {
        let own = read(own.as_bytes())?;
        Self::new(merged(own.get(), over).get())
    }

    fn of(json: JsonStr<'_>) -> Self {
        let fields = JsonObject::of(json);
        let word = |name: &str| {
            let text = fields.as_ref()?.get(name)?.as_text()?;
            (text.chars().count() <= MAX_FILTER_CHARS).then(|| text.into_owned())
        };
        Self { body: canonical(json), task: word("task"), agent: word("agent") }
    }
}

impl From<Value> for Payload {
    /// A payload that the program built, of any size.
    fn from(value: Value) -> Self {
        Self::of(JsonText::from(&value).get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn task_and_agent_are_filters_up_to_255_characters() {
        for (length, is_filter) in [(0, true), (255, true), (256, false)] {
            let word = "ä".repeat(length);
            let payload = Payload::from(json!({"task": word, "agent": word}));
            let expected = is_filter.then_some(word);
            assert_eq!((payload.task, payload.agent), (expected.clone(), expected), "{length}");
        }
        let payload = Payload::from(json!({"task": 5, "agent": null}));
        assert_eq!((payload.task, payload.agent), (None, None));
    }

    #[test]
    fn an_override_replaces_entries_of_the_stored_payload() {
        let over = json!({"b": null, "\u{e9}\n": [2], "task": "new"});
        let merged = Payload::merged(
            r#"{"a": {"x": 1}, "b": 2, "task": "old", "\u00e9\n": 1}"#,
            JsonText::from(&over).get(),
        );
        let expected = json!({"a": {"x": 1}, "b": null, "task": "new", "\u{e9}\n": [2]});
        assert_eq!(merged.unwrap(), Payload::from(expected));
    }

    #[test]
    fn a_payload_is_measured_in_its_compact_form() {
        let of_size = |size: usize| JsonText::from(&json!({"é": "é".repeat((size - 9) / 2)}));
        assert_eq!(of_size(MAX_PAYLOAD + 1).as_str().len(), MAX_PAYLOAD + 1);
        assert!(Payload::new(of_size(MAX_PAYLOAD - 1).get()).is_ok());
        let refusal = Payload::new(of_size(MAX_PAYLOAD + 1).get()).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::InvalidPayloadSize);
        assert!(refusal.message.contains("1048577"), "{}", refusal.message);
    }
}
