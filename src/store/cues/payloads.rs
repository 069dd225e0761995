//! Payloads: those of cues, each of which replaces the one before, and those that one execution has for itself.

use rusqlite::{OptionalExtension, params};
use serde_json::Value;

use crate::domain::webhook::canonical_json::canonical;
use crate::error::Result;
use crate::store::db::batch::{BATCH, delete_found};
use crate::store::db::columns::maybe_json;
use crate::store::{ReadTx, WriteTx};

/// Executions that are looked at to find which payloads of a cue are needed.
const LOOKED_AT: i64 = 200;

/// What executions of a cue show of the payloads that they share with it.
enum SharedPayload {
    /// The first that is found.
    Payload(i64),
    /// There is none.
    None,
    /// None was found in as many executions as were looked at.
    Unknown,
}

const INSERT: &str =
    "INSERT INTO payloads (cue_key, is_single_use, task, agent, body) VALUES (?1, ?2, ?3, ?4, ?5)";

const COPY: &str = "INSERT INTO payloads (cue_key, is_single_use, task, agent, body)
    SELECT cue_key, 1, task, agent, body FROM payloads WHERE key = ?1";

macro_rules! shared {
    ($order:literal) => {
        concat!(
            "SELECT payloads.key FROM executions
               LEFT JOIN payloads ON payloads.key = executions.payload_key AND is_single_use = 0
              WHERE executions.cue_key = ?1 ORDER BY executions.key ",
            $order,
            " LIMIT ?2 + 0"
        )
    };
}

// The payloads of a cue are made one after the other, and so are its executions: what the oldest of these has is the
// oldest that is needed, and behind what the newest has nothing was ever used.
const OLDEST_FIRST: &str = shared!("");
const NEWEST_FIRST: &str = shared!("DESC");

const SUPERSEDED: &str = "SELECT key FROM payloads
    WHERE cue_key = ?1 AND is_single_use = 0 AND key < ?3 ORDER BY key LIMIT ?2 + 0";

const ALL: &str = "SELECT key FROM payloads WHERE cue_key = ?1 LIMIT ?2 + 0";

const DELETE: &str = "DELETE FROM payloads WHERE key = ?1 RETURNING octet_length(body)";

/// Gives a cue a new payload, or none; the answer is its row. Earlier payloads stay for the executions that have them.
pub fn set_payload(tx: &WriteTx<'_>, cue_key: i64, payload: Option<&Value>) -> Result<Option<i64>> {
    let payload_key = payload.map(|payload| insert(tx, cue_key, false, payload)).transpose()?;
    if let Some(replaced) = of_cue(tx, cue_key)? {
        match first_shared(tx, NEWEST_FIRST, cue_key)? {
            SharedPayload::Payload(newest) if newest >= replaced => queue_for_retention(tx, cue_key)?,
            SharedPayload::Unknown => queue_for_retention(tx, cue_key)?,
            SharedPayload::Payload(_) | SharedPayload::None => drop(delete(tx, replaced)?),
        }
    }
    tx.prepare_cached("UPDATE cues SET payload_key = ?2 WHERE key = ?1")?
        .execute(params![cue_key, payload_key])?;
    Ok(payload_key)
}

/// Stores a payload for one execution of a cue alone; the answer is its row.
pub fn insert_single_use(tx: &WriteTx<'_>, cue_key: i64, payload: &Value) -> Result<i64> {
    insert(tx, cue_key, true, payload)
}

/// The payload of an execution for another one that repeats it now: the cue's, where it still has that, or a copy.
pub fn reuse_or_copy(tx: &WriteTx<'_>, payload_key: Option<i64>, of_cue: Option<i64>) -> Result<Option<i64>> {
    match payload_key {
        Some(key) if payload_key != of_cue => {
            tx.prepare_cached(COPY)?.execute([key])?;
            Ok(Some(tx.last_insert_rowid()))
        }
        shared => Ok(shared),
    }
}

