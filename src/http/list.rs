//! The body of a list: entries until [`MAX_LIST_BYTES`] are written, then the other fields.

use serde::Serialize;

use hyper::StatusCode;

use crate::error::Result;
use crate::http::input::query::Pagination;
use crate::http::response::{Response, append_json};
use crate::store::MAX_LIST_BYTES;

/// The room that is made for each entry at first: a cue or an execution without long texts takes 600 to 700 bytes. A text
/// that grows is copied each time.
const USUAL_ENTRY_BYTES: usize = 768;

/// Most of that room: a hundred entries may be short, and their text is kept until it is sent.
const MAX_FIRST_ROOM: usize = 64 << 10;

/// A JSON object that ends with a list.
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
            .with(&format!("{prefix}has_more"), if end < total.unsigned_abs() { "true" } else { "false" })
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
    fn a_list_ends_before_its_bound_but_has_one_entry() {
        let large = "x".repeat(MAX_LIST_BYTES);
        let list = ListBody::new("entries", [&large, &large]).unwrap();
        let text = list.with_more(false).into_text();
        assert!(text.len() < MAX_LIST_BYTES + 50 && text.ends_with("x\"],\"has_more\":true}"));
        let small = "x".repeat(1_000);
        let list = ListBody::after("{\"a\":1}", "entries", std::iter::repeat_n(&small, 5_000)).unwrap();
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
