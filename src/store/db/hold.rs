//! The hold of a restored copy: its data can be read, but nothing is fired, sent or claimed until the operator promotes
//! it. A trial restore therefore never delivers anything twice.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, params};

use crate::error::Result;
use crate::store::db::columns::{millis, read_instant};
use crate::store::{ReadTx, WriteTx};

/// Overdue work, which starts when a file on hold is promoted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OverdueCounts {
    /// Active cues past their next run.
    pub cues: i64,
    /// Executions that are ready to be sent or claimed, or due for another attempt.
    pub executions: i64,
}

// Executions that wait for an instant count once it is past. The others are in `backlog`, which avoids counting rows.
const OVERDUE: &str = "SELECT
    (SELECT count(*) FROM cues WHERE status = 'active' AND next_run <= ?1),
    (SELECT sum(count) FROM backlog WHERE name = 'send' OR name = 'claim')
        + (SELECT count(*) FROM executions WHERE queue_name = 'waiting' AND due_at <= ?1)";

/// The time of the copy if the file is on hold, otherwise `None`.
pub fn held_since(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    let since: Option<i64> = read
        .prepare_cached("SELECT value FROM meta WHERE name = 'held_since'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(since.map(read_instant).transpose()?)
}

/// True if the file is on hold. Within a write the result stays valid until the commit.
pub fn is_held(read: &ReadTx<'_>) -> Result<bool> {
    Ok(held_since(read)?.is_some())
}

/// Releases the hold. Returns when it began, or `None` if there was none.
pub fn promote(tx: &WriteTx<'_>) -> Result<Option<Timestamp>> {
    let since = held_since(tx)?;
    if since.is_some() {
        tx.prepare_cached("DELETE FROM meta WHERE name = 'held_since'")?.execute([])?;
    }
    Ok(since)
}

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
