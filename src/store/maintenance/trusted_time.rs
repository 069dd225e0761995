//! The time by which rows age: what the file keeps of it, and where it stands in the order of executions. An execution
//! with a date before the trusted instant at its creation was made while the clock was behind (contract §1.7).

use jiff::{SignedDuration, Timestamp};
use rusqlite::OptionalExtension;

use crate::domain::cue::retention_clock::TrustedTime;
use crate::error::Result;
use crate::store::db::columns::{millis, read_instant};
use crate::store::{ReadTx, WriteTx};

/// The stored time.
pub fn find(read: &ReadTx<'_>) -> Result<Option<TrustedTime>> {
    let value = |name: &str| -> Result<Option<i64>> {
        let mut query = read.prepare_cached("SELECT value FROM meta WHERE name = ?1")?;
        Ok(query.query_row([name], |row| row.get(0)).optional()?)
    };
    let Some(trusted_at) = value("trusted_at")?.map(read_instant).transpose()? else { return Ok(None) };
    let doubted_for = SignedDuration::from_millis(value("doubted_for")?.unwrap_or(0));
    let newest: Option<i64> = read
        .prepare_cached("SELECT last FROM trusted_instants ORDER BY execution_key DESC LIMIT 1")?
        .query_row([], |row| row.get(0))
        .optional()?;
    let newest = newest.map(read_instant).transpose()?.map_or(trusted_at, |newest| newest.max(trusted_at));
    Ok(Some(TrustedTime { trusted_at, doubted_for, newest }))
}

/// Stores the time, and that the executions so far were created before its newest instant. Forgets instants that only
/// tell apart executions from before `expired`.
pub fn set(tx: &WriteTx<'_>, time: &TrustedTime, expired: Timestamp) -> Result<()> {
    let doubted_for = i64::try_from(time.doubted_for.as_millis()).unwrap_or(i64::MAX);
    tx.prepare_cached(
        "INSERT INTO meta (name, value) VALUES ('trusted_at', ?1), ('doubted_for', ?2)
         ON CONFLICT (name) DO UPDATE SET value = excluded.value",
    )?
    .execute([millis(time.trusted_at), doubted_for])?;
    tx.prepare_cached(
        "INSERT INTO trusted_instants (execution_key, first, last)
         VALUES ((SELECT coalesce(max(key), 0) FROM executions), ?1, ?1)
         ON CONFLICT (execution_key) DO UPDATE SET last = excluded.last",
    )?
    .execute([millis(time.newest)])?;
    tx.prepare_cached(
        "DELETE FROM trusted_instants
          WHERE execution_key < (SELECT max(execution_key) FROM trusted_instants WHERE first <= ?1)",
    )?
    .execute([millis(expired)])?;
    Ok(())
}

/// To be called after a deletion of executions. If the newest ones are gone, their keys are used again, for executions
/// that are created after the instants trusted so far.
pub(in crate::store) fn follow_newest_execution(tx: &WriteTx<'_>) -> Result<()> {
    let newest = "(SELECT coalesce(max(key), 0) FROM executions)";
    let is_behind = format!("SELECT 1 FROM trusted_instants WHERE execution_key > {newest}");
    if !tx.prepare_cached(&is_behind)?.exists([])? {
        return Ok(());
    }
    let merged =
        format!("SELECT min(first), max(last) FROM trusted_instants WHERE execution_key >= {newest}");
    let (first, last): (i64, i64) =
        tx.prepare_cached(&merged)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    tx.prepare_cached(&format!("DELETE FROM trusted_instants WHERE execution_key >= {newest}"))?
        .execute([])?;
    let insert =
        format!("INSERT INTO trusted_instants (execution_key, first, last) VALUES ({newest}, ?1, ?2)");
    tx.prepare_cached(&insert)?.execute([first, last])?;
    Ok(())
}
