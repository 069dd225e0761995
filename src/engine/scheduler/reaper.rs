//! What has to be put right as time passes: claims that their workers lost, kept answers and device logins that have
//! expired.

use jiff::Timestamp;

use crate::domain::account::device_login::RATE_WINDOW;
use crate::domain::execution::{ExecutionStatus, after_lost_claim};
use crate::domain::notification::alert::NewAlert;
use crate::domain::time::saturating_sub;
use crate::error::Result;
use crate::store::accounts::device_logins;
use crate::store::accounts::idempotency;
use crate::store::accounts::idempotency::RETENTION_TIME;
use crate::store::executions::claims;
use crate::store::executions::claims::ExpiredClaim;
use crate::store::executions::tell_cue;
use crate::store::notifications::alerts;
use crate::store::{Store, WakeSet, WriteTx};

/// Claims taken back in one transaction: larger ones would hold up other writes.
const BATCH: usize = 200;

/// Answers forgotten in one transaction.
const FORGET_BATCH: u32 = 500;

/// Takes back claims that are lost at `now`: their executions are ready for another worker, or over as failed.
/// The answer is how many; as long as it is not 0 there may be more. Writes nothing where none is lost.
///
/// # Errors
/// When the file cannot be read or written.
pub fn return_lost_claims(store: &Store, now: Timestamp) -> Result<usize> {
    if store.read_blocking(claims::next_lost)?.is_none_or(|next| next > now) {
        return Ok(0);
    }
    store.write(move |tx| take_back_batch(tx, now)).wait()
}

/// Forgets kept answers that have expired at `now`. Writes nothing where there are none.
///
/// # Errors
/// When the file cannot be read or written.
pub fn forget_answers(store: &Store, now: Timestamp) -> Result<()> {
    let expired = saturating_sub(now, RETENTION_TIME);
    while store.read_blocking(idempotency::oldest)?.is_some_and(|oldest| oldest <= expired) {
        store.write(move |tx| idempotency::delete(tx, expired, FORGET_BATCH)).wait()?;
    }
    Ok(())
}

/// Forgets device logins and their mails once no limit counts them any more. Writes nothing where there are none.
///
/// # Errors
/// When the file cannot be read or written.
pub fn forget_logins(store: &Store, now: Timestamp) -> Result<()> {
    let over = saturating_sub(now, RATE_WINDOW);
    while store.read_blocking(device_logins::oldest)?.is_some_and(|oldest| oldest <= over) {
        store.write(move |tx| device_logins::delete(tx, over, FORGET_BATCH)).wait()?;
    }
    Ok(())
}

/// The earliest instant at which something here has to be done. A worker's sign of life only makes it later.
///
/// # Errors
/// When the file cannot be read.
pub fn next(store: &Store) -> Result<Option<Timestamp>> {
    let (lost, answer, login) = store.read_blocking(|read| {
        Ok((claims::next_lost(read)?, idempotency::oldest(read)?, device_logins::oldest(read)?))
    })?;
    let answer = answer.and_then(|oldest| oldest.checked_add(RETENTION_TIME).ok());
    let login = login.and_then(|oldest| oldest.checked_add(RATE_WINDOW).ok());
    Ok([lost, answer, login].into_iter().flatten().min())
}

fn take_back_batch(tx: &WriteTx<'_>, now: Timestamp) -> Result<usize> {
    let mut returned = 0;
    for claim in &claims::expired(tx, now, BATCH)? {
        returned += usize::from(take_back(tx, claim, now)?);
    }
    tx.ring(WakeSet { claim: true, ..WakeSet::default() });
    Ok(returned)
}

fn take_back(
    tx: &WriteTx<'_>,
    ExpiredClaim { execution, max_attempts }: &ExpiredClaim,
    now: Timestamp,
) -> Result<bool> {
    let status = after_lost_claim(*max_attempts, execution.attempts);
    let worker = execution.claimed_by_worker.as_deref().unwrap_or_default();
    let reason =
        format!("The claim of worker {worker} was lost: its lease ended without a report or a sign of life");
    let returned = claims::release(tx, execution.key, status, &reason, now)?;
    if returned {
        let lost = NewAlert::ClaimLost { worker_id: worker.to_owned(), attempt: execution.attempts };
        alerts::raise(tx, execution.key, &lost, now)?;
        if status == ExecutionStatus::Failed {
            tell_cue(tx, execution, false, now)?;
        }
    }
    Ok(returned)
}
