//! Typed access to the fields of a JSON object, and the validation errors of a request in the format of Pydantic
//! (contract §2.3). The first error does not end the validation: all are collected.
//!
//! Types are strict: `"5"` is not an integer and `1` is not a boolean. `null` means absent for an optional field, and
//! is a wrong type for a required one.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::sync::Arc;

use serde_json::Value;

use crate::domain::api_error::{FieldError, LocSegment, Refusal};
use crate::domain::json::{JsonObject, JsonStr, JsonText, unescaped};
use crate::system::locks::Mutex;

/// Errors in one response. A body of 2 MB can contain a million.
const MAX_ERRORS: usize = 100;
/// Approximate bytes of an invalid value that a response repeats. A larger value is cut.
const MAX_INPUT_BYTES: usize = 1_000;

/// Bytes of arrays and objects that one response repeats as trees, which take 90 times as much; later ones are text.
const MAX_NESTED_BYTES: usize = 4_000;

#[derive(Debug, Clone, Default)]
pub struct ValidationErrors(Arc<Mutex<ErrorList>>);

#[derive(Debug, Default)]
struct ErrorList {
    errors: Vec<FieldError>,
    nested_bytes: usize,
}

impl ValidationErrors {
    pub fn add(
        &self,
        kind: &'static str,
        loc: Vec<LocSegment>,
        msg: impl Into<String>,
        input: Value,
    ) {
        let errors = &mut self.0.lock().errors;
        if errors.len() < MAX_ERRORS {
            errors.push(FieldError { kind, loc, msg: msg.into(), input });
        }
    }

    pub fn add_value(
        &self,
        kind: &'static str,
        loc: Vec<LocSegment>,
        msg: impl Into<String>,
        value: JsonStr<'_>,
    ) {
        if let Some(fits) = self.try_take(value) {
            self.add(
                kind,
                loc,
                msg,
                if fits { echoed(value) } else { truncated(value.as_str()).into() },
            );
        }
    }

    /// Same as [`ValidationErrors::add`], for an object with a missing field. A large object becomes an empty one.
    pub fn add_object(
        &self,
        kind: &'static str,
        loc: Vec<LocSegment>,
        msg: &str,
        object: JsonStr<'_>,
    ) {
        if let Some(fits) = self.try_take(object) {
            let is_small = fits && object.as_str().len() <= MAX_INPUT_BYTES;
            self.add(
                kind,
                loc,
                msg,
                if is_small { object } else { JsonStr::EMPTY_OBJECT }.to_value(),
            );
        }
    }

    /// Returns whether a value may be repeated as a tree; `None` if the list is full.
    fn try_take(&self, value: JsonStr<'_>) -> Option<bool> {
        let mut collected = self.0.lock();
        if value.as_str().starts_with(['{', '[']) {
            collected.nested_bytes += value.as_str().len().min(MAX_INPUT_BYTES);
        }
        let fits = collected.nested_bytes <= MAX_NESTED_BYTES;
        (collected.errors.len() < MAX_ERRORS)
            .then_some(fits || !value.as_str().starts_with(['{', '[']))
    }

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

pub fn range_error(value: i64, range: &RangeInclusive<i64>) -> Option<(&'static str, String)> {
    if value < *range.start() {
        Some((
            "greater_than_equal",
            format!("Input should be greater than or equal to {}", range.start()),
        ))
    } else if value > *range.end() {
        Some(("less_than_equal", format!("Input should be less than or equal to {}", range.end())))
    } else {
        None
    }
}

/// Returns the type and the message of the error if the length of a text, in characters, is outside the range.
pub fn length_error(text: &str, range: &RangeInclusive<usize>) -> Option<(&'static str, String)> {
    let (kind, word, bound) =
        exceeded_bound(text.chars().count(), range, ["string_too_short", "string_too_long"])?;
    Some((kind, format!("String should have at {word} {}", pluralized(bound, "character"))))
}

pub fn count_error(count: usize, range: &RangeInclusive<usize>) -> Option<(&'static str, String)> {
    let (kind, word, bound) = exceeded_bound(count, range, ["too_short", "too_long"])?;
    let items = pluralized(bound, "item");
    Some((kind, format!("List should have at {word} {items} after validation, not {count}")))
}

fn exceeded_bound(
    count: usize,
    range: &RangeInclusive<usize>,
    [too_few, too_many]: [&'static str; 2],
) -> Option<(&'static str, &'static str, usize)> {
    if count < *range.start() {
        return Some((too_few, "least", *range.start()));
    }
    (count > *range.end()).then_some((too_many, "most", *range.end()))
}

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

/// Pydantic's type and message for a value that is not an object.
const NOT_AN_OBJECT: (&str, &str) = (
    "model_attributes_type",
    "Input should be a valid dictionary or object to extract fields from",
);

/// Names of unknown fields in one answer, and entries of an object of strings: a body can have hundreds of thousands.
const MAX_NAMES: usize = 500;

/// Reads the fields of one object. Nested objects share its list of errors.
#[derive(Debug)]
pub struct JsonFields<'a> {
    object: JsonObject<'a>,
    loc: Vec<LocSegment>,
    known: Vec<&'static str>,
    /// Whether the next field that is read must be there.
    is_required: bool,
    errors: ValidationErrors,
}

impl<'a> JsonFields<'a> {
    pub fn of_body(body: JsonStr<'a>) -> Result<Self, Refusal> {
        let (kind, msg) = NOT_AN_OBJECT;
        let object = JsonObject::from_text(body).ok_or_else(|| {
            Refusal::invalid(vec![FieldError {
                kind,
                loc: vec!["body".into()],
                msg: msg.to_owned(),
                input: echoed(body),
            }])
        })?;
        Ok(Self {
            object,
            loc: vec!["body".into()],
            known: Vec::new(),
            is_required: false,
            errors: ValidationErrors::default(),
        })
    }

