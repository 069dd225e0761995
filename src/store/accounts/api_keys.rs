//! API keys: only their hashes are stored.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, params};

use crate::domain::account::user::{ApiKeyInfo, month_of};
use crate::error::Result;
use crate::store::db::columns::{instant, millis};
use crate::store::{ReadTx, WriteTx};

const COLUMNS: &str = "key, id, name, prefix, created_at";

/// A key that is being made.
#[derive(Debug, Clone)]
pub struct NewKey {
    pub id: String,
    pub user_key: i64,
    pub name: String,
    pub prefix: String,
    pub hash: [u8; 32],
    pub created_at: Timestamp,
}

/// Stores a key and answers its row.
///
/// # Errors
/// When the file cannot be written.
pub fn insert(tx: &WriteTx<'_>, new: &NewKey) -> Result<i64> {
    tx.prepare_cached(
        "INSERT INTO api_keys (id, user_key, name, prefix, key_hash, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![new.id, new.user_key, new.name, new.prefix, new.hash, millis(new.created_at)])?;
    Ok(tx.last_insert_rowid())
}

/// Who holds a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The key's row.
    pub key: i64,
    /// The user's row.
    pub user_key: i64,
    /// The user's id.
    pub user_id: String,
    /// The user's plan by name.
    pub plan: String,
    /// The user's executions in this month.
    pub executions: i64,
}

/// Asked with every request.
const FIND_OWNER: &str = "SELECT api_keys.key, users.key, users.id, plan, coalesce(executions, 0)
   FROM api_keys JOIN users ON users.key = api_keys.user_key
        LEFT JOIN monthly_usage ON monthly_usage.user_key = users.key AND month = ?2
  WHERE key_hash = ?1 AND disabled_at IS NULL";

/// Who holds the key with this hash, at `now`. A disabled user has no keys.
///
/// # Errors
/// When the file cannot be read.
pub fn find_owner(read: &ReadTx<'_>, hash: &[u8; 32], now: Timestamp) -> Result<Option<Owner>> {
    let owner = read.prepare_cached(FIND_OWNER)?.query_row(params![hash, month_of(now)], |row| {
        Ok(Owner {
            key: row.get(0)?,
            user_key: row.get(1)?,
            user_id: row.get(2)?,
            plan: row.get(3)?,
            executions: row.get(4)?,
        })
    });
    Ok(owner.optional()?)
}

/// The user's keys, oldest first.
///
/// # Errors
/// When the file cannot be read.
pub fn list(read: &ReadTx<'_>, user_key: i64) -> Result<Vec<ApiKeyInfo>> {
    let sql = format!("SELECT {COLUMNS} FROM api_keys WHERE user_key = ?1 ORDER BY key");
    Ok(read.prepare_cached(&sql)?.query_map([user_key], read_key)?.collect::<rusqlite::Result<Vec<_>>>()?)
}

/// The prefix of the key in this row.
///
/// # Errors
/// When the file cannot be read.
pub fn prefix(read: &ReadTx<'_>, key: i64) -> Result<Option<String>> {
    Ok(read
        .prepare_cached("SELECT prefix FROM api_keys WHERE key = ?1")?
        .query_row([key], |row| row.get(0))
        .optional()?)
}

/// Puts another key in the place of the one with hash `old`, under its name; tells whether that was still there.
///
/// By hash and not by row: the row of a key that was revoked meanwhile may hold another user's by now.
///
/// # Errors
/// When the file cannot be written.
pub fn replace(
    tx: &WriteTx<'_>,
    old: &[u8; 32],
    new_id: &str,
    prefix: &str,
    hash: &[u8; 32],
    now: Timestamp,
) -> Result<bool> {
    let replaced = tx
        .prepare_cached(
            "UPDATE api_keys SET id = ?2, prefix = ?3, key_hash = ?4, created_at = ?5 WHERE key_hash = ?1",
        )?
        .execute(params![old, new_id, prefix, hash, millis(now)])?;
    Ok(replaced > 0)
}

/// Removes the user's key with this id; tells whether there was one.
///
/// # Errors
/// When the file cannot be written.
pub fn delete(tx: &WriteTx<'_>, user_key: i64, id: &str) -> Result<bool> {
    let deleted = tx
        .prepare_cached("DELETE FROM api_keys WHERE id = ?2 AND user_key = ?1")?
        .execute(params![user_key, id])?;
    Ok(deleted > 0)
}

/// The row of the user who holds the key with this id.
///
/// # Errors
/// When the file cannot be read.
pub fn find_user_key(read: &ReadTx<'_>, id: &str) -> Result<Option<i64>> {
    Ok(read
        .prepare_cached("SELECT user_key FROM api_keys WHERE id = ?1")?
        .query_row([id], |row| row.get(0))
        .optional()?)
}

fn read_key(row: &Row<'_>) -> rusqlite::Result<ApiKeyInfo> {
    Ok(ApiKeyInfo {
        key: row.get("key")?,
        id: row.get("id")?,
        name: row.get("name")?,
        prefix: row.get("prefix")?,
        created_at: instant(row, "created_at")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::plan;

    #[test]
    fn a_key_its_user_and_its_month_are_found_without_a_scan() {
        for step in plan(FIND_OWNER) {
            assert!(step.starts_with("SEARCH "), "{step}");
        }
    }
}
