//! Figures over time: what became of a user's executions in each hour or day (contract §8.11).

use jiff::{SignedDuration, Timestamp};

use crate::domain::text::word_enum::word_enum;
use crate::domain::time::just_before;

/// The time for which the figures of an hour are kept: a year and the month to compare it with.
pub const KEPT_FOR: SignedDuration = SignedDuration::from_hours(400 * 24);

/// Steps of one series: 41 days by hour, and more days than are kept. About 150 KB of JSON.
pub const MAX_STEPS: i64 = 1_000;

/// Steps of a series without `from`: a day of hours, a month of days.
const DEFAULT_HOURS: i64 = 24;
const DEFAULT_DAYS: i64 = 30;

const HOUR_MS: i64 = 3_600_000;

/// The hour of an instant in UTC, as the number of hours since 1970.
pub fn hour_of(at: Timestamp) -> i64 {
    at.as_millisecond().div_euclid(HOUR_MS)
}

/// The number of whole milliseconds; 0 if it is negative, as after a clock was set back.
pub fn whole_millis(duration: SignedDuration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).max(0)
}

/// Counts and times of the executions of an interval. Also the change of such counts, with negative numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    pub succeeded: i64,
    pub failed: i64,
    /// Attempts that another one followed.
    pub retried: i64,
    /// Missed runs that were recorded.
    pub missed: i64,
    /// The executions whose end was that of an attempt. The times are over these.
    pub measured: i64,
    /// From the scheduled instant to the start of the first attempt.
    pub late_sum_ms: i64,
    pub late_max_ms: i64,
    /// The last attempt.
    pub took_sum_ms: i64,
}

impl Figures {
    /// Adds the figures of another interval.
    pub fn add(&mut self, other: &Self) {
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.retried += other.retried;
        self.missed += other.missed;
        self.measured += other.measured;
        self.late_sum_ms = self.late_sum_ms.saturating_add(other.late_sum_ms);
        self.late_max_ms = self.late_max_ms.max(other.late_max_ms);
        self.took_sum_ms = self.took_sum_ms.saturating_add(other.took_sum_ms);
    }

    /// The mean lateness; `None` if nothing was measured.
    pub fn late_avg_ms(&self) -> Option<i64> {
        self.late_sum_ms.checked_div(self.measured)
    }

    /// The greatest lateness; `None` if nothing was measured.
    pub fn late_max_ms(&self) -> Option<i64> {
        (self.measured > 0).then_some(self.late_max_ms)
    }

    /// The mean duration of the last attempt; `None` if nothing was measured.
    pub fn took_avg_ms(&self) -> Option<i64> {
        self.took_sum_ms.checked_div(self.measured)
    }
}

word_enum! {
    /// The length of a step, in UTC.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Step {
        Hour = "hour",
        Day = "day",
    }
}

impl Step {
    /// Its length in hours.
    pub const fn hours(self) -> i64 {
        match self {
            Self::Hour => 1,
            Self::Day => 24,
        }
    }
}

/// Consecutive steps, each beginning with a whole hour or day in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    pub step: Step,
    /// The first step and the one after the last, as numbers of steps since 1970.
    first: i64,
    end: i64,
}

/// A reason why there is no grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GridError {
    /// It would have no step.
    Empty,
    /// It would have more than [`MAX_STEPS`].
    TooLong,
}

