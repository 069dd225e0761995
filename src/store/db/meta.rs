//! The table `meta`: values about the whole file, such as the hold of a restored copy: until its promotion it delivers
//! nothing.

use jiff::Timestamp;
use rusqlite::Connection;

use crate::domain::account::user::RegistrationPolicy;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::error::Result;
use crate::store::db::columns::{FromRow, row};
use crate::store::{ReadTx, WriteTx};

/// `Retry-After` of claims on hold, in seconds. A promotion is rare; a shorter time would only add requests.
const HELD_RETRY_AFTER: u32 = 30;

pub(in crate::store) fn find<T: FromRow>(read: &ReadTx<'_>, name: &str) -> Result<Option<T>> {
    read.find("SELECT value FROM meta WHERE name = ?1", [name])
}

pub(in crate::store) fn set(tx: &WriteTx<'_>, name: &str, value: Option<i64>) -> Result<()> {
    match value {
        Some(value) => {
            tx.run("INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)", (name, value))
        }
        None => tx.run("DELETE FROM meta WHERE name = ?1", [name]),
    }
}

/// The latest instant recorded in the file: the scheduler's last pass that fired, or the newest row.
pub fn last_seen(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    let sql = "SELECT max(seen) FROM (
        SELECT (SELECT value FROM meta WHERE name = 'last_seen') AS seen
        UNION ALL SELECT (SELECT created_at FROM users ORDER BY key DESC LIMIT 1)
        UNION ALL SELECT (SELECT created_at FROM cues ORDER BY key DESC LIMIT 1)
        UNION ALL SELECT (SELECT updated_at FROM executions ORDER BY key DESC LIMIT 1))";
    read.one(sql, ())
}

pub fn instance(read: &ReadTx<'_>) -> Result<u32> {
    let number: Option<i64> = find(read, "instance")?;
    Ok(number.and_then(|number| u32::try_from(number).ok()).unwrap_or_default())
}

pub fn record_last_seen(tx: &WriteTx<'_>, now: Timestamp) -> Result<()> {
    let sql = "INSERT INTO meta (name, value) VALUES ('last_seen', ?1)
               ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)";
    tx.run(sql, [now])
}

/// `fixed` is what the flags of the server say: it counts before what is stored.
pub fn registration(
    read: &ReadTx<'_>,
    fixed: Option<RegistrationPolicy>,
) -> Result<RegistrationPolicy> {
    let stored = if fixed.is_none() { find(read, "registration")? } else { None };
    Ok(fixed.or_else(|| stored.and_then(RegistrationPolicy::from_number)).unwrap_or_default())
}

pub fn set_registration(tx: &WriteTx<'_>, registration: RegistrationPolicy) -> Result<()> {
    set(tx, "registration", Some(registration.number()))
}

pub fn accept_clock(tx: &WriteTx<'_>, now: Timestamp) -> Result<()> {
    tx.run("UPDATE meta SET value = min(value, ?1) WHERE name = 'last_seen'", [now])?;
    set(tx, "clock_accepted_at", Some(now.as_millisecond()))
}

pub fn clock_accepted_at(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    find(read, "clock_accepted_at")
}

/// Makes a change that reaches the disk and leaves the data as it was.
pub fn touch(tx: &WriteTx<'_>) -> Result<()> {
    // An UPDATE to the same value would change no page, and SQLite would write nothing.
    set(tx, "touch", Some(0))?;
    set(tx, "touch", None)
}

row! {
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OverdueCounts {
    pub cues: i64,
    pub executions: i64,
} }

// Executions that wait for an instant count once it is past. The others are in `backlog`, which avoids counting rows.
const OVERDUE: &str = "SELECT
    (SELECT count(*) FROM cues WHERE status = 'active' AND next_run <= ?1),
    (SELECT sum(count) FROM backlog WHERE name = 'send' OR name = 'claim')
        + (SELECT count(*) FROM executions WHERE queue_name = 'waiting' AND due_at <= ?1)";

pub fn held_since(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    find(read, "held_since")
}

/// True if the file is on hold. Within a write the result stays valid until the commit.
pub fn is_held(read: &ReadTx<'_>) -> Result<bool> {
    Ok(held_since(read)?.is_some())
}

/// Refuses what a copy that is on hold does not do: the original may be handing out the same work.
pub fn refuse_if_held(read: &ReadTx<'_>, refused: &str) -> Result<()> {
    if !is_held(read)? {
        return Ok(());
    }
    let message = format!(
        "This server runs on a restored copy that is on hold and {refused} until the operator runs `cued promote`"
    );
    Err(Refusal { retry_after: Some(HELD_RETRY_AFTER), ..Refusal::new(ErrorCode::Held, message) }
        .into())
}

/// As for a restored copy; ends the sessions. Returns true if the hold is new.
pub fn begin_hold(tx: &WriteTx<'_>, now: Timestamp) -> Result<bool> {
    if !mark_held(tx, now)? {
        return Ok(false);
    }
    end_sessions(tx)?;
    Ok(true)
}

/// Puts a file on hold since `since`, unless it is. Returns true if the hold is new.
pub(in crate::store) fn mark_held(file: &Connection, since: Timestamp) -> rusqlite::Result<bool> {
    let mark = "INSERT INTO meta (name, value) VALUES ('held_since', ?1) ON CONFLICT DO NOTHING";
    Ok(file.execute(mark, [since.as_millisecond()])? > 0)
}

/// A session ended in the original must not be valid in the copy, which may also run beside the original.
pub(in crate::store) fn end_sessions(copy: &Connection) -> rusqlite::Result<()> {
    copy.execute_batch(
        "DELETE FROM sessions;
         DELETE FROM links WHERE kind = 'session';
         DELETE FROM device_logins WHERE state = 'approved';
         UPDATE meta SET value = abs(random() % 4294967296) WHERE name = 'instance'",
    )
}

pub fn promote(tx: &WriteTx<'_>) -> Result<Option<Timestamp>> {
    tx.find("DELETE FROM meta WHERE name = 'held_since' RETURNING value", ())
}

pub fn overdue(read: &ReadTx<'_>, now: Timestamp) -> Result<OverdueCounts> {
    read.one(OVERDUE, [now])
}

#[cfg(test)]
crate::store::test_support::plan_test! { overdue_work_is_counted_without_reading_the_history:
    OVERDUE => "cues_due (next_run<?)",
    OVERDUE => "executions_waiting (due_at<?)",
    OVERDUE => "SEARCH backlog USING PRIMARY KEY (name=?)",
}
