//! Removes accounts whose address nobody has confirmed and that nobody uses (contract §3.10).

use jiff::{SignedDuration, Timestamp};

use crate::app::App;
use crate::domain::account::plan::UNCONFIRMED_LIFETIME;
use crate::domain::account::user::ACCOUNT_DISABLED;
use crate::domain::time::saturating_sub;
use crate::error::Result;
use crate::store::WriteTx;
use crate::store::accounts::users;
use crate::store::executions::delivery_queue;
use crate::store::maintenance::cue_deletion;

/// Time between two rounds over the users. A week makes a few hours irrelevant.
const ROUND_INTERVAL: SignedDuration = SignedDuration::from_hours(6);

/// Users looked at in one step: the cues of unconfirmed ones are read as well.
const USER_BATCH: i64 = 200;

/// Cues deleted in one write.
const CUE_BATCH: u32 = 100;

/// The state of the clean-up between two passes.
#[derive(Debug, Default)]
pub struct AccountCleanup {
    /// The start of the last round.
    began: Option<Timestamp>,
    /// The row of the user up to which the present round is done; `None` between two rounds.
    reached: Option<i64>,
    /// The newest creation of a user so far in the round. A user that is later in the file was not created before it: an
    /// earlier date comes from a clock that was behind.
    newest: Timestamp,
}

impl AccountCleanup {
    /// Runs the next step, if a round is due or under way. `trusted` is the time by which rows age. Returns whether there is
    /// more to do.
    pub fn run_if_due(&mut self, app: &App, trusted: Timestamp) -> Result<bool> {
        let is_over = |began: Timestamp| began > trusted || trusted.duration_since(began) >= ROUND_INTERVAL;
        if !app.config.plans.bounds_unconfirmed() {
            return Ok(false);
        }
        if self.reached.is_none() && self.began.is_none_or(is_over) {
            (self.began, self.reached, self.newest) = (Some(trusted), Some(0), Timestamp::MIN);
        }
        let Some(after) = self.reached else { return Ok(false) };
        let idle_since = saturating_sub(trusted, UNCONFIRMED_LIFETIME);
        let users =
            app.store.read_blocking(|read| users::list_removable(read, after, idle_since, USER_BATCH))?;
        for (user_key, created_at, is_removable) in &users {
            self.newest = self.newest.max(*created_at);
            if *is_removable && self.newest <= idle_since {
                let (user_key, now) = (*user_key, app.clock.now());
                let is_done = app.store.write_with_priority(move |tx| remove(tx, user_key, idle_since, now));
                self.reached = Some(if is_done.wait()? { user_key } else { user_key - 1 });
                return Ok(true);
            }
        }
        self.reached = users.last().map(|(user_key, ..)| *user_key);
        Ok(self.reached.is_some())
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
