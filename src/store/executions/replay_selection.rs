//! The failed executions that a bulk replay selects.

use jiff::Timestamp;
use rusqlite::params;

use crate::domain::execution::failure_cause::FailureCause;
use crate::domain::execution::queue_change::CANCELLED;
use crate::domain::ids::ExecutionId;
use crate::error::Result;
use crate::store::db::columns::{limit as row_limit, millis};
use crate::store::{ReadTx, cues};

/// The conditions that an execution must meet beside having failed. `None` is no condition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayFilter {
    pub cue_id: Option<String>,
    /// Created at this instant or later.
    pub since: Option<Timestamp>,
    /// Created before this instant.
    pub until: Option<Timestamp>,
    /// The word for the failure of the latest attempt.
    pub cause: Option<FailureCause>,
}

/// A run that its user cancelled is left out: it was not wanted. Only the report of a worker may have the same message by
/// chance.
///
/// The index is named: without statistics SQLite would take the one of the primary key for its order. The cue is looked
/// up, because the rows of a deleted cue are deleted later; not with EXISTS, which SQLite may turn into a join.
macro_rules! select {
    ($index:literal, $filter:literal) => {
        concat!(
            "SELECT id FROM executions INDEXED BY ",
            $index,
            " WHERE ",
            $filter,
            " AND status = 'failed' AND (?3 IS NULL OR created_at >= ?3) AND (?4 IS NULL OR created_at < ?4)
                AND (?5 IS NULL OR cause = ?5)
                AND (error_message IS NOT ?7 OR (transport = 'worker' AND outcome_state IS NOT NULL))
                AND (SELECT 1 FROM cues WHERE cues.key = cue_key) IS NOT NULL
              ORDER BY executions.key LIMIT ?6 + 0"
        )
    };
}

const OF_USER: &str = select!("executions_finished", "user_key = ?1 AND ?2 IS NULL");
const OF_CUE: &str = select!("executions_by_cue", "user_key = ?1 AND cue_key = ?2");
const OF_CAUSE: &str = select!("executions_by_cause", "user_key = ?1 AND ?2 IS NULL AND cause = ?5");

/// The ids of the user's failed executions that match and were not cancelled, oldest first, at most `limit`.
pub fn select(
    read: &ReadTx<'_>,
    user_key: i64,
    filter: &ReplayFilter,
    limit: usize,
) -> Result<Vec<ExecutionId>> {
    let (sql, cue_key) = match (&filter.cue_id, &filter.cause) {
        (Some(id), _) => match cues::find_key(read, user_key, id)? {
            None => return Ok(Vec::new()),
            cue_key => (OF_CUE, cue_key),
        },
        (None, Some(_)) => (OF_CAUSE, None),
        (None, None) => (OF_USER, None),
    };
    let (since, until) = (filter.since.map(millis), filter.until.map(millis));
    let cause = filter.cause.map(FailureCause::as_str);
    read.all(sql, params![user_key, cue_key, since, until, cause, row_limit(limit), CANCELLED])
}

#[cfg(test)]
crate::store::test_support::plan_test! { failed_executions_are_found_by_index_in_order:
    OF_USER => "executions_finished (user_key=? AND status=?)",
    OF_CUE => "executions_by_cue (cue_key=?)",
    OF_CAUSE => "executions_by_cause (user_key=? AND cause=?)",
}
