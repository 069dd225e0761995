//! Retention of a cue's history: by age and by number of executions. A wrong clock deletes nothing.

use std::str::FromStr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::domain::row_keys::CueKey;
use crate::domain::time::EARLIEST_CLOCK;

/// Running time after a start or a jump before history is deleted by age: a wrong date is noticed in that time.
pub const SETTLING_TIME: Duration = Duration::from_secs(24 * 3_600);

/// A jump of up to this much is sleep or a small correction.
const MAX_JUMP: SignedDuration = SignedDuration::from_secs(24 * 3_600);

const MAX_DAYS: i64 = 36_525;

/// The limits of the history; the stricter one decides. Unfinished executions are always kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    pub age: Option<SignedDuration>,
    pub runs: Option<u32>,
}

impl Default for Retention {
    fn default() -> Self {
        Self { age: Some(SignedDuration::from_hours(90 * 24)), runs: Some(1_000) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "write an age in days or hours, a number of executions per cue, or both, such as 90d,1000 or 12h or 500; or off to \
     keep all"
)]
pub struct ParseRetentionError;

impl Retention {
    pub fn expires(&self, created: Timestamp) -> Option<Timestamp> {
        self.age.and_then(|age| created.checked_add(age).ok())
    }

    /// A sweep walks all kept executions, so it is due once per 1/32 of the limit. The cue's key shifts the phase, so
    /// that cues created together are not swept together.
    pub fn is_sweep_due(&self, cue_key: CueKey, before: i64, after: i64) -> bool {
        let Some(runs) = self.runs.map(i64::from) else { return false };
        let stride = (runs / 32).max(1);
        let phase = |count: i64| count.saturating_add(cue_key.number().rem_euclid(stride)) / stride;
        after > runs && phase(before) != phase(after)
    }
}

impl FromStr for Retention {
    type Err = ParseRetentionError;

    /// Parses `90d,1000`, either part alone, or `off`. Hours are written as `12h`.
    fn from_str(text: &str) -> Result<Self, ParseRetentionError> {
        let mut retention = Self { age: None, runs: None };
        if text == "off" {
            return Ok(retention);
        }
        for part in text.split(',').map(str::trim) {
            let is_repeated = match part.strip_suffix(['d', 'h']) {
                Some(number) => retention.age.replace(age(number, part.ends_with('d'))?).is_some(),
                None => retention.runs.replace(whole(part)?).is_some(),
            };
            if is_repeated {
                return Err(ParseRetentionError);
            }
        }
        Ok(retention)
    }
}

/// Measures how long the wall clock has run without a jump. Rows are deleted by age only under a clock that has run for
/// a while (contract §11).
#[derive(Debug, Default)]
pub struct RetentionClock {
    /// The wall clock and the monotonic clock at the last reading, and the monotonic clock at the start or the last
    /// jump.
    last: Option<(Timestamp, Duration, Duration)>,
}

impl RetentionClock {
    /// Reads the clocks. Returns the running time since the start or the last jump; zero while the clock is not set.
    pub fn settled_for(&mut self, wall: Timestamp, monotonic: Duration) -> Duration {
        let since = match self.last {
            Some((last_wall, last, since)) => {
                let passed =
                    SignedDuration::try_from(monotonic.saturating_sub(last)).unwrap_or_default();
                let jump = wall.duration_since(last_wall).saturating_sub(passed).abs();
                if jump > MAX_JUMP { monotonic } else { since }
            }
            None => monotonic,
        };
        self.last = Some((wall, monotonic, since));
        if wall < EARLIEST_CLOCK { Duration::ZERO } else { monotonic.saturating_sub(since) }
    }
}

fn age(number: &str, in_days: bool) -> Result<SignedDuration, ParseRetentionError> {
    let hours = i64::from(whole(number)?) * if in_days { 24 } else { 1 };
    if hours > MAX_DAYS * 24 {
        Err(ParseRetentionError)
    } else {
        Ok(SignedDuration::from_hours(hours))
    }
}

fn whole(text: &str) -> Result<u32, ParseRetentionError> {
    match text.parse() {
        Ok(number) if number > 0 && text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(number),
        _ => Err(ParseRetentionError),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_a_number_and_both_are_parsed() {
        let hours = |hours| Some(SignedDuration::from_hours(hours));
        for (text, age, runs) in [
            ("90d,1000", hours(2_160), Some(1_000)),
            ("1000, 90d", hours(2_160), Some(1_000)),
            ("12h", hours(12), None),
            ("500", None, Some(500)),
            ("off", None, None),
        ] {
            assert_eq!(text.parse(), Ok(Retention { age, runs }), "{text}");
        }
        assert_eq!("90d,1000".parse(), Ok(Retention::default()));
        for text in
            "0 0d d -1 +5 1,2 1d,2h 1d, 99999999d 1.5d OFF".split(' ').chain(["", "90 days"])
        {
            assert_eq!(text.parse::<Retention>(), Err(ParseRetentionError), "{text}");
        }
    }

    #[test]
    fn rows_age_after_a_day_of_running_since_a_start_or_a_jump() {
        let mut clock = RetentionClock::default();
        for (wall, hours, is_settled) in [
            ("2026-03-01T00:00:00Z", 0, false),
            ("2026-03-01T23:59:59Z", 23, false),
            ("2026-03-02T00:00:00Z", 24, true),
            ("2099-01-01T00:00:00Z", 25, false),
            ("2099-01-01T23:00:00Z", 48, false),
            ("2026-03-03T01:00:00Z", 49, false),
            ("2026-03-04T00:00:00Z", 72, false),
            // Two nights of sleep, which the monotonic clock does not count.
            ("2026-03-05T00:00:00Z", 72, false),
            ("2026-03-05T01:00:00Z", 73, true),
            ("1970-01-01T00:00:00Z", 73, false),
            ("1970-01-03T00:00:00Z", 121, false),
        ] {
            let settled = clock.settled_for(wall.parse().unwrap(), Duration::from_hours(hours));
            assert_eq!(settled >= SETTLING_TIME, is_settled, "{wall} after {hours} h");
        }
    }

    #[test]
    fn a_full_history_is_swept_once_per_stride_and_not_together_with_others() {
        let keeps = |runs| Retention { age: None, runs };
        let sweeps = |retention: Retention, key, runs: std::ops::Range<i64>| {
            let key = CueKey::new(key);
            runs.filter(|before| retention.is_sweep_due(key, *before, before + 1)).count()
        };
        assert_eq!(sweeps(keeps(Some(1_000)), 7, 0..1_000), 0);
        for key in 0..40 {
            assert!((32..=33).contains(&sweeps(keeps(Some(1_000)), key, 1_000..2_000)), "{key}");
        }
        assert_eq!((sweeps(keeps(Some(5)), 7, 0..100), sweeps(keeps(None), 7, 0..10_000)), (95, 0));
        assert!(
            keeps(Some(1_000)).is_sweep_due(CueKey::new(7), 1_000, 1_100),
            "several runs at once"
        );
        let is_due = |key: &CueKey| keeps(Some(1_000)).is_sweep_due(*key, 5_000, 5_001);
        let at_once = (0..3_100).map(CueKey::new).filter(is_due).count();
        assert_eq!(at_once, 100);
    }
}
