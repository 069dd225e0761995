//! Schedules: a cron expression in a time zone, an interval, or one instant, within bounds. Computes upcoming and past
//! runs, with the rule for daylight saving time of contract §4. What a person is shown of a run is in `occurrence`
//! (§4.5), the runs of many cues in `planned` (§4.13), what a person may write in `words`, the handling of missed runs in `catch_up`, and that of a clock that
//! jumps in `wall_clock`.

pub mod catch_up;
pub mod cron;
mod instant;
pub mod interval;
mod occurrence;
pub mod planned;
pub mod wall_clock;
pub mod words;
mod zone;
pub mod zone_change;

use jiff::civil::{DateTime, Time};
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};

use crate::domain::api_error::{ErrorCode, Refusal, SchedulePart};
use crate::domain::schedule::cron::{CronError, CronExpr};
pub use crate::domain::schedule::instant::{EARLIEST, is_instant, parse_instant};
use crate::domain::schedule::interval::{BadInterval, Interval};
pub use crate::domain::schedule::occurrence::{Occurrence, Transition, clock_time, offset_text};
use crate::domain::schedule::words::WordsError;
pub use crate::domain::schedule::zone::{BUILT_IN_VERSION, UnknownZone, Zone};
use crate::domain::text::word_enum;
use crate::domain::time::{just_before, saturating_add, saturating_sub};

/// The number of runs that are compared for the shortest distance of a cron expression.
const SAMPLE: usize = 24;
const SAMPLE_START: Timestamp = Timestamp::constant(1_767_225_600, 0); // 2026-01-01

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    pub rule: ScheduleRule,
    /// The zone of the cron expression, and of an instant that is written without an offset.
    pub zone: Zone,
    pub catch_up: CatchUp,
    pub bounds: Bounds,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleRule {
    Recurring(CronExpr),
    Every(Interval),
    Once(Timestamp),
}

impl ScheduleRule {
    /// Errors: the cron expression is invalid or never matches.
    pub fn cron(text: &str) -> Result<Self, ScheduleError> {
        let cron = CronExpr::parse(text)?;
        if !cron.ever_matches() {
            return Err(ScheduleError::NeverMatches(cron.day_of_month_span()));
        }
        Ok(Self::Recurring(cron))
    }

    /// An interval whose runs are counted from `from`.
    pub fn every(text: &str, from: Timestamp) -> Result<Self, ScheduleError> {
        Ok(Self::Every(Interval::parse(text, from)?))
    }
}

/// What limits and moves the runs of a rule (contract §4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Bounds {
    /// No run is before it.
    pub start: Option<Timestamp>,
    /// No run is at or after it.
    pub end: Option<Timestamp>,
    /// Upper limit of the delay.
    pub jitter_seconds: u32,
    /// The delay of every run of a cue, which follows from its id. `None` in a preview, which has no cue.
    pub delay_seconds: Option<u32>,
}

impl Bounds {
    pub fn delay(&self) -> SignedDuration {
        SignedDuration::from_secs(self.delay_seconds.unwrap_or_default().into())
    }

    fn delayed(&self, run: Timestamp) -> Timestamp {
        saturating_add(run, self.delay())
    }
}

