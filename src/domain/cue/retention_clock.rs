//! The time by which history ages. A wrong clock must not delete history: a machine without a battery starts in 1970,
//! and a mistyped date is in 2099 for a minute (contract §1.7).
//!
//! Two rules, one for the present and one for the dates of executions:
//!
//! - [`RetentionClock`] follows the wall clock while that agrees with the time that has passed since the last trusted
//!   instant. A wall clock that disagrees is followed only after it has done so for a day of running.
//! - [`Expiry`] believes a date only if a clock that was set can have shown it. Row keys grow with time, so an execution
//!   with another date is older than every later one.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::domain::time::{saturating_add, saturating_sub};

/// The earliest date that is believed. Earlier ones come from clocks that start in 1970 or 2000 and were not set.
const EARLIEST: Timestamp = Timestamp::constant(1_577_836_800, 0); // 2020-01-01

/// Running time after which a clock that disagrees is followed: long enough for a wrong date to be noticed, short enough
/// that a server that was off for a month soon deletes again.
const PROOF_TIME: SignedDuration = SignedDuration::from_hours(24);

/// The part of the age by which a clock may disagree and still be followed at once. It covers a machine that sleeps or is
/// off for some days. A wrong clock within it deletes history at most that much too early.
const TOLERANCE_DIVISOR: i32 = 10;

/// An end that is up to this much before the creation is taken for the creation: time services set clocks back a little.
const MAX_SET_BACK: SignedDuration = SignedDuration::from_hours(24);

/// Trusted time between two writes of a clock that is trusted.
const STORE_INTERVAL: SignedDuration = SignedDuration::from_hours(24);

/// Running time between two writes of a clock that is in doubt, so that restarts lose little of the proof.
const STORE_INTERVAL_IN_DOUBT: SignedDuration = SignedDuration::from_hours(1);

/// What the file keeps of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrustedTime {
    /// The newest trusted instant.
    pub trusted_at: Timestamp,
    /// The running time for which the wall clock has disagreed with it.
    pub doubted_for: SignedDuration,
}

/// The clock of retention. Each call to [`RetentionClock::advance`] passes the present by the wall clock and the time
/// since the start of the process.
#[derive(Debug)]
pub struct RetentionClock {
    /// `None` until the wall clock has shown a date that can be believed.
    time: Option<TrustedTime>,
    stored: Option<TrustedTime>,
    tolerance: SignedDuration,
    wall: Timestamp,
    monotonic: Duration,
}

impl RetentionClock {
    /// Starts with the time that the file has stored, or else with the `newest` instant that it knows. `age` is the age
    /// at which history is deleted.
    #[must_use]
    pub fn start(
        stored: Option<TrustedTime>,
        newest: Option<Timestamp>,
        age: SignedDuration,
        wall: Timestamp,
        monotonic: Duration,
    ) -> Self {
        let newest = newest.filter(|newest| *newest >= EARLIEST);
        let first = newest.map(|trusted_at| TrustedTime { trusted_at, doubted_for: SignedDuration::ZERO });
        Self { time: stored.or(first), stored, tolerance: age / TOLERANCE_DIVISOR, wall, monotonic }
    }

    /// The instant by which history ages: the trusted time, or an earlier wall clock.
    pub fn advance(&mut self, wall: Timestamp, monotonic: Duration) -> Timestamp {
        let passed = monotonic.saturating_sub(self.monotonic);
        let passed = SignedDuration::try_from(passed).unwrap_or(SignedDuration::ZERO);
        let has_jumped = self.differ(wall.duration_since(self.wall), passed);
        (self.wall, self.monotonic) = (wall, monotonic);
        let trusted = TrustedTime { trusted_at: wall, doubted_for: SignedDuration::ZERO };
        self.time = match self.time {
            // Nothing is known that the wall clock could disagree with.
            None => (wall >= EARLIEST).then_some(trusted),
            Some(TrustedTime { trusted_at, doubted_for }) => {
                let expected = saturating_add(trusted_at, passed);
                let doubted_for =
                    if has_jumped { SignedDuration::ZERO } else { doubted_for.saturating_add(passed) };
                Some(match () {
                    () if !self.differ(wall.duration_since(expected), SignedDuration::ZERO) => trusted,
                    () if wall < EARLIEST => {
                        TrustedTime { trusted_at: expected, doubted_for: SignedDuration::ZERO }
                    }
                    () if doubted_for >= PROOF_TIME => trusted,
                    () => TrustedTime { trusted_at: expected, doubted_for },
                })
            }
        };
        self.time.map_or(wall, |time| time.trusted_at.min(wall))
    }

