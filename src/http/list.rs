//! Lists: the parameters of a query or a form, the caller's turn to read, and the body with its entries.

use std::ops::RangeInclusive;

use hyper::StatusCode;
use jiff::Timestamp;
use serde::Serialize;
use url::form_urlencoded;

use crate::api::fields::{
    ValidationErrors, choice_error, length_error, parse_integer, range_error, truncated,
};
use crate::domain::api_error::Refusal;
use crate::domain::cue::tags::{MAX_TAGS, TAG_RULE, Tags, is_tag};
use crate::domain::schedule::{Zone, parse_instant};
use crate::error::Result;
use crate::http::limits::turns::Turn;
use crate::http::message::{Request, Response, append_json};
use crate::store::{MAX_LIST_BYTES, ReadTx};

/// Largest `limit` of a list (contract §4.8, §5.3).
const MAX_LIMIT: i64 = 100;

/// The first room for each entry: a cue or an execution without long texts takes 800 to 950 bytes. A text that grows is
/// copied each time.
const USUAL_ENTRY_BYTES: usize = 1_024;

/// Most of that room: a hundred entries may be short, and their text is kept until it is sent.
const MAX_FIRST_ROOM: usize = 64 << 10;

impl Request {
    /// Invalid UTF-8 becomes U+FFFD, because an unknown parameter must never fail a request.
    pub fn query(&self) -> Query {
        Query::decode(self.query.as_bytes())
    }

    /// The body as a form (`application/x-www-form-urlencoded`).
    pub fn form(&self) -> Query {
        Query::decode(&self.body.bytes)
    }

    /// Waits for the caller's turn to read a list, to be held until the response is rendered.
    pub async fn list_turn(&self) -> Result<Turn> {
        self.shares.lists.wait(self.owner).await
    }

    /// Reads a list in the caller's turn. `is_slow` has it read on the thread for long histories.
    pub async fn read_list<T, F>(&self, is_slow: bool, list: F) -> Result<(T, Turn)>
    where
        T: Send + 'static,
        F: FnOnce(&ReadTx<'_>) -> Result<T> + Send + 'static,
    {
        let turns = if is_slow { &self.shares.slow_lists } else { &self.shares.lists };
        let turn = turns.wait(self.owner).await?;
        // The job holds the turn, also if the client disconnects.
        let job = move |read: &ReadTx<'_>| Ok((list(read)?, turn));
        if is_slow { self.app.store.read_slow(job).await } else { self.app.store.read(job).await }
    }
}

/// Typed access to the parameters of a query or a form. Collects every validation error and ignores unknown parameters. If
/// a name is repeated, its last value counts, except for [`Query::tags`].
#[derive(Debug)]
pub struct Query {
    pairs: Vec<(String, String)>,
    errors: ValidationErrors,
}

impl Query {
    pub fn decode(text: &[u8]) -> Self {
        let pairs = form_urlencoded::parse(text).into_owned().collect();
        Self { pairs, errors: ValidationErrors::default() }
    }

