//! Payloads. A cue has one current payload, which its executions share; a new one supersedes it. A single-use payload
//! belongs to one execution.

use rusqlite::params;

use crate::domain::cue::payload::Payload;
use crate::error::Result;
use crate::store::db::batch::{BATCH, delete_matching};
use crate::store::db::columns::from_row;
use crate::store::{ReadTx, WriteTx};

/// Executions read to find a cue's oldest or newest payload in use. Executions with single-use payloads have to be
/// skipped, and a history may consist of them; the limit bounds the time of one write.
const MAX_EXECUTIONS_READ: i64 = 200;

/// Result of the search for a shared payload among the executions of a cue.
enum SharedPayload {
    /// Row key of the first one.
    Found(i64),
    None,
    /// The first [`MAX_EXECUTIONS_READ`] executions have none; others may.
    Unknown,
}

const INSERT: &str =
    "INSERT INTO payloads (cue_key, is_single_use, task, agent, body) VALUES (?1, ?2, ?3, ?4, ?5)";

const COPY: &str = "INSERT INTO payloads (cue_key, is_single_use, task, agent, body)
    SELECT cue_key, 1, task, agent, body FROM payloads WHERE key = ?1
    RETURNING key, octet_length(body)";

macro_rules! shared_payloads {
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

// Row keys of payloads and of executions grow with time. The payload of a cue's oldest execution is therefore the
// oldest one in use, and no execution uses a payload newer than that of the newest execution.
const OLDEST_FIRST: &str = shared_payloads!("");
const NEWEST_FIRST: &str = shared_payloads!("DESC");

const SUPERSEDED: &str = "SELECT key FROM payloads
    WHERE cue_key = ?1 AND is_single_use = 0 AND key < ?3 ORDER BY key LIMIT ?2 + 0";

const ALL: &str = "SELECT key FROM payloads WHERE cue_key = ?1 LIMIT ?2 + 0";

const DELETE: &str = "DELETE FROM payloads WHERE key = ?1 RETURNING octet_length(body)";

/// Sets the payload of a cue, or removes it. Returns the row key of the new payload. Superseded payloads stay while
/// executions use them.
pub fn set_payload(tx: &WriteTx<'_>, cue_key: i64, payload: Option<&Payload>) -> Result<Option<i64>> {
    let payload_key = payload.map(|payload| insert(tx, cue_key, false, payload)).transpose()?;
    if let Some(superseded) = current_payload_key(tx, cue_key)? {
        match find_shared(tx, NEWEST_FIRST, cue_key)? {
            SharedPayload::Found(newest) if newest >= superseded => queue_for_retention(tx, cue_key)?,
            SharedPayload::Unknown => queue_for_retention(tx, cue_key)?,
            SharedPayload::Found(_) | SharedPayload::None => drop(delete(tx, superseded)?),
        }
    }
    tx.run("UPDATE cues SET payload_key = ?2 WHERE key = ?1", params![cue_key, payload_key])?;
    Ok(payload_key)
}

pub fn insert_single_use(tx: &WriteTx<'_>, cue_key: i64, payload: &Payload) -> Result<i64> {
    insert(tx, cue_key, true, payload)
}

/// The payload for a replay of an execution with payload `payload_key`: the same one if it is still the cue's current
/// payload, otherwise a single-use copy. Returns the bytes that were copied as well.
pub fn reuse_or_copy(
    tx: &WriteTx<'_>,
    payload_key: Option<i64>,
    current: Option<i64>,
) -> Result<(Option<i64>, usize)> {
    match payload_key {
        Some(key) if payload_key != current => {
            let (copy, bytes): (i64, usize) = tx.one(COPY, [key])?;
            Ok((Some(copy), bytes))
        }
        shared => Ok((shared, 0)),
    }
}

/// The text of the payload in row `key`. The cue is checked, because the row may have been deleted since its key was
/// read, and its key may belong to a payload of another cue now.
pub fn find(read: &ReadTx<'_>, cue_key: i64, key: i64) -> Result<Option<String>> {
    read.find("SELECT body FROM payloads WHERE key = ?1 AND cue_key = ?2", [key, cue_key])
}

pub fn size_of_current(read: &ReadTx<'_>, user_key: i64, id: &str) -> Result<usize> {
    let sql = "SELECT octet_length(p.body) FROM cues c JOIN payloads p ON p.key = c.payload_key
                WHERE c.id = ?2 AND c.user_key = ?1";
    Ok(read.find(sql, params![user_key, id])?.unwrap_or(0))
}

/// The `task` and `agent` of the payload in row `key`, without its text.
pub fn find_filters(read: &ReadTx<'_>, key: i64) -> Result<(Option<String>, Option<String>)> {
    Ok(read.find("SELECT task, agent FROM payloads WHERE key = ?1", [key])?.unwrap_or_default())
}

/// Deletes a batch of superseded payloads that no execution of the cue uses. Returns `true` if none is left. If the
/// oldest executions do not show which payloads are in use, it deletes none.
pub fn delete_superseded(tx: &WriteTx<'_>, cue_key: i64) -> Result<bool> {
    let oldest_in_use = match find_shared(tx, OLDEST_FIRST, cue_key)? {
        SharedPayload::Found(oldest) => oldest,
        SharedPayload::None => current_payload_key(tx, cue_key)?.unwrap_or(i64::MAX),
        SharedPayload::Unknown => return Ok(true),
    };
    delete_matching(tx, SUPERSEDED, [cue_key, BATCH, oldest_in_use], |key| delete(tx, key))
}

/// Deletes a batch of the payloads of a deleted cue. Returns `true` if none is left.
pub fn delete_all(tx: &WriteTx<'_>, cue_key: i64) -> Result<bool> {
    delete_matching(tx, ALL, [cue_key, BATCH], |key| delete(tx, key))
}

/// Queues a cue for the retention sweeper, because its history may exceed the retention limit.
pub fn queue_for_retention(tx: &WriteTx<'_>, cue_key: i64) -> Result<()> {
    tx.run("INSERT INTO retention_queue (cue_key) VALUES (?1) ON CONFLICT DO NOTHING", [cue_key])
}

/// Deletes a payload. Returns its size in bytes.
pub(in crate::store) fn delete(tx: &WriteTx<'_>, key: i64) -> Result<i64> {
    Ok(tx.find(DELETE, [key])?.unwrap_or(0))
}

fn insert(tx: &WriteTx<'_>, cue_key: i64, is_single_use: bool, payload: &Payload) -> Result<i64> {
    tx.run(INSERT, params![cue_key, is_single_use, payload.task, payload.agent, payload.body])?;
    Ok(tx.last_insert_rowid())
}

fn current_payload_key(tx: &WriteTx<'_>, cue_key: i64) -> Result<Option<i64>> {
    Ok(tx.find("SELECT payload_key FROM cues WHERE key = ?1", [cue_key])?.flatten())
}

/// The first shared payload among the executions of a cue, in the order of `sql`.
fn find_shared(tx: &WriteTx<'_>, sql: &str, cue_key: i64) -> Result<SharedPayload> {
    let mut count = 0;
    let mut executions = tx.prepare_cached(sql)?;
    let payloads = executions.query_map([cue_key, MAX_EXECUTIONS_READ], from_row::<Option<i64>>)?;
    for payload in payloads {
        if let Some(payload) = payload? {
            return Ok(SharedPayload::Found(payload));
        }
        count += 1;
    }
    Ok(if count < MAX_EXECUTIONS_READ { SharedPayload::None } else { SharedPayload::Unknown })
}

#[cfg(test)]
crate::store::test_support::plan_test! { payloads_of_a_cue_are_found_by_index:
    ALL => "SEARCH payloads USING INDEX payloads_by_cue (cue_key=?)",
    SUPERSEDED => "SEARCH payloads USING INDEX payloads_by_cue (cue_key=? AND is_single_use=? AND key<?)",
    OLDEST_FIRST => "SEARCH executions USING INDEX executions_by_cue (cue_key=?)",
    NEWEST_FIRST => "SEARCH executions USING INDEX executions_by_cue (cue_key=?)",
}
