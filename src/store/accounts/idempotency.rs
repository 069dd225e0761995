//! Answers kept under the caller's `Idempotency-Key`.

use jiff::{SignedDuration, Timestamp};
use rusqlite::{OptionalExtension, params};

use crate::error::Result;
use crate::store::db::columns::{millis, read_instant};
use crate::store::{ReadTx, WriteTx};

/// How long an answer is kept (contract §4).
pub const RETENTION_TIME: SignedDuration = SignedDuration::from_hours(24);

/// An answer as it was first given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRecord {
    /// SHA-256 of what was asked.
    pub fingerprint: [u8; 32],
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// The answer kept for the user under this key since `oldest`.
///
/// # Errors
/// When the file cannot be read.
pub fn find(
    read: &ReadTx<'_>,
    user_key: i64,
    key: &str,
    oldest: Timestamp,
) -> Result<Option<IdempotencyRecord>> {
    Ok(read
        .prepare_cached(
            "SELECT fingerprint, response_status, response_body FROM idempotency_keys
              WHERE user_key = ?1 AND idempotency_key = ?2 AND created_at > ?3",
        )?
        .query_row(params![user_key, key, millis(oldest)], |row| {
            Ok(IdempotencyRecord { fingerprint: row.get(0)?, status: row.get(1)?, body: row.get(2)? })
        })
        .optional()?)
}

/// Keeps an answer, in place of an expired one.
///
/// # Errors
/// When the file cannot be written.
pub fn save(
    tx: &WriteTx<'_>,
    user_key: i64,
    key: &str,
    answer: &IdempotencyRecord,
    now: Timestamp,
) -> Result<()> {
    tx.prepare_cached(
        "INSERT OR REPLACE INTO idempotency_keys (user_key, idempotency_key, fingerprint, response_status,
                                                  response_body, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![user_key, key, answer.fingerprint, answer.status, answer.body, millis(now)])?;
    Ok(())
}

/// When the oldest kept answer was given.
///
/// # Errors
/// When the file cannot be read.
pub fn oldest(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    let oldest: Option<i64> = read
        .prepare_cached("SELECT created_at FROM idempotency_keys ORDER BY created_at LIMIT 1")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(oldest.map(read_instant).transpose()?)
}

/// Forgets the answers given at `until` or before, at most `limit`; answers how many.
///
/// # Errors
/// When the file cannot be written.
pub fn delete_expired(tx: &WriteTx<'_>, until: Timestamp, limit: u32) -> Result<usize> {
    Ok(tx
        .prepare_cached(
            "DELETE FROM idempotency_keys WHERE (user_key, idempotency_key) IN (
                 SELECT user_key, idempotency_key FROM idempotency_keys WHERE created_at <= ?1
                  ORDER BY created_at LIMIT ?2 + 0)",
        )?
        .execute(params![millis(until), limit])?)
}
