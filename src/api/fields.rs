//! Typed access to the fields of a JSON object. The first error does not end the validation: all are collected.
//!
//! Types are strict: `"5"` is not an integer and `1` is not a boolean. `null` means absent for an optional field, and
//! is a wrong type for a required one.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use crate::api::problems::{
    ValidationErrors, choice_error, count_error, echoed, length_error, parse_integer, range_error, truncated,
};
use crate::domain::api_error::{FieldError, LocSegment, Refusal};
use crate::domain::json::{JsonObject, JsonStr, unescaped};

/// Pydantic's type and message for a value that is not an object.
const NOT_AN_OBJECT: (&str, &str) =
    ("model_attributes_type", "Input should be a valid dictionary or object to extract fields from");

/// Names of unknown fields in one answer, and entries of an object of strings. A body can have hundreds of thousands,
/// each of which would take ten times its size.
const MAX_NAMES: usize = 500;

/// Reads the fields of one object. Nested objects share its list of errors.
#[derive(Debug)]
pub struct JsonFields<'a> {
    object: JsonObject<'a>,
    loc: Vec<LocSegment>,
    known: Vec<&'static str>,
    errors: ValidationErrors,
}

/// For fields where `null` and absence have different meanings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Absent,
    Null,
    Given,
}

impl<'a> JsonFields<'a> {
    /// Errors: 422 if the body is not an object.
    pub fn of_body(body: JsonStr<'a>) -> Result<Self, Refusal> {
        let (kind, msg) = NOT_AN_OBJECT;
        let object = JsonObject::of(body).ok_or_else(|| {
            Refusal::invalid(vec![FieldError {
                kind,
                loc: vec!["body".into()],
                msg: msg.to_owned(),
                input: echoed(body),
            }])
        })?;
        Ok(Self { object, loc: vec!["body".into()], known: Vec::new(), errors: ValidationErrors::default() })
    }

    pub fn presence(&mut self, name: &'static str) -> Presence {
        self.known.push(name);
        match self.object.get(name) {
            None => Presence::Absent,
            Some(value) if value.is_null() => Presence::Null,
            Some(_) => Presence::Given,
        }
    }

    /// Returns a value that `null` removes: `None` if it is absent, `Some(None)` for `null`.
    pub fn nullable<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<Option<T>> {
        (self.presence(name) != Presence::Absent).then(|| read(self))
    }

    /// Returns a value of any type; `None` for `null`.
    pub fn any(&mut self, name: &'static str) -> Option<JsonStr<'a>> {
        self.known.push(name);
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// Returns a string with a length, in characters, within the range.
    pub fn string(&mut self, name: &'static str, length: RangeInclusive<usize>) -> Option<String> {
        let value = self.any(name)?;
        self.text_of(self.at(name), value, &length)
    }

    pub fn required_string(&mut self, name: &'static str, length: RangeInclusive<usize>) -> Option<String> {
        let value = self.required(name)?;
        self.text_of(self.at(name), value, &length)
    }

    pub fn one_of(&mut self, name: &'static str, choices: &[&'static str]) -> Option<&'static str> {
        let value = self.any(name)?;
        self.choice_of(name, value, choices)
    }

