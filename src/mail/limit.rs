//! The limits on mails: a server that sends too many is refused by other mail servers. Half of them are for sign-ins, so
//! that failing cues keep no user from signing in.

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};

use crate::domain::account::rate_limit::SlidingWindows;
use crate::system::locks::Mutex;

const WINDOW: SignedDuration = SignedDuration::from_hours(1);

/// Mails to accounts with unconfirmed addresses in any hour, all together.
const MAX_CONFIRMATIONS: u32 = 20;

/// One client address may request this part of the sign-in mails: a quarter.
const REQUESTER_PART: u32 = 4;

/// Sign-in mails that a client address requests in any hour, whatever the limit of all mails: as many as one recipient gets.
const MIN_REQUESTED: u32 = 3;

/// Of the sign-in mails, this part is for confirmed addresses alone: a quarter. Whoever invents addresses uses up the rest.
const CONFIRMED_PART: u32 = 4;

/// The kinds of mails, as the log names them. Each confirmation counts as another mail, too, and each sign-in of an
/// address that is not confirmed as a sign-in.
const SIGN_IN: &str = "sign-in";
const UNCONFIRMED_SIGN_IN: &str = "sign-in of unconfirmed addresses";
const CONFIRMATION: &str = "confirmation";
const OTHER: &str = "other";

pub struct MailLimits {
    sign_ins: u32,
    others: u32,
    sent: Mutex<MailCounts>,
}

struct MailCounts {
    mails: SlidingWindows<&'static str>,
    requesters: SlidingWindows<IpAddr>,
    /// Kinds that are refused, from the first refusal to the next mail, so that each limit is logged once.
    full: BTreeSet<&'static str>,
}

impl MailLimits {
    pub fn new(limit: usize) -> Self {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let sign_ins = limit.div_ceil(2);
        let requested = (sign_ins / REQUESTER_PART).max(MIN_REQUESTED);
        let mails = SlidingWindows::new(limit, WINDOW);
        let requesters = SlidingWindows::new(requested, WINDOW);
        let sent = MailCounts { mails, requesters, full: BTreeSet::new() };
        Self { sign_ins, others: limit - sign_ins, sent: Mutex::new(sent) }
    }

    pub fn clear(&self) {
        let mut sent = self.sent.lock();
        sent.mails.clear();
        sent.requesters.clear();
        sent.full.clear();
    }

    /// Counts a sign-in mail at `now`, which `client` has requested.
    /// Errors: the limit of all clients or of this one is reached; the value is the seconds until a mail is admitted
    /// again.
    pub fn take_sign_in(&self, client: IpAddr, now: Timestamp) -> Result<(), u32> {
        let mut sent = self.sent.lock();
        if let Some(seconds) = sent.requesters.admit(client, now) {
            return Err(seconds);
        }
        let taken = sent.take(SIGN_IN, self.sign_ins, now);
        taken.inspect_err(|_| sent.requesters.return_unused(client))
    }

    /// Counts the sign-in mail as one to an address that is not confirmed. Returns whether there is room for it.
    pub fn take_unconfirmed_sign_in(&self, now: Timestamp) -> bool {
        let limit = self.sign_ins - self.sign_ins / CONFIRMED_PART;
        self.sent.lock().take(UNCONFIRMED_SIGN_IN, limit, now).is_ok()
    }

    /// Removes the newest sign-in mail, which was not sent. The request still counts for its client: a count that depends
    /// on the mail would show whether the recipient has an account.
    pub fn return_unused_sign_in(&self) {
        self.sent.lock().mails.return_unused(SIGN_IN);
    }

    /// Counts another mail at `now`, to an account whose address is confirmed or not.
    /// Errors: a limit is reached; the value is the instant at which a mail is admitted again.
    pub fn take(&self, is_confirmed: bool, now: Timestamp) -> Result<(), Timestamp> {
        let mut sent = self.sent.lock();
        let mut take = || {
            if is_confirmed {
                return sent.take(OTHER, self.others, now);
            }
            sent.take(CONFIRMATION, MAX_CONFIRMATIONS, now)?;
            let taken = sent.take(OTHER, self.others, now);
            taken.inspect_err(|_| sent.mails.return_unused(CONFIRMATION))
        };
        take().map_err(|seconds| {
            now.saturating_add(SignedDuration::from_secs(seconds.into())).unwrap_or(now)
        })
    }

    /// Removes the newest other mail, which was not sent.
    pub fn return_unused(&self, is_confirmed: bool) {
        let mut sent = self.sent.lock();
        sent.mails.return_unused(OTHER);
        if !is_confirmed {
            sent.mails.return_unused(CONFIRMATION);
        }
    }
}

impl MailCounts {
    fn take(&mut self, kind: &'static str, limit: u32, now: Timestamp) -> Result<(), u32> {
        let Some(seconds) = self.mails.admit_below(kind, limit, now).refused_for else {
            self.full.remove(kind);
            return Ok(());
        };
        if self.full.insert(kind) {
            let message = "mails paused: the hourly limit of this kind is reached (--max-mails)";
            tracing::warn!(kind, limit, "{message}");
        }
        Err(seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + 60 * minutes).unwrap()
    }

    #[test]
    fn any_hour_has_at_most_the_limit_and_a_mail_that_was_not_sent_leaves_its_place() {
        let limits = MailLimits::new(4);
        assert_eq!([limits.take(true, at(0)), limits.take(false, at(10))], [Ok(()), Ok(())]);
        assert_eq!([limits.take(true, at(10)), limits.take(false, at(59))], [Err(at(60)); 2]);
        assert_eq!([limits.take(true, at(60)), limits.take(true, at(60))], [Ok(()), Err(at(70))]);
        limits.return_unused(true);
        assert_eq!([limits.take(true, at(60)), limits.take(true, at(60))], [Ok(()), Err(at(70))]);
    }

    #[test]
    fn half_of_the_mails_are_for_sign_ins_and_a_quarter_of_these_for_one_client() {
        let limits = MailLimits::new(200);
        let client = |number: u8| IpAddr::from([192, 0, 2, number]);
        let requested = |number| {
            (0..200).filter(|_| limits.take_sign_in(client(number), at(0)).is_ok()).count()
        };
        assert_eq!([0, 1, 2, 3, 4].map(requested), [25, 25, 25, 25, 0]);
        let others =
            |is_confirmed| (0..200).filter(|_| limits.take(is_confirmed, at(0)).is_ok()).count();
        assert_eq!([others(false), others(true), others(false)], [20, 80, 0]);
        assert_eq!(
            (limits.take_sign_in(client(9), at(20)), limits.take(false, at(20))),
            (Err(2_400), Err(at(60)))
        );
    }
}
