//! Sessions of browsers, and the links that begin one or show a plan. Their tokens are stored as SHA-256 hashes.

use jiff::Timestamp;

use crate::domain::account::session::Session;
use crate::domain::account::user::month_of;
use crate::domain::row_keys::UserKey;
use crate::domain::text::word_enum;
use crate::error::Result;
use crate::store::db::columns::{row, select, stored_row, words};
use crate::store::{ReadTx, WriteTx};

row! {
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOwner {
    pub key: i64,
    pub id: String,
    pub api_key_key: Option<i64>,
    pub created_at: Timestamp,
    pub seen_at: Timestamp,
    pub user_key: UserKey,
    pub user_id: String,
    pub plan: String,
    pub is_operator: bool,
    pub executions: i64,
} }
stored_row!(
    session_columns,
    Session { id, method, device, address, created_at, seen_at, expires_at }
);

const FIND_OWNER: &str =
    "SELECT sessions.key, sessions.id, api_key_key, sessions.created_at, seen_at, users.key, users.id, plan,
        is_operator, coalesce(executions, 0)
   FROM sessions JOIN users ON users.key = sessions.user_key
        LEFT JOIN monthly_usage ON monthly_usage.user_key = users.key AND month = ?2
  WHERE token_hash = ?1 AND expires_at > ?3 AND disabled_at IS NULL";
const LIST: &str =
    select!(session_columns, "FROM sessions WHERE user_key = ?1 AND expires_at > ?2 ORDER BY key");
const SURPLUS: &str = "DELETE FROM sessions WHERE key IN (
    SELECT key FROM sessions WHERE user_key = ?1 ORDER BY key DESC LIMIT -1 OFFSET ?2 + 0)";
const SURPLUS_LINKS: &str = "DELETE FROM links WHERE key IN (
    SELECT key FROM links WHERE user_key = ?1 AND kind = ?3 ORDER BY key DESC LIMIT -1 OFFSET ?2 + 0)";
const DELETE: &str = "DELETE FROM sessions WHERE id = ?2 AND user_key = ?1";
const DELETE_OTHERS: &str = "DELETE FROM sessions WHERE user_key = ?1 AND id IS NOT ?2";
const DELETE_LINKS: &str = "DELETE FROM links WHERE user_key = ?1 AND kind = ?2";
const DELETE_OF_KEY: [&str; 2] = [
    "DELETE FROM sessions WHERE api_key_key = (SELECT key FROM api_keys WHERE key_hash = ?1)",
    "DELETE FROM links WHERE api_key_key = (SELECT key FROM api_keys WHERE key_hash = ?1)",
];
const TAKE: &str = "DELETE FROM links WHERE token_hash = ?1 AND kind = 'session'
    RETURNING user_key, api_key_key, expires_at";
const FIND_LINK: &str = "SELECT user_key FROM links JOIN users ON users.key = user_key
    WHERE token_hash = ?1 AND kind = ?2 AND expires_at > ?3 AND disabled_at IS NULL";
const OLDEST: &str = "SELECT min(oldest) FROM (
    SELECT min(expires_at) AS oldest FROM sessions UNION ALL SELECT min(expires_at) FROM links)";
const DELETE_EXPIRED: [&str; 2] = [
    "DELETE FROM sessions WHERE key IN (
        SELECT key FROM sessions WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2 + 0)",
    "DELETE FROM links WHERE key IN (
        SELECT key FROM links WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2 + 0)",
];

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum LinkKind {
        Session = "session",
        Plan = "plan",
    }
}

#[derive(Debug, Clone)]
pub struct NewLink {
    pub kind: LinkKind,
    pub user_key: UserKey,
    /// Row key of the API key that made it, or began the session that did. The link ends with it.
    pub api_key_key: Option<i64>,
    pub session_key: Option<i64>,
    pub token_hash: [u8; 32],
    pub expires_at: Timestamp,
}

words!(LinkKind);
stored_row!(
    link_columns,
    NewLink { kind, user_key, api_key_key, session_key, token_hash, expires_at }
);

/// Inserts a session. Its user then has `limit` sessions at most: the oldest are deleted.
pub fn insert(
    tx: &WriteTx<'_>,
    new: &Session,
    user_key: UserKey,
    api_key_key: Option<i64>,
    token_hash: &[u8; 32],
    limit: i64,
) -> Result<()> {
    tx.run(SURPLUS, (user_key, limit - 1))?;
    let columns = concat!("user_key, api_key_key, token_hash, ", session_columns!());
    tx.insert("sessions", columns, (user_key, api_key_key, token_hash, new)).map(drop)
}