    pub fn required_one_of(&mut self, name: &'static str, choices: &[&'static str]) -> Option<&'static str> {
        let value = self.required(name)?;
        self.choice_of(name, value, choices)
    }

    pub fn boolean(&mut self, name: &'static str) -> Option<bool> {
        let value = self.any(name)?;
        self.boolean_of(name, value)
    }

    pub fn required_boolean(&mut self, name: &'static str) -> Option<bool> {
        let value = self.required(name)?;
        self.boolean_of(name, value)
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

    /// Returns an object with any fields.
    pub fn dictionary(&mut self, name: &'static str) -> Option<JsonStr<'a>> {
        let value = self.any(name)?;
        if value.entries().is_some() {
            return Some(value);
        }
        self.error(self.at(name), "dict_type", "Input should be a valid dictionary", value)
    }

    /// Returns an object with only strings as values, ordered by name.
    pub fn string_map(&mut self, name: &'static str) -> Option<Vec<(String, String)>> {
        let object = self.dictionary(name)?;
        let count = object.entries().map_or(0, Iterator::count);
        if count > MAX_NAMES {
            let msg =
                format!("Dictionary should have at most {MAX_NAMES} items after validation, not {count}");
            return self.error(self.at(name), "too_long", msg, object);
        }
        // A direct `collect` into an `Option` would stop at the first error.
        let pairs: Vec<Option<(String, String)>> = object
            .entries()
            .into_iter()
            .flatten()
            .map(|(key, value)| {
                let key = unescaped(key);
                if let Some(text) = value.as_text() {
                    return Some((key.into_owned(), text.into_owned()));
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
        self.nested(name, value)
    }

    pub fn required_object(&mut self, name: &'static str) -> Option<JsonFields<'a>> {
        let value = self.required(name)?;
        self.nested(name, value)
    }

    /// Returns a list of values of any type.
    pub fn list(&mut self, name: &'static str, count: RangeInclusive<usize>) -> Option<JsonStr<'a>> {
        let value = self.any(name)?;
        self.list_of(name, value, &count).map(|_| value)
    }

    pub fn required_strings(
        &mut self,
        name: &'static str,
        count: RangeInclusive<usize>,
        length: RangeInclusive<usize>,
    ) -> Option<Vec<String>> {
        let value = self.required(name)?;
        let items = self.list_of(name, value, &count)?;
        self.each(name, &items, |loc, item| self.text_of(loc, item, &length))
    }

    /// Returns a list of finite numbers.
    pub fn numbers(&mut self, name: &'static str, count: RangeInclusive<usize>) -> Option<Vec<f64>> {
        let value = self.any(name)?;
        let items = self.list_of(name, value, &count)?;
        self.each(name, &items, |loc, item| {
            let number = item.as_number().and_then(|text| text.parse::<f64>().ok());
            number
                .filter(|number| number.is_finite())
                .or_else(|| self.error(loc, "float_type", "Input should be a valid number", item))
        })
    }

    /// Adds a validation error that the handler found, with the type `value_error`.
    pub fn reject(&self, name: &'static str, reason: &str) {
        let value = self.object.get(name).unwrap_or(JsonStr::NULL);
        self.errors.add_value("value_error", self.at(name), format!("Value error, {reason}"), value);
    }

    /// Adds the error for a missing field. For fields that only some combinations of other fields require.
    pub fn add_missing(&self, name: &'static str) {
        self.errors.add_object("missing", self.at(name), "Field required", self.object.text());
    }

    /// Returns the names of the fields that no method has read; not all, if they are very many.
    pub fn unknown(&self) -> Vec<String> {
        let unknown = self.object.keys().filter(|name| !self.known.contains(&name.as_ref()));
        unknown.take(MAX_NAMES).map(Cow::into_owned).collect()
    }

    /// Adds an error for every field that no method has read.
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

    /// Ends the validation of the whole body, from any of its objects.
    pub fn finish(self) -> Result<(), Refusal> {
        self.errors.finish()
    }

    fn required(&mut self, name: &'static str) -> Option<JsonStr<'a>> {
        self.known.push(name);
        let value = self.object.get(name);
        if value.is_none() {
            self.add_missing(name);
        }
        value
    }

    fn text_of(
        &self,
        loc: Vec<LocSegment>,
        value: JsonStr<'_>,
        length: &RangeInclusive<usize>,
    ) -> Option<String> {
        let Some(text) = value.as_text() else {
            return self.error(loc, "string_type", "Input should be a valid string", value);
        };
        if let Some((kind, msg)) = length_error(&text, length) {
            return self.error(loc, kind, msg, value);
        }
        // SQLite stores a NUL, but its text functions and many clients end the text there.
        if text.contains('\0') {
            return self.error(loc, "value_error", "Value error, a NUL character is not permitted", value);
        }
        Some(text.into_owned())
    }

    fn choice_of(
        &self,
        name: &'static str,
        value: JsonStr<'_>,
        choices: &[&'static str],
    ) -> Option<&'static str> {
        let text = value.as_text();
        match choices.iter().find(|choice| text.as_deref() == Some(**choice)) {
            Some(choice) => Some(choice),
            None => self.error(self.at(name), "literal_error", choice_error(choices), value),
        }
    }

    fn boolean_of(&self, name: &'static str, value: JsonStr<'_>) -> Option<bool> {
        match value.as_bool() {
            Some(truth) => Some(truth),
            None => self.error(self.at(name), "bool_type", "Input should be a valid boolean", value),
        }
    }

    fn nested(&self, name: &'static str, value: JsonStr<'a>) -> Option<JsonFields<'a>> {
        let Some(object) = JsonObject::of(value) else {
            return self.error(self.at(name), NOT_AN_OBJECT.0, NOT_AN_OBJECT.1, value);
        };
        let errors = self.errors.clone();
        Some(JsonFields { object, loc: self.at(name), known: Vec::new(), errors })
    }

    fn list_of(
        &self,
        name: &'static str,
        value: JsonStr<'a>,
        count: &RangeInclusive<usize>,
    ) -> Option<Vec<JsonStr<'a>>> {
        let Some(items) = value.items() else {
            return self.error(self.at(name), "list_type", "Input should be a valid list", value);
        };
        // Counted first: the list may have a million items.
        match count_error(items.count(), count) {
            Some((kind, msg)) => self.error(self.at(name), kind, msg, value),
            None => Some(value.items().into_iter().flatten().collect()),
        }
    }

    fn at(&self, name: &'static str) -> Vec<LocSegment> {
        let mut loc = self.loc.clone();
        loc.push(name.into());
        loc
    }

    /// Reads all items of a list, also after one with an error.
    fn each<T>(
        &self,
        name: &'static str,
        items: &[JsonStr<'a>],
        read: impl Fn(Vec<LocSegment>, JsonStr<'a>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let mut found = Some(Vec::new());
        for (index, item) in items.iter().enumerate() {
            let mut loc = self.at(name);
            loc.push(index.into());
            match (read(loc, *item), &mut found) {
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
    use serde_json::{Value, json};

    use super::*;
    use crate::domain::json::JsonText;

    /// Runs a reader on a body. Returns its result and `type path.of.field: msg` for each error.
    fn read<T>(body: &Value, reader: impl Fn(&mut JsonFields<'_>) -> T) -> (T, Vec<String>) {
        let text = JsonText::from(body);
        let mut fields = JsonFields::of_body(text.get()).unwrap();
        let read = reader(&mut fields);
        match fields.finish() {
            Ok(()) => (read, Vec::new()),
            Err(refusal) => (read, refusal.problems.iter().map(format_error).collect()),
        }
    }

    fn format_error(error: &FieldError) -> String {
        let path: Vec<String> = error.loc.iter().map(ToString::to_string).collect();
        format!("{} {}: {}", error.kind, path.join("."), error.msg)
    }

    #[test]
    fn every_error_is_collected_with_its_path() {
        let body = json!({
            "name": "", "transport": "pigeon", "payload": [], "retry": {"max_attempts": 11, "backoff_minutes": [1, "x"]},
            "handlers": ["a", 2, ""], "schedule": "daily", "success": "yes", "description": 7, "nul": "a\u{0}b"
        });
        let (_, errors) = read(&body, |fields| {
            fields.required_string("name", 1..=255);
            fields.required_string("worker_id", 1..=255);
            fields.string("description", 0..=1000);
            fields.one_of("transport", &["webhook", "worker"]);
            fields.dictionary("payload");
            fields.required_object("schedule");
            if let Some(mut retry) = fields.object("retry") {
                retry.integer("max_attempts", 1..=10);
                retry.numbers("backoff_minutes", 1..=32);
            }
            fields.required_strings("handlers", 0..=100, 1..=255);
            fields.required_boolean("success");
            fields.string("nul", 0..=9);
            fields.reject("email", "not an email address");
        });
        assert_eq!(
            errors,
            [
                "string_too_short body.name: String should have at least 1 character",
                "missing body.worker_id: Field required",
                "string_type body.description: Input should be a valid string",
                "literal_error body.transport: Input should be 'webhook' or 'worker'",
                "dict_type body.payload: Input should be a valid dictionary",
                "model_attributes_type body.schedule: Input should be a valid dictionary or object to extract fields from",
                "less_than_equal body.retry.max_attempts: Input should be less than or equal to 10",
                "float_type body.retry.backoff_minutes.1: Input should be a valid number",
                "string_type body.handlers.1: Input should be a valid string",
                "string_too_short body.handlers.2: String should have at least 1 character",
                "bool_type body.success: Input should be a valid boolean",
                "value_error body.nul: Value error, a NUL character is not permitted",
                "value_error body.email: Value error, not an email address",
            ]
        );
    }

    #[test]
    fn the_input_is_the_value_the_object_or_the_name() {
        let body = json!({"a": 5, "extra": true});
        let text = JsonText::from(&body);
        let mut fields = JsonFields::of_body(text.get()).unwrap();
        fields.string("a", 0..=9);
        fields.required_string("b", 0..=9);
        fields.forbid_unknown();
        let Err(refusal) = fields.finish() else { panic!("accepted") };
        let inputs: Vec<&Value> = refusal.problems.iter().map(|error| &error.input).collect();
        assert_eq!(inputs, [&json!(5), &body, &json!("extra")]);
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
            let (_, errors) = read(&body, |fields| fields.integer("n", 1..=10));
            let kind = errors.first().and_then(|error| error.split(' ').next());
            assert_eq!(kind, expected, "{value}");
        }
    }
}
