//! The cues that a filter matches.

use rusqlite::{Row, params};

use crate::domain::cue::filter::{CueFacts, CueFilter};
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::db::columns::RowReader;

// The streak is looked up by its primary key.
const OF_USER: &str = "SELECT id, name, description, callback_url, status, transport,
        EXISTS (SELECT 1 FROM consecutive_failures WHERE cue_key = cues.key)
   FROM cues WHERE user_key = ?1 ORDER BY key";
const OF_STATUS: &str = "SELECT id, name, description, callback_url, status, transport,
        EXISTS (SELECT 1 FROM consecutive_failures WHERE cue_key = cues.key)
   FROM cues WHERE user_key = ?1 AND status = ?2 ORDER BY key";

/// The ids of the user's cues that match, oldest first, at most `limit`. Reads all cues of the user, or all with the
/// status of the filter.
pub fn select(read: &ReadTx<'_>, user_key: i64, filter: &CueFilter, limit: usize) -> Result<Vec<String>> {
    let mut cues = read.prepare_cached(if filter.status.is_some() { OF_STATUS } else { OF_USER })?;
    let mut rows = match filter.status {
        Some(status) => cues.query(params![user_key, status.as_str()])?,
        None => cues.query([user_key])?,
    };
    let mut ids = Vec::new();
    while ids.len() < limit
        && let Some(row) = rows.next()?
    {
        let cue = read_facts(row)?;
        if filter.matches(&cue) {
            ids.push(cue.id.to_owned());
        }
    }
    Ok(ids)
}

fn read_facts<'row>(row: &'row Row<'_>) -> rusqlite::Result<CueFacts<'row>> {
    let mut columns = RowReader::new(row);
    Ok(CueFacts {
        id: columns.text()?,
        name: columns.text()?,
        description: columns.maybe_text()?,
        callback_url: columns.maybe_text()?,
        status: columns.get()?,
        transport: columns.get()?,
        is_failing: columns.get()?,
    })
}

#[cfg(test)]
crate::store::test_support::plan_test! { the_cues_of_a_user_are_found_by_index_in_order:
    OF_USER => "SEARCH cues USING INDEX cues_by_user (user_key=?)",
    OF_STATUS => "SEARCH cues USING INDEX cues_by_user_and_status (user_key=? AND status=?)",
}