word_enum! {
    /// The missed runs that still fire (contract §4).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
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
    pub last: Option<Timestamp>,
    pub count: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    #[error(transparent)]
    Cron(#[from] CronError),
    /// The cron expression is valid but matches no date that exists or is still to come.
    #[error(
        "day-of-month: this date never occurs, so the cue would never run; use a date that exists"
    )]
    NeverMatches(
        /// The day-of-month field in the expression, in characters, half open.
        (usize, usize),
    ),
    #[error(transparent)]
    UnknownZone(#[from] UnknownZone),
    #[error(transparent)]
    BadInterval(#[from] BadInterval),
    #[error(transparent)]
    Words(#[from] WordsError),
    #[error("end: no run is left before {0}; use a later end, or null")]
    Ended(Timestamp),
    /// The text of an instant, and what is wrong with it.
    #[error(
        "`{text}` {problem}; write it as 2030-01-31T09:00:00Z, \
         or without an offset for the local time of the schedule",
        text = excerpt(.0),
        problem = .1
    )]
    BadInstant(String, &'static str),
    /// The instant in the time zone of the schedule.
    #[error("at: {0} is not in the future; use a later instant")]
    NotInFuture(String),
}

impl Schedule {
    /// Without bounds.
    pub fn new(rule: ScheduleRule, zone: Zone, catch_up: CatchUp) -> Self {
        Self { rule, zone, catch_up, bounds: Bounds::default() }
    }

    /// Counts the runs of an interval from its start, else from `now`.
    pub fn begin(&mut self, now: Timestamp) {
        if let ScheduleRule::Every(interval) = &mut self.rule {
            interval.count_from(self.bounds.start.unwrap_or(now));
        }
    }

    /// The shortest time between two runs; of a cron expression, between some of them. `None` if there is only one.
    pub fn shortest_distance(&self) -> Option<SignedDuration> {
        let ScheduleRule::Recurring(cron) = &self.rule else {
            return match &self.rule {
                ScheduleRule::Every(interval) => Some(interval.period()),
                _ => None,
            };
        };
        let runs = std::iter::successors(next(cron, &self.zone, SAMPLE_START), |run| {
            next(cron, &self.zone, *run)
        });
        let runs: Vec<Timestamp> = runs.take(SAMPLE).collect();
        runs.windows(2).map(|pair| pair[1].duration_since(pair[0])).min()
    }

    /// Errors: the cron expression is invalid or never matches, or the zone is unknown.
    pub fn recurring(cron: &str, zone: &str, catch_up: CatchUp) -> Result<Self, ScheduleError> {
        let zone = Zone::find(zone)?;
        Ok(Self::new(ScheduleRule::cron(cron)?, zone, catch_up))
    }

    /// A schedule of one run at `at`, in the form that [`parse_instant`] reads. An instant in the past is accepted
    /// here and rejected by [`Self::first_run`].
    pub fn once(at: &str, zone: &str) -> Result<Self, ScheduleError> {
        let zone = Zone::find(zone)?;
        let at = parse_instant(at, &zone)?;
        Ok(Self::new(ScheduleRule::Once(at), zone, CatchUp::default()))
    }

    fn not_in_future(&self, at: Timestamp) -> ScheduleError {
        let offset = self.zone.offset(at);
        ScheduleError::NotInFuture(if offset.is_zero() {
            at.to_string()
        } else {
            at.display_with_offset(offset).to_string()
        })
    }

    /// The first run of a schedule that starts at `now`.
    /// Errors: no run follows: the instant is not in the future, or the cron expression no longer matches.
    pub fn first_run(&self, now: Timestamp) -> Result<Timestamp, ScheduleError> {
        // The delay does not count: it must neither admit an instant in the past nor repeat a run.
        if let ScheduleRule::Once(at) = &self.rule
            && *at <= now
        {
            return Err(self.not_in_future(*at));
        }
        self.next_after(now).ok_or_else(|| match (&self.rule, self.bounds.end) {
            (ScheduleRule::Once(at), _) => self.not_in_future(*at),
            (_, Some(end)) => ScheduleError::Ended(end),
            (ScheduleRule::Recurring(cron), None) => {
                ScheduleError::NeverMatches(cron.day_of_month_span())
            }
            // Only beyond the last instant that exists.
            (ScheduleRule::Every(_), None) => ScheduleError::BadInterval(BadInterval),
        })
    }

    /// The span of the rule whose runs, delayed, are those of the schedule in (`after`, `until`].
    fn rule_span(&self, after: Timestamp, until: Timestamp) -> (Timestamp, Timestamp) {
        let Bounds { start, end, .. } = self.bounds;
        let earliest = match (&self.rule, start) {
            (_, Some(start)) => just_before(start),
            // The instant of the creation is no run, and with a delay it is none either.
            (ScheduleRule::Every(interval), None) => interval.from(),
            (_, None) => Timestamp::MIN,
        };
        let until = end.map_or(until, |end| until.min(just_before(end)));
        let undelayed = |at| saturating_sub(at, self.bounds.delay());
        (undelayed(after).max(earliest), undelayed(until))
    }

    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let (after, until) = self.rule_span(after, Timestamp::MAX);
        let run = match &self.rule {
            ScheduleRule::Once(at) => Some(*at).filter(|at| *at > after),
            ScheduleRule::Recurring(cron) => next(cron, &self.zone, after),
            ScheduleRule::Every(interval) => interval.next_after(after),
        };
        run.filter(|run| *run <= until).map(|run| self.bounds.delayed(run))
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
        std::iter::successors(self.next_after(after), |run| self.next_after(*run))
            .take(limit)
            .collect()
    }

    /// The runs in (`after`, `until`], counted by arithmetic, so that a minutely cue costs no more than a daily one.
    pub fn occurrences(&self, after: Timestamp, until: Timestamp) -> Occurrences {
        let (after, until) = self.rule_span(after, until);
        let found = match &self.rule {
            _ if after >= until => Occurrences::default(),
            ScheduleRule::Once(at) if after < *at && *at <= until => {
                Occurrences { first: Some(*at), last: Some(*at), count: 1 }
            }
            ScheduleRule::Once(_) => Occurrences::default(),
            ScheduleRule::Every(interval) => interval.occurrences(after, until),
            ScheduleRule::Recurring(cron) => between(cron, &self.zone, after, until).fold(
                Occurrences::default(),
                |sum, segment| Occurrences {
                    first: sum.first.or_else(|| segment.first(cron)),
                    last: segment.last(cron).or(sum.last),
                    count: sum.count + segment.count(cron),
                },
            ),
        };
        let delayed = |run: Option<Timestamp>| run.map(|run| self.bounds.delayed(run));
        Occurrences { first: delayed(found.first), last: delayed(found.last), count: found.count }
    }

    /// The schedule in English, such as `At 09:00, Monday to Friday, Europe/Berlin`.
    pub fn describe(&self) -> String {
        let Bounds { start, end, jitter_seconds, delay_seconds } = self.bounds;
        let day = |at: Timestamp| {
            let local = self.zone.reading(at);
            let time = if local.time() == Time::midnight() {
                String::new()
            } else {
                format!(" at {}", clock_time(local))
            };
            format!("{}{time}", local.strftime("%-d %B %Y"))
        };
        let mut text = match &self.rule {
            ScheduleRule::Recurring(cron) => cron.describe(),
            ScheduleRule::Every(interval) => interval.describe(),
            ScheduleRule::Once(at) => {
                let local = self.zone.reading(*at);
                format!("Once, on {} at {}", local.strftime("%A %-d %B %Y"), clock_time(local))
            }
        };
        text.extend(start.map(|start| format!(" from {}", day(start))));
        text.extend(end.map(|end| format!(" until {}", day(end))));
        match (jitter_seconds, delay_seconds) {
            (0, _) => {}
            (jitter, None) => text.push_str(&format!(", up to {jitter} s later")),
            (_, Some(0)) => {}
            (_, Some(delay)) => text.push_str(&format!(", {delay} s later")),
        }
        format!("{text}, {}", self.zone.name())
    }

    pub fn newest(&self, after: Timestamp, until: Timestamp, limit: usize) -> Vec<Timestamp> {
        let (after, until) = self.rule_span(after, until);
        if after >= until {
            return Vec::new();
        }
        let mut runs: Vec<Timestamp> = match &self.rule {
            ScheduleRule::Once(at) => {
                Some(*at).filter(|at| after < *at && *at <= until).into_iter().take(limit).collect()
            }
            ScheduleRule::Every(interval) => {
                interval.newest_first(after, until).take(limit).collect()
            }
            ScheduleRule::Recurring(cron) => {
                let segments: Vec<ClockSegment> = between(cron, &self.zone, after, until).collect();
                segments
                    .iter()
                    .rev()
                    .flat_map(|segment| segment.newest_first(cron))
                    .take(limit)
                    .collect()
            }
        };
        runs.reverse();
        runs.into_iter().map(|run| self.bounds.delayed(run)).collect()
    }
}

