//! Runs in local time, with what a clock change does to them (contract §4.13).

use cued::domain::schedule::{Schedule, offset_text};

use super::{at, recurring};

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
        &["2026-03-29T03:00:00+02:00 gap: 02:30 does not exist, runs at 03:00", "2026-03-30T02:30:00+02:00"],
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
    berlin("*/10 2 * * *", &["2026-03-29T03:00:00+02:00 gap: 02:00 to 02:50 do not exist, one run at 03:00"]);
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
    assert_eq!(berlin("30 2 * * *"), [first, "2026-10-26T02:30:00+01:00", "2026-10-27T02:30:00+01:00"]);
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
        let shown = changes
            .into_iter()
            .map(|change| format!("{} {} {}", change.at, offset_text(change.from), offset_text(change.to)));
        shown.collect::<Vec<_>>()
    };
    let both = ["2026-03-29T01:00:00Z +01:00 +02:00", "2026-10-25T01:00:00Z +02:00 +01:00"];
    assert_eq!(changes("Europe/Berlin", "2026-01-01T00:00:00Z", "2026-12-31T00:00:00Z"), both);
    assert_eq!(changes("Europe/Berlin", "2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z"), both[1..]);
    assert_eq!(changes("Europe/Berlin", "2026-03-29T01:00:00Z", "2026-10-25T00:59:59Z"), [""; 0]);
    assert_eq!(changes("UTC", "2026-01-01T00:00:00Z", "9000-01-01T00:00:00Z"), [""; 0]);
    assert_eq!(changes("Europe/Berlin", "2026-01-01T00:00:00Z", "9000-01-01T00:00:00Z").len(), 100);
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
