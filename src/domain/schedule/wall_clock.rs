//! Which readings of the system's clock are believed. One wrong reading must not fire the runs of decades: a jump far
//! ahead counts only once it has lasted (contract §4.12).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::domain::time::{EARLIEST_CLOCK, instant, saturating_add, saturating_sub};

/// A jump ahead of up to this much is believed at once. A larger one is rarely a correction of a clock that was right.
const MAX_JUMP: SignedDuration = SignedDuration::from_hours(24);

/// The time for which a larger jump must last, and that a machine has after its boot until its network and clock are
/// right.
pub const PROOF_TIME: Duration = Duration::from_secs(600);

/// A clock that is behind by up to this much is a correction of a time service.
const MAX_CORRECTION: SignedDuration = SignedDuration::from_mins(1);

/// Whether a clock that shows `now` is behind the `newest` instant that is known.
pub fn is_behind(now: Timestamp, newest: Timestamp) -> bool {
    now < saturating_sub(newest, MAX_CORRECTION)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockFault {
    /// It shows `shown` and is not believed.
    Ahead { now: Timestamp, shown: Timestamp },
    /// The file knows `newest`, and nothing fires by schedule before.
    Behind { now: Timestamp, newest: Timestamp },
}

impl ClockFault {
    pub fn reason(&self) -> String {
        match self {
            Self::Ahead { now, shown } => format!(
                "the clock has jumped ahead to {}, which is not believed for ten minutes: cues fire by the time that \
                 has passed, {}; if the clock is right, run `cued clock accept`",
                instant(*shown),
                instant(*now)
            ),
            Self::Behind { now, newest } => format!(
                "the clock shows {} and the database has seen {}: no cue fires by schedule until then; set the clock, or \
                 run `cued clock accept` if it is right",
                instant(*now),
                instant(*newest)
            ),
        }
    }
}

/// The system's clock. The time since the boot counts sleep.
#[derive(Debug)]
pub struct WallClock {
    /// The last reading that was believed, and the time since the boot at it.
    believed: Option<(Timestamp, Duration)>,
    newest: Timestamp,
    /// Monotonic time at which the doubt began, and the last reading.
    doubt: Option<(Duration, Timestamp)>,
}

impl Default for WallClock {
    fn default() -> Self {
        Self { believed: None, newest: Timestamp::MIN, doubt: None }
    }
}

impl WallClock {
    /// The current time. `is_set` returns whether a time service has set the clock to an instant after the given one.
    pub fn read(
        &mut self,
        wall: Timestamp,
        uptime: Duration,
        is_set: impl FnOnce(Timestamp) -> bool,
    ) -> Timestamp {
        let since = |last: Duration| SignedDuration::try_from(uptime.saturating_sub(last));
        let expected = self.believed.map_or(wall, |(believed, last)| {
            saturating_add(believed, since(last).unwrap_or(SignedDuration::MAX))
        });
        let latest = saturating_add(expected, MAX_JUMP);
        // A clock that has not been set yet jumps when it is.
        let was_unset =
            expected < EARLIEST_CLOCK || is_behind(expected, self.newest) || uptime < PROOF_TIME;
        if wall <= latest || was_unset {
            return self.believe(wall, uptime);
        }
        let begun = self.doubt.map_or(uptime, |(since, _)| since);
        if uptime.saturating_sub(begun) >= PROOF_TIME || is_set(latest) {
            return self.believe(wall, uptime);
        }
        self.doubt = Some((begun, wall));
        expected
    }

    pub fn believe(&mut self, wall: Timestamp, uptime: Duration) -> Timestamp {
        (self.believed, self.doubt) = (Some((wall, uptime)), None);
        self.newest = self.newest.max(wall);
        wall
    }

    /// Sets the newest instant that is known. A clock that is behind it may jump.
    pub fn set_newest(&mut self, newest: Timestamp) {
        self.newest = newest;
    }

    pub fn doubted(&self) -> Option<Timestamp> {
        self.doubt.map(|(_, shown)| shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// A clock that was right an hour after the boot.
    fn right() -> WallClock {
        let mut clock = WallClock::default();
        clock.read(at("2026-03-01T12:00:00Z"), HOUR, |_| false);
        clock
    }

    fn seconds(after: u64) -> Duration {
        HOUR + Duration::from_secs(after)
    }

    #[test]
    fn a_jump_that_lasts_or_that_a_time_service_has_made_is_believed() {
        let mut clock = right();
        let wall = at("2026-03-03T12:00:00Z");
        clock.read(wall, seconds(0), |_| false);
        assert_eq!(clock.read(wall, seconds(599), |_| false), at("2026-03-01T12:09:59Z"));
        assert_eq!((clock.read(wall, seconds(600), |_| false), clock.doubted()), (wall, None));
        let is_set = |after| after == at("2026-03-02T12:00:01Z");
        assert_eq!(right().read(wall, seconds(1), is_set), wall);
        let mut clock = right();
        clock.read(wall, seconds(1), |_| false);
        assert_eq!((clock.believe(wall, seconds(2)), clock.doubted()), (wall, None));
        // Another one begins another doubt.
        assert_eq!(
            clock.read(at("2030-01-01T00:00:00Z"), seconds(700), |_| false),
            wall + seconds(698) - HOUR
        );
    }

    #[test]
    fn a_jump_of_up_to_a_day_and_one_after_as_much_sleep_are_believed_at_once() {
        let mut clock = right();
        let next_day = at("2026-03-02T12:00:00Z");
        assert_eq!(clock.read(next_day, HOUR, |_| false), next_day);
        let next_month = at("2026-04-02T12:00:00Z");
        assert_eq!(clock.read(next_month, 32 * 24 * HOUR, |_| false), next_month);
    }

    #[test]
    fn a_clock_that_is_behind_or_was_never_set_may_jump() {
        let set = at("2026-03-01T12:00:00Z");
        for (wall, newest, uptime) in [
            ("1970-01-01T01:00:00Z", Timestamp::MIN, HOUR),
            ("2024-05-01T00:00:00Z", at("2026-02-28T12:00:00Z"), HOUR),
            ("2026-02-01T12:00:00Z", at("2026-02-01T12:00:00Z"), Duration::from_secs(540)),
        ] {
            let mut clock = WallClock::default();
            clock.set_newest(newest);
            clock.read(at(wall), uptime, |_| false);
            assert_eq!(clock.read(set, uptime, |_| false), set, "from {wall}");
        }
        // After a small correction it is as right as before.
        let mut clock = right();
        clock.read(at("2026-03-01T11:59:30Z"), HOUR, |_| false);
        assert_eq!(
            clock.read(at("2066-01-01T00:00:00Z"), HOUR, |_| false),
            at("2026-03-01T11:59:30Z")
        );
    }
}
