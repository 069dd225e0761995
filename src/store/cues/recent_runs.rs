//! The latest runs of a cue, for lists.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, params};

use crate::domain::cue::Cue;
use crate::domain::cue::recent_runs::letters;
use crate::domain::execution::ExecutionStatus;
use crate::domain::ids::ExecutionId;
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::db::columns::{instant, parse_word, read_instant};

const LAST: &str = "SELECT id, status, coalesce(last_attempt_at, scheduled_for) AS at, cause, duration_ms
    FROM executions WHERE cue_key = ?1 ORDER BY key DESC LIMIT 1";

const STATUSES: &str =
    "SELECT status, scheduled_for FROM executions WHERE cue_key = ?1 ORDER BY key DESC LIMIT ?2 + 0";

const MISSED: &str = "SELECT last FROM missed_runs WHERE cue_key = ?1 ORDER BY key DESC LIMIT ?2 + 0";

/// The latest runs of a cue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentRuns {
    /// One letter a run, newest last.
    pub letters: String,
    /// The newest execution.
    pub last: Option<LastRun>,
}

/// The newest execution of a cue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastRun {
    pub execution_id: ExecutionId,
    pub status: ExecutionStatus,
    /// The start of its latest attempt, or its scheduled time before the first.
    pub at: Timestamp,
    pub cause: Option<String>,
    pub duration_ms: Option<i64>,
}

/// The newest `count` runs of a cue. The caller checks that the cue is the user's.
pub fn find(read: &ReadTx<'_>, cue: &Cue, count: u32) -> Result<RecentRuns> {
    let last = read
        .prepare_cached(LAST)?
        .query_row([cue.key], |row| {
            Ok(LastRun {
                execution_id: ExecutionId::from_bytes(row.get("id")?),
                status: parse_word(row, "status", ExecutionStatus::parse)?,
                at: instant(row, "at")?,
                cause: row.get("cause")?,
                duration_ms: row.get("duration_ms")?,
            })
        })
        .optional()?;
    // A cue that has neither is not asked for it: most have no missed runs, and a new one has no executions.
    let (mut executions, mut missed) = (Vec::new(), Vec::new());
    if count > 0 && last.is_some() {
        let mut statuses = read.prepare_cached(STATUSES)?;
        let mut rows = statuses.query(params![cue.key, count])?;
        while let Some(row) = rows.next()? {
            executions.push((parse_word(row, "status", ExecutionStatus::parse)?, read_instant(row.get(1)?)?));
        }
    }
    if count > 0 && cue.missed_count > 0 {
        let mut intervals = read.prepare_cached(MISSED)?;
        let mut rows = intervals.query(params![cue.key, count])?;
        while let Some(row) = rows.next()? {
            missed.push(read_instant(row.get(0)?)?);
        }
    }
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    Ok(RecentRuns { letters: letters(&executions, &missed, count), last })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::plan;

    #[test]
    fn the_latest_runs_are_found_by_index_and_in_order() {
        for sql in [LAST, STATUSES] {
            assert_eq!(plan(sql), ["SEARCH executions USING INDEX executions_by_cue (cue_key=?)"]);
        }
        assert_eq!(plan(MISSED), ["SEARCH missed_runs USING INDEX missed_runs_by_cue (cue_key=?)"]);
    }
}
