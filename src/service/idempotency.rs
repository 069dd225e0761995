//! `Idempotency-Key`: a repeated request runs once. The first response is stored for 24 hours and returned again
//! (contract §4.14), without the payload: the repeated request has the same one.

use jiff::Timestamp;

use crate::domain::api_error::ErrorCode;
use crate::domain::time::saturating_sub;
use crate::error::{Error, Result};
use crate::store::accounts::idempotency::{IdempotencyRecord, RETENTION_TIME, find, save};
use crate::store::db::meta;
use crate::store::{ReadTx, WriteTx};

/// The `Idempotency-Key` of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRequest {
    /// The key, chosen by the caller.
    pub key: String,
    /// SHA-256 of method, path and body, to detect the same key on a different request.
    pub fingerprint: [u8; 32],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    pub status: u16,
    /// JSON text, without the payload of a cue.
    pub body: String,
}

/// Returns the stored response to `request`, if it is a repetition.
/// Errors: `idempotency_conflict` when the key was used for a different request.
pub fn repeated(
    read: &ReadTx<'_>,
    user_key: i64,
    request: Option<&IdempotencyRequest>,
    now: Timestamp,
) -> Result<Option<StoredResponse>> {
    let Some(request) = request else { return Ok(None) };
    let oldest = saturating_sub(now, RETENTION_TIME);
    let Some(record) = find(read, user_key, &request.key, oldest)? else { return Ok(None) };
    if record.fingerprint != request.fingerprint {
        let message = "This Idempotency-Key was used for a different request: use a new key";
        return Err(Error::refused(ErrorCode::IdempotencyConflict, message));
    }
    Ok(Some(StoredResponse { status: record.status, body: record.body }))
}

/// Stores the response to `request` for its repetitions. Does nothing without a key. While the clock is behind, the
/// response counts from the newest instant in the file: it would have expired once the clock is right.
pub fn keep(
    tx: &WriteTx<'_>,
    user_key: i64,
    request: Option<&IdempotencyRequest>,
    response: &StoredResponse,
    now: Timestamp,
) -> Result<()> {
    let Some(request) = request else { return Ok(()) };
    let record = IdempotencyRecord {
        fingerprint: request.fingerprint,
        status: response.status,
        body: response.body.clone(),
    };
    let newest = meta::last_seen(tx)?.map_or(now, |newest| newest.max(now));
    save(tx, user_key, &request.key, &record, newest)
}