    /// Returns a decoded value without validation.
    pub fn raw(&self, name: &str) -> Option<&str> {
        self.pairs.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns a text with a length, in characters, within the range.
    pub fn text(&self, name: &'static str, length: RangeInclusive<usize>) -> Option<&str> {
        let text = self.raw(name)?;
        match length_error(text, &length) {
            Some((kind, msg)) => self.error(name, kind, msg),
            None => Some(text),
        }
    }

    /// Reads the id of a cue that filters a list. A slug is refused: as an id it would be one of no cue.
    pub fn cue_id(&self) -> Option<String> {
        let text = self.text("cue_id", 0..=255)?;
        if text.starts_with("slug:") {
            self.reject(
                "cue_id",
                "must be an id, not a slug: a list of cues with this slug has it",
            );
        }
        Some(text.to_owned())
    }

    /// Reads `limit` (1 to 100) and `offset` of a list.
    pub fn pagination(&self, default_limit: u32) -> Pagination {
        self.pagination_of("limit", "offset", default_limit)
    }

    /// Same as [`Query::pagination`], under other names.
    pub fn pagination_of(
        &self,
        limit: &'static str,
        offset: &'static str,
        default_limit: u32,
    ) -> Pagination {
        Pagination {
            limit: self.integer(limit, 1..=MAX_LIMIT).unwrap_or(default_limit),
            offset: self.integer(offset, 0..=i64::MAX).unwrap_or(0),
        }
    }

    /// Returns an integer within the range, whose numbers `T` has.
    pub fn integer<T: TryFrom<i64>>(
        &self,
        name: &'static str,
        range: RangeInclusive<i64>,
    ) -> Option<T> {
        let text = self.raw(name)?;
        let Some(number) = parse_integer(text) else {
            let msg = "Input should be a valid integer, unable to parse string as an integer";
            return self.error(name, "int_parsing", msg);
        };
        match range_error(number, &range) {
            Some((kind, msg)) => self.error(name, kind, msg),
            None => T::try_from(number).ok(),
        }
    }

    /// Accepts `true`, `1`, `false` and `0`.
    pub fn boolean(&self, name: &'static str) -> Option<bool> {
        match self.raw(name)? {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => self.error(
                name,
                "bool_parsing",
                "Input should be a valid boolean, unable to interpret input",
            ),
        }
    }

    /// Returns an instant of RFC 3339 (contract §2.6). Without an offset it is in UTC.
    pub fn instant(&self, name: &'static str) -> Option<Timestamp> {
        let text = self.raw(name)?;
        // In a query `+` stands for a space, and few callers write `%2B` in an offset.
        let with_plus = text.rsplit_once(' ').filter(|(time, _)| time.contains(['T', 't']));
        let with_plus = with_plus.map(|(time, offset)| format!("{time}+{offset}"));
        let instant = parse_instant(with_plus.as_deref().unwrap_or(text), &Zone::UTC).ok();
        let msg = "Input should be an instant like 2026-01-31T09:00:00Z (RFC 3339)";
        instant.or_else(|| self.error(name, "datetime_parsing", msg))
    }

    pub fn one_of(&self, name: &'static str, choices: &[&'static str]) -> Option<&'static str> {
        let text = self.raw(name)?;
        let found = choices.iter().find(|choice| **choice == text).copied();
        found.or_else(|| self.error(name, "literal_error", choice_error(choices)))
    }

    pub fn some_of(
        &self,
        name: &'static str,
        choices: &[&'static str],
    ) -> Option<Vec<&'static str>> {
        let find = |word: &str| choices.iter().find(|choice| **choice == word.trim()).copied();
        let found = self.raw(name)?.split(',').map(find).collect::<Option<_>>();
        found.or_else(|| self.error(name, "literal_error", choice_error(choices)))
    }

    /// Returns the tags of a filter, one in each `tag`.
    pub fn tags(&self) -> Tags {
        let given = self.pairs.iter().filter(|(name, _)| name == "tag").map(|(_, tag)| tag);
        if given.clone().count() > MAX_TAGS {
            self.reject("tag", &format!("must have at most {MAX_TAGS} tags"));
            return Tags::default();
        }
        if given.clone().any(|tag| !is_tag(tag)) {
            self.reject("tag", TAG_RULE);
        }
        let mut tags: Vec<String> = given.cloned().collect();
        // In any order they make the same list.
        tags.sort_unstable();
        Tags::new(tags)
    }

    /// Adds a validation error that the handler found.
    pub fn reject(&self, name: &'static str, reason: &str) {
        self.error::<()>(name, "value_error", format!("Value error, {reason}"));
    }

    /// Ends the validation.
    pub fn finish(&self) -> std::result::Result<(), Refusal> {
        self.errors.finish()
    }

    fn error<T>(
        &self,
        name: &'static str,
        kind: &'static str,
        msg: impl Into<String>,
    ) -> Option<T> {
        let input = truncated(self.raw(name).unwrap_or_default());
        self.errors.add(kind, vec!["query".into(), name.into()], msg, input.into());
        None
    }
}

/// The requested part of a list: at most `limit` entries, beginning with number `offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pagination {
    pub limit: u32,
    pub offset: u64,
}

/// A JSON object with a list: entries until [`MAX_LIST_BYTES`] are written, then the other fields.
#[derive(Debug)]
pub struct ListBody {
    text: Vec<u8>,
    count: usize,
    is_cut: bool,
}

impl ListBody {
    /// An object with the list `name`: as many of the entries as fit, at least one.
    pub fn new<T: Serialize>(name: &str, entries: impl IntoIterator<Item = T>) -> Result<Self> {
        Self::after("{}", name, entries)
    }

