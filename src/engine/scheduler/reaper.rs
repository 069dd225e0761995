//! Clean-up that falls due as time passes: expired claims, unclaimed executions, stored idempotent responses, device
//! logins, sessions. Every function of these handles one batch, and returns without a write if there is nothing to do:
//! the scheduler fires due cues between two batches.
//!
//! [`Cleanup`] deletes by age, in rounds: dead workers (contract §11.6), old hourly figures (§8.11), idle accounts with
//! unconfirmed addresses (§3.10). The scheduler calls it only while rows may be deleted by age.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::app::App;
use crate::domain::account::device_login::RATE_WINDOW;
use crate::domain::account::plan::UNCONFIRMED_LIFETIME;
use crate::domain::account::stats::{KEPT_FOR, hour_of};
use crate::domain::account::user::ACCOUNT_DISABLED;
use crate::domain::cue::retention::SETTLING_TIME;
use crate::domain::cue_fields::{Policies, expired_message};
use crate::domain::execution::attempt::FailureCause;
use crate::domain::execution::worker::{FORGOTTEN_AFTER, workers_return_by};
use crate::domain::execution::{Execution, ExecutionStatus, after_lost_claim, claim_lost_at};
use crate::domain::notification::alert::NewAlert;
use crate::domain::row_keys::UserKey;
use crate::domain::time::saturating_sub;
use crate::engine::run_if_due;
use crate::error::Result;
use crate::service::finish::{FinishedExecution, count_retry, on_execution_finished};
use crate::service::fire::CueFirer;
use crate::service::workers::check_unclaimed;
use crate::service::{deadlines, events, notify, overlap};
use crate::store::accounts::idempotency::{self, RETENTION_TIME};
use crate::store::accounts::{device_logins, sessions, users};
use crate::store::executions::claims::{self, EndedLease};
use crate::store::executions::{delivery_queue, policies, workers};
use crate::store::maintenance::retention;
use crate::store::stats;
use crate::store::{ReadTx, Store, WakeSet, WriteTx};

/// Ended leases, and unclaimed executions, handled in one transaction. Each takes several statements, and other writes
/// wait for the batch.
const BATCH: usize = 200;

/// Running time of the clock before stored responses and device logins are deleted. They are many, and a server that is
/// restarted every day must delete them as well.
const ROW_SETTLING_TIME: Duration = Duration::from_secs(3_600);

/// Rows deleted in one transaction. A row costs less than a claim, so the batch is larger.
const FORGET_BATCH: u32 = 500;

