//! The cues of a user with runs before an instant, and the executions that start later.

use jiff::Timestamp;

use crate::domain::cue::{StoredSchedule, Transport};
use crate::domain::ids::ExecutionId;
use crate::domain::row_keys::{CueKey, UserKey};
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::db::columns::{row, schedule_columns, select};

/// More cues of an account are not looked at: their schedules would take seconds.
pub const MAX_READ: u32 = 5_000;

const MAX_WAITING: u32 = 1_000;

/// Executions in the queue that are passed to find those of the span.
const MAX_PASSED: u32 = 10_000;

/// Number of newest runs from which the expected duration is computed.
const RECENT: u32 = 5;

row! { cue_columns, "",
#[derive(Debug, Clone)]
pub struct PlannedCue {
    pub key: CueKey,
    pub id: String,
    pub name: String,
    pub transport: Transport,
    pub next_run: Timestamp,
    pub schedule: StoredSchedule = (schedule_columns),
} }

row! {
#[derive(Debug, Clone)]
pub struct WaitingExecution {
    pub id: ExecutionId,
    pub cue_id: String,
    pub name: String,
    pub due_at: Timestamp,
    pub attempts: i64,
} }

const CUES: &str = select!(
    cue_columns,
    "FROM cues WHERE user_key = ?1 AND status = 'active' AND next_run < ?2 ORDER BY key LIMIT ?3 + 0"
);

// The first rows of the index, and of these the ones in the span: a long queue is not read as a whole.
const WAITING: &str = "SELECT executions.id, cues.id, cues.name, due_at, attempts
      FROM (SELECT key AS waiting FROM executions INDEXED BY executions_waiting_by_user
             WHERE user_key = ?1 AND queue_name = 'waiting' ORDER BY key LIMIT ?4 + 0)
     CROSS JOIN executions ON executions.key = waiting
     CROSS JOIN cues ON cues.key = executions.cue_key
     WHERE due_at >= ?2 AND due_at < ?3 LIMIT ?5 + 0";

const DURATIONS: &str =
    "SELECT duration_ms FROM executions WHERE cue_key = ?1 ORDER BY key DESC LIMIT ?2 + 0";

/// The oldest [`MAX_READ`] cues, and whether there are more.
pub fn list_cues(
    read: &ReadTx<'_>,
    user_key: UserKey,
    until: Timestamp,
) -> Result<(Vec<PlannedCue>, bool)> {
    read.page(CUES, (user_key, until, MAX_READ + 1), MAX_READ, usize::MAX)
}

/// The executions that begin or are tried again at and after `from` and before `until`, and whether there are more.
pub fn list_waiting(
    read: &ReadTx<'_>,
    user_key: UserKey,
    from: Timestamp,
    until: Timestamp,
) -> Result<(Vec<WaitingExecution>, bool)> {
    let bounds = (user_key, from, until, MAX_PASSED, MAX_WAITING + 1);
    let (mut waiting, is_cut): (Vec<WaitingExecution>, bool) =
        read.page(WAITING, bounds, MAX_WAITING, usize::MAX)?;
    waiting.sort_by_key(|execution| execution.due_at);
    Ok((waiting, is_cut))
}

/// The median duration of the latest runs; `None` without one.
pub fn expected_duration_ms(read: &ReadTx<'_>, cue_key: CueKey) -> Result<Option<i64>> {
    let durations: Vec<Option<i64>> = read.all(DURATIONS, (cue_key, RECENT))?;
    let mut known: Vec<i64> = durations.into_iter().flatten().collect();
    known.sort_unstable();
    Ok(known.get(known.len() / 2).copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::plan_test;

    plan_test! { only_rows_of_the_user_are_read_and_in_order:
        CUES => "SEARCH cues USING INDEX cues_by_user_and_status (user_key=? AND status=?)",
        WAITING => "SEARCH executions USING INDEX executions_waiting_by_user (user_key=?)",
        DURATIONS => "SEARCH executions USING INDEX executions_by_cue (cue_key=?)",
    }
}