pub fn find_owner(
    read: &ReadTx<'_>,
    token_hash: &[u8; 32],
    now: Timestamp,
) -> Result<Option<SessionOwner>> {
    read.find(FIND_OWNER, (token_hash, month_of(now), now))
}

/// The user's sessions that have not expired at `now`, oldest first.
pub fn list(read: &ReadTx<'_>, user_key: UserKey, now: Timestamp) -> Result<Vec<Session>> {
    read.all(LIST, (user_key, now))
}

pub fn record_seen(
    tx: &WriteTx<'_>,
    token_hash: &[u8; 32],
    now: Timestamp,
    expires_at: Timestamp,
) -> Result<()> {
    // Of requests at once, the first one writes.
    tx.run(
        "UPDATE sessions SET seen_at = ?2, expires_at = ?3 WHERE token_hash = ?1 AND seen_at < ?2",
        (token_hash, now, expires_at),
    )
}

pub fn delete(tx: &WriteTx<'_>, user_key: UserKey, id: &str) -> Result<bool> {
    tx.changes(DELETE, (user_key, id))
}

pub fn delete_others(tx: &WriteTx<'_>, user_key: UserKey, kept: Option<&str>) -> Result<usize> {
    tx.change(DELETE_OTHERS, (user_key, kept))
}

/// A deleted key needs no call: its sessions and links go with it.
pub fn delete_of_key(tx: &WriteTx<'_>, key_hash: &[u8; 32]) -> Result<()> {
    DELETE_OF_KEY.iter().try_for_each(|sql| tx.run(sql, [key_hash]))
}

/// Inserts a link. Its user then has `limit` links of this kind at most: the oldest are deleted.
pub fn insert_link(tx: &WriteTx<'_>, new: &NewLink, limit: i64) -> Result<()> {
    tx.run(SURPLUS_LINKS, (new.user_key, limit - 1, new.kind))?;
    tx.insert("links", link_columns!(), new).map(drop)
}

pub fn take_link(
    tx: &WriteTx<'_>,
    token_hash: &[u8; 32],
    now: Timestamp,
) -> Result<Option<(UserKey, Option<i64>)>> {
    let taken: Option<(UserKey, Option<i64>, Timestamp)> = tx.find(TAKE, [token_hash])?;
    Ok(taken.filter(|(.., expires_at)| *expires_at > now).map(|(user_key, key, _)| (user_key, key)))
}

pub fn find_link_user(
    read: &ReadTx<'_>,
    kind: LinkKind,
    token_hash: &[u8; 32],
    now: Timestamp,
) -> Result<Option<UserKey>> {
    read.find(FIND_LINK, (token_hash, kind, now))
}

pub fn delete_link(tx: &WriteTx<'_>, token_hash: &[u8; 32]) -> Result<()> {
    tx.run("DELETE FROM links WHERE token_hash = ?1", [token_hash])
}

pub fn delete_links(tx: &WriteTx<'_>, user_key: UserKey, kind: LinkKind) -> Result<()> {
    tx.run(DELETE_LINKS, (user_key, kind))
}

pub fn oldest(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    read.one(OLDEST, ())
}

pub fn delete_expired(tx: &WriteTx<'_>, now: Timestamp, limit: u32) -> Result<()> {
    DELETE_EXPIRED.iter().try_for_each(|sql| tx.run(sql, (now, limit)))
}

#[cfg(test)]
crate::store::test_support::plan_test! { sessions_and_links_are_found_by_index:
    FIND_OWNER => "sqlite_autoindex_sessions_2 (token_hash=?)",
    LIST => "sessions_by_user (user_key=?)",
    SURPLUS => "sessions_by_user (user_key=?)",
    SURPLUS_LINKS => "links_by_user (user_key=? AND kind=?)",
    DELETE => "sqlite_autoindex_sessions_1 (id=?)",
    DELETE_OTHERS => "sessions_by_user (user_key=?)",
    DELETE_LINKS => "links_by_user (user_key=? AND kind=?)",
    DELETE_OF_KEY[0] => "sessions_by_api_key (api_key_key=?)",
    DELETE_OF_KEY[1] => "links_by_api_key (api_key_key=?)",
    TAKE => "sqlite_autoindex_links_1 (token_hash=?)",
    FIND_LINK => "sqlite_autoindex_links_1 (token_hash=?)",
    OLDEST => "sessions_by_age",
    OLDEST => "links_by_age",
    DELETE_EXPIRED[0] => "sessions_by_age (expires_at<?)",
    DELETE_EXPIRED[1] => "links_by_age (expires_at<?)",
}