/// The payload in row `key`.
pub fn find(read: &ReadTx<'_>, key: Option<i64>) -> Result<Option<Value>> {
    let Some(key) = key else { return Ok(None) };
    let payload = read
        .prepare_cached("SELECT body FROM payloads WHERE key = ?1")?
        .query_row([key], |row| maybe_json(row, "body"))
        .optional()?;
    Ok(payload.flatten())
}

/// Takes away a batch of the payloads that a cue had once and no execution has any more; tells whether none is left.
/// Where the oldest executions do not show which are needed, all stay.
pub fn delete_superseded(tx: &WriteTx<'_>, cue_key: i64) -> Result<bool> {
    let needed = match first_shared(tx, OLDEST_FIRST, cue_key)? {
        SharedPayload::Payload(oldest) => oldest,
        SharedPayload::None => of_cue(tx, cue_key)?.unwrap_or(i64::MAX),
        SharedPayload::Unknown => return Ok(true),
    };
    delete_found(tx, SUPERSEDED, [cue_key, BATCH, needed], |key| delete(tx, key))
}

/// Takes away a batch of the payloads of a cue that is gone; tells whether none is left.
pub fn delete_all(tx: &WriteTx<'_>, cue_key: i64) -> Result<bool> {
    delete_found(tx, ALL, [cue_key, BATCH], |key| delete(tx, key))
}

/// Notes that the history of a cue may have grown over what is kept.
pub fn queue_for_retention(tx: &WriteTx<'_>, cue_key: i64) -> Result<()> {
    tx.prepare_cached("INSERT INTO retention_queue (cue_key) VALUES (?1) ON CONFLICT DO NOTHING")?
        .execute([cue_key])?;
    Ok(())
}

/// Takes a payload away; answers how many bytes it had.
pub(in crate::store) fn delete(tx: &WriteTx<'_>, key: i64) -> Result<i64> {
    Ok(tx.prepare_cached(DELETE)?.query_row([key], |row| row.get(0)).optional()?.unwrap_or(0))
}

/// Stores a payload as the text that deliveries send: to read and write it again takes sixteen times its size, in
/// every delivery thread at once.
fn insert(tx: &WriteTx<'_>, cue_key: i64, own: bool, payload: &Value) -> Result<i64> {
    let word = |field| payload.get(field).and_then(Value::as_str);
    tx.prepare_cached(INSERT)?.execute(params![
        cue_key,
        own,
        word("task"),
        word("agent"),
        canonical(payload)
    ])?;
    Ok(tx.last_insert_rowid())
}

/// The payload that a cue has.
fn of_cue(tx: &WriteTx<'_>, cue_key: i64) -> Result<Option<i64>> {
    let payload = tx
        .prepare_cached("SELECT payload_key FROM cues WHERE key = ?1")?
        .query_row([cue_key], |row| row.get(0))
        .optional()?;
    Ok(payload.flatten())
}

/// The first payload of a cue's own that its executions have, in the order of `sql`.
fn first_shared(tx: &WriteTx<'_>, sql: &str, cue_key: i64) -> Result<SharedPayload> {
    let mut looked_at = 0;
    let mut executions = tx.prepare_cached(sql)?;
    let mut executions = executions.query([cue_key, LOOKED_AT])?;
    while let Some(execution) = executions.next()? {
        if let Some(payload) = execution.get(0)? {
            return Ok(SharedPayload::Payload(payload));
        }
        looked_at += 1;
    }
    Ok(if looked_at < LOOKED_AT { SharedPayload::None } else { SharedPayload::Unknown })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::plan;

    #[test]
    fn the_payloads_of_a_cue_are_found_by_its_index() {
        let index = "SEARCH payloads USING COVERING INDEX payloads_by_cue";
        assert_eq!(plan(ALL), [format!("{index} (cue_key=?)")]);
        assert_eq!(plan(SUPERSEDED), [format!("{index} (cue_key=? AND is_single_use=? AND key<?)")]);
        for sql in [OLDEST_FIRST, NEWEST_FIRST] {
            let users = plan(sql);
            assert_eq!(users[0], "SEARCH executions USING INDEX executions_by_cue (cue_key=?)");
            assert!(users.iter().all(|step| step.starts_with("SEARCH")), "{users:?}");
        }
    }
}
