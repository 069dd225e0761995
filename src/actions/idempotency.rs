//! The same request twice is carried out once: the first answer is kept for 24 hours and given again (contract §4).

use jiff::Timestamp;

use crate::domain::api_error::ErrorCode;
use crate::error::{Error, Result};
use crate::store::WriteTx;
use crate::store::accounts::idempotency::{IdempotencyRecord, RETENTION_TIME, find, save};

/// A request that carries an `Idempotency-Key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRequest {
    /// The key, chosen by the caller.
    pub key: String,
    /// SHA-256 of method, path and body.
    pub fingerprint: [u8; 32],
}

/// A status and a rendered body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    /// The HTTP status.
    pub status: u16,
    /// The JSON text.
    pub body: String,
}

/// Gives the kept answer to `call`, or makes one and keeps it. Without a call it is always made.
///
/// # Errors
/// `idempotency_conflict` when the key was used for another request, else what `make` says; a refusal is not kept.
pub fn idempotent(
    tx: &WriteTx<'_>,
    user_key: i64,
    call: Option<&IdempotencyRequest>,
    now: Timestamp,
    make: impl FnOnce() -> Result<StoredResponse>,
) -> Result<StoredResponse> {
    let Some(call) = call else { return make() };
    let oldest = now.checked_sub(RETENTION_TIME).unwrap_or(now);
    if let Some(kept) = find(tx, user_key, &call.key, oldest)? {
        if kept.fingerprint != call.fingerprint {
            let message =
                "This Idempotency-Key was used for another request: use a new key for a new request";
            return Err(Error::refused(ErrorCode::IdempotencyConflict, message));
        }
        return Ok(StoredResponse { status: kept.status, body: kept.body });
    }
    let answer = make()?;
    let kept =
        IdempotencyRecord { fingerprint: call.fingerprint, status: answer.status, body: answer.body.clone() };
    save(tx, user_key, &call.key, &kept, now)?;
    Ok(answer)
}
