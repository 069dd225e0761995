//! Clean-up in rounds, by age: silent workers (contract §11.6), the figures of old hours (§8.11), and accounts whose address
//! nobody has confirmed and that nobody uses (§3.10). The scheduler calls it only while rows may be deleted by age.

use jiff::{SignedDuration, Timestamp};

use crate::app::App;
use crate::domain::account::figures::{KEPT_FOR, hour_of};
use crate::domain::account::plan::UNCONFIRMED_LIFETIME;
use crate::domain::account::user::ACCOUNT_DISABLED;
use crate::domain::execution::worker::FORGOTTEN_AFTER;
use crate::domain::time::saturating_sub;
use crate::error::Result;
use crate::store::accounts::users;
use crate::store::executions::{delivery_queue, workers};
use crate::store::figures::hours;
use crate::store::maintenance::cue_deletion;
use crate::store::{Store, WriteTx};

/// Time between two rounds: a month makes an hour irrelevant, a year a day, and a week a few hours.
const WORKER_INTERVAL: SignedDuration = SignedDuration::from_hours(1);
const HOURS_INTERVAL: SignedDuration = SignedDuration::from_hours(24);
const ACCOUNT_INTERVAL: SignedDuration = SignedDuration::from_hours(6);

/// Workers deleted in one write.
const WORKER_BATCH: u32 = 500;

/// Users looked at in one step: the cues of unconfirmed ones are read as well.
const USER_BATCH: i64 = 200;

/// Cues deleted in one write.
const CUE_BATCH: u32 = 100;

/// The rounds of one kind of clean-up.
#[derive(Debug, Default)]
struct Round {
    /// The start of the last round.
    began: Option<Timestamp>,
    /// The row of the user up to which the round is done; `None` between two rounds.
    reached: Option<i64>,
}

impl Round {
    /// Starts a round if the last one is `interval` ago. One in the future began before the clock was set back.
    fn starts(&mut self, now: Timestamp, interval: SignedDuration) -> bool {
        let is_over = |began: Timestamp| began > now || now.duration_since(began) >= interval;
        let starts = self.reached.is_none() && self.began.is_none_or(is_over);
        if starts {
            (self.began, self.reached) = (Some(now), Some(0));
        }
        starts
    }
}

/// The state of the clean-ups between two passes.
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

    /// Forgets workers that are silent for 30 days and hold no claim. A worker that holds one stays in the way of a check by
    /// the oldest heartbeat alone, so that this is a round as well.
    fn forget_workers(&mut self, store: &Store, now: Timestamp) -> Result<()> {
        if !self.workers.starts(now, WORKER_INTERVAL) {
            return Ok(());
        }
        self.workers.reached = None;
        let until = saturating_sub(now, FORGOTTEN_AFTER);
        loop {
            let silent = store.read_blocking(move |read| workers::list_silent(read, until, WORKER_BATCH))?;
            if silent.is_empty() {
                return Ok(());
            }
            store.write_with_priority(move |tx| workers::delete_silent(tx, &silent, until)).wait()?;
        }
    }

    /// Deletes the figures of hours that are older than they are kept.
    pub fn delete_hours(&mut self, store: &Store, now: Timestamp) -> Result<bool> {
        self.hours.starts(now, HOURS_INTERVAL);
        let Some(after) = self.hours.reached else { return Ok(false) };
        let expired = hour_of(saturating_sub(now, KEPT_FOR));
        let found = store.read_blocking(|read| hours::find_expired(read, after, expired))?;
        let users = found.users;
        let is_done = users.is_empty()
            || !store.write_with_priority(move |tx| hours::delete_expired(tx, &users, expired)).wait()?;
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
        let users =
            app.store.read_blocking(|read| users::list_removable(read, after, idle_since, USER_BATCH))?;
        for (user_key, created_at, is_removable) in &users {
            self.newest_user = self.newest_user.max(*created_at);
            if *is_removable && self.newest_user <= idle_since {
                let user_key = *user_key;
                let is_done = app.store.write_with_priority(move |tx| remove(tx, user_key, idle_since, now));
                self.accounts.reached = Some(if is_done.wait()? { user_key } else { user_key - 1 });
                return Ok(true);
            }
        }
        self.accounts.reached = users.last().map(|(user_key, ..)| *user_key);
        Ok(self.accounts.reached.is_some())
    }
}

/// Removes the user, unless the account is in use by now. Returns `false` if it has more cues than one write deletes.
fn remove(tx: &WriteTx<'_>, user_key: i64, idle_since: Timestamp, now: Timestamp) -> Result<bool> {
    let found = users::list_removable(tx, user_key - 1, idle_since, 1)?;
    if !found.iter().any(|(key, _, is_removable)| *key == user_key && *is_removable) {
        return Ok(true);
    }
    // Nothing of a user that is gone may be sent.
    delivery_queue::fail_all_for_user(tx, user_key, ACCOUNT_DISABLED, now)?;
    if cue_deletion::delete_first(tx, user_key, CUE_BATCH)? {
        return Ok(false);
    }
    users::delete(tx, user_key)?;
    tx.on_commit(|| tracing::info!("unconfirmed account removed: no cue of it ran for 7 days"));
    Ok(true)
}