impl From<ScheduleError> for Refusal {
    fn from(error: ScheduleError) -> Self {
        let (code, part) = match &error {
            ScheduleError::UnknownZone(_) => {
                (ErrorCode::InvalidTimezone, SchedulePart::of("timezone"))
            }
            ScheduleError::BadInstant(..) | ScheduleError::NotInFuture(_) => {
                (ErrorCode::InvalidSchedule, SchedulePart::of("at"))
            }
            ScheduleError::BadInterval(_) => {
                (ErrorCode::InvalidSchedule, SchedulePart::of("every"))
            }
            ScheduleError::Ended(_) => (ErrorCode::InvalidSchedule, SchedulePart::of("end")),
            ScheduleError::NeverMatches(span) => {
                (ErrorCode::InvalidSchedule, SchedulePart::of_cron("day-of-month", *span))
            }
            ScheduleError::Cron(CronError { field, span, .. }) => {
                (ErrorCode::InvalidSchedule, SchedulePart::of_cron(field, *span))
            }
            ScheduleError::Words(WordsError { span, .. }) => {
                (ErrorCode::InvalidSchedule, SchedulePart::of_cron("text", *span))
            }
        };
        let message = match &error {
            ScheduleError::BadInstant(..) => format!("at: {error}"),
            _ => error.to_string(),
        };
        Self { schedule_part: part, ..Self::new(code, message) }
    }
}

