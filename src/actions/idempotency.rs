//! `Idempotency-Key`: a repeated request runs once. The first response is stored for 24 hours and returned again
//! (contract §4.14).

use jiff::Timestamp;

use crate::domain::api_error::ErrorCode;
use crate::domain::time::saturating_sub;
use crate::error::{Error, Result};
use crate::store::WriteTx;
use crate::store::accounts::idempotency::{IdempotencyRecord, RETENTION_TIME, find, save};

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
    /// JSON text.
    pub body: String,
}

/// Returns the stored response to `request`, or runs `perform` and stores its response. Without a key it only runs
/// `perform`.
///
/// # Errors
/// `idempotency_conflict` when the key was used for a different request, and the errors of `perform`, which are not
/// stored.
pub fn idempotent(
    tx: &WriteTx<'_>,
    user_key: i64,
    request: Option<&IdempotencyRequest>,
    now: Timestamp,
    perform: impl FnOnce() -> Result<StoredResponse>,
) -> Result<StoredResponse> {
    let Some(request) = request else { return perform() };
    let oldest = saturating_sub(now, RETENTION_TIME);
    if let Some(record) = find(tx, user_key, &request.key, oldest)? {
        if record.fingerprint != request.fingerprint {
            let message = "This Idempotency-Key was used for a different request: use a new key";
            return Err(Error::refused(ErrorCode::IdempotencyConflict, message));
        }
        return Ok(StoredResponse { status: record.status, body: record.body });
    }
    let response = perform()?;
    let record = IdempotencyRecord {
        fingerprint: request.fingerprint,
        status: response.status,
        body: response.body.clone(),
    };
    save(tx, user_key, &request.key, &record, now)?;
    Ok(response)
}