pub struct ExpiryRule {
    /// Running time of the clock before they are deleted.
    settling: Duration,
    /// Counts from the instant of `oldest`.
    lifetime: SignedDuration,
    oldest: fn(&ReadTx<'_>) -> Result<Option<Timestamp>>,
    /// Deletes rows of an instant or before, at most as many as the last argument.
    delete: fn(&WriteTx<'_>, Timestamp, u32) -> Result<()>,
}

pub const RESPONSES: ExpiryRule = ExpiryRule {
    settling: ROW_SETTLING_TIME,
    lifetime: RETENTION_TIME,
    oldest: idempotency::oldest,
    delete: |tx, until, limit| idempotency::delete_expired(tx, until, limit).map(|_| ()),
};

/// Device logins and their mails, once no limit counts them.
pub const LOGINS: ExpiryRule = ExpiryRule {
    settling: ROW_SETTLING_TIME,
    lifetime: RATE_WINDOW,
    oldest: device_logins::oldest,
    delete: device_logins::delete_expired,
};

/// Sessions and one-time links. `oldest` is the end of the next.
pub const SESSIONS: ExpiryRule = ExpiryRule {
    settling: SETTLING_TIME,
    lifetime: SignedDuration::ZERO,
    oldest: sessions::oldest,
    delete: sessions::delete_expired,
};

impl ExpiryRule {
    /// Deletes a batch if the oldest row has expired at `now`. Returns whether it had.
    pub fn delete_if_due(&self, store: &Store, now: Timestamp) -> Result<bool> {
        let (until, delete) = (saturating_sub(now, self.lifetime), self.delete);
        let is_due = store.read_blocking(self.oldest)?.is_some_and(|oldest| oldest <= until);
        if is_due {
            store.write_with_priority(move |tx| delete(tx, until, FORGET_BATCH)).wait()?;
        }
        Ok(is_due)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReapedClaims {
    pub released: usize,
    /// There may be more ended leases now.
    pub has_more: bool,
}

/// Runs one batch of each kind of clean-up that is due at `now`. The clock has run for `settled` without a jump.
/// Returns whether more may be due.
pub fn run_once(app: &App, now: Timestamp, settled: Duration) -> Result<bool> {
    let claims = release_expired_claims(app, now)?;
    let mut has_more = look_for_unclaimed(app, now)? || claims.has_more;
    has_more |= end_overdue(app, now)? || follow_changes(app)?;
    for rows in [RESPONSES, LOGINS, SESSIONS] {
        has_more |= settled >= rows.settling && rows.delete_if_due(&app.store, now)?;
    }
    Ok(has_more)
}

/// Releases claims that have expired at `now`: their executions become ready for another worker or fail. A claim whose
/// lease has ended but whose worker sends heartbeats gets a later end.
pub fn release_expired_claims(app: &App, now: Timestamp) -> Result<ReapedClaims> {
    run_if_due(app, now, claims::next_end, release_batch)
}

/// Looks at one batch of executions that no worker has claimed: alerts their users, and fails those whose time is over.
/// Returns whether more may be due.
pub fn look_for_unclaimed(app: &App, now: Timestamp) -> Result<bool> {
    let from = workers_return_by(app.outage());
    let next = |read: &ReadTx<'_>| deadlines::next_check(read, from);
    run_if_due(app, now, next, |tx, firer| check_unclaimed(tx, firer, BATCH))
}

/// One batch of executions that have reached their maximum age, and one of outcomes that nobody has reported in time.
/// Returns whether more may be due.
pub fn end_overdue(app: &App, now: Timestamp) -> Result<bool> {
    run_if_due(app, now, policies::next_deadline, |tx, firer| {
        Ok(deadlines::fail_expired(tx, firer)? | deadlines::miss_outcomes(tx, firer)?)
    })
}

/// Returns whether more executions have to follow changes of their cues.
pub fn follow_changes(app: &App) -> Result<bool> {
    Ok(app.store.read_blocking(policies::has_changed)?
        && app.store.write_with_priority(policies::continue_change).wait()?)
}

/// Earliest expiry after `now`. A row that may not be deleted yet waits for the next pass, as the clean-ups in rounds
/// do.
pub fn next_expiry(store: &Store, now: Timestamp) -> Result<Option<Timestamp>> {
    let mut next: Option<Timestamp> = None;
    for rows in [RESPONSES, LOGINS, SESSIONS] {
        let oldest = store.read_blocking(rows.oldest)?;
        let expires =
            oldest.and_then(|oldest| oldest.checked_add(rows.lifetime).ok()).filter(|at| *at > now);
        next = next.into_iter().chain(expires).min();
    }
    Ok(next)
}

fn release_batch(tx: &WriteTx<'_>, firer: &CueFirer) -> Result<ReapedClaims> {
    let now = firer.now();
    let ended = claims::list_ended(tx, now, BATCH)?;
    let mut reaped = ReapedClaims { released: 0, has_more: ended.len() == BATCH };
    for EndedLease { execution, lease_expires_at, max_attempts, max_age_seconds, last_heartbeat } in
        &ended
    {
        let lost_at = claim_lost_at(*lease_expires_at, *last_heartbeat);
        match max_attempts {
            Some(_) if lost_at > now => {
                // At most one lease from now: the last heartbeat may carry a time from a clock that ran ahead.
                let end = lost_at.min(claim_lost_at(*lease_expires_at, Some(now)));
                claims::set_end(tx, execution.key, Some(end))?;
            }
            Some(max_attempts)
                if release(tx, execution, *max_attempts, *max_age_seconds, firer)? =>
            {
                reaped.released += 1;
            }
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
fn release(
    tx: &WriteTx<'_>,
    execution: &Execution,
    max_attempts: u32,
    max_age_seconds: Option<u32>,
    firer: &CueFirer,
) -> Result<bool> {
    let now = firer.now();
    let mut status = after_lost_claim(max_attempts, execution.attempts);
    let worker = execution.claimed_by_worker.as_deref().unwrap_or_default();
    let mut reason = format!(
        "the claim of worker {worker} expired: its lease ended without a report or a heartbeat"
    );
    let mut cause = None;
    let policies = Policies { max_age_seconds, ..Policies::default() };
    let has_expired = policies.expires_at(execution.scheduled_for).is_some_and(|end| end <= now);
    if let (true, ExecutionStatus::Pending, Some(seconds)) = (has_expired, status, max_age_seconds)
    {
        status = ExecutionStatus::Failed;
        reason = expired_message(seconds, Some(&reason));
        cause = Some(FailureCause::Expired);
    }
    if !claims::release(tx, execution, status, &reason, cause, now)? {
        return Ok(false);
    }
    events::claim_lost(tx, execution.user_key, execution.key, worker, now);
    let alert = |cue_name: &str| NewAlert::claim_lost(cue_name, worker, execution.attempts);
    notify::raise_alert(tx, execution.key, alert, now)?;
    if status == ExecutionStatus::Failed {
        on_execution_finished(tx, &FinishedExecution::new(execution, false, now), firer)?;
    } else {
        count_retry(tx, execution.user_key, now);
        overlap::start_waiting_if_free(tx, execution.cue_key, now)?;
    }
    Ok(true)
}

/// Time between two rounds: a month makes an hour irrelevant, a year a day, and a week a few hours.
const WORKER_INTERVAL: SignedDuration = SignedDuration::from_hours(1);
const HOURS_INTERVAL: SignedDuration = SignedDuration::from_hours(24);
const ACCOUNT_INTERVAL: SignedDuration = SignedDuration::from_hours(6);

/// Users looked at in one step: the cues of unconfirmed ones are read as well.
const USER_BATCH: i64 = 200;

const CUE_BATCH: u32 = 100;

#[derive(Debug, Default)]
struct Round {
    began: Option<Timestamp>,
    /// The row of the user up to which the round is done; `None` between two rounds.
    reached: Option<UserKey>,
}

impl Round {
    /// Starts a round if the last one is `interval` ago. One in the future began before the clock was set back.
    fn starts(&mut self, now: Timestamp, interval: SignedDuration) -> bool {
        let is_over = |began: Timestamp| began > now || now.duration_since(began) >= interval;
        let starts = self.reached.is_none() && self.began.is_none_or(is_over);
        if starts {
            (self.began, self.reached) = (Some(now), Some(UserKey::default()));
        }
        starts
    }
}

#[derive(Debug, Default)]
pub struct Cleanup {
    workers: Round,
    hours: Round,
    accounts: Round,
    /// The newest creation of a user so far in the round over the accounts. A user that is later in the file was not
    /// created before it: an earlier date comes from a clock that was behind.
    newest_user: Timestamp,
}

impl Cleanup {
    /// Runs the next batch of each round that is due or under way. Returns whether there is more to do.
    pub fn run_if_due(&mut self, app: &App) -> Result<bool> {
        let now = app.clock.now();
        self.forget_workers(&app.store, now)?;
        Ok(self.delete_hours(&app.store, now)? || self.remove_accounts(app, now)?)
    }

    /// Forgets workers that are silent for 30 days and hold no claim. A worker that holds one stays in the way of a
    /// check by the oldest heartbeat alone, so that this is a round as well.
    fn forget_workers(&mut self, store: &Store, now: Timestamp) -> Result<()> {
        let until = saturating_sub(now, FORGOTTEN_AFTER);
        let mut has_more = self.workers.starts(now, WORKER_INTERVAL);
        self.workers.reached = None;
        while has_more {
            let silent =
                store.read_blocking(move |read| workers::list_silent(read, until, FORGET_BATCH))?;
            has_more = !silent.is_empty();
            if has_more {
                store
                    .write_with_priority(move |tx| workers::delete_silent(tx, &silent, until))
                    .wait()?;
            }
        }
        Ok(())
    }

    pub fn delete_hours(&mut self, store: &Store, now: Timestamp) -> Result<bool> {
        self.hours.starts(now, HOURS_INTERVAL);
        let Some(after) = self.hours.reached else { return Ok(false) };
        let expired = hour_of(saturating_sub(now, KEPT_FOR));
        let found = store.read_blocking(|read| stats::find_expired_hours(read, after, expired))?;
        let users = found.users;
        let is_done = users.is_empty()
            || !store
                .write_with_priority(move |tx| stats::delete_expired_hours(tx, &users, expired))
                .wait()?;
        if is_done {
            self.hours.reached = found.last;
        }
        Ok(self.hours.reached.is_some())
    }

    fn remove_accounts(&mut self, app: &App, now: Timestamp) -> Result<bool> {
        if !app.config.plans.bounds_unconfirmed() {
            return Ok(false);
        }
        if self.accounts.starts(now, ACCOUNT_INTERVAL) {
            self.newest_user = Timestamp::MIN;
        }
        let Some(after) = self.accounts.reached else { return Ok(false) };
        let idle_since = saturating_sub(now, UNCONFIRMED_LIFETIME);
        let users = app
            .store
            .read_blocking(|read| users::list_removable(read, after, idle_since, USER_BATCH))?;
        for (user_key, created_at, is_removable) in &users {
            self.newest_user = self.newest_user.max(*created_at);
            if *is_removable && self.newest_user <= idle_since {
                let user_key = *user_key;
                let is_done =
                    app.store.write_with_priority(move |tx| remove(tx, user_key, idle_since, now));
                self.accounts.reached =
                    Some(if is_done.wait()? { user_key } else { user_key.previous() });
                return Ok(true);
            }
        }
        self.accounts.reached = users.last().map(|(user_key, ..)| *user_key);
        Ok(self.accounts.reached.is_some())
    }
}

/// Removes the user, unless the account is in use by now. Returns `false` if it has more cues than one write deletes.
fn remove(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    idle_since: Timestamp,
    now: Timestamp,
) -> Result<bool> {
    let found = users::list_removable(tx, user_key.previous(), idle_since, 1)?;
    if !found.iter().any(|(key, _, is_removable)| *key == user_key && *is_removable) {
        return Ok(true);
    }
    // Nothing of a user that is gone may be sent.
    delivery_queue::fail_all_for_user(tx, user_key, ACCOUNT_DISABLED, now)?;
    if retention::delete_first_cues(tx, user_key, CUE_BATCH)? {
        return Ok(false);
    }
    users::delete(tx, user_key)?;
    tx.on_commit(|| tracing::info!("unconfirmed account removed: no cue of it ran for 7 days"));
    Ok(true)
}
