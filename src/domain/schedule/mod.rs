//! Schedules: a cron expression in a time zone, or one instant. Computes upcoming and past runs, with the rule for
//! daylight saving time of contract §4, and a run as a person sees it: its local time, and what a clock change does to it
//! (§4.5). The handling of missed runs is in `catch_up`, and of a clock that jumps in `wall_clock`.

pub mod catch_up;
mod clock_segment;
pub mod cron;
pub mod instant;
pub mod time_zone;
pub mod wall_clock;

use jiff::civil::DateTime;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};

use crate::domain::api_error::{ErrorCode, Refusal, SchedulePart};
use crate::domain::schedule::clock_segment::ClockSegment;
use crate::domain::schedule::cron::{CronError, CronExpr};
use crate::domain::schedule::instant::skipped_time;
pub use crate::domain::schedule::instant::{EARLIEST, parse_instant};
use crate::domain::schedule::time_zone::{UnknownZone, Zone, excerpt, last_nanosecond};
use crate::domain::text::word_enum::word_enum;
use crate::domain::time::saturating_add;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    pub rule: ScheduleRule,
    /// The zone of the cron expression, and of an instant that is written without an offset.
    pub zone: Zone,
    pub catch_up: CatchUp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleRule {
    Recurring(CronExpr),
    Once(Timestamp),
}

word_enum! {
    /// The missed runs that still fire (contract §4).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum CatchUp {
        #[default]
        Latest = "latest",
        /// The newest 100, oldest first.
        All = "all",
        None = "none",
    }
}

/// The runs of a schedule within a span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Occurrences {
    pub first: Option<Timestamp>,
    /// Equal to `first` for a single run.
    pub last: Option<Timestamp>,
    pub count: u64,
}

/// The reason why a schedule is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    #[error(transparent)]
    Cron(#[from] CronError),
    /// The cron expression is valid but matches no date that exists or is still to come.
    #[error(
        "day-of-month: no month that the cron names has such a day, so it never runs; use a date that exists"
    )]
    NeverMatches(
        /// The day-of-month field in the expression, in characters, half open.
        (usize, usize),
    ),
    #[error(transparent)]
    UnknownZone(#[from] UnknownZone),
    /// The text of an instant, and what is wrong with it.
    #[error(
        "`{text}` {problem}; write it as 2030-01-31T09:00:00Z, \
         or without an offset for the local time of the schedule",
        text = excerpt(.0),
        problem = .1
    )]
    BadInstant(String, &'static str),
    /// The instant of a `once` schedule has passed.
    #[error("at: {0} is not in the future; use a later instant")]
    NotInFuture(Timestamp),
}

impl Schedule {
    /// A recurring schedule.
    /// Errors: the cron expression is invalid or never matches, or the zone is unknown.
    pub fn recurring(cron: &str, zone: &str, catch_up: CatchUp) -> Result<Self, ScheduleError> {
        let zone = Zone::find(zone)?;
        let cron = CronExpr::parse(cron)?;
        if !cron.ever_matches() {
            return Err(ScheduleError::NeverMatches(cron.day_of_month_span()));
        }
        Ok(Self { rule: ScheduleRule::Recurring(cron), zone, catch_up })
    }

    /// A schedule of one run at `at`, in the form that [`parse_instant`] reads. An instant in the past is accepted
    /// here and rejected by [`Self::first_run`].
    pub fn once(at: &str, zone: &str) -> Result<Self, ScheduleError> {
        let zone = Zone::find(zone)?;
        let at = parse_instant(at, &zone)?;
        Ok(Self { rule: ScheduleRule::Once(at), zone, catch_up: CatchUp::default() })
    }

    /// The first run of a schedule that starts at `now`.
    /// Errors: no run follows: the instant is not in the future, or the cron expression no longer matches.
    pub fn first_run(&self, now: Timestamp) -> Result<Timestamp, ScheduleError> {
        self.next_after(now).ok_or_else(|| match &self.rule {
            ScheduleRule::Recurring(cron) => ScheduleError::NeverMatches(cron.day_of_month_span()),
            ScheduleRule::Once(at) => ScheduleError::NotInFuture(*at),
        })
    }

