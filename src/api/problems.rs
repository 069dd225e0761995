//! The validation errors of one request, in the format of Pydantic (contract §2.3).

use std::ops::RangeInclusive;
use std::sync::Arc;

use serde_json::Value;

use crate::domain::api_error::{FieldError, LocSegment, Refusal};
use crate::domain::json::JsonStr;
use crate::locks::Mutex;

/// Errors in one response. A body of 2 MB can contain a million.
const MAX_ERRORS: usize = 100;
/// Approximate bytes of an invalid value that a response repeats. A larger value is cut.
const MAX_INPUT_BYTES: usize = 1_000;

/// Bytes of arrays and objects that one response repeats as values. They take up to 90 times their size in memory;
/// later ones are repeated as text.
const MAX_NESTED_BYTES: usize = 4_000;

/// The list of errors that all readers of one request share.
#[derive(Debug, Clone, Default)]
pub struct ValidationErrors(Arc<Mutex<Collected>>);

#[derive(Debug, Default)]
struct Collected {
    errors: Vec<FieldError>,
    nested_bytes: usize,
}

impl ValidationErrors {
    /// Adds an error, unless the list is full.
    pub fn add(&self, kind: &'static str, loc: Vec<LocSegment>, msg: impl Into<String>, input: Value) {
        let errors = &mut self.0.lock().errors;
        if errors.len() < MAX_ERRORS {
            errors.push(FieldError { kind, loc, msg: msg.into(), input });
        }
    }

    /// Same as [`ValidationErrors::add`], for an invalid value.
    pub fn add_value(
        &self,
        kind: &'static str,
        loc: Vec<LocSegment>,
        msg: impl Into<String>,
        value: JsonStr<'_>,
    ) {
        if let Some(fits) = self.try_take(value) {
            self.add(kind, loc, msg, if fits { echoed(value) } else { truncated(value.as_str()).into() });
        }
    }

    /// Same as [`ValidationErrors::add`], for an object with a missing field. A large object becomes an empty one.
    pub fn add_object(&self, kind: &'static str, loc: Vec<LocSegment>, msg: &str, object: JsonStr<'_>) {
        if let Some(fits) = self.try_take(object) {
            let is_small = fits && object.as_str().len() <= MAX_INPUT_BYTES;
            self.add(kind, loc, msg, if is_small { object } else { JsonStr::EMPTY_OBJECT }.to_value());
        }
    }

    /// Returns whether a value may be repeated as a tree; `None` if the list is full.
    fn try_take(&self, value: JsonStr<'_>) -> Option<bool> {
        let mut collected = self.0.lock();
        if value.as_str().starts_with(['{', '[']) {
            collected.nested_bytes += value.as_str().len().min(MAX_INPUT_BYTES);
        }
        let fits = collected.nested_bytes <= MAX_NESTED_BYTES;
        (collected.errors.len() < MAX_ERRORS).then_some(fits || !value.as_str().starts_with(['{', '[']))
    }

    /// Returns all errors as one refusal and clears the list.
    pub fn finish(&self) -> Result<(), Refusal> {
        let errors = std::mem::take(&mut *self.0.lock()).errors;
        if errors.is_empty() { Ok(()) } else { Err(Refusal::invalid(errors)) }
    }
}

/// Returns an invalid value as the response repeats it, cut to a bounded size.
pub fn echoed(value: JsonStr<'_>) -> Value {
    match value.as_text() {
        Some(text) => truncated(&text).into(),
        None if value.as_str().len() <= MAX_INPUT_BYTES => value.to_value(),
        None => truncated(value.as_str()).into(),
    }
}

