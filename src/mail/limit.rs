//! The limits on mails: a server that sends too many is refused by other mail servers. Half of them are for sign-ins, so
//! that no failing cue keeps anybody from signing in.

use std::collections::VecDeque;
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};

use crate::domain::account::windowed_limit::WindowedLimiter;
use crate::locks::Mutex;

/// The window in which mails are counted.
const WINDOW: SignedDuration = SignedDuration::from_hours(1);

/// Mails to accounts with unconfirmed addresses in any hour, all together.
const MAX_CONFIRMATIONS: usize = 20;

/// Parts of the mails for sign-ins of which one client address requests one.
const REQUESTER_PART: usize = 4;

/// Sign-in mails that a client address requests in any hour, whatever the limit of all mails: as many as one recipient gets.
const MIN_REQUESTED: usize = 3;

/// The mails of the last hour, in memory: a restart begins with none.
pub struct MailLimits {
    sign_ins: MailWindow,
    /// Each counts as one of the others, too.
    confirmations: MailWindow,
    others: MailWindow,
    requesters: Mutex<WindowedLimiter<IpAddr>>,
}

/// The mails of one kind in the last hour.
struct MailWindow {
    kind: &'static str,
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

impl MailLimits {
    /// Admits `limit` mails in an hour, half of them for sign-ins.
    pub fn new(limit: usize) -> Self {
        let sign_ins = limit.div_ceil(2);
        let requested = (sign_ins / REQUESTER_PART).max(MIN_REQUESTED);
        Self {
            sign_ins: MailWindow::new("sign-in", sign_ins),
            confirmations: MailWindow::new("confirmation", MAX_CONFIRMATIONS),
            others: MailWindow::new("other", limit - sign_ins),
            requesters: Mutex::new(WindowedLimiter::new(requested, WINDOW)),
        }
    }

    /// Counts a sign-in mail at `now`, which `client` has requested.
    /// Errors: the limit of all clients or of this one is reached; the value is the seconds until a mail is admitted
    /// again.
    pub fn take_sign_in(&self, client: IpAddr, now: Timestamp) -> Result<(), u32> {
        if let Some(seconds) = self.requesters.lock().admit(client, now) {
            return Err(seconds);
        }
        self.sign_ins.take(now).map_err(|free_at| {
            self.requesters.lock().give_back(client);
            u32::try_from(free_at.duration_since(now).as_secs()).unwrap_or(1).max(1)
        })
    }

    /// Takes back the newest sign-in mail, which was not sent. The request counts for its client all the same: whether it
    /// led to a mail would tell whether the recipient has an account.
    pub fn give_back_sign_in(&self) {
        self.sign_ins.give_back();
    }

    /// Counts another mail at `now`, to an account whose address is confirmed or not.
    /// Errors: a limit is reached; the value is the instant at which a mail is admitted again.
    pub fn take(&self, is_confirmed: bool, now: Timestamp) -> Result<(), Timestamp> {
        if !is_confirmed {
            self.confirmations.take(now)?;
        }
        let taken = self.others.take(now);
        if taken.is_err() && !is_confirmed {
            self.confirmations.give_back();
        }
        taken
    }

    /// Takes back the newest other mail, which was not sent.
    pub fn give_back(&self, is_confirmed: bool) {
        self.others.give_back();
        if !is_confirmed {
            self.confirmations.give_back();
        }
    }
}

impl MailWindow {
    fn new(kind: &'static str, limit: usize) -> Self {
        Self { kind, limit, state: Mutex::default() }
    }

    fn take(&self, now: Timestamp) -> Result<(), Timestamp> {
        let mut sent = self.state.lock();
        sent.forget(now);
        if sent.at.len() < self.limit {
            sent.at.push_back(now);
            sent.is_full = false;
            return Ok(());
        }
        if !std::mem::replace(&mut sent.is_full, true) {
            tracing::warn!(
                kind = self.kind,
                limit = self.limit,
                "mails paused: the hourly limit of this kind is reached (--max-mails)"
            );
        }
        let oldest = sent.at.front().copied().unwrap_or(now);
        Err(oldest.saturating_add(WINDOW).unwrap_or(Timestamp::MAX))
    }

    fn give_back(&self) {
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
        let limiter = MailWindow::new("other", 2);
        assert_eq!([limiter.take(at(0)), limiter.take(at(10))], [Ok(()), Ok(())]);
        assert_eq!([limiter.take(at(10)), limiter.take(at(59))], [Err(at(60)), Err(at(60))]);
        assert_eq!([limiter.take(at(60)), limiter.take(at(60))], [Ok(()), Err(at(70))]);
    }

    #[test]
    fn a_mail_that_was_not_sent_leaves_its_place() {
        let limiter = MailWindow::new("other", 1);
        assert_eq!(limiter.take(at(0)), Ok(()));
        limiter.give_back();
        assert_eq!([limiter.take(at(0)), limiter.take(at(0))], [Ok(()), Err(at(60))]);
    }

    #[test]
    fn a_clock_step_backward_does_not_block_mails_for_longer_than_an_hour() {
        let limiter = MailWindow::new("other", 1);
        assert_eq!(limiter.take(at(600)), Ok(()));
        assert_eq!([limiter.take(at(0)), limiter.take(at(60))], [Err(at(60)), Ok(())]);
    }

    #[test]
    fn half_of_the_mails_are_for_sign_ins_and_a_quarter_of_these_for_one_client() {
        let limits = MailLimits::new(200);
        let client = |number: u8| IpAddr::from([192, 0, 2, number]);
        let requested =
            |number| (0..200).filter(|_| limits.take_sign_in(client(number), at(0)).is_ok()).count();
        assert_eq!([0, 1, 2, 3, 4].map(requested), [25, 25, 25, 25, 0]);
        let others = |is_confirmed| (0..200).filter(|_| limits.take(is_confirmed, at(0)).is_ok()).count();
        assert_eq!([others(false), others(true), others(false)], [20, 80, 0]);
        assert_eq!(
            (limits.take_sign_in(client(9), at(20)), limits.take(false, at(20))),
            (Err(2_400), Err(at(60)))
        );
    }
}