impl Grid {
    /// The steps that have a part from `from` until before `to`. Without `to`, the last one is that of `now`; without
    /// `from`, there are 24 hours or 30 days.
    pub fn new(
        step: Step,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Self, GridError> {
        let number = |at: Timestamp| hour_of(at).div_euclid(step.hours());
        if matches!((from, to), (Some(from), Some(to)) if from >= to) {
            return Err(GridError::Empty);
        }
        let end = number(to.map_or(now, just_before)) + 1;
        let default = match step {
            Step::Hour => DEFAULT_HOURS,
            Step::Day => DEFAULT_DAYS,
        };
        let first = from.map_or(end - default, number);
        match end - first {
            ..=0 => Err(GridError::Empty),
            steps if steps > MAX_STEPS => Err(GridError::TooLong),
            _ => Ok(Self { step, first, end }),
        }
    }

    /// The last `hours` hours, with that of `now`.
    pub fn last_hours(hours: i64, now: Timestamp) -> Self {
        let end = hour_of(now) + 1;
        Self { step: Step::Hour, first: end - hours, end }
    }

    pub fn len(&self) -> usize {
        usize::try_from(self.end - self.first).unwrap_or(0)
    }

    /// False: a grid has at least one step.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first hour and the one after the last.
    pub fn hours(&self) -> (i64, i64) {
        (self.first * self.step.hours(), self.end * self.step.hours())
    }

    /// The first millisecond since 1970 and the one after the last.
    pub fn millis(&self) -> (i64, i64) {
        let (first, end) = self.hours();
        (first * HOUR_MS, end * HOUR_MS)
    }

    /// The place of the step that contains an hour; `None` outside of the grid.
    pub fn place(&self, hour: i64) -> Option<usize> {
        let number = hour.div_euclid(self.step.hours());
        (self.first..self.end).contains(&number).then(|| usize::try_from(number - self.first).ok())?
    }

    pub fn begins(&self) -> impl Iterator<Item = Timestamp> {
        let length = self.step.hours() * HOUR_MS;
        // The step of the first representable instant begins before it.
        (self.first..self.end)
            .map(move |number| Timestamp::from_millisecond(number * length).unwrap_or(Timestamp::MIN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn grid(step: Step, from: Option<&str>, to: Option<&str>) -> Result<Vec<String>, GridError> {
        let grid = Grid::new(step, from.map(at), to.map(at), at("2026-03-10T12:34:56Z"))?;
        let begins: Vec<String> = grid.begins().map(|begin| begin.to_string()).collect();
        assert_eq!(begins.len(), grid.len());
        Ok(begins)
    }

    #[test]
    fn a_grid_has_every_step_that_the_span_touches_and_ends_with_the_present_one() {
        for (step, from, to, count, first, last) in [
            (Step::Hour, Some("2026-03-10T09:59:59.999Z"), Some("2026-03-10T11:00:00Z"), 2, "10T09", "10T10"),
            (Step::Day, Some("2026-03-10T09:59:59.999Z"), Some("2026-03-10T11:00:00Z"), 1, "10T00", "10T00"),
            (Step::Day, Some("2026-03-09T23:00:00Z"), Some("2026-03-10T00:00:00.001Z"), 2, "09T00", "10T00"),
            (Step::Hour, None, None, 24, "09T13", "10T12"),
            (Step::Day, Some("2026-03-01T00:00:00Z"), None, 10, "01T00", "10T00"),
        ] {
            let begins = grid(step, from, to).unwrap();
            let ends = [&begins[0], &begins[begins.len() - 1]];
            let expected = [first, last].map(|hour| format!("2026-03-{hour}:00:00Z"));
            assert_eq!(
                (begins.len(), ends),
                (count, [&expected[0], &expected[1]]),
                "{step:?} {from:?} {to:?}"
            );
        }
        assert_eq!(grid(Step::Day, None, None).unwrap().len(), 30);
    }

    #[test]
    fn a_grid_has_between_one_and_a_thousand_steps() {
        let (now, start) = (Some("2026-03-10T12:34:56Z"), Some("2026-01-01T00:00:00Z"));
        for (step, from, to, count) in [
            (Step::Hour, now, now, Err(GridError::Empty)),
            (Step::Hour, Some("2026-03-10T13:00:00Z"), None, Err(GridError::Empty)),
            (Step::Hour, start, Some("2026-02-11T16:00:00Z"), Ok(1_000)),
            (Step::Hour, start, Some("2026-02-11T16:00:00.001Z"), Err(GridError::TooLong)),
            (
                Step::Day,
                Some("-009999-01-02T01:59:59Z"),
                Some("9999-12-30T22:00:00Z"),
                Err(GridError::TooLong),
            ),
        ] {
            assert_eq!(grid(step, from, to).map(|steps| steps.len()), count, "{step:?} {from:?} {to:?}");
        }
    }

    #[test]
    fn an_hour_has_its_place_in_the_step_that_contains_it() {
        let (from, to) = (at("2026-03-09T00:00:00Z"), at("2026-03-11T00:00:00Z"));
        let days = Grid::new(Step::Day, Some(from), Some(to), to).unwrap();
        let hour = hour_of(from);
        assert_eq!(
            [-1, 0, 23, 24, 47, 48].map(|it| days.place(hour + it)),
            [None, Some(0), Some(0), Some(1), Some(1), None]
        );
        assert_eq!(days.hours(), (hour, hour + 48));
    }

    #[test]
    fn means_are_over_the_measured_executions_and_none_without_them() {
        let mut sum = Figures { failed: 3, ..Figures::default() };
        assert_eq!((sum.late_avg_ms(), sum.late_max_ms(), sum.took_avg_ms()), (None, None, None));
        for late in [10, 31] {
            let (late_sum_ms, late_max_ms) = (late, late);
            sum.add(&Figures { measured: 1, late_sum_ms, late_max_ms, took_sum_ms: 5, ..Figures::default() });
        }
        assert_eq!((sum.late_avg_ms(), sum.late_max_ms(), sum.took_avg_ms()), (Some(20), Some(31), Some(5)));
    }
}
