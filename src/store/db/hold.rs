//! Whether this file is a copy that holds still: it shows everything, and nothing is fired, sent or claimed from it
//! until its operator promotes it. So nobody is called twice because a backup was tried out.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, params};

use crate::error::Result;
use crate::store::db::columns::{millis, read_instant};
use crate::store::{ReadTx, WriteTx};

/// How much there is to do for a file that is held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OverdueCounts {
    /// Cues that were due and have not fired.
    pub cues: i64,
    /// Executions that are due or ready: to be sent, to be claimed, to be tried again.
    pub executions: i64,
}

// Under one name each of the three queues: what waits for an instant counts once that has come.
const OVERDUE: &str = "SELECT
    (SELECT count(*) FROM cues WHERE status = 'active' AND next_run <= ?1),
    (SELECT sum(count) FROM backlog WHERE name = 'send' OR name = 'claim')
        + (SELECT count(*) FROM executions WHERE queue_name = 'waiting' AND due_at <= ?1)";

/// When the copy was made that is held; none where the file is not held.
///
/// # Errors
/// When the file cannot be read.
pub fn held_since(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    let since: Option<i64> = read
        .prepare_cached("SELECT value FROM meta WHERE name = 'held_since'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(since.map(read_instant).transpose()?)
}

/// Whether the file is held. In a write nothing can come between this look and what is done after it.
///
/// # Errors
/// When the file cannot be read.
pub fn is_held(read: &ReadTx<'_>) -> Result<bool> {
    Ok(held_since(read)?.is_some())
}

/// Lets the file go: what is due from now on happens. Answers since when it was held, and none where it was not.
///
/// # Errors
/// When the file cannot be written.
pub fn promote(tx: &WriteTx<'_>) -> Result<Option<Timestamp>> {
    let since = held_since(tx)?;
    if since.is_some() {
        tx.prepare_cached("DELETE FROM meta WHERE name = 'held_since'")?.execute([])?;
    }
    Ok(since)
}

/// What is overdue at `now`.
///
/// # Errors
/// When the file cannot be read.
pub fn overdue(read: &ReadTx<'_>, now: Timestamp) -> Result<OverdueCounts> {
    Ok(read.prepare_cached(OVERDUE)?.query_row(params![millis(now)], |row| {
        Ok(OverdueCounts { cues: row.get(0)?, executions: row.get(1)? })
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::plan;

    #[test]
    fn overdue_work_is_counted_without_reading_the_history() {
        for step in plan(OVERDUE).iter().filter(|step| step.starts_with("SEARCH") || step.starts_with("SCAN"))
        {
            let fits =
                ["SCAN CONSTANT ROW", "cues_due (next_run<?)", "executions_waiting (due_at<?)", "backlog"];
            assert!(fits.iter().any(|known| step.contains(known)), "{step}");
        }
    }
}