    /// The first run strictly after `after`.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.rule {
            ScheduleRule::Once(at) => Some(*at).filter(|at| *at > after),
            ScheduleRule::Recurring(cron) => clock_segment::next(cron, &self.zone, after),
        }
    }

    /// The next `limit` runs strictly after `after`.
    ///
    /// ```
    /// use cued::domain::schedule::{CatchUp, Schedule};
    ///
    /// let daily = Schedule::recurring("30 2 * * *", "Europe/Berlin", CatchUp::Latest)?;
    /// let runs = daily.upcoming("2026-03-28T00:00:00Z".parse()?, 3);
    ///
    /// // On 29 March the clock jumps from 02:00 to 03:00: the run at 02:30 starts when the clock reaches 03:00.
    /// let runs: Vec<String> = runs.iter().map(ToString::to_string).collect();
    /// assert_eq!(runs, ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn upcoming(&self, after: Timestamp, limit: usize) -> Vec<Timestamp> {
        std::iter::successors(self.next_after(after), |run| self.next_after(*run)).take(limit).collect()
    }

    /// The runs in (`after`, `until`], counted by arithmetic, so that a minutely cue costs no more than a daily one.
    pub fn occurrences(&self, after: Timestamp, until: Timestamp) -> Occurrences {
        match &self.rule {
            ScheduleRule::Once(at) if after < *at && *at <= until => {
                Occurrences { first: Some(*at), last: Some(*at), count: 1 }
            }
            ScheduleRule::Once(_) => Occurrences::default(),
            ScheduleRule::Recurring(cron) => clock_segment::between(cron, &self.zone, after, until).fold(
                Occurrences::default(),
                |sum, segment| Occurrences {
                    first: sum.first.or_else(|| segment.first(cron)),
                    last: segment.last(cron).or(sum.last),
                    count: sum.count + segment.count(cron),
                },
            ),
        }
    }

    /// The schedule in English, such as `At 09:00, Monday to Friday, Europe/Berlin`.
    pub fn describe(&self) -> String {
        let when = match &self.rule {
            ScheduleRule::Recurring(cron) => cron.describe(),
            ScheduleRule::Once(at) => {
                let local = self.zone.reading(*at);
                format!("Once, on {} at {}", local.strftime("%A %-d %B %Y"), clock_time(local))
            }
        };
        format!("{when}, {}", self.zone.name())
    }

    /// The newest `limit` runs in (`after`, `until`], oldest first.
    pub fn newest(&self, after: Timestamp, until: Timestamp, limit: usize) -> Vec<Timestamp> {
        let mut runs: Vec<Timestamp> = match &self.rule {
            ScheduleRule::Once(at) => {
                Some(*at).filter(|at| after < *at && *at <= until).into_iter().take(limit).collect()
            }
            ScheduleRule::Recurring(cron) => {
                let segments: Vec<ClockSegment> =
                    clock_segment::between(cron, &self.zone, after, until).collect();
                segments.iter().rev().flat_map(|segment| segment.newest_first(cron)).take(limit).collect()
            }
        };
        runs.reverse();
        runs
    }
}

impl From<ScheduleError> for Refusal {
    fn from(error: ScheduleError) -> Self {
        let (code, part) = match &error {
            ScheduleError::UnknownZone(_) => (ErrorCode::InvalidTimezone, SchedulePart::of("timezone")),
            ScheduleError::BadInstant(..) | ScheduleError::NotInFuture(_) => {
                (ErrorCode::InvalidSchedule, SchedulePart::of("at"))
            }
            ScheduleError::NeverMatches(span) => {
                (ErrorCode::InvalidSchedule, SchedulePart::of_cron("day-of-month", *span))
            }
            ScheduleError::Cron(CronError { field, span, .. }) => {
                (ErrorCode::InvalidSchedule, SchedulePart::of_cron(field, *span))
            }
        };
        let message = match &error {
            ScheduleError::BadInstant(..) => format!("at: {error}"),
            _ => error.to_string(),
        };
        Self { schedule_part: part, ..Self::new(code, message) }
    }
}

/// The span for counting runs: no month is longer.
const MONTH: SignedDuration = SignedDuration::from_hours(31 * 24);

/// Most transitions of one answer. A hundred runs of a rare cron span thousands of years.
const MAX_TRANSITIONS: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occurrence {
    pub at: Timestamp,
    pub local: DateTime,
    pub offset: Offset,
    /// How a clock change moves or repeats the run.
    pub note: Option<String>,
}

/// A change of the difference between local time and UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    pub at: Timestamp,
    pub from: Offset,
    pub to: Offset,
}