pub fn truncated(text: &str) -> String {
    let mut end = text.len().min(MAX_INPUT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    if end == text.len() { text.to_owned() } else { format!("{}…", &text[..end]) }
}

/// Returns the type and the message of the error if an integer is outside the range.
pub fn range_error(value: i64, range: &RangeInclusive<i64>) -> Option<(&'static str, String)> {
    if value < *range.start() {
        Some(("greater_than_equal", format!("Input should be greater than or equal to {}", range.start())))
    } else if value > *range.end() {
        Some(("less_than_equal", format!("Input should be less than or equal to {}", range.end())))
    } else {
        None
    }
}

/// Returns the type and the message of the error if the length of a text, in characters, is outside the range.
pub fn length_error(text: &str, range: &RangeInclusive<usize>) -> Option<(&'static str, String)> {
    let length = text.chars().count();
    if length < *range.start() {
        Some((
            "string_too_short",
            format!("String should have at least {}", pluralized(*range.start(), "character")),
        ))
    } else if length > *range.end() {
        Some((
            "string_too_long",
            format!("String should have at most {}", pluralized(*range.end(), "character")),
        ))
    } else {
        None
    }
}

/// Returns the type and the message of the error if the length of a list is outside the range.
pub fn count_error(count: usize, range: &RangeInclusive<usize>) -> Option<(&'static str, String)> {
    let (kind, bound, word) = if count < *range.start() {
        ("too_short", *range.start(), "least")
    } else if count > *range.end() {
        ("too_long", *range.end(), "most")
    } else {
        return None;
    };
    Some((
        kind,
        format!("List should have at {word} {} after validation, not {count}", pluralized(bound, "item")),
    ))
}

/// Formats `Input should be 'a', 'b' or 'c'`.
pub fn choice_error(choices: &[&str]) -> String {
    let quoted: Vec<String> = choices.iter().map(|choice| format!("'{choice}'")).collect();
    match quoted.split_last() {
        Some((last, [])) => format!("Input should be {last}"),
        Some((last, others)) => format!("Input should be {} or {last}", others.join(", ")),
        None => "Input should be absent".to_owned(),
    }
}

/// Parses an integer in decimal digits. A number outside 64 bits becomes the largest or smallest `i64`.
pub fn parse_integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let limit = if text.starts_with('-') { i64::MIN } else { i64::MAX };
    Some(text.parse().unwrap_or(limit))
}

fn pluralized(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::json::JsonText;

    #[test]
    fn integers_of_any_length_are_accepted() {
        assert_eq!(parse_integer("20"), Some(20));
        assert_eq!(parse_integer("-7"), Some(-7));
        assert_eq!(parse_integer("99999999999999999999999"), Some(i64::MAX));
        assert_eq!(parse_integer("-99999999999999999999999"), Some(i64::MIN));
        for text in ["", "-", "1.0", "1e3", "abc", " 1", "0x1", "1_000", "٣"] {
            assert_eq!(parse_integer(text), None, "{text}");
        }
    }

    fn echo_of(value: &Value) -> Value {
        echoed(JsonText::from(value).get())
    }

    #[test]
    fn the_echo_of_an_invalid_value_is_bounded() {
        let small = json!({"a": [1, "two", null]});
        assert_eq!(echo_of(&small), small);
        let large = json!(vec!["ä".repeat(50); 5_000]);
        assert!(echo_of(&large).as_str().unwrap().len() < MAX_INPUT_BYTES + 10);
        assert_eq!(
            echo_of(&json!("x".repeat(MAX_INPUT_BYTES + 1))),
            json!(format!("{}…", "x".repeat(MAX_INPUT_BYTES)))
        );
    }

    #[test]
    fn the_echoes_of_arrays_and_objects_are_bounded_together() {
        let errors = ValidationErrors::default();
        let list = JsonText::from(&json!(vec![json!({}); 300]));
        for index in 0..10_usize {
            errors.add_value("string_type", vec![index.into()], "Input should be a valid string", list.get());
        }
        errors.add_object("missing", Vec::new(), "Field required", list.get());
        let Err(refusal) = errors.finish() else { panic!("accepted") };
        let trees = refusal.problems.iter().filter(|error| error.input.is_array()).count();
        assert_eq!(trees, MAX_NESTED_BYTES / list.as_str().len());
        assert_eq!(refusal.problems.last().unwrap().input, json!({}));
    }

    #[test]
    fn the_number_of_errors_is_bounded() {
        let errors = ValidationErrors::default();
        for index in 0..1_000_usize {
            errors.add("string_type", vec![index.into()], "Input should be a valid string", Value::Null);
        }
        match errors.finish() {
            Err(refusal) => assert_eq!(refusal.problems.len(), MAX_ERRORS),
            other => panic!("expected a refusal, got {other:?}"),
        }
        assert!(errors.finish().is_ok());
    }
}
