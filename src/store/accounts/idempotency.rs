//! Responses stored under the caller's `Idempotency-Key`.

use jiff::{SignedDuration, Timestamp};
use rusqlite::params;

use crate::error::Result;
use crate::store::db::columns::{millis, row};
use crate::store::{ReadTx, WriteTx};

/// Time for which a response is stored (contract §4).
pub const RETENTION_TIME: SignedDuration = SignedDuration::from_hours(24);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRequest {
    pub key: String,
    /// SHA-256 of method, path and body, to detect the same key on a different request.
    pub fingerprint: [u8; 32],
}

row! { columns, "response_",
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    pub status: u16,
    /// JSON text, without the payload of a cue.
    pub body: String,
} }

/// The response that was stored for the user under this key after `oldest`, and the fingerprint of its request.
pub fn find(
    read: &ReadTx<'_>,
    user_key: i64,
    key: &str,
    oldest: Timestamp,
) -> Result<Option<([u8; 32], StoredResponse)>> {
    let sql = concat!(
        "SELECT fingerprint, ",
        columns!(),
        " FROM idempotency_keys WHERE user_key = ?1 AND idempotency_key = ?2 AND created_at > ?3"
    );
    read.find(sql, params![user_key, key, millis(oldest)])
}

/// Stores a response. Replaces an expired one.
pub fn save(
    tx: &WriteTx<'_>,
    user_key: i64,
    request: &IdempotencyRequest,
    response: &StoredResponse,
    now: Timestamp,
) -> Result<()> {
    tx.run(
        "INSERT INTO idempotency_keys
             (user_key, idempotency_key, fingerprint, response_status, response_body, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (user_key, idempotency_key)
         DO UPDATE SET fingerprint = excluded.fingerprint, response_status = excluded.response_status,
                       response_body = excluded.response_body, created_at = excluded.created_at",
        params![user_key, request.key, request.fingerprint, response.status, response.body, millis(now)],
    )
}

pub fn oldest(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    read.find("SELECT created_at FROM idempotency_keys ORDER BY created_at LIMIT 1", [])
}

/// Deletes responses from `until` or earlier, at most `limit`. Returns their number.
pub fn delete_expired(tx: &WriteTx<'_>, until: Timestamp, limit: u32) -> Result<usize> {
    let sql = "DELETE FROM idempotency_keys WHERE (user_key, idempotency_key) IN (
                   SELECT user_key, idempotency_key FROM idempotency_keys WHERE created_at <= ?1
                    ORDER BY created_at LIMIT ?2 + 0)";
    tx.change(sql, params![millis(until), limit])
}
