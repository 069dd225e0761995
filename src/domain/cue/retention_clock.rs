//! The time by which stored rows age. A wrong clock must not delete them: a machine without a battery starts in 1970 or at
//! the date of its image, and a mistyped date is in 2099 for a minute (contract §1.7).
//!
//! [`RetentionClock`] follows the wall clock while that agrees with the time that has passed since the last trusted
//! instant. A wall clock that disagrees is followed only after it has done so for a day of running.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::domain::time::{EARLIEST_CLOCK, saturating_add};

/// Running time after which a clock that disagrees is followed: long enough for a wrong date to be noticed, short enough
/// that a server that was off for a month soon deletes again.
const PROOF_TIME: SignedDuration = SignedDuration::from_hours(24);

/// A clock that disagrees by up to this much is followed at once: twice the time between two writes, so that a restart
/// is followed. Rows are deleted at most that much too early.
const TOLERANCE: SignedDuration = SignedDuration::from_hours(2);

/// The part of a short age by which the clock may disagree and still be followed at once.
const TOLERANCE_DIVISOR: i32 = 10;

/// A jump ahead of up to this much is taken for sleep, and the proof goes on: a machine that sleeps every night would else
/// never be followed. A clock that is behind the newest trusted instant by up to this much is waited for.
const MAX_SLEEP: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Time between two writes, so that restarts lose little of the time and of the proof.
const STORE_INTERVAL: SignedDuration = SignedDuration::from_hours(1);

/// The record of the clock in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrustedTime {
    /// The trusted time. It follows a clock that was set back once that is proved.
    pub trusted_at: Timestamp,
    /// The running time for which the wall clock has disagreed with it.
    pub doubted_for: SignedDuration,
    /// The newest instant that was ever trusted, and the time that has passed since. It never goes back.
    pub newest: Timestamp,
}

impl TrustedTime {
    /// `now`, or the latest instant that can be trusted while this is what the file keeps.
    pub fn limit(&self, now: Timestamp) -> Timestamp {
        now.min(saturating_add(self.trusted_at, STORE_INTERVAL + TOLERANCE))
    }
}

/// The clock by which rows age. Each call to [`RetentionClock::advance`] passes the present by the wall clock and the time
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

/// The present, by which rows age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgingTime {
    /// The trusted time, or an earlier wall clock.
    pub now: Timestamp,
    /// The newest instant that was ever trusted; `None` if there is none, and under a test clock.
    pub newest: Option<Timestamp>,
    pub wall: Timestamp,
}

impl RetentionClock {
    /// Starts with the time that the file has stored, or else with the `newest` instant that it knows. `age` is the age
    /// at which history is deleted, if it is.
    pub fn start(
        stored: Option<TrustedTime>,
        newest: Option<Timestamp>,
        age: Option<SignedDuration>,
        wall: Timestamp,
        monotonic: Duration,
    ) -> Self {
        let first = newest.filter(|newest| *newest >= EARLIEST_CLOCK).map(trusted_time);
        let tolerance = age.map_or(TOLERANCE, |age| TOLERANCE.min(age / TOLERANCE_DIVISOR));
        Self { time: stored.or(first), stored, tolerance, wall, monotonic }
    }

    /// The time by which rows age now.
    pub fn advance(&mut self, wall: Timestamp, monotonic: Duration) -> AgingTime {
        let passed = monotonic.saturating_sub(self.monotonic);
        let passed = SignedDuration::try_from(passed).unwrap_or(SignedDuration::ZERO);
        let jump = wall.duration_since(self.wall).saturating_sub(passed);
        let has_jumped = jump < -self.tolerance || jump > MAX_SLEEP;
        (self.wall, self.monotonic) = (wall, monotonic);
        self.time = match self.time {
            // Nothing is known that the wall clock could disagree with.
            None => (wall >= EARLIEST_CLOCK).then(|| trusted_time(wall)),
            Some(TrustedTime { trusted_at, doubted_for, newest }) => {
                let expected = saturating_add(trusted_at, passed);
                let doubted_for =
                    if has_jumped { SignedDuration::ZERO } else { doubted_for.saturating_add(passed) };
                let (trusted_at, doubted_for) = match () {
                    () if wall.duration_since(expected).abs() <= self.tolerance => {
                        (wall, SignedDuration::ZERO)
                    }
                    () if wall < EARLIEST_CLOCK => (expected, SignedDuration::ZERO),
                    () if doubted_for >= PROOF_TIME => (wall, SignedDuration::ZERO),
                    () => (expected, doubted_for),
                };
                let behind = newest.duration_since(trusted_at);
                let newest = if behind > MAX_SLEEP { saturating_add(newest, passed) } else { newest };
                Some(TrustedTime { trusted_at, doubted_for, newest: newest.max(trusted_at) })
            }
        };
        let now = self.time.map_or(wall, |time| time.trusted_at.min(wall));
        AgingTime { now, newest: self.time.map(|time| time.newest), wall }
    }

