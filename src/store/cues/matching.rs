//! Searches the cues of a user that a filter matches. SQLite finds the rows of the user, with one status if the filter
//! has one; the rule of the domain decides about each of them, because only Rust folds the case of all letters.

use rusqlite::{Row, params};

use crate::domain::cue::filter::{CueFacts, CueFilter};
use crate::domain::cue::{CueStatus, Transport};
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::db::columns::{invalid_column, parse_word};

/// The ids of the user's cues that match, oldest first, at most `limit`. Reads the user's rows until it has found so many.
pub fn select(read: &ReadTx<'_>, user_key: i64, filter: &CueFilter, limit: usize) -> Result<Vec<String>> {
    let mut ids = Vec::new();
    scan(read, user_key, filter, "cues.id", 0, |row| {
        ids.push(row.get(0)?);
        Ok(ids.len() < limit)
    })?;
    Ok(ids)
}

/// Calls `found` with the row of each match, oldest first, until it returns false. The rows have `columns`.
pub(in crate::store) fn scan(
    read: &ReadTx<'_>,
    user_key: i64,
    filter: &CueFilter,
    columns: &str,
    after_key: i64,
    mut found: impl FnMut(&Row<'_>) -> rusqlite::Result<bool>,
) -> Result<()> {
    let mut rows = read.prepare_cached(&sql(filter, columns))?;
    let mut rows = rows.query(params![user_key, filter.status.map(CueStatus::as_str), after_key])?;
    while let Some(row) = rows.next()? {
        if is_match(filter, row)? && !found(row)? {
            break;
        }
    }
    Ok(())
}

/// The query for the rows that may match. The columns that the filter needs follow `columns`; the texts are read only
/// to be searched, because they are behind the headers, which may be long.
fn sql(filter: &CueFilter, columns: &str) -> String {
    let status = if filter.status.is_some() { "status = ?2" } else { "?2 IS NULL" };
    let texts = if filter.q.is_some() { ", id AS code, name AS text, description, callback_url" } else { "" };
    let failing = match filter.failing {
        Some(_) => ", (SELECT failures FROM consecutive_failures WHERE cue_key = cues.key) AS failing",
        None => "",
    };
    format!(
        "SELECT {columns}, status, transport{failing}{texts} FROM cues
          WHERE user_key = ?1 AND {status} AND key > ?3 ORDER BY key"
    )
}

fn is_match(filter: &CueFilter, row: &Row<'_>) -> rusqlite::Result<bool> {
    let text = |name: &str| -> rusqlite::Result<Option<&str>> {
        if filter.q.is_none() {
            return Ok(None);
        }
        row.get_ref(name)?.as_str_or_null().map_err(|error| invalid_column(&error.to_string()))
    };
    let failing = if filter.failing.is_some() { row.get::<_, Option<i64>>("failing")? } else { None };
    Ok(filter.matches(&CueFacts {
        id: text("code")?.unwrap_or_default(),
        name: text("text")?.unwrap_or_default(),
        description: text("description")?,
        callback_url: text("callback_url")?,
        status: parse_word(row, "status", CueStatus::parse)?,
        transport: parse_word(row, "transport", Transport::parse)?,
        is_failing: failing.unwrap_or(0) > 0,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::cue::filter::SearchText;
    use crate::store::test_support::plan;

    #[test]
    fn only_rows_of_the_user_are_read_and_in_order() {
        let all = CueFilter { q: Some(SearchText::new("a")), failing: Some(true), ..CueFilter::default() };
        let paused = CueFilter { status: Some(CueStatus::Paused), ..all.clone() };
        for (filter, step) in [
            (all, "SEARCH cues USING INDEX cues_by_user (user_key=? AND key>?)"),
            (paused, "SEARCH cues USING INDEX cues_by_user_and_status (user_key=? AND status=? AND key>?)"),
        ] {
            let steps = plan(&sql(&filter, "key"));
            assert_eq!(steps[0], step);
            assert!(steps.iter().all(|step| !step.contains("SCAN ") && !step.contains("TEMP")), "{steps:?}");
            assert_eq!(
                steps.last().unwrap(),
                "SEARCH consecutive_failures USING INTEGER PRIMARY KEY (rowid=?)"
            );
        }
    }
}
