//! Clean-up that falls due as time passes: expired claims, stored idempotent responses, device logins.
//!
//! Every function here returns without a write if there is nothing to do.

use jiff::Timestamp;

use crate::domain::account::device_login::RATE_WINDOW;
use crate::domain::execution::{ExecutionStatus, after_lost_claim};
use crate::domain::notification::alert::NewAlert;
use crate::domain::time::saturating_sub;
use crate::error::Result;
use crate::lifecycle::alerts;
use crate::lifecycle::finish::{FinishedExecution, on_execution_finished};
use crate::store::accounts::device_logins;
use crate::store::accounts::idempotency;
use crate::store::accounts::idempotency::RETENTION_TIME;
use crate::store::executions::claims;
use crate::store::executions::claims::ExpiredClaim;
use crate::store::{Store, WakeSet, WriteTx};

/// Claims released in one transaction. Each takes several statements, and other writes wait for the batch.
const BATCH: usize = 200;

/// Rows deleted in one transaction. A row costs less than a claim, so the batch is larger.
const FORGET_BATCH: u32 = 500;

/// Releases claims that have expired at `now`: their executions become ready for another worker or fail. Returns the
/// number of released claims; if it is not 0, call again.
pub fn release_expired_claims(store: &Store, now: Timestamp) -> Result<usize> {
    if store.read_blocking(claims::next_expiry)?.is_none_or(|next| next > now) {
        return Ok(0);
    }
    store.write_with_priority(move |tx| release_batch(tx, now)).wait()
}

/// Deletes stored responses of idempotent requests that have expired at `now`.
pub fn delete_expired_responses(store: &Store, now: Timestamp) -> Result<()> {
    let expired = saturating_sub(now, RETENTION_TIME);
    while store.read_blocking(idempotency::oldest)?.is_some_and(|oldest| oldest <= expired) {
        store.write_with_priority(move |tx| idempotency::delete_expired(tx, expired, FORGET_BATCH)).wait()?;
    }
    Ok(())
}

/// Deletes device logins and their mails once no limit counts them.
pub fn delete_expired_logins(store: &Store, now: Timestamp) -> Result<()> {
    let over = saturating_sub(now, RATE_WINDOW);
    while store.read_blocking(device_logins::oldest)?.is_some_and(|oldest| oldest <= over) {
        store.write_with_priority(move |tx| device_logins::delete_expired(tx, over, FORGET_BATCH)).wait()?;
    }
    Ok(())
}

/// The earliest instant at which a function of this file has work to do. A worker's heartbeat can only postpone it.
pub fn next(store: &Store) -> Result<Option<Timestamp>> {
    let (expired_claim, answer, login) = store.read_blocking(|read| {
        Ok((claims::next_expiry(read)?, idempotency::oldest(read)?, device_logins::oldest(read)?))
    })?;
    let answer = answer.and_then(|oldest| oldest.checked_add(RETENTION_TIME).ok());
    let login = login.and_then(|oldest| oldest.checked_add(RATE_WINDOW).ok());
    Ok([expired_claim, answer, login].into_iter().flatten().min())
}

fn release_batch(tx: &WriteTx<'_>, now: Timestamp) -> Result<usize> {
    let mut released = 0;
    for claim in &claims::list_expired(tx, now, BATCH)? {
        released += usize::from(release(tx, claim, now)?);
    }
    tx.wake(WakeSet { claim: true, ..WakeSet::default() });
    Ok(released)
}

fn release(
    tx: &WriteTx<'_>,
    ExpiredClaim { execution, max_attempts }: &ExpiredClaim,
    now: Timestamp,
) -> Result<bool> {
    let status = after_lost_claim(*max_attempts, execution.attempts);
    let worker = execution.claimed_by_worker.as_deref().unwrap_or_default();
    let reason =
        format!("the claim of worker {worker} expired: its lease ended without a report or a heartbeat");
    let released = claims::release(tx, execution.key, status, &reason, now)?;
    if released {
        let expired_claim = NewAlert::ClaimLost { worker_id: worker.to_owned(), attempt: execution.attempts };
        alerts::raise(tx, execution.key, &expired_claim, now)?;
        if status == ExecutionStatus::Failed {
            on_execution_finished(tx, &FinishedExecution::new(execution, false), now)?;
        }
    }
    Ok(released)
}
