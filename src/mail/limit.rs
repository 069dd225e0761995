//! The limits on mails: a server that sends too many is refused by other mail servers. Half of them are for sign-ins, so
//! that no failing cue keeps anybody from signing in.

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};

use crate::domain::account::sliding_window::SlidingWindows;
use crate::locks::Mutex;

/// The window in which mails are counted.
const WINDOW: SignedDuration = SignedDuration::from_hours(1);

/// Mails to accounts with unconfirmed addresses in any hour, all together.
const MAX_CONFIRMATIONS: u32 = 20;

/// Parts of the mails for sign-ins of which one client address requests one.
const REQUESTER_PART: u32 = 4;

/// Sign-in mails that a client address requests in any hour, whatever the limit of all mails: as many as one recipient gets.
const MIN_REQUESTED: u32 = 3;

/// The mails of the last hour.
pub struct MailLimits {
    sign_ins: u32,
    others: u32,
    sent: Mutex<MailCounts>,
}

struct MailCounts {
    mails: SlidingWindows<Kind>,
    requesters: SlidingWindows<IpAddr>,
    /// Kinds that are refused, from the first refusal to the next mail, so that each limit is logged once.
    full: BTreeSet<Kind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    SignIn,
    /// Each counts as one of the others, too.
    Confirmation,
    Other,
}

impl MailLimits {
    /// Admits `limit` mails in an hour, half of them for sign-ins.
    pub fn new(limit: usize) -> Self {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let sign_ins = limit.div_ceil(2);
        let requested = (sign_ins / REQUESTER_PART).max(MIN_REQUESTED);
        let mails = SlidingWindows::new(limit, WINDOW);
        let requesters = SlidingWindows::new(requested, WINDOW);
        let sent = MailCounts { mails, requesters, full: BTreeSet::new() };
        Self { sign_ins, others: limit - sign_ins, sent: Mutex::new(sent) }
    }

    /// Counts a sign-in mail at `now`, which `client` has requested.
    /// Errors: the limit of all clients or of this one is reached; the value is the seconds until a mail is admitted
    /// again.
    pub fn take_sign_in(&self, client: IpAddr, now: Timestamp) -> Result<(), u32> {
        let mut sent = self.sent.lock();
        if let Some(seconds) = sent.requesters.admit(client, now) {
            return Err(seconds);
        }
        let taken = sent.take(Kind::SignIn, self.sign_ins, now);
        if taken.is_err() {
            sent.requesters.give_back(client);
        }
        taken
    }

    /// Takes back the newest sign-in mail, which was not sent. The request counts for its client all the same: whether it
    /// led to a mail would tell whether the recipient has an account.
    pub fn give_back_sign_in(&self) {
        self.sent.lock().mails.give_back(Kind::SignIn);
    }

    /// Counts another mail at `now`, to an account whose address is confirmed or not.
    /// Errors: a limit is reached; the value is the instant at which a mail is admitted again.
    pub fn take(&self, is_confirmed: bool, now: Timestamp) -> Result<(), Timestamp> {
        let mut sent = self.sent.lock();
        let confirmation =
            if is_confirmed { Ok(()) } else { sent.take(Kind::Confirmation, MAX_CONFIRMATIONS, now) };
        let taken = confirmation.and_then(|()| {
            let taken = sent.take(Kind::Other, self.others, now);
            if taken.is_err() && !is_confirmed {
                sent.mails.give_back(Kind::Confirmation);
            }
            taken
        });
        taken.map_err(|seconds| now.saturating_add(SignedDuration::from_secs(seconds.into())).unwrap_or(now))
    }

    /// Takes back the newest other mail, which was not sent.
    pub fn give_back(&self, is_confirmed: bool) {
        let mut sent = self.sent.lock();
        sent.mails.give_back(Kind::Other);
        if !is_confirmed {
            sent.mails.give_back(Kind::Confirmation);
        }
    }
}

impl MailCounts {
    fn take(&mut self, kind: Kind, limit: u32, now: Timestamp) -> Result<(), u32> {
        match self.mails.admit_below(kind, limit, now).refused_for {
            None => {
                self.full.remove(&kind);
                Ok(())
            }
            Some(seconds) => {
                if self.full.insert(kind) {
                    let kind = kind.word();
                    tracing::warn!(
                        kind,
                        limit,
                        "mails paused: the hourly limit of this kind is reached (--max-mails)"
                    );
                }
                Err(seconds)
            }
        }
    }
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::SignIn => "sign-in",
            Self::Confirmation => "confirmation",
            Self::Other => "other",
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
    fn any_hour_has_at_most_the_limit_and_a_mail_that_was_not_sent_leaves_its_place() {
        let limits = MailLimits::new(4);
        assert_eq!([limits.take(true, at(0)), limits.take(false, at(10))], [Ok(()), Ok(())]);
        assert_eq!([limits.take(true, at(10)), limits.take(false, at(59))], [Err(at(60)); 2]);
        assert_eq!([limits.take(true, at(60)), limits.take(true, at(60))], [Ok(()), Err(at(70))]);
        limits.give_back(true);
        assert_eq!([limits.take(true, at(60)), limits.take(true, at(60))], [Ok(()), Err(at(70))]);
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