    /// The time to store now; `None` if the stored one is recent enough.
    pub fn to_store(&self) -> Option<TrustedTime> {
        let time = self.time?;
        let Some(stored) = self.stored else { return Some(time) };
        let is_doubted = time.doubted_for > SignedDuration::ZERO;
        let interval = STORE_INTERVAL.min(self.tolerance);
        let is_due = time.trusted_at.duration_since(stored.trusted_at).abs() >= interval
            || time.doubted_for.saturating_sub(stored.doubted_for) >= interval
            || (!is_doubted && stored.doubted_for > SignedDuration::ZERO);
        is_due.then_some(time)
    }

    /// Records that `time` is stored.
    pub fn set_stored(&mut self, time: TrustedTime) {
        self.stored = Some(time);
    }
}

fn trusted_time(at: Timestamp) -> TrustedTime {
    TrustedTime { trusted_at: at, doubted_for: SignedDuration::ZERO, newest: at }
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
        RetentionClock::start(None, Some(at(start)), Some(AGE), at(start), Duration::ZERO)
    }

    #[test]
    fn a_jump_of_a_minute_to_2099_moves_the_time_by_a_minute() {
        let mut clock = trusted("2026-03-01T00:00:00Z");
        assert_eq!(clock.advance(at("2026-03-01T00:00:05Z"), seconds(5)).now, at("2026-03-01T00:00:05Z"));
        assert_eq!(clock.advance(at("2099-01-01T00:00:00Z"), seconds(10)).now, at("2026-03-01T00:00:10Z"));
        assert_eq!(clock.advance(at("2099-01-01T00:01:00Z"), seconds(70)).now, at("2026-03-01T00:01:10Z"));
        assert_eq!(clock.advance(at("2026-03-01T00:01:15Z"), seconds(75)).now, at("2026-03-01T00:01:15Z"));
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
                clock.advance(wall, passed).now,
                at("2026-03-01T00:00:00Z") + SignedDuration::from_hours(hour)
            );
        }
        assert_eq!(clock.advance(other + days(1), seconds(24 * HOUR)).now, other + days(1));
        // Back again: the earlier wall clock counts at once, and the time follows it after a day.
        let back = at("2026-03-02T00:00:00Z");
        assert_eq!(clock.advance(back, seconds(24 * HOUR)).now, back);
        clock.advance(back + days(1), seconds(48 * HOUR));
        assert_eq!(clock.time.unwrap().trusted_at, back + days(1));
    }

    #[test]
    fn another_jump_begins_the_day_anew() {
        let mut clock = trusted("2026-03-01T00:00:00Z");
        clock.advance(at("2099-01-01T00:00:00Z"), Duration::ZERO);
        clock.advance(at("2099-01-01T23:00:00Z"), seconds(23 * HOUR));
        let now = clock.advance(at("2050-01-01T02:00:00Z"), seconds(25 * HOUR)).now;
        assert_eq!(now, at("2026-03-02T01:00:00Z"));
    }

    #[test]
    fn a_clock_that_is_ahead_by_a_restart_is_followed_at_once() {
        let mut clock = trusted("2026-03-01T00:00:00Z");
        assert_eq!(clock.advance(at("2026-03-01T02:00:00Z"), seconds(0)).now, at("2026-03-01T02:00:00Z"));
        let ahead = clock.advance(at("2026-03-01T04:00:01Z"), seconds(0)).now;
        assert_eq!(ahead, at("2026-03-01T02:00:00Z"), "by more than two hours");
    }

    #[test]
    fn a_machine_that_sleeps_at_night_is_followed_after_some_days() {
        let mut clock = trusted("2026-03-01T08:00:00Z");
        let (mut wall, mut now) = (at("2026-03-01T08:00:00Z"), at("2026-03-01T08:00:00Z"));
        for day in 1..60_u64 {
            wall += SignedDuration::from_hours(8);
            now = clock.advance(wall, seconds(day * 8 * HOUR)).now;
            wall += SignedDuration::from_hours(16);
        }
        assert!(wall.duration_since(now) <= days(5), "{now} at {wall}");
    }

    #[test]
    fn the_proof_continues_after_a_restart() {
        let (wall, mut stored) = (at("2026-09-01T00:00:00Z"), None);
        let newest = Some(at("2026-03-01T00:00:00Z"));
        for process in 0..4 {
            let mut clock = RetentionClock::start(stored, newest, Some(AGE), wall, Duration::ZERO);
            let now = clock.advance(wall, Duration::ZERO).now;
            assert!(now < at("2026-04-01T00:00:00Z"), "process {process}: {now}");
            clock.advance(wall + SignedDuration::from_hours(7), seconds(7 * HOUR));
            stored = clock.to_store();
        }
        assert_eq!(stored.unwrap().trusted_at, wall + SignedDuration::from_hours(7));
    }

    #[test]
    fn a_clock_that_was_never_set_is_not_followed() {
        let mut fresh =
            RetentionClock::start(None, None, Some(AGE), at("1970-01-01T00:00:00Z"), Duration::ZERO);
        fresh.advance(at("1970-01-03T00:00:00Z"), seconds(48 * HOUR));
        assert_eq!(fresh.to_store(), None);
        let set = at("2026-03-01T00:00:00Z");
        assert_eq!(fresh.advance(set, seconds(48 * HOUR)).now, set, "the first date that can be believed");
        let mut used = trusted("2026-03-01T00:00:00Z");
        used.advance(at("1970-01-01T00:00:00Z"), Duration::ZERO);
        used.advance(at("1970-01-03T00:00:00Z"), seconds(48 * HOUR));
        assert_eq!(used.advance(set + days(2), seconds(48 * HOUR)).now, set + days(2));
    }

    #[test]
    fn the_time_is_stored_hourly() {
        let mut clock = trusted("2026-03-01T00:00:00Z");
        let mut writes = |wall: &str, hours: u64| {
            clock.advance(at(wall), seconds(hours * HOUR));
            clock.to_store().inspect(|time| clock.set_stored(*time)).is_some()
        };
        assert!(writes("2026-03-01T00:00:00Z", 0), "the file has none");
        assert!(writes("2026-03-01T23:00:00Z", 23));
        assert!(!writes("2026-03-01T23:59:59Z", 23));
        assert!(writes("2026-03-02T00:00:00Z", 24));
        assert!(!writes("2099-03-02T00:00:00Z", 24));
        assert!(writes("2099-03-02T01:00:00Z", 25));
        assert!(writes("2026-03-02T01:00:00Z", 25), "the doubt is over");
    }

    #[test]
    fn the_newest_trusted_instant_never_goes_back() {
        let mut clock = trusted("2026-11-22T00:00:00Z");
        let behind = at("2024-05-01T00:00:00Z");
        let mut newest = at("2026-11-22T00:00:00Z");
        for hours in 0..72_u64 {
            let wall = behind + SignedDuration::from_hours(i64::try_from(hours).unwrap());
            let time = clock.advance(wall, seconds(hours * HOUR));
            assert!(time.newest.unwrap() >= newest && time.now == wall, "{time:?}");
            newest = time.newest.unwrap();
        }
        assert_eq!(newest, at("2026-11-24T23:00:00Z"), "it goes on with the time that passes");
        // Set back by an hour for good: the wall clock catches up.
        let mut clock = trusted("2026-11-22T12:00:00Z");
        let time = clock.advance(at("2026-11-22T11:00:00Z"), Duration::ZERO);
        assert_eq!((time.now, time.newest), (at("2026-11-22T11:00:00Z"), Some(at("2026-11-22T12:00:00Z"))));
        let time = clock.advance(at("2026-11-22T13:00:00Z"), seconds(2 * HOUR));
        assert_eq!(time.newest, Some(at("2026-11-22T13:00:00Z")));
    }
}
