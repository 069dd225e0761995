//! The fields of a JSON object: typed reading that collects every problem instead of stopping at the first.
//!
//! A body is read strictly: `"5"` is no integer and `1` no boolean. `null` is the same as absent for what is
//! optional, and a wrong type for what is required.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::domain::api_error::LocSegment;
use crate::error::Result;
use crate::http::input::validation_errors::{
    ValidationErrors, clipped, not_one_of, outside, shown, shown_object, whole_number, wrong_count,
    wrong_length,
};

/// Reads the fields of one object; those of an object in it share its list of problems.
#[derive(Debug)]
pub struct JsonFields<'a> {
    object: &'a Map<String, Value>,
    loc: Vec<LocSegment>,
    asked: Vec<&'static str>,
    problems: ValidationErrors,
}

/// Whether a field is there, where `null` has a meaning of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The object does not have it.
    Absent,
    /// It is `null`.
    Null,
    /// It has a value.
    Given,
}

impl<'a> JsonFields<'a> {
    /// The fields of a request's body.
    #[must_use]
    pub fn of_body(object: &'a Map<String, Value>) -> Self {
        Self { object, loc: vec!["body".into()], asked: Vec::new(), problems: ValidationErrors::default() }
    }

    /// Whether the field is there.
    pub fn presence(&mut self, name: &'static str) -> Presence {
        self.asked.push(name);
        match self.object.get(name) {
            None => Presence::Absent,
            Some(Value::Null) => Presence::Null,
            Some(_) => Presence::Given,
        }
    }

    /// The value whatever it is; nothing for `null`.
    pub fn any(&mut self, name: &'static str) -> Option<&'a Value> {
        self.asked.push(name);
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// A string of so many characters.
    pub fn string(&mut self, name: &'static str, length: RangeInclusive<usize>) -> Option<String> {
        let value = self.any(name)?;
        self.text_of(self.at(name), value, &length)
    }

    /// A string that must be there.
    pub fn required_string(&mut self, name: &'static str, length: RangeInclusive<usize>) -> Option<String> {
        let value = self.required(name)?;
        self.text_of(self.at(name), value, &length)
    }

    /// One of a few words.
    pub fn one_of(&mut self, name: &'static str, choices: &[&'static str]) -> Option<&'static str> {
        let value = self.any(name)?;
        self.choice_of(name, value, choices)
    }

