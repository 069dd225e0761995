//! Single figures about the file.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, params};

use crate::error::Result;
use crate::store::db::columns::{millis, read_instant};
use crate::store::{ReadTx, WriteTx};

/// The newest instant that the file has seen: the scheduler's last firing, or the newest row.
///
/// # Errors
/// When the file cannot be read.
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

/// Notes that the scheduler fired at `now`.
///
/// # Errors
/// When the file cannot be written.
pub fn saw(tx: &WriteTx<'_>, now: Timestamp) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO meta (name, value) VALUES ('last_seen', ?1)
         ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)",
    )?
    .execute(params![millis(now)])?;
    Ok(())
}

/// Writes a page as it was: what reaches the disk, and leaves nothing behind.
///
/// # Errors
/// When the file cannot be written.
pub fn touch(tx: &WriteTx<'_>) -> Result<()> {
    // A row that is set to what it is changes no page, and SQLite then writes none.
    tx.prepare_cached("INSERT INTO meta (name, value) VALUES ('touch', 0)")?.execute([])?;
    tx.prepare_cached("DELETE FROM meta WHERE name = 'touch'")?.execute([])?;
    Ok(())
}
