//! The problems of one request, collected, in Pydantic's terms (contract §2).

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};

use crate::domain::api_error::{FieldError, LocSegment, Refusal};
use crate::error::Result;

/// Problems told to a caller at most: a body of 2 MB has room for a million.
const MOST: usize = 100;
/// Bytes of a refused value that are shown, roughly; a larger one is shown as the beginning of its text.
const SHOWN: usize = 1_000;

/// The list that the readers of one request share.
#[derive(Debug, Clone, Default)]
pub struct ValidationErrors(Arc<Mutex<Vec<FieldError>>>);

impl ValidationErrors {
    /// Adds a problem, unless there are enough already.
    pub fn add(&self, kind: &'static str, loc: Vec<LocSegment>, msg: impl Into<String>, input: Value) {
        let mut problems = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if problems.len() < MOST {
            problems.push(FieldError { kind, loc, msg: msg.into(), input });
        }
    }

    /// The 422 that names them all, if there are any.
    pub fn finish(&self) -> Result<()> {
        let problems = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if problems.is_empty() { Ok(()) } else { Err(Refusal::invalid(problems).into()) }
    }
}

/// What of a refused value is shown to its sender.
pub fn shown(value: &Value) -> Value {
    match value {
        Value::String(text) => clipped(text).into(),
        _ if weight(value, SHOWN).is_some() => value.clone(),
        _ => clipped(&value.to_string()).into(),
    }
}

/// [`shown`] for an object that a field is missing from.
pub fn shown_object(object: &Map<String, Value>) -> Value {
    match object
        .values()
        .zip(object.keys())
        .try_fold(SHOWN, |left, (value, name)| weight(value, left.checked_sub(name.len() + 1)?))
    {
        Some(_) => Value::Object(object.clone()),
        None => Value::Object(Map::new()),
    }
}

/// The beginning of a text that may be very long.
pub fn clipped(text: &str) -> String {
    let mut end = text.len().min(SHOWN);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    if end == text.len() { text.to_owned() } else { format!("{}…", &text[..end]) }
}

/// What is left of `budget` after the value's text, or nothing; never looks at more than the budget's worth.
fn weight(value: &Value, budget: usize) -> Option<usize> {
    match value {
        Value::String(text) => budget.checked_sub(text.len() + 1),
        Value::Array(items) => items.iter().try_fold(budget.checked_sub(1)?, |left, item| weight(item, left)),
        Value::Object(fields) => fields.iter().try_fold(budget.checked_sub(1)?, |left, (name, item)| {
            weight(item, left.checked_sub(name.len() + 1)?)
        }),
        Value::Number(number) => budget.checked_sub(number.as_str().len()),
        Value::Null | Value::Bool(_) => budget.checked_sub(1),
    }
}

/// Whether an integer is in its range: the type and the sentence of the problem if not.
pub fn outside(value: i64, range: &RangeInclusive<i64>) -> Option<(&'static str, String)> {
    if value < *range.start() {
        let least = range.start();
        Some(("greater_than_equal", format!("Input should be greater than or equal to {least}")))
    } else if value > *range.end() {
        Some(("less_than_equal", format!("Input should be less than or equal to {}", range.end())))
    } else {
        None
    }
}

/// Whether a string has a length (in characters) of its range.
pub fn wrong_length(text: &str, range: &RangeInclusive<usize>) -> Option<(&'static str, String)> {
    let length = text.chars().count();
    if length < *range.start() {
        Some((
            "string_too_short",
            format!("String should have at least {}", counted(*range.start(), "character")),
        ))
    } else if length > *range.end() {
        Some((
            "string_too_long",
            format!("String should have at most {}", counted(*range.end(), "character")),
        ))
    } else {
        None
    }
}

/// Whether a list has a number of elements of its range.
pub fn wrong_count(count: usize, range: &RangeInclusive<usize>) -> Option<(&'static str, String)> {
    let (kind, bound, word) = if count < *range.start() {
        ("too_short", *range.start(), "least")
    } else if count > *range.end() {
        ("too_long", *range.end(), "most")
    } else {
        return None;
    };
    Some((
        kind,
        format!("List should have at {word} {} after validation, not {count}", counted(bound, "item")),
    ))
}

/// `Input should be 'a', 'b' or 'c'`.
pub fn not_one_of(choices: &[&str]) -> String {
    let quoted: Vec<String> = choices.iter().map(|choice| format!("'{choice}'")).collect();
    match quoted.split_last() {
        Some((last, [])) => format!("Input should be {last}"),
        Some((last, others)) => format!("Input should be {} or {last}", others.join(", ")),
        None => "Input should be absent".to_owned(),
    }
}

/// The integer that a text writes in digits; one too long for 64 bits counts as the largest (or least) of them.
pub fn whole_number(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let most = if text.starts_with('-') { i64::MIN } else { i64::MAX };
    Some(text.parse().unwrap_or(most))
}

fn counted(count: usize, thing: &str) -> String {
    if count == 1 { format!("1 {thing}") } else { format!("{count} {thing}s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_follow_pydantic() {
        assert_eq!(not_one_of(&["recurring", "once"]), "Input should be 'recurring' or 'once'");
        assert_eq!(not_one_of(&["a", "b", "c"]), "Input should be 'a', 'b' or 'c'");
        let problem = |kind, msg: &str| Some((kind, msg.to_owned()));
        assert_eq!(
            wrong_length("", &(1..=255)),
            problem("string_too_short", "String should have at least 1 character")
        );
        assert_eq!(
            wrong_length("äöü", &(0..=2)),
            problem("string_too_long", "String should have at most 2 characters")
        );
        assert_eq!(wrong_length("äö", &(0..=2)), None);
        assert_eq!(
            wrong_count(0, &(1..=9)),
            problem("too_short", "List should have at least 1 item after validation, not 0")
        );
        assert_eq!(
            wrong_count(33, &(1..=32)),
            problem("too_long", "List should have at most 32 items after validation, not 33")
        );
    }

    #[test]
    fn whole_numbers_of_any_length_are_numbers() {
        assert_eq!(whole_number("20"), Some(20));
        assert_eq!(whole_number("-7"), Some(-7));
        assert_eq!(whole_number("99999999999999999999999"), Some(i64::MAX));
        assert_eq!(whole_number("-99999999999999999999999"), Some(i64::MIN));
        for text in ["", "-", "1.0", "1e3", "abc", " 1", "0x1", "1_000", "٣"] {
            assert_eq!(whole_number(text), None, "{text}");
        }
    }

    #[test]
    fn the_shown_part_of_a_rejected_value_is_bounded() {
        let small = json!({"a": [1, "two", null]});
        assert_eq!(shown(&small), small);
        let large = json!(vec!["ä".repeat(50); 5_000]);
        assert!(shown(&large).as_str().unwrap().len() < SHOWN + 10);
        assert_eq!(shown(&json!("x".repeat(SHOWN + 1))), json!(format!("{}…", "x".repeat(SHOWN))));
        let enclosing = json!({"metadata": large});
        assert_eq!(shown_object(enclosing.as_object().unwrap()), json!({}));
    }

    #[test]
    fn the_number_of_problems_is_bounded() {
        let problems = ValidationErrors::default();
        for index in 0..1_000_usize {
            problems.add("string_type", vec![index.into()], "Input should be a valid string", Value::Null);
        }
        match problems.finish() {
            Err(crate::error::Error::Refused(refusal)) => assert_eq!(refusal.problems.len(), MOST),
            other => panic!("expected a refusal, got {other:?}"),
        }
        assert!(problems.finish().is_ok());
    }
}
