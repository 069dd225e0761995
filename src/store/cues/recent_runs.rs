//! The latest runs of a cue, for lists.

use jiff::Timestamp;

use crate::domain::cue::Cue;
use crate::domain::cue::list::letters;
use crate::domain::execution::ExecutionStatus;
use crate::domain::ids::ExecutionId;
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::db::columns::row;

row! { columns, "",
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastRun {
    pub execution_id: ExecutionId = "id",
    pub status: ExecutionStatus,
    /// The start of its latest attempt, or its scheduled time before the first.
    pub at: Timestamp = "coalesce(last_attempt_at, scheduled_for)",
    pub cause: Option<String>,
    pub duration_ms: Option<i64>,
} }

const LAST: &str =
    concat!("SELECT ", columns!(), " FROM executions WHERE cue_key = ?1 ORDER BY key DESC LIMIT 1");

const STATUSES: &str =
    "SELECT status, scheduled_for FROM executions WHERE cue_key = ?1 ORDER BY key DESC LIMIT ?2 + 0";

const MISSED: &str = "SELECT last FROM missed_runs WHERE cue_key = ?1 ORDER BY key DESC LIMIT ?2 + 0";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentRuns {
    /// One letter a run, newest last.
    pub letters: String,
    pub last: Option<LastRun>,
}

/// The newest `count` runs of a cue. The caller checks that the cue is the user's.
pub fn find(read: &ReadTx<'_>, cue: &Cue, count: u32) -> Result<RecentRuns> {
    let last: Option<LastRun> = read.find(LAST, [cue.key])?;
    // A cue that has neither is not asked for it: most have no missed runs, and a new one has no executions.
    let has_runs = count > 0 && last.is_some();
    let executions = if has_runs { read.all(STATUSES, (cue.key, count))? } else { Vec::new() };
    let has_missed = count > 0 && cue.missed_count > 0;
    let missed = if has_missed { read.all(MISSED, (cue.key, count))? } else { Vec::new() };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    Ok(RecentRuns { letters: letters(&executions, &missed, count), last })
}

#[cfg(test)]
crate::store::test_support::plan_test! { the_latest_runs_are_found_by_index_and_in_order:
    LAST => "SEARCH executions USING INDEX executions_by_cue (cue_key=?)",
    STATUSES => "SEARCH executions USING INDEX executions_by_cue (cue_key=?)",
    MISSED => "SEARCH missed_runs USING INDEX missed_runs_by_cue (cue_key=?)",
}
