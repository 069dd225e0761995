//! Sessions of browsers, stored as SHA-256 hashes of their tokens.

use jiff::Timestamp;
use rusqlite::params;

use crate::domain::account::session::Session;
use crate::domain::account::user::month_of;
use crate::error::Result;
use crate::store::db::columns::{millis, row};
use crate::store::{ReadTx, WriteTx};

/// The user that a session belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOwner {
    /// Row key of the session.
    pub key: i64,
    pub id: String,
    /// Row key of the API key that began the session.
    pub api_key_key: Option<i64>,
    pub created_at: Timestamp,
    pub seen_at: Timestamp,
    pub user_key: i64,
    pub user_id: String,
    pub plan: String,
    /// The user's executions in the current month.
    pub executions: i64,
}

row!(SessionOwner { key, id, api_key_key, created_at, seen_at, user_key, user_id, plan, executions });
row!(session_columns, "", Session { id, via, device, address, created_at, seen_at, expires_at });

// Runs with every request by session.
const FIND_OWNER: &str =
    "SELECT sessions.key, sessions.id, api_key_key, sessions.created_at, seen_at, users.key, users.id, plan,
        coalesce(executions, 0)
   FROM sessions JOIN users ON users.key = sessions.user_key
        LEFT JOIN monthly_usage ON monthly_usage.user_key = users.key AND month = ?2
  WHERE token_hash = ?1 AND expires_at > ?3 AND disabled_at IS NULL";
const LIST: &str = concat!(
    "SELECT ",
    session_columns!(),
    " FROM sessions WHERE user_key = ?1 AND expires_at > ?2 ORDER BY key"
);
const SURPLUS: &str = "DELETE FROM sessions WHERE key IN (
    SELECT key FROM sessions WHERE user_key = ?1 ORDER BY key DESC LIMIT -1 OFFSET ?2 + 0)";
const DELETE: &str = "DELETE FROM sessions WHERE id = ?2 AND user_key = ?1";
const DELETE_OTHERS: &str = "DELETE FROM sessions WHERE user_key = ?1 AND id IS NOT ?2";
const DELETE_OF_KEY: &str =
    "DELETE FROM sessions WHERE api_key_key = (SELECT key FROM api_keys WHERE key_hash = ?1)";
const OLDEST: &str = "SELECT expires_at FROM sessions ORDER BY expires_at LIMIT 1";
const DELETE_EXPIRED: &str = "DELETE FROM sessions WHERE key IN (
    SELECT key FROM sessions WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2 + 0)";

/// Inserts a session. Its user then has `limit` sessions at most: the oldest are deleted.
pub fn insert(
    tx: &WriteTx<'_>,
    new: &Session,
    user_key: i64,
    api_key_key: Option<i64>,
    token_hash: &[u8; 32],
    limit: i64,
) -> Result<()> {
    tx.run(SURPLUS, [user_key, limit - 1])?;
    tx.run("INSERT INTO sessions (id, user_key, api_key_key, token_hash, via, device, address, created_at, seen_at, expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)", params![
        new.id,
        user_key,
        api_key_key,
        token_hash,
        new.via.as_str(),
        new.device,
        new.address,
        millis(new.created_at),
        millis(new.seen_at),
        millis(new.expires_at),
    ]).map(drop)
}

/// The owner of the session with this token; `None` if it has expired at `now`, or the user is disabled. `now` selects
/// the month of the usage too.
pub fn find_owner(read: &ReadTx<'_>, token_hash: &[u8; 32], now: Timestamp) -> Result<Option<SessionOwner>> {
    read.find(FIND_OWNER, params![token_hash, month_of(now), millis(now)])
}

/// The user's sessions that have not expired at `now`, oldest first.
pub fn list(read: &ReadTx<'_>, user_key: i64, now: Timestamp) -> Result<Vec<Session>> {
    read.all(LIST, params![user_key, millis(now)])
}

/// Records that a session was seen at `now`, and its later end.
pub fn record_seen(
    tx: &WriteTx<'_>,
    token_hash: &[u8; 32],
    now: Timestamp,
    expires_at: Timestamp,
) -> Result<()> {
    // Of requests at once, the first one writes.
    tx.run(
        "UPDATE sessions SET seen_at = ?2, expires_at = ?3 WHERE token_hash = ?1 AND seen_at < ?2",
        params![token_hash, millis(now), millis(expires_at)],
    )
    .map(drop)
}

/// Deletes the user's session with this id. Returns `false` if there is none.
pub fn delete(tx: &WriteTx<'_>, user_key: i64, id: &str) -> Result<bool> {
    Ok(tx.run(DELETE, params![user_key, id])? > 0)
}

/// Deletes the user's sessions but that with the id `kept`, and returns their number.
pub fn delete_others(tx: &WriteTx<'_>, user_key: i64, kept: Option<&str>) -> Result<usize> {
    tx.run(DELETE_OTHERS, params![user_key, kept])
}

/// Deletes the sessions that the API key with this hash began. A deleted key needs no call: its sessions go with it.
pub fn delete_of_key(tx: &WriteTx<'_>, key_hash: &[u8; 32]) -> Result<()> {
    tx.run(DELETE_OF_KEY, [key_hash]).map(drop)
}

/// The end of the session that ends first.
pub fn oldest(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    read.find(OLDEST, [])
}

/// Deletes sessions that have expired at `now`, at most `limit`.
pub fn delete_expired(tx: &WriteTx<'_>, now: Timestamp, limit: u32) -> Result<()> {
    tx.run(DELETE_EXPIRED, params![millis(now), limit]).map(drop)
}

#[cfg(test)]
crate::store::test_support::plan_test! { sessions_are_found_by_index_and_those_of_a_user_by_the_user:
    FIND_OWNER => "sqlite_autoindex_sessions_2 (token_hash=?)",
    LIST => "sessions_by_user (user_key=?)",
    SURPLUS => "sessions_by_user (user_key=?)",
    DELETE => "sqlite_autoindex_sessions_1 (id=?)",
    DELETE_OTHERS => "sessions_by_user (user_key=?)",
    DELETE_OF_KEY => "sessions_by_api_key (api_key_key=?)",
    OLDEST => "sessions_by_age",
    DELETE_EXPIRED => "sessions_by_age (expires_at<?)",
}
