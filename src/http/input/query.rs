//! Typed access to the parameters of a query or a posted form. Collects every validation error and ignores unknown
//! parameters.

use std::ops::RangeInclusive;

use jiff::Timestamp;
use url::form_urlencoded;

use crate::api::problems::{
    ValidationErrors, choice_error, length_error, parse_integer, range_error, truncated,
};
use crate::domain::api_error::{LocSegment, Refusal};
use crate::domain::schedule::parse_instant;
use crate::domain::schedule::time_zone::Zone;

/// Largest `limit` of a list (contract §4.8, §5.3).
const MAX_LIMIT: i64 = 100;

/// Decoded parameters. If a name is repeated, its last value counts.
#[derive(Debug)]
pub struct Query {
    part: &'static str,
    pairs: Vec<(String, String)>,
    errors: ValidationErrors,
}

/// The requested part of a list: at most `limit` entries, beginning with number `offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pagination {
    pub limit: u32,
    pub offset: u64,
}

impl Query {
    /// Parses a query. Invalid UTF-8 becomes U+FFFD, because an unknown parameter must never fail a request.
    pub fn parse(text: &str) -> Self {
        Self::decode("query", text)
    }

    /// Parses the body of a form (`application/x-www-form-urlencoded`).
    pub fn parse_form(body: &[u8]) -> Self {
        Self::decode("body", &String::from_utf8_lossy(body))
    }

    fn decode(part: &'static str, text: &str) -> Self {
        let pairs = form_urlencoded::parse(text.as_bytes()).into_owned().collect();
        Self { part, pairs, errors: ValidationErrors::default() }
    }

    /// Returns a decoded value without validation.
    pub fn raw(&self, name: &str) -> Option<&str> {
        self.pairs.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns a text with a length, in characters, within the range.
    pub fn text(&self, name: &'static str, length: RangeInclusive<usize>) -> Option<&str> {
        let text = self.raw(name)?;
        match length_error(text, &length) {
            Some((kind, msg)) => self.error(name, kind, msg, text),
            None => Some(text),
        }
    }

    /// Reads `limit` (1 to 100) and `offset` of a list.
    pub fn pagination(&self, default_limit: u32) -> Pagination {
        self.pagination_of("limit", "offset", default_limit)
    }

    /// Same as [`Query::pagination`], under other names.
    pub fn pagination_of(&self, limit: &'static str, offset: &'static str, default_limit: u32) -> Pagination {
        let limit = self.optional_integer(limit, 1..=MAX_LIMIT);
        let offset = self.integer(offset, 0..=i64::MAX, 0);
        Pagination {
            limit: limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(default_limit),
            offset: offset.unsigned_abs(),
        }
    }

    /// Returns an integer within the range; `default` if it is absent or invalid.
    pub fn integer(&self, name: &'static str, range: RangeInclusive<i64>, default: i64) -> i64 {
        self.optional_integer(name, range).unwrap_or(default)
    }

    pub fn optional_integer(&self, name: &'static str, range: RangeInclusive<i64>) -> Option<i64> {
        let text = self.raw(name)?;
        let Some(number) = parse_integer(text) else {
            let msg = "Input should be a valid integer, unable to parse string as an integer";
            return self.error(name, "int_parsing", msg, text);
        };
        match range_error(number, &range) {
            Some((kind, msg)) => self.error(name, kind, msg, text),
            None => Some(number),
        }
    }

    /// Returns a time, without an offset in UTC.
    pub fn time(&self, name: &'static str) -> Option<Timestamp> {
        let time = parse_instant(self.text(name, 0..=64)?, &Zone::UTC).ok();
        if time.is_none() {
            let example = "should be a time such as 2030-01-31T09:00:00Z; write the + of an offset as %2B";
            self.reject(name, &format!("{name} {example}"));
        }
        time
    }

    /// Accepts `true`, `1`, `false` and `0`.
    pub fn boolean(&self, name: &'static str) -> Option<bool> {
        match self.raw(name)? {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            text => {
                let msg = "Input should be a valid boolean, unable to interpret input";
                self.error(name, "bool_parsing", msg, text)
            }
        }
    }

    /// Returns an instant of RFC 3339 (contract §2.6). Without an offset it is in UTC.
    pub fn instant(&self, name: &'static str) -> Option<Timestamp> {
        let text = self.raw(name)?;
        // In a query `+` stands for a space, and few callers write `%2B` in an offset.
        let with_plus = text.rsplit_once(' ').filter(|(time, _)| time.contains(['T', 't']));
        let with_plus = with_plus.map(|(time, offset)| format!("{time}+{offset}"));
        match parse_instant(with_plus.as_deref().unwrap_or(text), &Zone::UTC) {
            Ok(at) => Some(at),
            Err(_) => {
                let msg = "Input should be an instant like 2026-01-31T09:00:00Z (RFC 3339)";
                self.error(name, "datetime_parsing", msg, text)
            }
        }
    }

    pub fn one_of(&self, name: &'static str, choices: &[&'static str]) -> Option<&'static str> {
        let text = self.raw(name)?;
        match choices.iter().find(|choice| **choice == text) {
            Some(choice) => Some(choice),
            None => self.error(name, "literal_error", choice_error(choices), text),
        }
    }

    pub fn some_of(&self, name: &'static str, choices: &[&'static str]) -> Option<Vec<&'static str>> {
        let text = self.raw(name)?;
        let find = |word: &str| choices.iter().find(|choice| **choice == word.trim()).copied();
        match text.split(',').map(find).collect() {
            Some(found) => Some(found),
            None => self.error(name, "literal_error", choice_error(choices), text),
        }
    }

    /// Adds a validation error that the handler found.
    pub fn reject(&self, name: &'static str, reason: &str) {
        let input = self.raw(name).unwrap_or_default();
        self.add(name, "value_error", format!("Value error, {reason}"), input);
    }

    /// Ends the validation.
    pub fn finish(&self) -> Result<(), Refusal> {
        self.errors.finish()
    }

    fn error<T>(
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
        self.errors.add(kind, loc, msg, truncated(input).into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_and_the_last_of_a_repeated_name_counts() {
        let query = Query::parse("task=a+b%2Bc&x&task=%C3%A4%zz&&limit=5&bad=%FF");
        assert_eq!(query.raw("task"), Some("ä%zz"));
        assert_eq!(query.raw("x"), Some(""));
        assert_eq!(query.raw("bad"), Some("\u{FFFD}"));
        assert_eq!(query.integer("limit", 1..=100, 20), 5);
        assert_eq!(query.integer("offset", 0..=i64::MAX, 0), 0);
        assert!(query.finish().is_ok());
    }

    #[test]
    fn an_instant_may_have_an_offset_with_a_bare_plus() {
        let query =
            Query::parse("a=2026-01-01T01:00:00%2B01:00&b=2026-01-01T01:00:00+01:00&c=2026-01-01T00:00:00Z");
        let instants = ["a", "b", "c"].map(|name| query.instant(name).map(|at| at.to_string()));
        assert_eq!(instants, ["2026-01-01T00:00:00Z"; 3].map(|at| Some(at.to_owned())));
        assert!(query.finish().is_ok());
        let query = Query::parse("a=yesterday");
        assert_eq!(query.instant("a"), None);
        assert_eq!(query.finish().unwrap_err().problems[0].kind, "datetime_parsing");
    }
}