    /// The time to store now; `None` if the stored one is recent enough.
    #[must_use]
    pub fn to_store(&self) -> Option<TrustedTime> {
        let time = self.time?;
        let Some(stored) = self.stored else { return Some(time) };
        let is_doubted = time.doubted_for > SignedDuration::ZERO;
        let is_due = time.trusted_at.duration_since(stored.trusted_at).abs() >= STORE_INTERVAL
            || time.doubted_for.saturating_sub(stored.doubted_for) >= STORE_INTERVAL_IN_DOUBT
            || (!is_doubted && stored.doubted_for > SignedDuration::ZERO);
        is_due.then_some(time)
    }

    /// Records that `time` is stored.
    pub fn set_stored(&mut self, time: TrustedTime) {
        self.stored = Some(time);
    }

    fn differ(&self, left: SignedDuration, right: SignedDuration) -> bool {
        left.saturating_sub(right).abs() > self.tolerance
    }
}

/// The limits by which executions are old enough to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    /// Dates between these two are believed.
    earliest: Timestamp,
    latest: Timestamp,
    /// Executions that ended at or before this instant are deleted.
    expired: Timestamp,
    /// The same for a creation, if the end is not known.
    expired_without_end: Timestamp,
}

/// What the dates of an execution say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dating {
    /// No clock that was set can have shown its creation.
    Undated,
    /// Created too recently to be deleted, as all later ones.
    Fresh,
    /// Created long enough ago. `has_ended_long_ago` says the same of its end, if it is finished.
    Old { has_ended_long_ago: bool },
}

impl Expiry {
    /// The limits at `now` of the [`RetentionClock`], for history of `age`, while the wall clock shows `wall`. `None` if
    /// nothing can have expired, because the clock was not set.
    #[must_use]
    pub fn new(age: SignedDuration, now: Timestamp, wall: Timestamp) -> Option<Self> {
        let expired = saturating_sub(now, age);
        (expired >= EARLIEST).then(|| Self {
            earliest: EARLIEST,
            latest: wall,
            ..Self::of_test_clock(age, now)
        })
    }

    /// The limits under a test clock, which is moved on purpose: every date is believed.
    #[must_use]
    pub fn of_test_clock(age: SignedDuration, now: Timestamp) -> Self {
        let expired = saturating_sub(now, age);
        Self {
            earliest: Timestamp::MIN,
            latest: Timestamp::MAX,
            expired,
            expired_without_end: saturating_sub(expired, age),
        }
    }

    /// Judges an execution. `is_before_expired` says that a later one is old, so that this one is as well.
    #[must_use]
    pub fn judge(&self, created_at: Timestamp, ended_at: Timestamp, is_before_expired: bool) -> Dating {
        let is_dated = self.is_believable(created_at);
        if !is_before_expired {
            if !is_dated {
                return Dating::Undated;
            }
            if created_at > self.expired {
                return Dating::Fresh;
            }
        }
        let follows = !is_dated || created_at.duration_since(ended_at) <= MAX_SET_BACK;
        let has_ended_long_ago = if self.is_believable(ended_at) && follows {
            ended_at <= self.expired
        } else {
            // The end is later than the creation and else unknown. It gets the age once more.
            !is_dated || created_at <= self.expired_without_end
        };
        Dating::Old { has_ended_long_ago }
    }

