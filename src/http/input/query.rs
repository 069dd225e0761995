//! The query of a request, or the body of a form: typed reading that collects every problem. Unknown parameters are ignored.

use std::ops::RangeInclusive;

use crate::domain::api_error::LocSegment;
use crate::error::Result;
use crate::http::input::validation_errors::{
    ValidationErrors, clipped, not_one_of, outside, whole_number, wrong_length,
};

/// The parameters after the `?`, or those that a form posts. Of a name that comes twice the last counts.
#[derive(Debug)]
pub struct Query {
    part: &'static str,
    pairs: Vec<(String, String)>,
    problems: ValidationErrors,
}

impl Query {
    /// Takes a query apart. What is no UTF-8 becomes U+FFFD, as an unknown parameter must not refuse a request.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self::decode("query", text)
    }

    /// Takes the body of a form apart (`application/x-www-form-urlencoded`).
    #[must_use]
    pub fn parse_form(body: &[u8]) -> Self {
        Self::decode("body", &String::from_utf8_lossy(body))
    }

    fn decode(part: &'static str, text: &str) -> Self {
        let decoded =
            |text: &str| String::from_utf8_lossy(&percent_decoded(&text.replace('+', " "))).into_owned();
        let pairs = text
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| (decoded(name), decoded(value)))
            .collect();
        Self { part, pairs, problems: ValidationErrors::default() }
    }

    /// The value as it was sent.
    #[must_use]
    pub fn raw(&self, name: &str) -> Option<&str> {
        self.pairs.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A text of so many characters.
    pub fn text(&self, name: &'static str, length: RangeInclusive<usize>) -> Option<&str> {
        let text = self.raw(name)?;
        match wrong_length(text, &length) {
            Some((kind, msg)) => self.problem(name, kind, msg, text),
            None => Some(text),
        }
    }

    /// An integer of a range; `default` when absent (and after a problem, which `finish` reports).
    pub fn integer(&self, name: &'static str, range: RangeInclusive<i64>, default: i64) -> i64 {
        self.optional_integer(name, range).unwrap_or(default)
    }

    /// An integer of a range.
    pub fn optional_integer(&self, name: &'static str, range: RangeInclusive<i64>) -> Option<i64> {
        let text = self.raw(name)?;
        let Some(number) = whole_number(text) else {
            let msg = "Input should be a valid integer, unable to parse string as an integer";
            return self.problem(name, "int_parsing", msg, text);
        };
        match outside(number, &range) {
            Some((kind, msg)) => self.problem(name, kind, msg, text),
            None => Some(number),
        }
    }

    /// `true` or `false`.
    pub fn boolean(&self, name: &'static str) -> Option<bool> {
        match self.raw(name)? {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            text => {
                let msg = "Input should be a valid boolean, unable to interpret input";
                self.problem(name, "bool_parsing", msg, text)
            }
        }
    }

    /// One of a few words.
    pub fn one_of(&self, name: &'static str, choices: &[&'static str]) -> Option<&'static str> {
        let text = self.raw(name)?;
        match choices.iter().find(|choice| **choice == text) {
            Some(choice) => Some(choice),
            None => self.problem(name, "literal_error", not_one_of(choices), text),
        }
    }

    /// Some of a few words, separated by commas.
    pub fn some_of(&self, name: &'static str, choices: &[&'static str]) -> Option<Vec<&'static str>> {
        let text = self.raw(name)?;
        let find = |word: &str| choices.iter().find(|choice| **choice == word.trim()).copied();
        match text.split(',').map(find).collect() {
            Some(found) => Some(found),
            None => self.problem(name, "literal_error", not_one_of(choices), text),
        }
    }

    /// Refuses a value for a reason of the handler's own.
    pub fn refuse(&self, name: &'static str, reason: &str) {
        let input = self.raw(name).unwrap_or_default();
        self.add(name, "value_error", format!("Value error, {reason}"), input);
    }

    /// The 422 that names every problem, if there was one.
    pub fn finish(&self) -> Result<()> {
        self.problems.finish()
    }

    fn problem<T>(
        &self,
        name: &'static str,
        kind: &'static str,
        msg: impl Into<String>,
        input: &str,
    ) -> Option<T> {
        self.add(name, kind, msg, input);
        None
    }

    fn add(&self, name: &'static str, kind: &'static str, msg: impl Into<String>, input: &str) {
        let loc: Vec<LocSegment> = vec![self.part.into(), name.into()];
        self.problems.add(kind, loc, msg, clipped(input).into());
    }
}

/// The bytes that a percent-encoded text stands for; an escape that is none stands for itself.
#[must_use]
pub fn percent_decoded(text: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        if let [b'%', high, low, behind @ ..] = rest
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            bytes.push(high << 4 | low);
            rest = behind;
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    fn kinds(query: &Query) -> Vec<(&'static str, String)> {
        match query.finish() {
            Ok(()) => Vec::new(),
            Err(Error::Refused(refusal)) => {
                refusal.problems.into_iter().map(|it| (it.kind, it.msg)).collect()
            }
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn values_are_decoded_and_the_last_of_a_name_counts() {
        let query = Query::parse("task=a+b%2Bc&x&task=%C3%A4%zz&&limit=5&bad=%FF");
        assert_eq!(query.raw("task"), Some("ä%zz"));
        assert_eq!(query.raw("x"), Some(""));
        assert_eq!(query.raw("bad"), Some("\u{FFFD}"));
        assert_eq!(query.integer("limit", 1..=100, 20), 5);
        assert_eq!(query.integer("offset", 0..=i64::MAX, 0), 0);
        assert!(query.finish().is_ok());
    }

    #[test]
    fn every_problem_is_reported_in_pydantic_terms() {
        let query = Query::parse(
            "limit=101&offset=-1&n=ten&status=gone&wait=&b=maybe&task=long&some=a,x&huge=99999999999999999999",
        );
        assert_eq!(query.integer("limit", 1..=100, 20), 20);
        query.integer("offset", 0..=i64::MAX, 0);
        query.integer("n", 1..=100, 20);
        query.one_of("status", &["active", "paused"]);
        query.integer("wait", 0..=30, 0);
        query.boolean("b");
        query.text("task", 0..=3);
        query.some_of("some", &["a", "b"]);
        query.integer("huge", 0..=100, 0);
        let parsing = "Input should be a valid integer, unable to parse string as an integer";
        let expected = [
            ("less_than_equal", "Input should be less than or equal to 100"),
            ("greater_than_equal", "Input should be greater than or equal to 0"),
            ("int_parsing", parsing),
            ("literal_error", "Input should be 'active' or 'paused'"),
            ("int_parsing", parsing),
            ("bool_parsing", "Input should be a valid boolean, unable to interpret input"),
            ("string_too_long", "String should have at most 3 characters"),
            ("literal_error", "Input should be 'a' or 'b'"),
            ("less_than_equal", "Input should be less than or equal to 100"),
        ];
        assert_eq!(kinds(&query), expected.map(|(kind, msg)| (kind, msg.to_owned())));
    }

    #[test]
    fn a_list_is_split_at_commas() {
        let query = Query::parse("status__in=pending,%20failed");
        assert_eq!(
            query.some_of("status__in", &["pending", "failed", "success"]),
            Some(vec!["pending", "failed"])
        );
    }
}
