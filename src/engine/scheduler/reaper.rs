//! Clean-up that falls due as time passes: expired claims, unclaimed executions, stored idempotent responses, device logins,
//! sessions.
//!
//! Every function here handles one batch, and returns without a write if there is nothing to do: the scheduler fires
//! due cues between two batches.

use std::time::Duration;

use jiff::Timestamp;

use crate::app::App;
use crate::domain::account::device_login::RATE_WINDOW;
use crate::domain::cue::retention::SETTLING_TIME;
use crate::domain::execution::unclaimed::workers_return_by;
use crate::domain::execution::{Execution, ExecutionStatus, after_lost_claim, claim_lost_at};
use crate::domain::notification::alert::NewAlert;
use crate::domain::time::saturating_sub;
use crate::error::Result;
use crate::service::finish::{FinishedExecution, count_retry, on_execution_finished};
use crate::service::fire::CueFirer;
use crate::service::unclaimed::check_due;
use crate::service::{alerts, events};
use crate::store::accounts::idempotency::{self, RETENTION_TIME};
use crate::store::accounts::{device_logins, sessions};
use crate::store::executions::claims::{self, EndedLease};
use crate::store::executions::unclaimed;
use crate::store::{Store, WakeSet, WriteTx};

/// Ended leases, and unclaimed executions, handled in one transaction. Each takes several statements, and other writes wait for the batch.
const BATCH: usize = 200;

/// Running time of the clock before stored responses and device logins are deleted. They are many, and a server that is
/// restarted every day must delete them as well.
const ROW_SETTLING_TIME: Duration = Duration::from_secs(3_600);

/// Rows deleted in one transaction. A row costs less than a claim, so the batch is larger.
const FORGET_BATCH: u32 = 500;

/// A batch of ended leases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReapedClaims {
    /// Claims that have expired and were released.
    pub released: usize,
    /// There may be more ended leases now.
    pub has_more: bool,
}

/// Runs one batch of each kind of clean-up that is due at `now`. The clock has run for `settled` without a jump. Returns
/// whether more may be due.
pub fn run_once(app: &App, now: Timestamp, settled: Duration) -> Result<bool> {
    let claims = release_expired_claims(app, now)?;
    let mut has_more = look_for_unclaimed(app, now)? || claims.has_more;
    if settled >= ROW_SETTLING_TIME {
        has_more |= delete_expired_responses(&app.store, now)?;
        has_more |= delete_expired_logins(&app.store, now)?;
    }
    if settled >= SETTLING_TIME {
        has_more |= delete_expired_sessions(&app.store, now)?;
    }
    Ok(has_more)
}

/// Releases claims that have expired at `now`: their executions become ready for another worker or fail. A claim whose
/// lease has ended but whose worker sends heartbeats gets a later end.
pub fn release_expired_claims(app: &App, now: Timestamp) -> Result<ReapedClaims> {
    if app.store.read_blocking(claims::next_end)?.is_none_or(|next| next > now) {
        return Ok(ReapedClaims::default());
    }
    let firer = CueFirer::new(app, now);
    app.store.write_with_priority(move |tx| release_batch(tx, &firer)).wait()
}

/// Looks at one batch of executions that no worker has claimed: alerts their users, and fails those whose time is over.
/// Returns whether more may be due.
pub fn look_for_unclaimed(app: &App, now: Timestamp) -> Result<bool> {
    if next_look(app)?.is_none_or(|next| next > now) {
        return Ok(false);
    }
    let firer = CueFirer::new(app, now);
    app.store.write_with_priority(move |tx| check_due(tx, &firer, BATCH)).wait()
}

/// The time of the next look at an unclaimed execution.
pub fn next_look(app: &App) -> Result<Option<Timestamp>> {
    let next = app.store.read_blocking(unclaimed::next_check)?;
    Ok(next.map(|next| next.max(workers_return_by(app.outage()))))
}

/// Deletes stored responses of idempotent requests that have expired at `now`. Returns whether more may have.
pub fn delete_expired_responses(store: &Store, now: Timestamp) -> Result<bool> {
    let expired = saturating_sub(now, RETENTION_TIME);
    let is_due = store.read_blocking(idempotency::oldest)?.is_some_and(|oldest| oldest <= expired);
    if is_due {
        store.write_with_priority(move |tx| idempotency::delete_expired(tx, expired, FORGET_BATCH)).wait()?;
    }
    Ok(is_due)
}