/// A span of time without a clock change. All bounds are local times.
#[derive(Debug, Clone, Copy)]
struct ClockSegment {
    offset: Offset,
    /// Exclusive lower bound: local times up to this one belong to earlier segments.
    floor: DateTime,
    /// The local time at the start. Times in (`floor`, `landing`] were skipped and run together at the start, as one
    /// run.
    landing: DateTime,
    top: DateTime,
}

fn next(cron: &CronExpr, zone: &Zone, after: Timestamp) -> Option<Timestamp> {
    next_unless_shown(cron, zone, after, DateTime::MIN)
}

/// As [`next`], on a clock that has shown all local times up to `shown`.
fn next_unless_shown(
    cron: &CronExpr,
    zone: &Zone,
    after: Timestamp,
    shown: DateTime,
) -> Option<Timestamp> {
    // A floor, and the first match above it. A rare match lies many clock changes ahead, and is searched once.
    let mut found: Option<(DateTime, DateTime)> = None;
    for segment in segments(cron, zone, after, Timestamp::MAX, shown) {
        let known = found.filter(|(floor, time)| *floor <= segment.floor && segment.floor < *time);
        let time = match known {
            Some((_, time)) => time,
            // If the calendar has no later match, no later segment has one either.
            None => cron.next_civil(segment.floor)?,
        };
        found = Some((segment.floor, time));
        if let Some(run) = segment.run_at(time) {
            return Some(run);
        }
    }
    None
}

/// The segments of (`after`, `until`] in order, with the local times that `cron` may match in each.
fn between(
    cron: &CronExpr,
    zone: &Zone,
    after: Timestamp,
    until: Timestamp,
) -> impl Iterator<Item = ClockSegment> {
    segments(cron, zone, after, until, DateTime::MIN)
}

