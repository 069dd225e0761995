//! The table `meta`: single values about the whole file.

use jiff::Timestamp;
use rusqlite::params;

use crate::error::Result;
use crate::store::db::columns::{FromRow, millis};
use crate::store::{ReadTx, WriteTx};

pub(in crate::store) fn find<T: FromRow>(read: &ReadTx<'_>, name: &str) -> Result<Option<T>> {
    read.find("SELECT value FROM meta WHERE name = ?1", [name])
}

/// Sets a value; `None` removes it.
pub(in crate::store) fn set(tx: &WriteTx<'_>, name: &str, value: Option<i64>) -> Result<()> {
    match value {
        Some(value) => {
            tx.run("INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)", params![name, value])
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
    read.one(sql, [])
}

/// The random number of this file; 0 if its row was removed.
pub fn instance(read: &ReadTx<'_>) -> Result<u32> {
    let number: Option<i64> = find(read, "instance")?;
    Ok(number.and_then(|number| u32::try_from(number).ok()).unwrap_or_default())
}

/// Records that the scheduler fired at `now`.
pub fn record_last_seen(tx: &WriteTx<'_>, now: Timestamp) -> Result<()> {
    let sql = "INSERT INTO meta (name, value) VALUES ('last_seen', ?1)
               ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)";
    tx.run(sql, [millis(now)])
}

/// Sets the newest instant back to `now`, and leaves a mark of that for a running server.
pub fn accept_clock(tx: &WriteTx<'_>, now: Timestamp) -> Result<()> {
    tx.run("UPDATE meta SET value = min(value, ?1) WHERE name = 'last_seen'", [millis(now)])?;
    set(tx, "clock_accepted_at", Some(millis(now)))
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
