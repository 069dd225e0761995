//! Deletes the figures of hours that are older than they are kept (contract §8.11).

use jiff::{SignedDuration, Timestamp};

use crate::domain::account::figures::{KEPT_FOR, hour_of};
use crate::domain::time::saturating_sub;
use crate::error::Result;
use crate::store::Store;
use crate::store::figures::hours;

/// Time between two rounds over the users. A year makes a day irrelevant.
const ROUND_INTERVAL: SignedDuration = SignedDuration::from_hours(24);

/// The state of the clean-up between two passes.
#[derive(Debug, Default)]
pub struct HoursCleanup {
    /// The start of the last round.
    began: Option<Timestamp>,
    /// The row of the user up to which the present round is done; `None` between two rounds.
    reached: Option<i64>,
}

impl HoursCleanup {
    /// Runs the next batch, if a round is due or under way. `now` is the time by which rows age. Returns whether there is
    /// more to do.
    pub fn run_if_due(&mut self, store: &Store, now: Timestamp) -> Result<bool> {
        // A round in the future began before the clock was set back.
        let is_over = |began: Timestamp| began > now || now.duration_since(began) >= ROUND_INTERVAL;
        if self.reached.is_none() && self.began.is_none_or(is_over) {
            (self.began, self.reached) = (Some(now), Some(0));
        }
        let Some(after) = self.reached else { return Ok(false) };
        let expired = hour_of(saturating_sub(now, KEPT_FOR));
        let found = store.read_blocking(|read| hours::find_expired(read, after, expired))?;
        let users = found.users;
        if users.is_empty() {
            self.reached = found.last;
            return Ok(found.last.is_some());
        }
        let has_more =
            store.write_with_priority(move |tx| hours::delete_expired(tx, &users, expired)).wait()?;
        if !has_more {
            self.reached = found.last;
        }
        Ok(true)
    }
}
