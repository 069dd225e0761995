//! The table `meta`: single values about the whole file.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, params};

use crate::error::Result;
use crate::store::db::columns::{millis, read_instant};
use crate::store::{ReadTx, WriteTx};

/// The latest instant recorded in the file: the scheduler's last pass that fired, or the newest row.
pub fn last_seen(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    let newest: Option<i64> = read
        .prepare_cached(
            "SELECT max(seen) FROM (
                 SELECT (SELECT value FROM meta WHERE name = 'last_seen') AS seen
                 UNION ALL SELECT (SELECT created_at FROM users ORDER BY key DESC LIMIT 1)
                 UNION ALL SELECT (SELECT created_at FROM cues ORDER BY key DESC LIMIT 1)
                 UNION ALL SELECT (SELECT updated_at FROM executions ORDER BY key DESC LIMIT 1))",
        )?
        .query_row([], |row| row.get(0))
        .optional()?
        .flatten();
    Ok(newest.map(read_instant).transpose()?)
}

/// The random number of this file; 0 if its row was removed.
pub fn instance(read: &ReadTx<'_>) -> Result<u32> {
    let number: Option<i64> = read
        .prepare_cached("SELECT value FROM meta WHERE name = 'instance'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(number.and_then(|number| u32::try_from(number).ok()).unwrap_or_default())
}

/// Records that the scheduler fired at `now`.
pub fn record_last_seen(tx: &WriteTx<'_>, now: Timestamp) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO meta (name, value) VALUES ('last_seen', ?1)
         ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)",
    )?
    .execute(params![millis(now)])?;
    Ok(())
}

/// Sets the newest instant back to `now`, and notes that for a running server.
pub fn accept_clock(tx: &WriteTx<'_>, now: Timestamp) -> Result<()> {
    tx.prepare_cached("UPDATE meta SET value = min(value, ?1) WHERE name = 'last_seen'")?
        .execute([millis(now)])?;
    tx.prepare_cached(
        "INSERT INTO meta (name, value) VALUES ('clock_accepted_at', ?1)
         ON CONFLICT (name) DO UPDATE SET value = excluded.value",
    )?
    .execute([millis(now)])?;
    Ok(())
}

/// When the clock was last accepted.
pub fn clock_accepted_at(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    let at: Option<i64> = read
        .prepare_cached("SELECT value FROM meta WHERE name = 'clock_accepted_at'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(at.map(read_instant).transpose()?)
}

/// Makes a change that reaches the disk and leaves the data as it was.
pub fn touch(tx: &WriteTx<'_>) -> Result<()> {
    // An UPDATE to the same value would change no page, and SQLite would write nothing.
    tx.prepare_cached("INSERT INTO meta (name, value) VALUES ('touch', 0)")?.execute([])?;
    tx.prepare_cached("DELETE FROM meta WHERE name = 'touch'")?.execute([])?;
    Ok(())
}