    /// Same as [`ListBody::new`], after the fields of `object`.
    pub fn after<T: Serialize>(
        object: &str,
        name: &str,
        entries: impl IntoIterator<Item = T>,
    ) -> Result<Self> {
        let fields = object.strip_suffix('}').unwrap_or(object);
        let comma = if fields.len() > 1 { "," } else { "" };
        let entries = entries.into_iter();
        let room = entries.size_hint().0.saturating_mul(USUAL_ENTRY_BYTES).min(MAX_FIRST_ROOM);
        let mut text = Vec::with_capacity(fields.len() + room);
        text.extend([fields, comma, "\"", name, "\":["].concat().bytes());
        let mut list = Self { text, count: 0, is_cut: false };
        let begin = list.text.len();
        for entry in entries {
            let end = list.text.len();
            if list.count > 0 {
                list.text.push(b',');
            }
            append_json(&mut list.text, &entry)?;
            if list.count > 0 && list.text.len() - begin > MAX_LIST_BYTES {
                list.text.truncate(end);
                list.is_cut = true;
                break;
            }
            list.count += 1;
        }
        list.text.push(b']');
        Ok(list)
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Adds a field whose value is JSON text.
    pub fn with(mut self, name: &str, json: &str) -> Self {
        self.text.extend([",\"", name, "\":", json].concat().bytes());
        self
    }

    /// Adds `total`, the number of all entries, the bounds of a page, and whether there are more after it. The names
    /// begin with `prefix`.
    pub fn with_page(self, prefix: &str, total: i64, page: Pagination) -> Self {
        let end = page.offset.saturating_add(self.count as u64);
        self.with(&format!("{prefix}total"), &total.to_string())
            .with(&format!("{prefix}limit"), &page.limit.to_string())
            .with(&format!("{prefix}offset"), &page.offset.to_string())
            .with(
                &format!("{prefix}has_more"),
                if end < total.unsigned_abs() { "true" } else { "false" },
            )
    }

    /// Adds `has_more`: true if entries did not fit, or if there are `others`.
    pub fn with_more(self, others: bool) -> Self {
        let has_more = if self.is_cut || others { "true" } else { "false" };
        self.with("has_more", has_more)
    }

    pub fn into_response(mut self) -> Response {
        self.text.push(b'}');
        Response::json(StatusCode::OK, self.text)
    }

    pub fn into_text(mut self) -> String {
        self.text.push(b'}');
        // serde_json writes UTF-8 only.
        String::from_utf8(self.text).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_and_the_last_of_a_repeated_name_counts() {
        let query = Query::decode(
            b"task=a+b%2Bc&x&task=%C3%A4%zz&&limit=5&bad=%FF&t=2026-01-01T01:00:00+01:00",
        );
        assert_eq!(
            [query.raw("task"), query.raw("x"), query.raw("bad")],
            [Some("ä%zz"), Some(""), Some("\u{FFFD}")]
        );
        assert_eq!(query.pagination(20), Pagination { limit: 5, offset: 0 });
        assert_eq!(query.instant("t").unwrap().to_string(), "2026-01-01T00:00:00Z", "a bare plus");
        assert!(query.finish().is_ok());
        assert_eq!(query.instant("task"), None);
        assert_eq!(query.finish().unwrap_err().problems[0].kind, "datetime_parsing");
    }

    #[test]
    fn a_list_ends_before_its_bound_but_has_one_entry() {
        let large = "x".repeat(MAX_LIST_BYTES);
        let list = ListBody::new("entries", [&large, &large]).unwrap();
        let text = list.with_more(false).into_text();
        assert!(text.len() < MAX_LIST_BYTES + 50 && text.ends_with("x\"],\"has_more\":true}"));
        let small = "x".repeat(1_000);
        let list =
            ListBody::after("{\"a\":1}", "entries", std::iter::repeat_n(&small, 5_000)).unwrap();
        let count = list.count;
        assert_eq!(count, MAX_LIST_BYTES / 1_003);
        let text = list.with_page("", 5_000, Pagination { limit: 5_000, offset: 7 }).into_text();
        assert!(text.starts_with("{\"a\":1,\"entries\":[\"xxx"), "{}", &text[..30]);
        assert!(text.ends_with("],\"total\":5000,\"limit\":5000,\"offset\":7,\"has_more\":true}"));
    }

    #[test]
    fn an_empty_list_has_no_more() {
        let list = ListBody::new("entries", [0; 0]).unwrap();
        let page = Pagination { limit: 1, offset: 0 };
        let text = list.with_page("", 0, page).into_text();
        assert_eq!(text, r#"{"entries":[],"total":0,"limit":1,"offset":0,"has_more":false}"#);
    }
}
