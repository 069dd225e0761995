//! Counts and lists over long spans, against stepping from run to run.

use cued::domain::schedule::{CatchUp, Schedule};

use super::{at, recurring};

#[test]
fn counting_a_year_equals_stepping_through_it() {
    let (after, until) = (at("2026-01-01T00:00:30Z"), at("2027-01-01T00:00:00Z"));
    for zone in ["UTC", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "America/Santiago"] {
        for cron in [
            "17 * * * *",
            "0,30 0-3 * * *",
            "*/20 22-2 1-9 */3 *",
            "5 1,2 * * sun",
            "0 0 29 2 *",
            "30 2 8 3 1",
        ] {
            let schedule = recurring(cron, zone);
            let runs: Vec<_> =
                schedule.upcoming(after, 10_000).into_iter().take_while(|run| *run <= until).collect();
            let spans = schedule.occurrences(after, until);
            assert_eq!(spans.count, runs.len() as u64, "{cron} in {zone}");
            assert_eq!(
                (spans.first, spans.last),
                (runs.first().copied(), runs.last().copied()),
                "{cron} in {zone}"
            );
            let newest = &runs[runs.len().saturating_sub(100)..];
            assert_eq!(schedule.newest(after, until, 100), newest, "{cron} in {zone}");
        }
    }
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
    for (after, until) in [(first, first), (second, first), (first, at("2026-06-02T08:59:59.999Z"))] {
        assert_eq!(schedule.occurrences(after, until).count, 0);
        assert!(schedule.newest(after, until, 5).is_empty());
    }
    assert!(schedule.newest(first, second, 0).is_empty());
}

#[test]
fn a_span_ending_at_a_dst_gap_has_the_skipped_runs() {
    let schedule = recurring("30 2 * * *", "America/New_York");
    let (after, gap) = (at("2026-03-08T00:00:00Z"), at("2026-03-08T07:00:00Z"));
    assert_eq!(schedule.occurrences(after, gap).count, 1);
    assert_eq!(schedule.newest(after, gap, 5), [gap]);
    assert_eq!(schedule.occurrences(after, at("2026-03-08T06:59:59.999Z")).count, 0);
}

#[test]
fn the_newest_runs_have_a_skipped_time_once() {
    let schedule = recurring("0,30 1,2,3 * * *", "America/New_York");
    let runs = schedule.newest(at("2026-03-08T06:00:00Z"), at("2026-03-08T07:30:00Z"), 10);
    assert_eq!(runs, ["2026-03-08T06:30:00Z", "2026-03-08T07:00:00Z", "2026-03-08T07:30:00Z"].map(at));
}

#[test]
fn a_schedule_reads_back_from_its_stored_texts() {
    let schedule = Schedule::recurring("@daily", "europe/berlin", CatchUp::All).unwrap();
    assert_eq!(schedule.zone.name(), "Europe/Berlin");
    assert_eq!(schedule.first_run(at("2026-06-01T12:00:00Z")), Ok(at("2026-06-01T22:00:00Z")));
}