/// Deletes device logins and their mails once no limit counts them. Returns whether there may be more.
pub fn delete_expired_logins(store: &Store, now: Timestamp) -> Result<bool> {
    let over = saturating_sub(now, RATE_WINDOW);
    let is_due = store.read_blocking(device_logins::oldest)?.is_some_and(|oldest| oldest <= over);
    if is_due {
        store.write_with_priority(move |tx| device_logins::delete_expired(tx, over, FORGET_BATCH)).wait()?;
    }
    Ok(is_due)
}

/// Deletes sessions and one-time links that have expired at `now`. Returns whether there may be more.
pub fn delete_expired_sessions(store: &Store, now: Timestamp) -> Result<bool> {
    let is_due = next_session_end(store)?.is_some_and(|end| end <= now);
    if is_due {
        store.write_with_priority(move |tx| sessions::delete_expired(tx, now, FORGET_BATCH)).wait()?;
    }
    Ok(is_due)
}

fn next_session_end(store: &Store) -> Result<Option<Timestamp>> {
    store.read_blocking(sessions::oldest)
}

/// The end of the next claim. A worker's heartbeat can only postpone it.
pub fn next(store: &Store) -> Result<Option<Timestamp>> {
    store.read_blocking(claims::next_end)
}

/// The earliest instant after `now` at which a row of this file expires; not of the clean-ups in
/// rounds, which can wait for the next pass. So does a row that may not expire yet.
pub fn next_expiry(store: &Store, now: Timestamp) -> Result<Option<Timestamp>> {
    let (answer, login) =
        store.read_blocking(|read| Ok((idempotency::oldest(read)?, device_logins::oldest(read)?)))?;
    let answer = answer.and_then(|oldest| oldest.checked_add(RETENTION_TIME).ok());
    let login = login.and_then(|oldest| oldest.checked_add(RATE_WINDOW).ok());
    let session = next_session_end(store)?;
    Ok([answer, login, session].into_iter().flatten().filter(|at| *at > now).min())
}

fn release_batch(tx: &WriteTx<'_>, firer: &CueFirer) -> Result<ReapedClaims> {
    let now = firer.now();
    let ended = claims::list_ended(tx, now, BATCH)?;
    let mut reaped = ReapedClaims { released: 0, has_more: ended.len() == BATCH };
    for EndedLease { execution, lease_expires_at, max_attempts, last_heartbeat } in &ended {
        let lost_at = claim_lost_at(*lease_expires_at, *last_heartbeat);
        match max_attempts {
            Some(_) if lost_at > now => {
                // Not later than a heartbeat of now would allow: a clock that ran ahead may have stamped the last one.
                let end = lost_at.min(claim_lost_at(*lease_expires_at, Some(now)));
                claims::set_end(tx, execution.key, Some(end))?;
            }
            Some(max_attempts) if release(tx, execution, *max_attempts, firer)? => reaped.released += 1,
            // The rows of a deleted cue are about to be deleted.
            _ => claims::set_end(tx, execution.key, None)?,
        }
    }
    if reaped.released > 0 {
        tx.wake(WakeSet { claim: true, ..WakeSet::default() });
    }
    Ok(reaped)
}

/// Returns false if no worker holds the execution.
fn release(tx: &WriteTx<'_>, execution: &Execution, max_attempts: u32, firer: &CueFirer) -> Result<bool> {
    let now = firer.now();
    let status = after_lost_claim(max_attempts, execution.attempts);
    let worker = execution.claimed_by_worker.as_deref().unwrap_or_default();
    let reason =
        format!("the claim of worker {worker} expired: its lease ended without a report or a heartbeat");
    if !claims::release(tx, execution, status, &reason, now)? {
        return Ok(false);
    }
    events::claim_lost(tx, execution.user_key, execution.key, worker, now);
    let expired_claim = NewAlert::ClaimLost { worker_id: worker.to_owned(), attempt: execution.attempts };
    alerts::raise(tx, execution.key, &expired_claim, now)?;
    if status == ExecutionStatus::Failed {
        on_execution_finished(tx, &FinishedExecution::new(execution, false, now), firer)?;
    } else {
        count_retry(tx, execution.user_key, now);
    }
    Ok(true)
}
