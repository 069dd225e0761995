//! The limit on mails, whatever they are about: a server whose accounts send too many is refused by other mail servers.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

use crate::locks::Mutex;

/// The window in which mails are counted.
const WINDOW: SignedDuration = SignedDuration::from_hours(1);

/// The mails of the last hour, in memory: a restart begins with none.
pub struct MailLimiter {
    limit: usize,
    state: Mutex<Sent>,
}

#[derive(Default)]
struct Sent {
    /// In the order of the calls.
    at: VecDeque<Timestamp>,
    /// True from a refusal to the next mail, so that the limit is logged once.
    is_full: bool,
}

impl MailLimiter {
    /// Admits `limit` mails in an hour.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::default() }
    }

    /// Counts a mail at `now`.
    ///
    /// # Errors
    /// The limit is reached; the value is the instant at which a mail is admitted again.
    pub fn take(&self, now: Timestamp) -> Result<(), Timestamp> {
        let mut sent = self.state.lock();
        sent.forget(now);
        if sent.at.len() < self.limit {
            sent.at.push_back(now);
            sent.is_full = false;
            return Ok(());
        }
        if !std::mem::replace(&mut sent.is_full, true) {
            tracing::warn!(
                limit = self.limit,
                "mails paused: the hourly limit of all mails is reached (--max-mails)"
            );
        }
        let oldest = sent.at.front().copied().unwrap_or(now);
        Err(oldest.saturating_add(WINDOW).unwrap_or(Timestamp::MAX))
    }

    /// Takes back the newest count, of a mail that was not sent.
    pub fn give_back(&self) {
        self.state.lock().at.pop_back();
    }
}

impl Sent {
    fn forget(&mut self, now: Timestamp) {
        // After a clock step backward the mails of the future count as mails of now: they leave in an hour.
        self.at.iter_mut().filter(|at| **at > now).for_each(|at| *at = now);
        while self.at.front().is_some_and(|at| now.duration_since(*at) >= WINDOW) {
            self.at.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + 60 * minutes).unwrap()
    }

    #[test]
    fn any_hour_has_at_most_the_limit() {
        let limiter = MailLimiter::new(2);
        assert_eq!([limiter.take(at(0)), limiter.take(at(10))], [Ok(()), Ok(())]);
        assert_eq!([limiter.take(at(10)), limiter.take(at(59))], [Err(at(60)), Err(at(60))]);
        assert_eq!([limiter.take(at(60)), limiter.take(at(60))], [Ok(()), Err(at(70))]);
    }

    #[test]
    fn a_mail_that_was_not_sent_leaves_its_place() {
        let limiter = MailLimiter::new(1);
        assert_eq!(limiter.take(at(0)), Ok(()));
        limiter.give_back();
        assert_eq!([limiter.take(at(0)), limiter.take(at(0))], [Ok(()), Err(at(60))]);
    }

    #[test]
    fn a_clock_step_backward_does_not_block_mails_for_longer_than_an_hour() {
        let limiter = MailLimiter::new(1);
        assert_eq!(limiter.take(at(600)), Ok(()));
        assert_eq!([limiter.take(at(0)), limiter.take(at(60))], [Err(at(60)), Ok(())]);
    }
}