    /// One of a few words that must be there.
    pub fn required_one_of(&mut self, name: &'static str, choices: &[&'static str]) -> Option<&'static str> {
        let value = self.required(name)?;
        self.choice_of(name, value, choices)
    }

    /// `true` or `false`.
    pub fn boolean(&mut self, name: &'static str) -> Option<bool> {
        let value = self.any(name)?;
        self.boolean_of(name, value)
    }

    /// `true` or `false`, which must be there.
    pub fn required_boolean(&mut self, name: &'static str) -> Option<bool> {
        let value = self.required(name)?;
        self.boolean_of(name, value)
    }

    /// An integer of a range.
    pub fn integer(&mut self, name: &'static str, range: RangeInclusive<i64>) -> Option<i64> {
        let value = self.any(name)?;
        let whole = value.as_number().and_then(|number| whole_number(number.as_str()));
        let Some(number) = whole else {
            return self.problem(self.at(name), "int_type", "Input should be a valid integer", value);
        };
        match outside(number, &range) {
            Some((kind, msg)) => self.problem(self.at(name), kind, msg, value),
            None => Some(number),
        }
    }

    /// Any object, as it stands.
    pub fn dictionary(&mut self, name: &'static str) -> Option<&'a Map<String, Value>> {
        let value = self.any(name)?;
        match value {
            Value::Object(object) => Some(object),
            _ => self.problem(self.at(name), "dict_type", "Input should be a valid dictionary", value),
        }
    }

    /// An object whose values are all strings, in the order of their names.
    pub fn string_map(&mut self, name: &'static str) -> Option<Vec<(String, String)>> {
        let object = self.dictionary(name)?;
        // Not one `collect` into an option: that would stop at the first problem.
        let pairs: Vec<Option<(String, String)>> = object
            .iter()
            .map(|(key, value)| {
                if let Value::String(text) = value {
                    return Some((key.clone(), text.clone()));
                }
                let mut loc = self.at(name);
                loc.push(clipped(key).into());
                self.problem(loc, "string_type", "Input should be a valid string", value)
            })
            .collect();
        pairs.into_iter().collect()
    }

    /// The fields of an object in this one.
    pub fn object(&mut self, name: &'static str) -> Option<JsonFields<'a>> {
        let value = self.any(name)?;
        self.nested(name, value)
    }

    /// The fields of an object that must be there.
    pub fn required_object(&mut self, name: &'static str) -> Option<JsonFields<'a>> {
        let value = self.required(name)?;
        self.nested(name, value)
    }

    /// A list of anything.
    pub fn list(&mut self, name: &'static str, count: RangeInclusive<usize>) -> Option<&'a [Value]> {
        let value = self.any(name)?;
        self.list_of(name, value, &count)
    }

    /// A list of strings that must be there.
    pub fn required_strings(
        &mut self,
        name: &'static str,
        count: RangeInclusive<usize>,
        length: RangeInclusive<usize>,
    ) -> Option<Vec<String>> {
        let value = self.required(name)?;
        let items = self.list_of(name, value, &count)?;
        // Not one `collect` into an option: that would stop at the first problem.
        let texts: Vec<Option<String>> = items
            .iter()
            .enumerate()
            .map(|(index, item)| self.text_of(self.at_index(name, index), item, &length))
            .collect();
        texts.into_iter().collect()
    }

    /// A list of numbers, fractions allowed.
    pub fn numbers(&mut self, name: &'static str, count: RangeInclusive<usize>) -> Option<Vec<f64>> {
        let items = self.list(name, count)?;
        let numbers: Vec<Option<f64>> = items
            .iter()
            .enumerate()
            .map(|(index, item)| {
                let number = item.as_f64().filter(|number| number.is_finite());
                number.or_else(|| {
                    self.problem(
                        self.at_index(name, index),
                        "float_type",
                        "Input should be a valid number",
                        item,
                    )
                })
            })
            .collect();
        numbers.into_iter().collect()
    }

    /// Reports a field for a reason of the handler's own, as `value_error`.
    pub fn refuse(&self, name: &'static str, reason: &str) {
        let value = self.object.get(name).unwrap_or(&Value::Null);
        self.problems.add("value_error", self.at(name), format!("Value error, {reason}"), shown(value));
    }

    /// Reports a field that must be there in this case, though not in every one.
    pub fn missing(&self, name: &'static str) {
        self.problems.add("missing", self.at(name), "Field required", shown_object(self.object));
    }

    /// The names of the fields that were not asked for.
    #[must_use]
    pub fn rest(&self) -> Vec<String> {
        self.object.keys().filter(|name| !self.asked.contains(&name.as_str())).cloned().collect()
    }

    /// Refuses every field that was not asked for.
    pub fn forbid_rest(&self) {
        for name in self.rest() {
            let mut loc = self.loc.clone();
            loc.push(clipped(&name).into());
            self.problems.add(
                "extra_forbidden",
                loc,
                "Extra inputs are not permitted",
                clipped(&name).into(),
            );
        }
    }

    /// The 422 that names every problem of this object, of those in it and of the one that it is in.
    pub fn finish(self) -> Result<()> {
        self.problems.finish()
    }

    fn required(&mut self, name: &'static str) -> Option<&'a Value> {
        self.asked.push(name);
        let value = self.object.get(name);
        if value.is_none() {
            self.missing(name);
        }
        value
    }

    fn text_of(&self, loc: Vec<LocSegment>, value: &Value, length: &RangeInclusive<usize>) -> Option<String> {
        let Value::String(text) = value else {
            return self.problem(loc, "string_type", "Input should be a valid string", value);
        };
        if let Some((kind, msg)) = wrong_length(text, length) {
            return self.problem(loc, kind, msg, value);
        }
        // SQLite keeps such a text but its functions, and many readers, stop at the NUL.
        if text.contains('\0') {
            return self.problem(loc, "value_error", "Value error, a NUL character is not permitted", value);
        }
        Some(text.clone())
    }

    fn choice_of(&self, name: &'static str, value: &Value, choices: &[&'static str]) -> Option<&'static str> {
        match choices.iter().find(|choice| value.as_str() == Some(**choice)) {
            Some(choice) => Some(choice),
            None => self.problem(self.at(name), "literal_error", not_one_of(choices), value),
        }
    }

    fn boolean_of(&self, name: &'static str, value: &Value) -> Option<bool> {
        match value {
            Value::Bool(truth) => Some(*truth),
            _ => self.problem(self.at(name), "bool_type", "Input should be a valid boolean", value),
        }
    }

    fn nested(&self, name: &'static str, value: &'a Value) -> Option<JsonFields<'a>> {
        let Value::Object(object) = value else {
            return self.problem(self.at(name), NOT_AN_OBJECT.0, NOT_AN_OBJECT.1, value);
        };
        let problems = self.problems.clone();
        Some(JsonFields { object, loc: self.at(name), asked: Vec::new(), problems })
    }

    fn list_of(
        &self,
        name: &'static str,
        value: &'a Value,
        count: &RangeInclusive<usize>,
    ) -> Option<&'a [Value]> {
        let Value::Array(items) = value else {
            return self.problem(self.at(name), "list_type", "Input should be a valid list", value);
        };
        match wrong_count(items.len(), count) {
            Some((kind, msg)) => self.problem(self.at(name), kind, msg, value),
            None => Some(items),
        }
    }

    fn at(&self, name: &'static str) -> Vec<LocSegment> {
        let mut loc = self.loc.clone();
        loc.push(name.into());
        loc
    }

    fn at_index(&self, name: &'static str, index: usize) -> Vec<LocSegment> {
        let mut loc = self.at(name);
        loc.push(index.into());
        loc
    }

    fn problem<T>(
        &self,
        loc: Vec<LocSegment>,
        kind: &'static str,
        msg: impl Into<String>,
        input: &Value,
    ) -> Option<T> {
        self.problems.add(kind, loc, msg, shown(input));
        None
    }
}

/// Pydantic's word and sentence for what should be an object with known fields.
pub(in crate::http) const NOT_AN_OBJECT: (&str, &str) =
    ("model_attributes_type", "Input should be a valid dictionary or object to extract fields from");

#[cfg(test)]
#[path = "json_fields_tests.rs"]
mod tests;
