//! Searches the cues of a user that a filter matches. SQLite finds the rows of the user, with one status if the filter
//! has one; the rule of the domain decides about each of them, because only Rust folds the case of all letters.

use rusqlite::params;

use crate::domain::cue::CueStatus;
use crate::domain::cue::list::{CueFacts, CueFilter};
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::db::columns::RowReader;

/// The ids of the user's cues that match, oldest first, at most `limit`. Reads the user's rows until it has found so many.
pub fn select(read: &ReadTx<'_>, user_key: i64, filter: &CueFilter, limit: usize) -> Result<Vec<String>> {
    let mut ids = Vec::new();
    scan(read, user_key, filter, "id", |columns| {
        ids.push(columns.get()?);
        Ok(ids.len() < limit)
    })?;
    Ok(ids)
}

/// Calls `found` with `columns` of each match, oldest first, until it returns false.
pub(in crate::store) fn scan(
    read: &ReadTx<'_>,
    user_key: i64,
    filter: &CueFilter,
    columns: &str,
    mut found: impl FnMut(&mut RowReader<'_, '_>) -> rusqlite::Result<bool>,
) -> Result<()> {
    let mut rows = read.prepare_cached(&sql(filter, columns))?;
    let mut rows = rows.query(params![user_key, filter.status.map(CueStatus::as_str)])?;
    while let Some(row) = rows.next()? {
        let mut columns = RowReader::new(row);
        if is_match(filter, &mut columns)? && !found(&mut columns)? {
            break;
        }
    }
    Ok(())
}

/// The query for the rows that may match. Texts are read only to be searched, because they are behind the headers, which
/// may be long.
fn sql(filter: &CueFilter, columns: &str) -> String {
    let status = if filter.status.is_some() { "status = ?2" } else { "?2 IS NULL" };
    let texts = if filter.q.is_some() { "id, name, description, callback_url" } else { "'', '', NULL, NULL" };
    let failures = match filter.failing {
        Some(_) => "coalesce((SELECT failures FROM consecutive_failures WHERE cue_key = cues.key), 0)",
        None => "0",
    };
    format!(
        "SELECT status, transport, {failures} > 0, {texts}, {columns} FROM cues
          WHERE user_key = ?1 AND {status} ORDER BY key"
    )
}

fn is_match(filter: &CueFilter, columns: &mut RowReader<'_, '_>) -> rusqlite::Result<bool> {
    let (status, transport, is_failing) = columns.get()?;
    Ok(filter.matches(&CueFacts {
        status,
        transport,
        is_failing,
        id: columns.text()?,
        name: columns.text()?,
        description: columns.maybe_text()?,
        callback_url: columns.maybe_text()?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::cue::list::SearchText;
    use crate::store::test_support::plan;

    #[test]
    fn only_rows_of_the_user_are_read_and_in_order() {
        let all = CueFilter { q: Some(SearchText::new("a")), failing: Some(true), ..CueFilter::default() };
        let paused = CueFilter { status: Some(CueStatus::Paused), ..all.clone() };
        for (filter, step) in [
            (all, "SEARCH cues USING INDEX cues_by_user (user_key=?)"),
            (paused, "SEARCH cues USING INDEX cues_by_user_and_status (user_key=? AND status=?)"),
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