fn segments(
    cron: &CronExpr,
    zone: &Zone,
    after: Timestamp,
    until: Timestamp,
    shown: DateTime,
) -> impl Iterator<Item = ClockSegment> {
    // A cron expression that covers every hour runs at each real minute whose local time matches. All others run when
    // the local clock first reaches or passes a time: a repeated time does not run again, a skipped time runs when
    // the clock lands.
    let every_hour = cron.covers_every_hour();
    let mut furthest =
        if every_hour { zone.reading(after) } else { zone.latest_local_time(after).max(shown) };
    let mut start = Some(after);
    std::iter::from_fn(move || {
        let began = start?;
        start = zone.changes_after(began).next().filter(|change| *change <= until);
        let last = start.map_or(until, last_nanosecond);
        let offset = zone.offset(began);
        let landing = offset.to_datetime(began);
        let top = offset.to_datetime(last);
        let floor = if every_hour && began != after { before(landing) } else { furthest };
        // `max`, because another change may follow before a repetition has ended.
        furthest = furthest.max(top);
        let landing = if every_hour { floor } else { landing };
        Some(ClockSegment { offset, floor, landing, top })
    })
}

impl ClockSegment {
    fn first(&self, cron: &CronExpr) -> Option<Timestamp> {
        self.run_at(cron.next_civil(self.floor)?)
    }

    fn last(&self, cron: &CronExpr) -> Option<Timestamp> {
        self.newest_first(cron).next()
    }

    fn count(&self, cron: &CronExpr) -> u64 {
        let skipped = cron.count_civil(self.floor, self.landing).min(1);
        skipped + cron.count_civil(self.floor.max(self.landing), self.top)
    }

    fn newest_first(&self, cron: &CronExpr) -> impl Iterator<Item = Timestamp> {
        let time_up_to = |top| cron.last_civil(self.floor, top);
        std::iter::successors(time_up_to(self.top), move |time| {
            // All times up to the landing are one run.
            if *time <= self.landing { None } else { time_up_to(before(*time)) }
        })
        .filter_map(|time| self.run_at(time))
    }

    /// The instant of a local time above the floor, if it lies in this segment.
    fn run_at(&self, time: DateTime) -> Option<Timestamp> {
        if time > self.top {
            return None;
        }
        self.offset.to_timestamp(time.max(self.landing)).ok()
    }
}

fn before(reading: DateTime) -> DateTime {
    reading.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(reading)
}

fn excerpt(text: &str) -> String {
    text.chars().take(60).collect()
}

fn last_nanosecond(at: Timestamp) -> Timestamp {
    at.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(at)
}

#[cfg(test)]
mod test_support {
    use super::*;

    /// A zone with the built-in rules, so that no test depends on the system.
    pub fn zone(name: &str) -> Zone {
        Zone::find_built_in(name).unwrap()
    }

    pub fn recurring(cron: &str, zone_name: &str) -> Schedule {
        let cron = CronExpr::parse(cron).unwrap_or_else(|error| panic!("{cron}: {error}"));
        Schedule::new(ScheduleRule::Recurring(cron), zone(zone_name), CatchUp::Latest)
    }

    pub fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// The rows of a table of `tests/data` and their columns. Lines that begin with `#` are comments.
    pub fn rows<const COLUMNS: usize>(table: &str) -> Vec<[&str; COLUMNS]> {
        let rows = table.lines().filter(|line| !line.starts_with('#'));
        rows.map(|row| row.split('\t').collect::<Vec<_>>().try_into().expect(row)).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::domain::schedule::test_support::*;

    #[test]
    fn runs_follow_the_local_clock_through_every_kind_of_change() {
        let rows = rows(include_str!("../../../tests/data/clock-changes.tsv"));
        for [zone, cron, after, runs] in &rows {
            let expected: Vec<_> = runs.split(' ').map(at).collect();
            let found = recurring(cron, zone).upcoming(at(after), expected.len());
            assert_eq!(found, expected, "{cron} in {zone} after {after}");
        }
        assert_eq!(rows.len(), 42);
    }
}
