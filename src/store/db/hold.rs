//! The hold of a restored copy: its data can be read, but nothing is fired, sent or claimed until the operator promotes
//! it. A trial restore therefore never delivers anything twice.

use jiff::Timestamp;
use rusqlite::Connection;

use crate::error::Result;
use crate::store::db::columns::{millis, row};
use crate::store::db::meta;
use crate::store::{ReadTx, WriteTx};

row! {
/// Overdue work, which starts when a file on hold is promoted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OverdueCounts {
    /// Active cues past their next run.
    pub cues: i64,
    /// Executions that are ready to be sent or claimed, or due for another attempt.
    pub executions: i64,
} }

// Executions that wait for an instant count once it is past. The others are in `backlog`, which avoids counting rows.
const OVERDUE: &str = "SELECT
    (SELECT count(*) FROM cues WHERE status = 'active' AND next_run <= ?1),
    (SELECT sum(count) FROM backlog WHERE name = 'send' OR name = 'claim')
        + (SELECT count(*) FROM executions WHERE queue_name = 'waiting' AND due_at <= ?1)";

/// The time of the copy if the file is on hold, otherwise `None`.
pub fn held_since(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    meta::find(read, "held_since")
}

/// True if the file is on hold. Within a write the result stays valid until the commit.
pub fn is_held(read: &ReadTx<'_>) -> Result<bool> {
    Ok(held_since(read)?.is_some())
}

/// Puts the file on hold since `now`, as a restored copy is, and ends its sessions. A file on hold stays as it is. Returns
/// true if the hold is new.
pub fn begin(tx: &WriteTx<'_>, now: Timestamp) -> Result<bool> {
    if !mark(tx, now)? {
        return Ok(false);
    }
    end_sessions(tx)?;
    Ok(true)
}

/// Puts a file on hold since `since`, unless it is. Returns true if the hold is new.
pub(in crate::store) fn mark(file: &Connection, since: Timestamp) -> rusqlite::Result<bool> {
    let mark = "INSERT INTO meta (name, value) VALUES ('held_since', ?1) ON CONFLICT DO NOTHING";
    Ok(file.execute(mark, [millis(since)])? > 0)
}

/// Ends the sessions of a copy, and gives it a cookie of its own: a session that was ended in the original must not be
/// valid again, and the copy may run beside the original.
pub(in crate::store) fn end_sessions(copy: &Connection) -> rusqlite::Result<()> {
    copy.execute_batch(
        "DELETE FROM sessions;
         DELETE FROM links WHERE kind = 'session';
         UPDATE meta SET value = abs(random() % 4294967296) WHERE name = 'instance'",
    )
}

/// Releases the hold. Returns when it began, or `None` if there was none.
pub fn promote(tx: &WriteTx<'_>) -> Result<Option<Timestamp>> {
    let since = held_since(tx)?;
    if since.is_some() {
        meta::set(tx, "held_since", None)?;
    }
    Ok(since)
}

pub fn overdue(read: &ReadTx<'_>, now: Timestamp) -> Result<OverdueCounts> {
    read.one(OVERDUE, [millis(now)])
}

#[cfg(test)]
crate::store::test_support::plan_test! { overdue_work_is_counted_without_reading_the_history:
    OVERDUE => "cues_due (next_run<?)",
    OVERDUE => "executions_waiting (due_at<?)",
    OVERDUE => "SEARCH backlog USING PRIMARY KEY (name=?)",
}
