//! One-time links that begin a session, stored as SHA-256 hashes of their tokens.

use jiff::Timestamp;
use rusqlite::params;

use crate::error::Result;
use crate::store::db::columns::{millis, row};
use crate::store::{ReadTx, WriteTx};

const SURPLUS: &str = "DELETE FROM session_links WHERE key IN (
    SELECT key FROM session_links WHERE user_key = ?1 ORDER BY key DESC LIMIT -1 OFFSET ?2 + 0)";
const TAKE: &str =
    "DELETE FROM session_links WHERE token_hash = ?1 RETURNING user_key, api_key_key, expires_at";
const DELETE_OF_KEY: &str =
    "DELETE FROM session_links WHERE api_key_key = (SELECT key FROM api_keys WHERE key_hash = ?1)";
const OLDEST: &str = "SELECT expires_at FROM session_links ORDER BY expires_at LIMIT 1";
const DELETE_EXPIRED: &str = "DELETE FROM session_links WHERE key IN (
    SELECT key FROM session_links WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2 + 0)";

/// A link to insert.
#[derive(Debug, Clone)]
pub struct NewLink {
    pub user_key: i64,
    /// Row key of the API key that made it, or began the session that did. The link ends with it.
    pub api_key_key: Option<i64>,
    /// Row key of the session that made it, with which it ends.
    pub session_key: Option<i64>,
    pub token_hash: [u8; 32],
    pub expires_at: Timestamp,
}

/// A link that was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsedLink {
    pub user_key: i64,
    pub api_key_key: Option<i64>,
}

row!(UsedLink { user_key, api_key_key });

/// Inserts a link. Its user then has `limit` links at most: the oldest are deleted.
pub fn insert(tx: &WriteTx<'_>, new: &NewLink, limit: i64) -> Result<()> {
    tx.run(SURPLUS, [new.user_key, limit - 1])?;
    tx.run(
        "INSERT INTO session_links (user_key, api_key_key, session_key, token_hash, expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5)",
        params![new.user_key, new.api_key_key, new.session_key, new.token_hash, millis(new.expires_at)],
    )
    .map(drop)
}

/// Uses up the link with this token. `None` if there is none, or it has expired at `now`.
pub fn take(tx: &WriteTx<'_>, token_hash: &[u8; 32], now: Timestamp) -> Result<Option<UsedLink>> {
    let taken: Option<(UsedLink, Timestamp)> = tx.find(TAKE, [token_hash])?;
    Ok(taken.filter(|(_, expires_at)| *expires_at > now).map(|(link, _)| link))
}

/// Deletes the links that the API key with this hash made.
pub fn delete_of_key(tx: &WriteTx<'_>, key_hash: &[u8; 32]) -> Result<()> {
    tx.run(DELETE_OF_KEY, [key_hash]).map(drop)
}

/// Deletes all links of the user.
pub fn delete_all(tx: &WriteTx<'_>, user_key: i64) -> Result<()> {
    tx.run("DELETE FROM session_links WHERE user_key = ?1", [user_key]).map(drop)
}

/// The end of the link that ends first.
pub fn oldest(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    read.find(OLDEST, [])
}

/// Deletes links that have expired at `now`, at most `limit`.
pub fn delete_expired(tx: &WriteTx<'_>, now: Timestamp, limit: u32) -> Result<()> {
    tx.run(DELETE_EXPIRED, params![millis(now), limit]).map(drop)
}

#[cfg(test)]
crate::store::test_support::plan_test! { links_are_found_by_index:
    SURPLUS => "session_links_by_user (user_key=?)",
    TAKE => "sqlite_autoindex_session_links_1 (token_hash=?)",
    DELETE_OF_KEY => "session_links_by_api_key (api_key_key=?)",
    OLDEST => "session_links_by_age",
    DELETE_EXPIRED => "session_links_by_age (expires_at<?)",
}
