//! Figures over time: what became of a user's executions in each hour or day (contract §8.11).

use jiff::{SignedDuration, Timestamp};

use crate::domain::text::word_enum;
use crate::domain::time::just_before;

/// A year and the month to compare it with.
pub const KEPT_FOR: SignedDuration = SignedDuration::from_hours(400 * 24);

/// Steps of one series: 41 days by hour, and more days than are kept. About 150 KB of JSON.
pub const MAX_STEPS: i64 = 1_000;

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

/// Counts and times of the executions of an interval, or the change of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    pub succeeded: i64,
    pub failed: i64,
    pub retried: i64,
    pub missed: i64,
    /// The executions whose end was that of an attempt. The times are over these.
    pub measured: i64,
    pub late_sum_ms: i64,
    pub late_max_ms: i64,
    pub took_sum_ms: i64,
}

impl Figures {
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

    pub fn late_avg_ms(&self) -> Option<i64> {
        self.late_sum_ms.checked_div(self.measured)
    }

    pub fn late_max_ms(&self) -> Option<i64> {
        (self.measured > 0).then_some(self.late_max_ms)
    }

    pub fn took_avg_ms(&self) -> Option<i64> {
        self.took_sum_ms.checked_div(self.measured)
    }
}

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Step {
        Hour = "hour",
        Day = "day",
    }
}

impl Step {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GridError {
    Empty,
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

    pub fn last_hours(hours: i64, now: Timestamp) -> Self {
        let end = hour_of(now) + 1;
        Self { step: Step::Hour, first: end - hours, end }
    }

    pub fn len(&self) -> usize {
        usize::try_from(self.end - self.first).unwrap_or(0)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn hours(&self) -> (i64, i64) {
        (self.first * self.step.hours(), self.end * self.step.hours())
    }

    pub fn millis(&self) -> (i64, i64) {
        let (first, end) = self.hours();
        (first * HOUR_MS, end * HOUR_MS)
    }

    /// The place of the step that contains an hour; `None` outside of the grid.
    pub fn place(&self, hour: i64) -> Option<usize> {
        let number = hour.div_euclid(self.step.hours());
        (self.first..self.end)
            .contains(&number)
            .then(|| usize::try_from(number - self.first).ok())?
    }

    pub fn begins(&self) -> impl Iterator<Item = Timestamp> {
        let length = self.step.hours() * HOUR_MS;
        // The step of the first representable instant begins before it.
        (self.first..self.end).map(move |number| {
            Timestamp::from_millisecond(number * length).unwrap_or(Timestamp::MIN)
        })
    }
}
