//! `Idempotency-Key`: a repeated request runs once. The first response is stored for 24 hours and returned again
//! (contract §4.14), without the payload: the repeated request has the same one.

use jiff::Timestamp;

use crate::domain::api_error::ErrorCode;
use crate::domain::time::saturating_sub;
use crate::error::{Error, Result};
use crate::store::accounts::idempotency::{RETENTION_TIME, find, save};
use crate::store::db::meta;
use crate::store::{ReadTx, WriteTx};

pub use crate::store::accounts::idempotency::{IdempotencyRequest, StoredResponse};

/// The stored response to `request`, if it is a repetition. Errors: `idempotency_conflict` when the key was used for a
/// different request.
pub fn find_response(
    read: &ReadTx<'_>,
    user_key: i64,
    request: Option<&IdempotencyRequest>,
    now: Timestamp,
) -> Result<Option<StoredResponse>> {
    let Some(request) = request else { return Ok(None) };
    match find(read, user_key, &request.key, saturating_sub(now, RETENTION_TIME))? {
        Some((fingerprint, _)) if fingerprint != request.fingerprint => {
            let message = "This Idempotency-Key was used for a different request: use a new key";
            Err(Error::refused(ErrorCode::IdempotencyConflict, message))
        }
        found => Ok(found.map(|(_, response)| response)),
    }
}

/// Stores the response to `request` for its repetitions. Does nothing without a key. While the clock is behind, the
/// response counts from the newest instant in the file: it would have expired once the clock is right.
pub fn store_response(
    tx: &WriteTx<'_>,
    user_key: i64,
    request: Option<&IdempotencyRequest>,
    response: &StoredResponse,
    now: Timestamp,
) -> Result<()> {
    let Some(request) = request else { return Ok(()) };
    let newest = meta::last_seen(tx)?.map_or(now, |newest| newest.max(now));
    save(tx, user_key, request, response, newest)
}
