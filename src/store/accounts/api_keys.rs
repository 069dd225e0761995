//! API keys, as SHA-256 hashes. Their owners are in `users`.

use jiff::Timestamp;

use crate::domain::account::credentials::ApiKey;
use crate::domain::account::user::ApiKeyInfo;
use crate::domain::row_keys::UserKey;
use crate::error::Result;
use crate::store::db::columns::{row, select};
use crate::store::{ReadTx, WriteTx};

row!(columns, "", ApiKeyInfo { key, id, name, prefix, created_at });

pub fn insert(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    id: &str,
    name: &str,
    api_key: &ApiKey,
    now: Timestamp,
) -> Result<i64> {
    let columns = "id, user_key, name, prefix, key_hash, created_at";
    let row = (id, user_key, name, api_key.prefix(), api_key.hash(), now);
    tx.insert("api_keys", columns, row)
}

const NTH_KEY: &str = "SELECT 1 FROM api_keys WHERE user_key = ?1 ORDER BY key LIMIT 1 OFFSET ?2";

pub fn list(read: &ReadTx<'_>, user_key: UserKey) -> Result<Vec<ApiKeyInfo>> {
    read.all(select!(columns, "FROM api_keys WHERE user_key = ?1 ORDER BY key"), [user_key])
}

pub fn newest(read: &ReadTx<'_>, user_key: UserKey, limit: i64) -> Result<Vec<ApiKeyInfo>> {
    let sql = select!(columns, "FROM api_keys WHERE user_key = ?1 ORDER BY key DESC LIMIT ?2 + 0");
    read.all(sql, (user_key, limit))
}

pub fn has_at_least(read: &ReadTx<'_>, user_key: UserKey, count: i64) -> Result<bool> {
    read.any(NTH_KEY, (user_key, count - 1))
}

pub fn id_and_prefix(
    read: &ReadTx<'_>,
    user_key: UserKey,
    key: i64,
) -> Result<Option<(String, String)>> {
    read.find("SELECT id, prefix FROM api_keys WHERE key = ?2 AND user_key = ?1", (user_key, key))
}

/// Found by its hash: SQLite reuses row keys, so the row of a revoked key may belong to another user by now.
pub fn replace(
    tx: &WriteTx<'_>,
    old: &[u8; 32],
    new_id: &str,
    api_key: &ApiKey,
    now: Timestamp,
) -> Result<bool> {
    tx.changes(
        "UPDATE api_keys SET id = ?2, prefix = ?3, key_hash = ?4, created_at = ?5 WHERE key_hash = ?1",
        (old, new_id, api_key.prefix(), api_key.hash(), now),
    )
}

pub fn delete(tx: &WriteTx<'_>, user_key: UserKey, id: &str) -> Result<bool> {
    tx.changes("DELETE FROM api_keys WHERE id = ?2 AND user_key = ?1", (user_key, id))
}

pub fn delete_all(tx: &WriteTx<'_>, user_key: UserKey) -> Result<()> {
    tx.run("DELETE FROM api_keys WHERE user_key = ?1", [user_key])
}

pub fn find_user_key(read: &ReadTx<'_>, id: &str) -> Result<Option<UserKey>> {
    read.find("SELECT user_key FROM api_keys WHERE id = ?1", [id])
}

#[cfg(test)]
crate::store::test_support::plan_test! { the_nth_key_of_a_user_is_found_by_index:
    NTH_KEY => "SEARCH api_keys USING INDEX api_keys_by_user (user_key=?)",
}