impl Schedule {
    /// The run at `at`, which must be one of this schedule.
    pub fn occurrence(&self, at: Timestamp) -> Occurrence {
        let local = self.zone.reading(at);
        let note = match &self.rule {
            ScheduleRule::Recurring(cron) if cron.covers_every_hour() => {
                let repeated = self.zone.repetition(local);
                repeated.map(|_| format!("fold: {} comes twice, runs both times", clock_time(local)))
            }
            ScheduleRule::Recurring(cron) => {
                gap_note(cron, &self.zone, at).or_else(|| fold_note(&self.zone, at))
            }
            ScheduleRule::Once(_) => fold_note(&self.zone, at),
        };
        Occurrence { at, local, offset: self.zone.offset(at), note }
    }

    /// The note of a `once` schedule whose instant was `written` as a local time that a clock change skips. A schedule
    /// holds the instant alone, which [`Self::occurrence`] cannot know.
    pub fn skipped_note(&self, written: &str) -> Option<String> {
        let ScheduleRule::Once(at) = self.rule else { return None };
        let skipped = skipped_time(written, &self.zone)?;
        let landing = self.zone.reading(at);
        Some(format!("gap: {} does not exist, runs at {}", named_time(skipped, landing), clock_time(landing)))
    }

    /// The changes of the zone's offset in (`after`, `until`], the first hundred of them.
    pub fn transitions(&self, after: Timestamp, until: Timestamp) -> Vec<Transition> {
        let offsets =
            |at| Transition { at, from: self.zone.offset(last_nanosecond(at)), to: self.zone.offset(at) };
        let changes = self.zone.changes_after(after).take_while(|at| *at <= until).map(offsets);
        changes.filter(|change| change.from != change.to).take(MAX_TRANSITIONS).collect()
    }

    /// The number of runs in the 31 days after `after`.
    pub fn count_in_month(&self, after: Timestamp) -> u64 {
        self.occurrences(after, saturating_add(after, MONTH)).count
    }
}

/// The note of a run in place of times that a clock change at this instant skipped.
fn gap_note(cron: &CronExpr, zone: &Zone, at: Timestamp) -> Option<String> {
    let before = last_nanosecond(at);
    if zone.changes_after(before).next() != Some(at) {
        return None;
    }
    let landing = zone.reading(at);
    let last_skipped = landing.checked_sub(SignedDuration::from_nanos(1)).ok()?;
    let furthest = zone.latest_local_time(before);
    let count = cron.count_civil(furthest, last_skipped);
    let first = cron.next_civil(furthest).filter(|first| *first < landing)?;
    let last = cron.last_civil(furthest, last_skipped)?;
    let named = |time| named_time(time, landing);
    let runs_itself = cron.last_civil(last_skipped, landing).is_some();
    let run = clock_time(landing);
    Some(match (count, runs_itself) {
        (1, false) => format!("gap: {} does not exist, runs at {run}", named(first)),
        (1, true) => format!("gap: {} does not exist, one run at {run} for both", named(first)),
        (2, _) => format!("gap: {} and {} do not exist, one run at {run}", named(first), named(last)),
        _ => format!("gap: {} to {} do not exist, one run at {run}", named(first), named(last)),
    })
}

/// A skipped time, with its date if the run after the gap is on another one.
fn named_time(skipped: DateTime, landing: DateTime) -> String {
    match skipped.date() == landing.date() {
        true => clock_time(skipped),
        false => format!("{} {}", skipped.date(), clock_time(skipped)),
    }
}

/// The note of a run at a local time that comes twice.
fn fold_note(zone: &Zone, at: Timestamp) -> Option<String> {
    let local = zone.reading(at);
    let (first, _) = zone.repetition(local)?;
    let pass = if zone.offset(at) == first { "first" } else { "second" };
    Some(format!("fold: {} comes twice, runs the {pass} time", clock_time(local)))
}

/// `02:30`, with seconds only if there are any.
pub fn clock_time(local: DateTime) -> String {
    let format = if local.second() == 0 { "%H:%M" } else { "%H:%M:%S" };
    local.strftime(format).to_string()
}

/// `+02:00`, with seconds only if there are any.
pub fn offset_text(offset: Offset) -> String {
    let seconds = offset.seconds();
    let sign = if seconds < 0 { '-' } else { '+' };
    let (hours, minutes) = (seconds.abs() / 3600, seconds.abs() / 60 % 60);
    match seconds.abs() % 60 {
        0 => format!("{sign}{hours:02}:{minutes:02}"),
        seconds => format!("{sign}{hours:02}:{minutes:02}:{seconds:02}"),
    }
}