    /// The next field that is read must be there, and `null` is no value of it.
    pub fn required(&mut self) -> &mut Self {
        self.required_if(true)
    }

    pub fn required_if(&mut self, is_required: bool) -> &mut Self {
        self.is_required = is_required;
        self
    }

    /// Returns a value that `null` removes: `None` if it is absent, `Some(None)` for `null`.
    pub fn nullable<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<Option<T>> {
        self.known.push(name);
        self.object.get(name).map(|_| read(self))
    }

    pub fn any(&mut self, name: &'static str) -> Option<JsonStr<'a>> {
        self.known.push(name);
        let is_required = std::mem::take(&mut self.is_required);
        let value = self.object.get(name);
        if is_required && value.is_none() {
            self.add_missing(name);
        }
        value.filter(|value| is_required || !value.is_null())
    }

    pub fn string(&mut self, name: &'static str, length: RangeInclusive<usize>) -> Option<String> {
        let value = self.any(name)?;
        self.text_of(self.at(name), value, &length)
    }

    /// As [`Self::string`], of a text that may have NULs.
    pub fn string_with_nuls(
        &mut self,
        name: &'static str,
        length: RangeInclusive<usize>,
    ) -> Option<String> {
        let value = self.any(name)?;
        self.any_text_of(self.at(name), value, &length)
    }

    /// As [`Self::string`], of a value that may also be written as an integer.
    pub fn text_or_number(
        &mut self,
        name: &'static str,
        length: RangeInclusive<usize>,
    ) -> Option<String> {
        match self.any(name)?.as_number() {
            Some(number) => parse_integer(number)
                .map(|_| number.to_owned())
                .or_else(|| self.string(name, length)),
            None => self.string(name, length),
        }
    }

    /// Returns whether the object has no field of this name; `null` is one.
    pub fn is_absent(&self, name: &str) -> bool {
        self.object.get(name).is_none()
    }

    pub fn one_of(&mut self, name: &'static str, choices: &[&'static str]) -> Option<&'static str> {
        let value = self.any(name)?;
        let text = value.as_text();
        match choices.iter().find(|choice| text.as_deref() == Some(**choice)) {
            Some(choice) => Some(choice),
            None => self.error(self.at(name), "literal_error", choice_error(choices), value),
        }
    }

    pub fn boolean(&mut self, name: &'static str) -> Option<bool> {
        let value = self.any(name)?;
        value.as_bool().or_else(|| {
            self.error(self.at(name), "bool_type", "Input should be a valid boolean", value)
        })
    }

    pub fn integer(&mut self, name: &'static str, range: RangeInclusive<i64>) -> Option<i64> {
        let value = self.any(name)?;
        let whole = value.as_number().and_then(parse_integer);
        let Some(number) = whole else {
            return self.error(self.at(name), "int_type", "Input should be a valid integer", value);
        };
        match range_error(number, &range) {
            Some((kind, msg)) => self.error(self.at(name), kind, msg, value),
            None => Some(number),
        }
    }

