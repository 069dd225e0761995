//! When a cue runs: a cron in a zone, or once at an instant; the runs ahead and those that were missed.
//! Holds the rule for daylight saving of contract §4. What becomes of missed runs is decided elsewhere.

pub mod catch_up;
mod clock_segment;
pub mod cron;
pub mod instant;
pub mod time_zone;

use std::fmt;

use jiff::Timestamp;

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::schedule::clock_segment::ClockSegment;
use crate::domain::schedule::cron::{CronError, CronExpr};
use crate::domain::schedule::time_zone::{UnknownZone, Zone};

pub use self::instant::parse_instant;

/// When a cue runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// The cron, or the one instant.
    pub timing: ScheduleRule,
    /// The zone in which the cron is read, and an instant that names no offset.
    pub zone: Zone,
    /// What becomes of runs that were missed.
    pub catch_up: CatchUp,
}

/// Again and again, or once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleRule {
    /// At every time that the cron names.
    Recurring(CronExpr),
    /// At this instant.
    Once(Timestamp),
}

/// Which of the runs that were missed still fire (contract §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CatchUp {
    /// The newest, once.
    #[default]
    Latest,
    /// The newest 100, oldest first.
    All,
    /// None of them.
    None,
}

/// The runs of a schedule within a span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Occurrences {
    /// The first one, if there is any.
    pub first: Option<Timestamp>,
    /// The last one; of a single run the same as the first.
    pub last: Option<Timestamp>,
    /// How many there are.
    pub count: u64,
}

/// Why a schedule is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleError {
    /// The cron cannot be read.
    Cron(CronError),
    /// The cron can be read, but names no date that exists or is still to come.
    NeverComesTrue,
    /// No zone is known by this name.
    UnknownZone(UnknownZone),
    /// The text of an instant cannot be read: the text, and why.
    BadInstant(String, &'static str),
    /// The one instant has passed.
    NotInFuture(Timestamp),
}

impl Schedule {
    /// A schedule that recurs.
    ///
    /// # Errors
    /// A cron that cannot be read or never comes true, a zone that is not known.
    pub fn recurring(cron: &str, zone: &str, catch_up: CatchUp) -> Result<Self, ScheduleError> {
        let zone = Zone::find(zone)?;
        let cron = CronExpr::parse(cron)?;
        if !cron.ever_matches() {
            return Err(ScheduleError::NeverComesTrue);
        }
        Ok(Self { timing: ScheduleRule::Recurring(cron), zone, catch_up })
    }

    /// A schedule of one run; see `parse_instant` for its text.
    ///
    /// # Errors
    /// A text that is no instant, a zone that is not known. An instant that has passed is refused by `first_run`.
    pub fn once(at: &str, zone: &str) -> Result<Self, ScheduleError> {
        let zone = Zone::find(zone)?;
        let at = parse_instant(at, &zone)?;
        Ok(Self { timing: ScheduleRule::Once(at), zone, catch_up: CatchUp::default() })
    }

    /// The run that comes next, for a schedule that is about to start.
    ///
    /// # Errors
    /// There is none: the one instant is not in the future, or the cron does not come true any more.
    pub fn first_run(&self, now: Timestamp) -> Result<Timestamp, ScheduleError> {
        self.next_after(now).ok_or(match self.timing {
            ScheduleRule::Recurring(_) => ScheduleError::NeverComesTrue,
            ScheduleRule::Once(at) => ScheduleError::NotInFuture(at),
        })
    }

    /// The first run strictly after an instant.
    #[must_use]
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.timing {
            ScheduleRule::Once(at) => Some(*at).filter(|at| *at > after),
            ScheduleRule::Recurring(cron) => clock_segment::next(cron, &self.zone, after),
        }
    }

    /// The next `limit` runs strictly after an instant.
    #[must_use]
    pub fn upcoming(&self, after: Timestamp, limit: usize) -> Vec<Timestamp> {
        std::iter::successors(self.next_after(after), |run| self.next_after(*run)).take(limit).collect()
    }

    /// The runs in (`after`, `until`], counted without visiting each.
    #[must_use]
    pub fn occurrences(&self, after: Timestamp, until: Timestamp) -> Occurrences {
        match &self.timing {
            ScheduleRule::Once(at) if after < *at && *at <= until => {
                Occurrences { first: Some(*at), last: Some(*at), count: 1 }
            }
            ScheduleRule::Once(_) => Occurrences::default(),
            ScheduleRule::Recurring(cron) => clock_segment::between(cron, &self.zone, after, until).fold(
                Occurrences::default(),
                |sum, stretch| Occurrences {
                    first: sum.first.or_else(|| stretch.first(cron)),
                    last: stretch.last(cron).or(sum.last),
                    count: sum.count + stretch.count(cron),
                },
            ),
        }
    }

    /// The newest `limit` runs in (`after`, `until`], oldest first.
    #[must_use]
    pub fn newest(&self, after: Timestamp, until: Timestamp, limit: usize) -> Vec<Timestamp> {
        let mut runs: Vec<Timestamp> = match &self.timing {
            ScheduleRule::Once(at) => {
                Some(*at).filter(|at| after < *at && *at <= until).into_iter().take(limit).collect()
            }
            ScheduleRule::Recurring(cron) => {
                let stretches: Vec<ClockSegment> =
                    clock_segment::between(cron, &self.zone, after, until).collect();
                stretches.iter().rev().flat_map(|stretch| stretch.newest_first(cron)).take(limit).collect()
            }
        };
        runs.reverse();
        runs
    }
}

impl CatchUp {
    /// The word of the contract.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Latest => "latest",
            Self::All => "all",
            Self::None => "none",
        }
    }

    /// The choice that a word of the contract stands for.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Latest, Self::All, Self::None].into_iter().find(|choice| choice.as_str() == text)
    }
}

impl From<CronError> for ScheduleError {
    fn from(error: CronError) -> Self {
        Self::Cron(error)
    }
}

impl From<UnknownZone> for ScheduleError {
    fn from(error: UnknownZone) -> Self {
        Self::UnknownZone(error)
    }
}

impl From<ScheduleError> for Refusal {
    fn from(error: ScheduleError) -> Self {
        match error {
            ScheduleError::UnknownZone(_) => Self::new(ErrorCode::InvalidTimezone, error.to_string()),
            ScheduleError::BadInstant(..) => Self::new(ErrorCode::InvalidSchedule, format!("at: {error}")),
            _ => Self::new(ErrorCode::InvalidSchedule, error.to_string()),
        }
    }
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cron(error) => error.fmt(f),
            Self::NeverComesTrue => {
                f.write_str("day-of-month: no month that the cron names has such a day, so it never runs; use a date that exists")
            }
            Self::UnknownZone(error) => error.fmt(f),
            Self::BadInstant(text, why) => {
                let text: String = text.chars().take(60).collect();
                write!(f, "`{text}` {why}; write it as 2030-01-31T09:00:00Z, or without an offset for the local time of the schedule")
            }
            Self::NotInFuture(at) => write!(f, "at: {at} is not in the future; use a later instant"),
        }
    }
}

impl std::error::Error for ScheduleError {}
