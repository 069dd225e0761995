//! Reads lists: some rows, or all of them by pages.

use clap::Args;

use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::list::List;
use crate::client::request::ApiRequest;

/// Rows without `--limit` and `--all`.
const USUAL: u64 = 20;

/// The most rows that the server returns at a time.
const PAGE: u64 = 100;

/// The part of a list that is wanted.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Rows {
    /// Rows at most
    #[arg(long, value_name = "N", default_value_t = USUAL, value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: u64,

    /// All rows
    #[arg(long, conflicts_with = "limit")]
    pub all: bool,
}

/// Reads a list. `key` is the field of the answer that has the items.
/// Errors: if a request fails, or the answer is no such list.
pub fn fetch(
    context: &Context,
    request: &ApiRequest,
    key: &'static str,
    rows: Rows,
) -> Result<List, CliError> {
    let wanted = if rows.all { u64::MAX } else { rows.limit };
    let page = |list: &List, cursor: Option<&str>| {
        let left = wanted - list.items.len() as u64;
        let request = request.clone().query("limit", left.min(PAGE).to_string());
        match cursor {
            Some(cursor) => request.query("cursor", cursor),
            None if list.items.is_empty() => request,
            None => request.query("offset", list.items.len().to_string()),
        }
    };
    let mut list = List::empty(key);
    let mut answer = context.send(&page(&list, None))?;
    loop {
        let count = list.items.len();
        let cursor = list.append(&answer)?;
        let is_enough = list.items.len() as u64 >= wanted || list.items.len() == count;
        if !list.has_more || is_enough {
            return Ok(list);
        }
        answer = context.look_up(&page(&list, cursor.as_deref()))?;
    }
}