    pub fn dictionary(&mut self, name: &'static str) -> Option<JsonStr<'a>> {
        let value = self.any(name)?;
        if value.entries().is_some() {
            return Some(value);
        }
        self.error(self.at(name), "dict_type", "Input should be a valid dictionary", value)
    }

    /// The entries of an object with at most `max`, whose keys are the caller's own. `remedy` says what to do with more.
    pub fn entries(
        &mut self,
        name: &'static str,
        max: usize,
        remedy: &str,
    ) -> Option<Vec<(String, JsonStr<'a>)>> {
        let object = self.dictionary(name)?;
        let count = object.entries().map_or(0, Iterator::count);
        if count > max {
            let msg = format!(
                "Dictionary should have at most {max} items after validation, not {count}{remedy}"
            );
            return self.error(self.at(name), "too_long", msg, object);
        }
        let entries = object.entries().into_iter().flatten();
        Some(entries.map(|(key, value)| (unescaped(key).into_owned(), value)).collect())
    }

    pub fn string_map(&mut self, name: &'static str) -> Option<Vec<(String, String)>> {
        let entries = self.entries(name, MAX_NAMES, "")?;
        // A direct `collect` into an `Option` would stop at the first error.
        let pairs: Vec<Option<(String, String)>> = entries
            .into_iter()
            .map(|(key, value)| {
                if let Some(text) = value.as_text() {
                    return Some((key, text.into_owned()));
                }
                let mut loc = self.at(name);
                loc.push(truncated(&key).into());
                self.error(loc, "string_type", "Input should be a valid string", value)
            })
            .collect();
        pairs.into_iter().collect()
    }

    pub fn object(&mut self, name: &'static str) -> Option<JsonFields<'a>> {
        let value = self.any(name)?;
        let Some(object) = JsonObject::from_text(value) else {
            return self.error(self.at(name), NOT_AN_OBJECT.0, NOT_AN_OBJECT.1, value);
        };
        let (loc, errors) = (self.at(name), self.errors.clone());
        Some(JsonFields { object, loc, known: Vec::new(), is_required: false, errors })
    }

    pub fn list(
        &mut self,
        name: &'static str,
        count: RangeInclusive<usize>,
    ) -> Option<JsonStr<'a>> {
        let value = self.any(name)?;
        let Some(items) = value.items() else {
            return self.error(self.at(name), "list_type", "Input should be a valid list", value);
        };
        match count_error(items.count(), &count) {
            Some((kind, msg)) => self.error(self.at(name), kind, msg, value),
            None => Some(value),
        }
    }

    pub fn strings(
        &mut self,
        name: &'static str,
        count: RangeInclusive<usize>,
        length: RangeInclusive<usize>,
    ) -> Option<Vec<String>> {
        self.each(name, count, |it, loc, item| it.text_of(loc, item, &length))
    }

    /// Returns the texts of a list that all are valid; `rule` says what is.
    pub fn words(
        &mut self,
        name: &'static str,
        count: RangeInclusive<usize>,
        (is_valid, rule): (fn(&str) -> bool, &str),
    ) -> Option<Vec<String>> {
        self.each(name, count, |it, loc, item| {
            let text = it.text_of(loc.clone(), item, &(0..=usize::MAX))?;
            if is_valid(&text) {
                Some(text)
            } else {
                it.error(loc, "value_error", format!("Value error, {rule}"), item)
            }
        })
    }

    pub fn numbers(
        &mut self,
        name: &'static str,
        count: RangeInclusive<usize>,
    ) -> Option<Vec<f64>> {
        self.each(name, count, |it, loc, item| {
            let number = item.as_number().and_then(|text| text.parse::<f64>().ok());
            number
                .filter(|number| number.is_finite())
                .or_else(|| it.error(loc, "float_type", "Input should be a valid number", item))
        })
    }

    pub fn reject(&self, name: &'static str, reason: &str) {
        let value = self.object.get(name).unwrap_or(JsonStr::NULL);
        self.errors.add_value(
            "value_error",
            self.at(name),
            format!("Value error, {reason}"),
            value,
        );
    }

    pub fn add_missing(&self, name: &'static str) {
        self.errors.add_object("missing", self.at(name), "Field required", self.object.text());
    }

    /// Returns the names of the fields that no method has read; not all, if they are very many.
    pub fn unknown(&self) -> Vec<String> {
        let unknown = self.object.keys().filter(|name| !self.known.contains(&name.as_ref()));
        unknown.take(MAX_NAMES).map(Cow::into_owned).collect()
    }

    /// Refuses a field that no method has read, for a reason of its own.
    pub fn forbid(&mut self, name: &'static str, reason: &str) {
        if !self.known.contains(&name) && !self.is_absent(name) {
            self.errors.add("extra_forbidden", self.at(name), reason, name.into());
        }
        self.known.push(name);
    }

    pub fn forbid_unknown(&self) {
        for name in self.unknown() {
            let mut loc = self.loc.clone();
            loc.push(truncated(&name).into());
            self.errors.add(
                "extra_forbidden",
                loc,
                "Extra inputs are not permitted",
                truncated(&name).into(),
            );
        }
    }

    /// The validation errors of the body so far.
    pub fn count_errors(&self) -> usize {
        self.errors.0.lock().errors.len()
    }

    /// The object without an entry, whose value may be large.
    pub fn without(&self, name: &str) -> JsonText {
        self.object.without(name)
    }

    /// Ends the validation of the whole body, from any of its objects.
    pub fn finish(self) -> Result<(), Refusal> {
        self.errors.finish()
    }

    /// As [`Self::finish`], with the value of fields that were required: without an error there is one.
    pub fn finish_with<T>(self, required: Option<T>) -> Result<T, Refusal> {
        self.errors.finish()?;
        required.ok_or_else(|| Refusal::invalid(Vec::new()))
    }

    fn text_of(
        &self,
        loc: Vec<LocSegment>,
        value: JsonStr<'_>,
        length: &RangeInclusive<usize>,
    ) -> Option<String> {
        let text = self.any_text_of(loc.clone(), value, length)?;
        // SQLite stores a NUL, but its text functions and many clients end the text there.
        if text.contains('\0') {
            return self.error(
                loc,
                "value_error",
                "Value error, a NUL character is not permitted",
                value,
            );
        }
        Some(text)
    }

    fn any_text_of(
        &self,
        loc: Vec<LocSegment>,
        value: JsonStr<'_>,
        length: &RangeInclusive<usize>,
    ) -> Option<String> {
        let Some(text) = value.as_text() else {
            return self.error(loc, "string_type", "Input should be a valid string", value);
        };
        match length_error(&text, length) {
            Some((kind, msg)) => self.error(loc, kind, msg, value),
            None => Some(text.into_owned()),
        }
    }

    fn at(&self, name: &'static str) -> Vec<LocSegment> {
        let mut loc = self.loc.clone();
        loc.push(name.into());
        loc
    }

    fn each<T>(
        &mut self,
        name: &'static str,
        count: RangeInclusive<usize>,
        read: impl Fn(&Self, Vec<LocSegment>, JsonStr<'a>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let items = self.list(name, count)?.items()?;
        let mut found = Some(Vec::new());
        for (index, item) in items.enumerate() {
            let mut loc = self.at(name);
            loc.push(index.into());
            match (read(self, loc, item), &mut found) {
                (Some(value), Some(found)) => found.push(value),
                _ => found = None,
            }
        }
        found
    }

    fn error<T>(
        &self,
        loc: Vec<LocSegment>,
        kind: &'static str,
        msg: impl Into<String>,
        input: JsonStr<'_>,
    ) -> Option<T> {
        self.errors.add_value(kind, loc, msg, input);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_echo_of_an_invalid_value_is_bounded() {
        let echo_of = |value: &Value| echoed(JsonText::from(value).get());
        let small = json!({"a": [1, "two", null]});
        assert_eq!(echo_of(&small), small);
        assert!(
            echo_of(&json!(vec!["ä".repeat(50); 5_000])).as_str().unwrap().len()
                < MAX_INPUT_BYTES + 10
        );
    }

    #[test]
    fn the_echoes_of_arrays_and_objects_are_bounded_together() {
        let errors = ValidationErrors::default();
        let list = JsonText::from(&json!(vec![json!({}); 300]));
        for index in 0..10_usize {
            errors.add_value(
                "string_type",
                vec![index.into()],
                "Input should be a valid string",
                list.get(),
            );
        }
        errors.add_object("missing", Vec::new(), "Field required", list.get());
        let Err(refusal) = errors.finish() else { panic!("accepted") };
        let trees = refusal.problems.iter().filter(|error| error.input.is_array()).count();
        assert_eq!(trees, MAX_NESTED_BYTES / list.as_str().len());
        assert_eq!(refusal.problems.last().unwrap().input, json!({}));
    }

    #[test]
    fn integers_are_strict_and_of_any_length() {
        for (value, expected) in [
            ("5", None),
            ("5.0", Some("int_type")),
            ("\"5\"", Some("int_type")),
            ("true", Some("int_type")),
            ("0", Some("greater_than_equal")),
            ("-99999999999999999999999", Some("greater_than_equal")),
            ("99999999999999999999999", Some("less_than_equal")),
        ] {
            let body: Value = serde_json::from_str(&format!("{{\"n\": {value}}}")).unwrap();
            let text = JsonText::from(&body);
            let mut fields = JsonFields::of_body(text.get()).unwrap();
            fields.integer("n", 1..=10);
            let kind = fields.finish().err().map(|refusal| refusal.problems[0].kind);
            assert_eq!(kind, expected, "{value}");
        }
    }
}
