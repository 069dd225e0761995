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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::schedule::CatchUp;
    use crate::domain::schedule::test_support::{at, recurring};

    #[test]
    fn a_schedule_that_runs_once_has_one_run() {
        let schedule = Schedule::once("2030-01-31T09:00:00.25", "UTC").unwrap();
        let run = at("2030-01-31T09:00:00.25Z");
        let (before, after) = (at("2030-01-31T09:00:00Z"), at("2030-01-31T09:00:01Z"));
        assert_eq!(schedule.first_run(before), Ok(run));
        assert!(schedule.first_run(run).is_err());
        assert_eq!(schedule.upcoming(before, 10), [run]);
        assert_eq!(schedule.occurrences(before, after).count, 1);
        assert_eq!(schedule.occurrences(before, run).last, Some(run));
        assert_eq!(schedule.occurrences(run, after).count, 0);
        assert_eq!(schedule.newest(before, after, 5), [run]);
        assert!(schedule.newest(run, after, 5).is_empty());
    }

    #[test]
    fn a_long_gap_is_counted_without_visiting_each_minute() {
        // Stepping through 50 million runs would take minutes.
        let schedule = recurring("* * * * *", "Europe/Berlin");
        let (after, until) = (at("2026-01-01T00:00:00Z"), at("2126-01-01T00:00:00Z"));
        let spans = schedule.occurrences(after, until);
        assert_eq!(spans.count, (until.as_second() - after.as_second()) as u64 / 60);
        assert_eq!((spans.first, spans.last), (Some(at("2026-01-01T00:01:00Z")), Some(until)));
        assert_eq!(schedule.newest(after, until, 2), [at("2125-12-31T23:59:00Z"), until]);
    }

    #[test]
    fn a_span_excludes_its_start_and_includes_its_end() {
        let schedule = recurring("0 9 * * *", "UTC");
        let (first, second) = (at("2026-06-01T09:00:00Z"), at("2026-06-02T09:00:00Z"));
        assert_eq!(schedule.occurrences(first, second).first, Some(second));
        assert_eq!(schedule.occurrences(first, second).count, 1);
        for (after, until) in
            [(first, first), (second, first), (first, at("2026-06-02T08:59:59.999Z"))]
        {
            assert_eq!(schedule.occurrences(after, until).count, 0);
            assert!(schedule.newest(after, until, 5).is_empty());
        }
        assert!(schedule.newest(first, second, 0).is_empty());
    }

    #[test]
    fn a_schedule_reads_back_from_its_stored_texts() {
        let schedule = Schedule::recurring("@daily", "europe/berlin", CatchUp::All).unwrap();
        assert_eq!(schedule.zone.name(), "Europe/Berlin");
        assert_eq!(schedule.first_run(at("2026-06-01T12:00:00Z")), Ok(at("2026-06-01T22:00:00Z")));
    }

    /// Each run as local time, offset and note.
    fn shown(schedule: &Schedule, after: &str, limit: usize) -> Vec<String> {
        let runs = schedule.upcoming(at(after), limit);
        let shown = runs.into_iter().map(|run| schedule.occurrence(run)).map(|run| {
            let note = run.note.map_or(String::new(), |note| format!(" {note}"));
            format!("{}{}{note}", run.local, offset_text(run.offset))
        });
        shown.collect()
    }

    #[test]
    fn a_run_after_a_gap_says_which_time_does_not_exist() {
        let berlin = |cron, runs: &[&str]| {
            let schedule = recurring(cron, "Europe/Berlin");
            assert_eq!(shown(&schedule, "2026-03-29T00:10:00Z", runs.len()), runs, "{cron}");
        };
        berlin(
            "30 2 * * *",
            &[
                "2026-03-29T03:00:00+02:00 gap: 02:30 does not exist, runs at 03:00",
                "2026-03-30T02:30:00+02:00",
            ],
        );
        berlin(
            "0 2,3 * * *",
            &[
                "2026-03-29T03:00:00+02:00 gap: 02:00 does not exist, one run at 03:00 for both",
                "2026-03-30T02:00:00+02:00",
            ],
        );
        berlin(
            "0,30 2 * * *",
            &["2026-03-29T03:00:00+02:00 gap: 02:00 and 02:30 do not exist, one run at 03:00"],
        );
        berlin(
            "*/10 2 * * *",
            &["2026-03-29T03:00:00+02:00 gap: 02:00 to 02:50 do not exist, one run at 03:00"],
        );
        // The end of the gap is the time of the run itself.
        berlin("0 3 * * *", &["2026-03-29T03:00:00+02:00", "2026-03-30T03:00:00+02:00"]);
        // Every real hour.
        berlin("30 * * * *", &["2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00"]);
        let apia = recurring("30 2 * * *", "Pacific/Apia");
        assert_eq!(
            shown(&apia, "2011-12-30T09:00:00Z", 2),
            [
                "2011-12-31T00:00:00+14:00 gap: 2011-12-30 02:30 does not exist, runs at 00:00",
                "2011-12-31T02:30:00+14:00"
            ]
        );
    }

    #[test]
    fn a_run_at_a_repeated_time_says_how_often_it_runs() {
        let berlin = |cron| shown(&recurring(cron, "Europe/Berlin"), "2026-10-25T00:10:00Z", 3);
        let first = "2026-10-25T02:30:00+02:00 fold: 02:30 comes twice, runs the first time";
        assert_eq!(
            berlin("30 2 * * *"),
            [first, "2026-10-26T02:30:00+01:00", "2026-10-27T02:30:00+01:00"]
        );
        assert_eq!(
            berlin("30 * * * *"),
            [
                "2026-10-25T02:30:00+02:00 fold: 02:30 comes twice, runs both times",
                "2026-10-25T02:30:00+01:00 fold: 02:30 comes twice, runs both times",
                "2026-10-25T03:30:00+01:00",
            ]
        );
        let once = |at| {
            let schedule = Schedule::once(at, "Europe/Berlin").unwrap();
            shown(&schedule, "2026-01-01T00:00:00Z", 2)
        };
        assert_eq!(once("2026-10-25T02:30:00"), [first]);
        assert_eq!(
            once("2026-10-25T01:30:00Z"),
            ["2026-10-25T02:30:00+01:00 fold: 02:30 comes twice, runs the second time"]
        );
        assert_eq!(once("2026-10-25T02:30:00Z"), ["2026-10-25T03:30:00+01:00"]);
    }

    #[test]
    fn transitions_are_changes_of_the_offset_within_the_span() {
        let changes = |zone, after, until| {
            let changes = recurring("@daily", zone).transitions(at(after), at(until));
            let shown = changes.into_iter().map(|change| {
                format!("{} {} {}", change.at, offset_text(change.from), offset_text(change.to))
            });
            shown.collect::<Vec<_>>()
        };
        let both = ["2026-03-29T01:00:00Z +01:00 +02:00", "2026-10-25T01:00:00Z +02:00 +01:00"];
        assert_eq!(changes("Europe/Berlin", "2026-01-01T00:00:00Z", "2026-12-31T00:00:00Z"), both);
        assert_eq!(
            changes("Europe/Berlin", "2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z"),
            both[1..]
        );
        assert_eq!(
            changes("Europe/Berlin", "2026-03-29T01:00:00Z", "2026-10-25T00:59:59Z"),
            [""; 0]
        );
        assert_eq!(changes("UTC", "2026-01-01T00:00:00Z", "9000-01-01T00:00:00Z"), [""; 0]);
        assert_eq!(
            changes("Europe/Berlin", "2026-01-01T00:00:00Z", "9000-01-01T00:00:00Z").len(),
            100
        );
        let old = changes("Europe/Amsterdam", "1830-01-01T00:00:00Z", "1900-01-01T00:00:00Z");
        assert!(old.iter().all(|change| change.contains("+00:1")), "{old:?}");
    }

    #[test]
    fn the_runs_of_31_days_are_counted() {
        for (cron, zone, count) in [
            ("* * * * *", "UTC", 44_640),
            ("0 9 * * *", "UTC", 31),
            // The hour of a gap, and that of a fold.
            ("* * * * *", "Europe/Berlin", 44_640),
            ("0 0 29 2 *", "UTC", 0),
        ] {
            for from in ["2026-03-10T00:00:00Z", "2026-10-10T00:00:00Z"] {
                assert_eq!(recurring(cron, zone).count_in_month(at(from)), count, "{cron} {from}");
            }
        }
        let once = Schedule::once("2026-10-25T02:30:00Z", "UTC").unwrap();
        assert_eq!(once.count_in_month(at("2026-10-01T00:00:00Z")), 1);
        assert_eq!(once.count_in_month(at("2026-09-01T00:00:00Z")), 0);
    }

    #[test]
    fn every_second_hour_runs_twelve_times_on_every_day() {
        let schedule = recurring("0 */2 * * *", "America/New_York");
        for (midnight, next_midnight) in [
            ("2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z"),
            ("2026-07-01T04:00:00Z", "2026-07-02T04:00:00Z"),
            ("2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"),
        ] {
            // A day without its end but with its midnight.
            let before = |text: &str| at(text).checked_sub(SignedDuration::from_secs(1)).unwrap();
            assert_eq!(
                schedule.occurrences(before(midnight), before(next_midnight)).count,
                12,
                "{midnight}"
            );
        }
    }

    #[test]
    fn the_calendar_has_an_end() {
        let last = at("9999-12-30T21:59:00Z");
        let schedule = recurring("* * * * *", "UTC");
        assert_eq!(schedule.next_after(at("9999-12-30T21:58:00Z")), Some(last));
        for zone in ["UTC", "America/New_York", "Pacific/Apia"] {
            for cron in ["* * * * *", "0 0 1 1 *", "30 2 29 2 */7"] {
                let schedule = recurring(cron, zone);
                assert_eq!(schedule.next_after(Timestamp::MAX), None);
                assert!(schedule.next_after(Timestamp::MIN).is_some());
            }
        }
        assert_eq!(recurring("0 0 1 1 *", "UTC").next_after(at("9999-06-01T00:00:00Z")), None);
    }
}
