//! An interval (`schedule.every`, contract §4.3): runs at equal distances of elapsed time, whatever a local clock does.

use std::ops::RangeInclusive;

use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};

use crate::domain::schedule::Occurrences;

/// Bytes of the text, which is stored.
const MAX_LENGTH: usize = 64;

const DAY_MS: i64 = 24 * 3_600_000;

const PERIOD_MS: RangeInclusive<i64> = 10_000..=366 * DAY_MS;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    text: String,
    period_ms: i64,
    /// Runs are at this instant and at whole periods after it.
    from: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "an interval is from 10 seconds to 366 days in whole seconds: write it as 90s, 5m, 1h30m, 2d or PT5M"
)]
pub struct BadInterval;

impl Interval {
    /// Reads `1h30m`, or ISO 8601 such as `PT5M`. A day has 24 hours.
    pub fn parse(text: &str, from: Timestamp) -> Result<Self, BadInterval> {
        let text = text.trim();
        if text.len() > MAX_LENGTH {
            return Err(BadInterval);
        }
        let period = elapsed(text).ok_or(BadInterval)?;
        let period_ms = i64::try_from(period.as_millis()).map_err(|_| BadInterval)?;
        let is_whole = period.subsec_nanos() == 0;
        (is_whole && PERIOD_MS.contains(&period_ms)).then_some(()).ok_or(BadInterval)?;
        Ok(Self { text: text.to_owned(), period_ms, from })
    }

    /// The interval as its user wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn from(&self) -> Timestamp {
        self.from
    }

    pub fn count_from(&mut self, from: Timestamp) {
        self.from = from;
    }

    pub fn period(&self) -> SignedDuration {
        SignedDuration::from_millis(self.period_ms)
    }

    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        self.run(self.count_until(after))
    }

    /// The runs in (`after`, `until`].
    pub fn occurrences(&self, after: Timestamp, until: Timestamp) -> Occurrences {
        let (begin, end) = (self.count_until(after), self.count_until(until));
        if begin >= end {
            return Occurrences::default();
        }
        Occurrences {
            first: self.run(begin),
            last: self.run(end - 1),
            count: (end - begin).unsigned_abs(),
        }
    }

    /// The runs in (`after`, `until`], newest first.
    pub fn newest_first(
        &self,
        after: Timestamp,
        until: Timestamp,
    ) -> impl Iterator<Item = Timestamp> {
        (self.count_until(after)..self.count_until(until))
            .rev()
            .filter_map(|number| self.run(number))
    }

    /// `Every 5 minutes`, `Every 1 h 30 min`.
    pub fn describe(&self) -> String {
        let mut rest = self.period_ms / 1_000;
        let mut parts = Vec::new();
        for (unit, short, seconds) in [
            ("day", "d", DAY_MS / 1_000),
            ("hour", "h", 3_600),
            ("minute", "min", 60),
            ("second", "s", 1),
        ] {
            match rest / seconds {
                0 => {}
                count => parts.push((count, unit, short)),
            }
            rest %= seconds;
        }
        match parts.as_slice() {
            [(1, unit, _)] => format!("Every {unit}"),
            [(count, unit, _)] => format!("Every {count} {unit}s"),
            _ => {
                let parts = parts.iter().map(|(count, _, short)| format!(" {count} {short}"));
                format!("Every{}", parts.collect::<String>())
            }
        }
    }

    /// The number of runs up to and including this instant.
    fn count_until(&self, at: Timestamp) -> i64 {
        let elapsed = at.as_millisecond() - self.from.as_millisecond();
        if elapsed < 0 { 0 } else { elapsed / self.period_ms + 1 }
    }

    fn run(&self, number: i64) -> Option<Timestamp> {
        let elapsed = number.checked_mul(self.period_ms)?;
        self.from.checked_add(SignedDuration::from_millis(elapsed)).ok()
    }
}

/// The time that `1h30m`, `20 min` or `PT5M` stands for. A day has 24 hours.
pub fn elapsed(text: &str) -> Option<SignedDuration> {
    let span: Span = text.parse().ok()?;
    span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_read_in_both_forms_and_described() {
        for (text, words) in [
            ("10s", "Every 10 seconds"),
            ("90s", "Every 1 min 30 s"),
            ("5m", "Every 5 minutes"),
            ("PT5M", "Every 5 minutes"),
            ("1h30m", "Every 1 h 30 min"),
            ("1h", "Every hour"),
            ("2d", "Every 2 days"),
            ("P1D", "Every day"),
            ("366d", "Every 366 days"),
        ] {
            let interval = Interval::parse(text, Timestamp::UNIX_EPOCH).unwrap();
            assert_eq!((interval.describe().as_str(), interval.text()), (words, text));
        }
        for bad in [
            "",
            "9s",
            "367d",
            "5",
            "-5m",
            "5m ago",
            "1mo",
            "P1Y",
            "10.5s",
            "m",
            "@every 5m",
            "5m 5m",
        ] {
            assert_eq!(Interval::parse(bad, Timestamp::UNIX_EPOCH), Err(BadInterval), "{bad}");
        }
    }

    #[test]
    fn runs_are_whole_periods_after_the_first_at_the_ends_of_time_too() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let interval = Interval::parse("10s", at(100)).unwrap();
        for (after, next) in [(0, 100), (99, 100), (100, 110), (105, 110), (1_000, 1_010)] {
            assert_eq!(interval.next_after(at(after)), Some(at(next)), "{after}");
        }
        assert_eq!(interval.next_after(Timestamp::MAX), None);
        assert_eq!(interval.next_after(Timestamp::MIN), Some(at(100)));
        let runs = interval.occurrences(at(100), at(130));
        assert_eq!((runs.first, runs.last, runs.count), (Some(at(110)), Some(at(130)), 3));
        assert_eq!(interval.occurrences(at(130), at(100)), Occurrences::default());
        let newest: Vec<Timestamp> = interval.newest_first(at(90), at(115)).collect();
        assert_eq!(newest, [at(110), at(100)]);
    }
}
