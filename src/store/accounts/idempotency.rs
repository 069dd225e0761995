//! `Idempotency-Key`: the first response is stored for 24 hours, without the payload (contract §4.14).

use jiff::{SignedDuration, Timestamp};

use crate::domain::api_error::ErrorCode;
use crate::domain::row_keys::UserKey;
use crate::domain::time::saturating_sub;
use crate::error::{Error, Result};
use crate::store::db::columns::row;
use crate::store::db::meta;
use crate::store::{ReadTx, WriteTx};

/// Time for which a response is stored (contract §4).
pub const RETENTION_TIME: SignedDuration = SignedDuration::from_hours(24);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRequest {
    pub key: String,
    pub fingerprint: [u8; 32],
}

row! { columns, "response_",
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    pub status: u16,
    /// JSON text, without the payload of a cue.
    pub body: String,
} }

/// Errors: `idempotency_conflict` when the key was used for a different request.
pub fn find_response(
    read: &ReadTx<'_>,
    user_key: UserKey,
    request: Option<&IdempotencyRequest>,
    now: Timestamp,
) -> Result<Option<StoredResponse>> {
    let Some(request) = request else { return Ok(None) };
    let sql = concat!(
        "SELECT fingerprint, ",
        columns!(),
        " FROM idempotency_keys WHERE user_key = ?1 AND idempotency_key = ?2 AND created_at > ?3"
    );
    let oldest = saturating_sub(now, RETENTION_TIME);
    let found: Option<([u8; 32], StoredResponse)> =
        read.find(sql, (user_key, &request.key, oldest))?;
    match found {
        Some((fingerprint, _)) if fingerprint != request.fingerprint => {
            let message = "This Idempotency-Key was used for a different request: use a new key";
            Err(Error::refused(ErrorCode::IdempotencyConflict, message))
        }
        found => Ok(found.map(|(_, response)| response)),
    }
}

/// While the clock is behind, the response counts from the newest instant: it would have expired once the clock is
/// right.
pub fn store_response(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    request: Option<&IdempotencyRequest>,
    response: &StoredResponse,
    now: Timestamp,
) -> Result<()> {
    let Some(request) = request else { return Ok(()) };
    let newest = meta::last_seen(tx)?.map_or(now, |newest| newest.max(now));
    let IdempotencyRequest { key, fingerprint } = request;
    tx.run(
        "INSERT INTO idempotency_keys
             (user_key, idempotency_key, fingerprint, response_status, response_body, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (user_key, idempotency_key)
         DO UPDATE SET fingerprint = excluded.fingerprint, response_status = excluded.response_status,
                       response_body = excluded.response_body, created_at = excluded.created_at",
        (user_key, key, fingerprint, response.status, &response.body, newest),
    )
}

pub fn oldest(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    read.find("SELECT created_at FROM idempotency_keys ORDER BY created_at LIMIT 1", ())
}

pub fn delete_expired(tx: &WriteTx<'_>, until: Timestamp, limit: u32) -> Result<usize> {
    let sql = "DELETE FROM idempotency_keys WHERE (user_key, idempotency_key) IN (
                   SELECT user_key, idempotency_key FROM idempotency_keys WHERE created_at <= ?1
                    ORDER BY created_at LIMIT ?2 + 0)";
    tx.change(sql, (until, limit))
}
