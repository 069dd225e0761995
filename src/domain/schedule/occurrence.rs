//! A run as a person sees it: its local time, and what a clock change does to it (contract §4.5).

use jiff::civil::DateTime;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};

use crate::domain::schedule::cron::CronExpr;
use crate::domain::schedule::instant::skipped_time;
use crate::domain::schedule::{Schedule, ScheduleRule, Zone, last_nanosecond};
use crate::domain::time::{saturating_add, saturating_sub};

/// The span for counting runs: no month is longer.
const MONTH: SignedDuration = SignedDuration::from_hours(31 * 24);

/// Most transitions of one answer. A hundred runs of a rare cron span thousands of years.
const MAX_TRANSITIONS: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occurrence {
    pub at: Timestamp,
    pub local: DateTime,
    pub offset: Offset,
    pub note: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    pub at: Timestamp,
    pub from: Offset,
    pub to: Offset,
}

impl Schedule {
    pub fn occurrence(&self, at: Timestamp) -> Occurrence {
        let local = self.zone.reading(at);
        let planned = saturating_sub(at, self.bounds.delay());
        let note = match &self.rule {
            ScheduleRule::Recurring(cron) if cron.covers_every_hour() => {
                let planned = self.zone.reading(planned);
                let repeated = self.zone.repetition(planned);
                repeated
                    .map(|_| format!("fold: {} comes twice, runs both times", clock_time(planned)))
            }
            ScheduleRule::Recurring(cron) => {
                gap_note(cron, &self.zone, planned).or_else(|| fold_note(&self.zone, planned))
            }
            // Elapsed time does not depend on the clocks.
            ScheduleRule::Every(_) => None,
            ScheduleRule::Once(_) => fold_note(&self.zone, planned),
        };
        Occurrence { at, local, offset: self.zone.offset(at), note }
    }

    /// The note of a `once` schedule whose instant was `written` as a local time that a clock change skips. A schedule
    /// holds the instant alone, which [`Self::occurrence`] cannot know.
    pub fn skipped_note(&self, written: &str) -> Option<String> {
        let ScheduleRule::Once(at) = self.rule else { return None };
        let skipped = skipped_time(written, &self.zone)?;
        let landing = self.zone.reading(at);
        Some(format!(
            "gap: {} does not exist, runs at {}",
            named_time(skipped, landing),
            clock_time(landing)
        ))
    }

    /// The changes of the zone's offset in (`after`, `until`], the first hundred of them.
    pub fn transitions(&self, after: Timestamp, until: Timestamp) -> Vec<Transition> {
        let offsets = |at| Transition {
            at,
            from: self.zone.offset(last_nanosecond(at)),
            to: self.zone.offset(at),
        };
        let changes = self.zone.changes_after(after).take_while(|at| *at <= until).map(offsets);
        changes.filter(|change| change.from != change.to).take(MAX_TRANSITIONS).collect()
    }

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
        (2, _) => {
            format!("gap: {} and {} do not exist, one run at {run}", named(first), named(last))
        }
        _ => format!("gap: {} to {} do not exist, one run at {run}", named(first), named(last)),
    })
}

/// A skipped time, with its date if the run after the gap is on another one.
fn named_time(skipped: DateTime, landing: DateTime) -> String {
    if skipped.date() == landing.date() {
        clock_time(skipped)
    } else {
        format!("{} {}", skipped.date(), clock_time(skipped))
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
