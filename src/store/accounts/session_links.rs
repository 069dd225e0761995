//! One-time links that begin a session, stored as SHA-256 hashes of their tokens.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, params};

use crate::error::Result;
use crate::store::db::columns::{millis, read_instant};
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

/// Inserts a link. Its user then has `limit` links at most: the oldest are deleted.
pub fn insert(tx: &WriteTx<'_>, new: &NewLink, limit: i64) -> Result<()> {
    tx.prepare_cached(SURPLUS)?.execute([new.user_key, limit - 1])?;
    tx.prepare_cached(
        "INSERT INTO session_links (user_key, api_key_key, session_key, token_hash, expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![
        new.user_key,
        new.api_key_key,
        new.session_key,
        new.token_hash,
        millis(new.expires_at)
    ])?;
    Ok(())
}

/// Uses up the link with this token. `None` if there is none, or it has expired at `now`.
pub fn take(tx: &WriteTx<'_>, token_hash: &[u8; 32], now: Timestamp) -> Result<Option<UsedLink>> {
    let taken = tx.prepare_cached(TAKE)?.query_row([token_hash], |row| {
        let link = UsedLink { user_key: row.get(0)?, api_key_key: row.get(1)? };
        Ok((link, row.get::<_, i64>(2)?))
    });
    Ok(taken.optional()?.filter(|(_, expires_at)| *expires_at > millis(now)).map(|(link, _)| link))
}

/// Deletes the links that the API key with this hash made.
pub fn delete_of_key(tx: &WriteTx<'_>, key_hash: &[u8; 32]) -> Result<()> {
    tx.prepare_cached(DELETE_OF_KEY)?.execute([key_hash])?;
    Ok(())
}

/// Deletes all links of the user.
pub fn delete_all(tx: &WriteTx<'_>, user_key: i64) -> Result<()> {
    tx.prepare_cached("DELETE FROM session_links WHERE user_key = ?1")?.execute([user_key])?;
    Ok(())
}

/// The end of the link that ends first.
pub fn oldest(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    let oldest: Option<i64> = read.prepare_cached(OLDEST)?.query_row([], |row| row.get(0)).optional()?;
    Ok(oldest.map(read_instant).transpose()?)
}

/// Deletes links that have expired at `now`, at most `limit`.
pub fn delete_expired(tx: &WriteTx<'_>, now: Timestamp, limit: u32) -> Result<()> {
    tx.prepare_cached(DELETE_EXPIRED)?.execute(params![millis(now), limit])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::plan;

    #[test]
    fn links_are_found_by_index() {
        for (sql, index) in [
            (SURPLUS, "session_links_by_user (user_key=?)"),
            (TAKE, "sqlite_autoindex_session_links_1 (token_hash=?)"),
            (DELETE_OF_KEY, "session_links_by_api_key (api_key_key=?)"),
            (OLDEST, "session_links_by_age"),
            (DELETE_EXPIRED, "session_links_by_age (expires_at<?)"),
        ] {
            let steps = plan(sql);
            assert!(steps.iter().any(|step| step.ends_with(index)), "{steps:?}");
        }
    }
}
