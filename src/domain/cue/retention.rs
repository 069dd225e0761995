//! How much of a cue's history is kept: until executions that are over reach an age, and a number of executions.

use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};

/// The longest age that can be asked for: a century.
const LONGEST: i64 = 36_525;

/// What is kept; whichever of the two keeps less decides. What waits or is under way stays in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// How long an execution is kept after it was over; none: for ever.
    pub age: Option<SignedDuration>,
    /// How many executions of a cue are kept, the newest; none: all.
    pub runs: Option<u32>,
}

impl Default for Retention {
    fn default() -> Self {
        Self { age: Some(SignedDuration::from_hours(90 * 24)), runs: Some(1_000) }
    }
}

/// A text that says nothing about what to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseRetentionError;

impl Retention {
    /// What was over at this instant or before is not kept; none where age does not count.
    #[must_use]
    pub fn expired(&self, now: Timestamp) -> Option<Timestamp> {
        self.age.map(|age| now.checked_sub(age).unwrap_or(Timestamp::MIN))
    }

    /// When that which was made at `made` can expire at the earliest.
    #[must_use]
    pub fn expires(&self, made: Timestamp) -> Option<Timestamp> {
        self.age.and_then(|age| made.checked_add(age).ok())
    }

    /// Whether a cue's history is to be looked at now that its count of runs goes from `before` to `after`. A look
    /// takes a walk over what is kept, so it comes with every thirtieth part of that; and each cue has another turn,
    /// so that a herd that was created together is not looked at together.
    #[must_use]
    pub fn looks_at(&self, cue_key: i64, before: i64, after: i64) -> bool {
        let Some(runs) = self.runs.map(i64::from) else { return false };
        let stride = (runs / 32).max(1);
        let turn = |count: i64| count.saturating_add(cue_key.rem_euclid(stride)) / stride;
        after > runs && turn(before) != turn(after)
    }
}

impl FromStr for Retention {
    type Err = ParseRetentionError;

    /// Reads `90d,1000`, one of the two alone, or `off`. Hours are written `12h`.
    fn from_str(text: &str) -> Result<Self, ParseRetentionError> {
        let mut retention = Self { age: None, runs: None };
        if text == "off" {
            return Ok(retention);
        }
        for part in text.split(',').map(str::trim) {
            let again = match part.strip_suffix(['d', 'h']) {
                Some(number) => retention.age.replace(age(number, part.ends_with('d'))?).is_some(),
                None => retention.runs.replace(whole(part)?).is_some(),
            };
            if again {
                return Err(ParseRetentionError);
            }
        }
        Ok(retention)
    }
}

impl fmt::Display for ParseRetentionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "write an age in days or hours, a number of executions per cue, or both, such as 90d,1000 or 12h or 500; \
             or off to keep all",
        )
    }
}

impl std::error::Error for ParseRetentionError {}

fn age(number: &str, in_days: bool) -> Result<SignedDuration, ParseRetentionError> {
    let hours = i64::from(whole(number)?) * if in_days { 24 } else { 1 };
    if hours > LONGEST * 24 { Err(ParseRetentionError) } else { Ok(SignedDuration::from_hours(hours)) }
}

/// A number of at least one.
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
    fn an_age_a_number_and_both_are_read() {
        let hours = SignedDuration::from_hours;
        for (text, age, runs) in [
            ("90d,1000", Some(hours(2_160)), Some(1_000)),
            ("1000, 90d", Some(hours(2_160)), Some(1_000)),
            ("12h", Some(hours(12)), None),
            ("500", None, Some(500)),
            ("off", None, None),
        ] {
            assert_eq!(text.parse(), Ok(Retention { age, runs }), "{text}");
        }
        assert_eq!("90d,1000".parse(), Ok(Retention::default()));
    }

    #[test]
    fn an_empty_or_repeated_retention_is_refused() {
        for text in [
            "",
            "0",
            "0d",
            "d",
            "-1",
            "+5",
            "90",
            "90 days",
            "1,2",
            "1d,2h",
            "1d,",
            "99999999d",
            "1.5d",
            "OFF",
        ] {
            let read = text.parse::<Retention>();
            assert_eq!(read.is_err(), text != "90", "{text}: {read:?}");
        }
    }

    #[test]
    fn a_full_history_is_swept_once_per_stride() {
        let keeps = |runs| Retention { age: None, runs: Some(runs) };
        let looks = |retention: Retention, key, runs: std::ops::Range<i64>| {
            runs.filter(|before| retention.looks_at(key, *before, before + 1)).count()
        };
        assert_eq!(looks(keeps(1_000), 7, 0..1_000), 0);
        for key in 0..40 {
            assert!((32..=33).contains(&looks(keeps(1_000), key, 1_000..2_000)), "{key}");
        }
        assert_eq!(looks(keeps(5), 7, 0..100), 95);
        assert_eq!(looks(Retention { age: None, runs: None }, 7, 0..10_000), 0);
        // Many runs at once pass a turn as well as one.
        assert!(keeps(1_000).looks_at(7, 1_000, 1_100));
    }

    #[test]
    fn cues_that_run_together_are_swept_at_different_runs() {
        let retention = Retention::default();
        let at_once = (0..3_100).filter(|key| retention.looks_at(*key, 5_000, 5_001)).count();
        assert_eq!(at_once, 100);
    }
}