    fn is_believable(&self, at: Timestamp) -> bool {
        self.earliest <= at && at <= self.latest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: SignedDuration = SignedDuration::from_hours(90 * 24);
    const HOUR: u64 = 3_600;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn days(days: i64) -> SignedDuration {
        SignedDuration::from_hours(24 * days)
    }

    /// A clock that was trusted at `start`, where the wall clock still is.
    fn trusted(start: &str) -> RetentionClock {
        RetentionClock::start(None, Some(at(start)), AGE, at(start), Duration::ZERO)
    }

    #[test]
    fn a_jump_of_a_minute_to_2099_moves_the_time_by_a_minute() {
        let mut clock = trusted("2026-03-01T00:00:00Z");
        assert_eq!(clock.advance(at("2026-03-01T00:00:05Z"), seconds(5)), at("2026-03-01T00:00:05Z"));
        assert_eq!(clock.advance(at("2099-01-01T00:00:00Z"), seconds(10)), at("2026-03-01T00:00:10Z"));
        assert_eq!(clock.advance(at("2099-01-01T00:01:00Z"), seconds(70)), at("2026-03-01T00:01:10Z"));
        assert_eq!(clock.advance(at("2026-03-01T00:01:15Z"), seconds(75)), at("2026-03-01T00:01:15Z"));
    }

    #[test]
    fn a_clock_that_disagrees_for_a_day_of_running_is_followed() {
        let mut clock = trusted("2026-03-01T00:00:00Z");
        let other = at("2026-09-01T00:00:00Z");
        clock.advance(other, Duration::ZERO);
        for hour in 1..24 {
            let wall = other + SignedDuration::from_hours(hour);
            let passed = seconds(u64::try_from(hour).unwrap() * HOUR);
            assert_eq!(
                clock.advance(wall, passed),
                at("2026-03-01T00:00:00Z") + SignedDuration::from_hours(hour)
            );
        }
        assert_eq!(clock.advance(other + days(1), seconds(24 * HOUR)), other + days(1));
        // Back again: the earlier wall clock counts at once, and the time follows it after a day.
        let back = at("2026-03-02T00:00:00Z");
        assert_eq!(clock.advance(back, seconds(24 * HOUR)), back);
        clock.advance(back + days(1), seconds(48 * HOUR));
        assert_eq!(clock.time.unwrap().trusted_at, back + days(1));
    }

    #[test]
    fn another_jump_begins_the_day_anew() {
        let mut clock = trusted("2026-03-01T00:00:00Z");
        clock.advance(at("2099-01-01T00:00:00Z"), Duration::ZERO);
        clock.advance(at("2099-01-01T23:00:00Z"), seconds(23 * HOUR));
        let now = clock.advance(at("2050-01-01T02:00:00Z"), seconds(25 * HOUR));
        assert_eq!(now, at("2026-03-02T01:00:00Z"));
    }

    #[test]
    fn a_machine_that_was_off_or_asleep_for_some_days_is_followed_at_once() {
        let mut clock = trusted("2026-03-01T00:00:00Z");
        for (wall, passed) in [("2026-03-09T00:00:00Z", 60), ("2026-03-17T00:00:00Z", 120)] {
            assert_eq!(clock.advance(at(wall), seconds(passed)), at(wall));
        }
        let ahead = clock.advance(at("2026-04-01T00:00:00Z"), seconds(180));
        assert_eq!(ahead, at("2026-03-17T00:01:00Z"), "two weeks are more than a tenth of the age");
    }

    #[test]
    fn the_proof_continues_after_a_restart() {
        let (wall, mut stored) = (at("2026-09-01T00:00:00Z"), None);
        let newest = Some(at("2026-03-01T00:00:00Z"));
        for process in 0..4 {
            let mut clock = RetentionClock::start(stored, newest, AGE, wall, Duration::ZERO);
            let now = clock.advance(wall, Duration::ZERO);
            assert!(now < at("2026-04-01T00:00:00Z"), "process {process}: {now}");
            clock.advance(wall + SignedDuration::from_hours(7), seconds(7 * HOUR));
            stored = clock.to_store();
        }
        assert_eq!(stored.unwrap().trusted_at, wall + SignedDuration::from_hours(7));
    }

    #[test]
    fn a_clock_that_was_never_set_is_not_followed() {
        let mut fresh = RetentionClock::start(None, None, AGE, at("1970-01-01T00:00:00Z"), Duration::ZERO);
        fresh.advance(at("1970-01-03T00:00:00Z"), seconds(48 * HOUR));
        assert_eq!(fresh.to_store(), None);
        let set = at("2026-03-01T00:00:00Z");
        assert_eq!(fresh.advance(set, seconds(48 * HOUR)), set, "the first date that can be believed");
        let mut used = trusted("2026-03-01T00:00:00Z");
        used.advance(at("1970-01-01T00:00:00Z"), Duration::ZERO);
        used.advance(at("1970-01-03T00:00:00Z"), seconds(48 * HOUR));
        assert_eq!(used.advance(set + days(2), seconds(48 * HOUR)), set + days(2));
    }

    #[test]
    fn a_trusted_clock_is_stored_daily_and_one_in_doubt_hourly() {
        let mut clock = trusted("2026-03-01T00:00:00Z");
        let mut writes = |wall: &str, hours: u64| {
            clock.advance(at(wall), seconds(hours * HOUR));
            clock.to_store().inspect(|time| clock.set_stored(*time)).is_some()
        };
        assert!(writes("2026-03-01T00:00:00Z", 0), "the file has none");
        assert!(!writes("2026-03-01T23:00:00Z", 23));
        assert!(writes("2026-03-02T00:00:00Z", 24));
        assert!(!writes("2099-03-02T00:00:00Z", 24));
        assert!(writes("2099-03-02T01:00:00Z", 25));
        assert!(writes("2026-03-02T01:00:00Z", 25), "the doubt is over");
    }

    #[test]
    fn dates_that_no_clock_can_have_shown_are_judged_by_the_order_of_creation() {
        let now = at("2026-06-01T00:00:00Z");
        let expiry = Expiry::new(AGE, now, now).unwrap();
        let judge = |created, ended, is_before| expiry.judge(at(created), at(ended), is_before);
        let old = |has_ended_long_ago| Dating::Old { has_ended_long_ago };
        let (january, may) = ("2026-01-01T00:00:00Z", "2026-05-01T00:00:00Z");
        let (never_set, ahead) = ("1970-01-01T00:00:00Z", "2099-01-01T00:00:00Z");
        assert_eq!(judge(january, january, false), old(true));
        assert_eq!(judge(january, may, false), old(false));
        assert_eq!(judge(may, may, false), Dating::Fresh);
        for wrong in [never_set, ahead] {
            assert_eq!(judge(wrong, wrong, false), Dating::Undated);
            assert_eq!(judge(wrong, wrong, true), old(true));
            assert_eq!(judge(wrong, may, true), old(false));
            // Created by a clock that was right, ended by one that was wrong: kept for the age once more.
            assert_eq!(judge(january, wrong, false), old(false));
            assert_eq!(judge("2025-11-01T00:00:00Z", wrong, false), old(true));
        }
        assert_eq!(judge(january, "2025-12-31T23:59:58Z", false), old(true), "set back by two seconds");
        assert_eq!(Expiry::new(AGE, at(never_set), at(never_set)), None);
        let test = Expiry::of_test_clock(AGE, at("1999-01-01T00:00:00Z"));
        assert_eq!(test.judge(at(never_set), at(never_set), false), old(true));
    }
}
