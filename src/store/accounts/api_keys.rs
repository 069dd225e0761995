//! API keys, stored as SHA-256 hashes.

use jiff::Timestamp;
use rusqlite::params;

use crate::domain::account::credentials::ApiKey;
use crate::domain::account::user::{ApiKeyInfo, month_of};
use crate::error::Result;
use crate::store::db::columns::{millis, row};
use crate::store::{ReadTx, WriteTx};

row!(columns, "", ApiKeyInfo { key, id, name, prefix, created_at });

pub fn insert(
    tx: &WriteTx<'_>,
    user_key: i64,
    id: &str,
    name: &str,
    api_key: &ApiKey,
    now: Timestamp,
) -> Result<i64> {
    tx.run(
        "INSERT INTO api_keys (id, user_key, name, prefix, key_hash, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![id, user_key, name, api_key.prefix(), api_key.hash(), millis(now)],
    )?;
    Ok(tx.last_insert_rowid())
}

row! {
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub key: i64,
    pub user_key: i64,
    pub user_id: String,
    pub plan: String,
    /// The user's executions in the current month.
    pub executions: i64,
} }

// Runs with every authenticated request.
const FIND_OWNER: &str = "SELECT api_keys.key, users.key, users.id, plan, coalesce(executions, 0)
   FROM api_keys JOIN users ON users.key = api_keys.user_key
        LEFT JOIN monthly_usage ON monthly_usage.user_key = users.key AND month = ?2
  WHERE key_hash = ?1 AND disabled_at IS NULL";

/// The owner of the API key with this hash; `None` if the user is disabled. `now` selects the month of the usage.
pub fn find_owner(read: &ReadTx<'_>, hash: &[u8; 32], now: Timestamp) -> Result<Option<Owner>> {
    read.find(FIND_OWNER, params![hash, month_of(now)])
}

const NTH_KEY: &str = "SELECT 1 FROM api_keys WHERE user_key = ?1 ORDER BY key LIMIT 1 OFFSET ?2";

pub fn list(read: &ReadTx<'_>, user_key: i64) -> Result<Vec<ApiKeyInfo>> {
    read.all(concat!("SELECT ", columns!(), " FROM api_keys WHERE user_key = ?1 ORDER BY key"), [user_key])
}

pub fn newest(read: &ReadTx<'_>, user_key: i64, limit: i64) -> Result<Vec<ApiKeyInfo>> {
    let sql =
        concat!("SELECT ", columns!(), " FROM api_keys WHERE user_key = ?1 ORDER BY key DESC LIMIT ?2 + 0");
    read.all(sql, [user_key, limit])
}

pub fn has_at_least(read: &ReadTx<'_>, user_key: i64, count: i64) -> Result<bool> {
    read.any(NTH_KEY, [user_key, count - 1])
}

pub fn id_and_prefix(read: &ReadTx<'_>, user_key: i64, key: i64) -> Result<Option<(String, String)>> {
    read.find("SELECT id, prefix FROM api_keys WHERE key = ?2 AND user_key = ?1", [user_key, key])
}

/// Replaces the API key with hash `old` and keeps its name. Returns `false` if there is no such key. The key is found
/// by its hash, not by its row: SQLite reuses the row key of a revoked API key, so that row may belong to another user
/// by now.
pub fn replace(
    tx: &WriteTx<'_>,
    old: &[u8; 32],
    new_id: &str,
    api_key: &ApiKey,
    now: Timestamp,
) -> Result<bool> {
    tx.changes(
        "UPDATE api_keys SET id = ?2, prefix = ?3, key_hash = ?4, created_at = ?5 WHERE key_hash = ?1",
        params![old, new_id, api_key.prefix(), api_key.hash(), millis(now)],
    )
}

pub fn delete(tx: &WriteTx<'_>, user_key: i64, id: &str) -> Result<bool> {
    tx.changes("DELETE FROM api_keys WHERE id = ?2 AND user_key = ?1", params![user_key, id])
}

pub fn delete_all(tx: &WriteTx<'_>, user_key: i64) -> Result<()> {
    tx.run("DELETE FROM api_keys WHERE user_key = ?1", [user_key])
}

pub fn find_user_key(read: &ReadTx<'_>, id: &str) -> Result<Option<i64>> {
    read.find("SELECT user_key FROM api_keys WHERE id = ?1", [id])
}

#[cfg(test)]
crate::store::test_support::plan_test! { keys_and_their_owners_are_found_by_index:
    FIND_OWNER => "SEARCH api_keys",
    FIND_OWNER => "SEARCH users",
    NTH_KEY => "SEARCH api_keys USING INDEX api_keys_by_user (user_key=?)",
}
