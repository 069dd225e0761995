//! Occurrences of schedules, daylight saving nights, refused schedules.

use cued::domain::api_error::{ErrorCode, Refusal};
use cued::domain::schedule::{CatchUp, Schedule, ScheduleError, Zone, offset_text};

use crate::rules::schedule::{at, recurring, rows};

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

#[test]
fn runs_follow_the_local_clock_through_every_kind_of_change() {
    let rows = rows(include_str!("../../../data/clock-changes.tsv"));
    for [zone, cron, after, runs] in &rows {
        let expected: Vec<_> = runs.split(' ').map(at).collect();
        let found = recurring(cron, zone).upcoming(at(after), expected.len());
        assert_eq!(found, expected, "{cron} in {zone} after {after}");
    }
    assert_eq!(rows.len(), 42);
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
        let before = |text: &str| at(text).checked_sub(jiff::SignedDuration::from_secs(1)).unwrap();
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
            assert_eq!(schedule.next_after(jiff::Timestamp::MAX), None);
            assert!(schedule.next_after(jiff::Timestamp::MIN).is_some());
        }
    }
    assert_eq!(recurring("0 0 1 1 *", "UTC").next_after(at("9999-06-01T00:00:00Z")), None);
}

fn refusal(cron: &str, zone: &str) -> Refusal {
    Schedule::recurring(cron, zone, CatchUp::Latest).unwrap_err().into()
}

#[test]
fn a_cron_error_names_field_and_remedy() {
    let long = format!("{} * * * *", "1".repeat(50));
    let (cut, stars) = (format!("minute: {}… is out of range 0-59", &long[..40]), "*".repeat(1025));
    let too_long = "expression: it is longer than 1024 bytes; use ranges and steps";
    let rows = rows(include_str!("../../../data/cron-errors.tsv"));
    assert_eq!(rows.len(), 34);
    for [cron, message] in rows.into_iter().chain([[long.as_str(), &cut], [&stars, too_long]]) {
        let refusal = refusal(cron, "UTC");
        assert_eq!(
            (refusal.code, &*refusal.message),
            (ErrorCode::InvalidSchedule, message),
            "{cron}"
        );
    }
}

#[test]
fn a_cron_error_points_at_its_part_in_characters() {
    let long = format!("é{}", "1".repeat(1100));
    for (cron, field, span) in [
        ("0 25 * * *", "hour", (2, 4)),
        ("  0\t 25 * * *", "hour", (5, 7)),
        ("5,61,7 * * * *", "minute", (2, 4)),
        ("1-70/2 * * * *", "minute", (2, 4)),
        ("*/90 * * * *", "minute", (2, 4)),
        ("*/5/5 * * * *", "minute", (2, 5)),
        ("0 1-2-3 * * *", "hour", (4, 7)),
        ("0 0 1,L * *", "day-of-month", (6, 7)),
        ("0 0 * janu *", "month", (6, 10)),
        ("0 0 * * mon,5#2", "day-of-week", (12, 15)),
        // Characters, not bytes; both letters have two or more.
        ("0 é,9 * * *", "hour", (2, 3)),
        ("0 9 * * é😀-x", "day-of-week", (8, 10)),
        // Something is missing here.
        ("1,,2 * * * *", "minute", (2, 2)),
        ("* -1 * * *", "hour", (2, 2)),
        ("*/ * * * *", "minute", (2, 2)),
        ("", "expression", (0, 0)),
        ("* * * *", "expression", (7, 7)),
        ("é é ", "expression", (4, 4)),
        // What is too much.
        ("0 9 * * * 2026", "expression", (10, 14)),
        ("0 9 * * *  é 2026 ", "expression", (11, 17)),
        (" @reboot ", "expression", (1, 8)),
        ("@every 5m", "expression", (0, 9)),
        (&long, "expression", (1023, 1101)),
        ("0 0 30 2 *", "day-of-month", (4, 6)),
        (" 0  0 31 2,4 */2", "day-of-month", (6, 8)),
    ] {
        let part = refusal(cron, "UTC").schedule_part.unwrap();
        assert_eq!((part.field, part.span), (field, Some(span)), "{cron}");
    }
    let zone = refusal("@daily", "Nowhere").schedule_part.unwrap();
    assert_eq!((zone.field, zone.span), ("timezone", None));
}

#[test]
fn a_never_matching_cron_is_distinguished_from_a_rare_one() {
    for never in
        ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 30,31 feb ?", "0 0 31 2 */2", "0 0 31 2 *"]
    {
        let error = Schedule::recurring(never, "UTC", CatchUp::Latest).unwrap_err();
        assert!(matches!(error, ScheduleError::NeverMatches(_)), "{never}: {error}");
    }
    for rare in ["0 0 29 2 *", "0 0 29 2 */7", "0 0 30 2 1", "0 0 31 2,3 *", "0 0 */31 2 *"] {
        let schedule = Schedule::recurring(rare, "UTC", CatchUp::Latest).unwrap();
        assert!(schedule.next_after(at("2026-01-01T00:00:00Z")).is_some(), "{rare}");
    }
}

#[test]
fn only_iana_names_are_zones() {
    for name in
        " | Z | +02:00 | UTC+2 | CEST | Mars/Phobos | Europe/Berlin  | America | localtime | Factory | \
        POSIXRULES | posix/Europe/Berlin | Right/UTC | Etc/Unknown | EST5EDT,M3.2.0,M11.1.0 | \
        ../zoneinfo/UTC | /etc/localtime | zone.tab"
            .split(" | ")
    {
        assert_eq!(refusal("@daily", name).code, ErrorCode::InvalidTimezone, "{name}");
        assert!(Zone::find_built_in(name).is_err(), "{name}");
    }
    for (name, canonical) in [
        ("utc", "UTC"),
        ("UTC", "UTC"),
        ("etc/utc", "Etc/UTC"),
        ("AMERICA/new_york", "America/New_York"),
        ("US/Pacific", "US/Pacific"),
        ("Etc/GMT-3", "Etc/GMT-3"),
    ] {
        assert_eq!(Zone::find(name).unwrap().name(), canonical);
        // A system without a database has the same names.
        assert_eq!(Zone::find_built_in(name).unwrap().name(), canonical);
    }
    let refusal = refusal("@daily", "+02:00");
    assert_eq!(
        refusal.message,
        "`+02:00` is not a time zone; use an IANA name such as Europe/Berlin, or UTC"
    );
}

#[test]
fn a_bad_or_past_instant_is_an_invalid_schedule() {
    let remedy =
        "write it as 2030-01-31T09:00:00Z, or without an offset for the local time of the schedule";
    for (text, why) in [
        ("soon", "is not an instant"),
        ("2030-02-30T09:00:00Z", "names a date or time that does not exist"),
        ("9999-12-31T23:59:59Z", "is too far away"),
    ] {
        let refusal = Refusal::from(Schedule::once(text, "UTC").unwrap_err());
        assert_eq!(refusal.message, format!("at: `{text}` {why}; {remedy}"));
        assert_eq!(refusal.code, ErrorCode::InvalidSchedule);
    }
    let schedule = Schedule::once("2026-01-01T00:00:00Z", "UTC").unwrap();
    let refusal = Refusal::from(schedule.first_run(at("2026-01-01T00:00:00Z")).unwrap_err());
    assert_eq!(
        refusal.message,
        "at: 2026-01-01T00:00:00Z is not in the future; use a later instant"
    );
    assert_eq!(refusal.code, ErrorCode::InvalidSchedule);
    let zone = Refusal::from(Schedule::once("2030-01-01T00:00:00", "Nowhere").unwrap_err());
    assert_eq!(zone.code, ErrorCode::InvalidTimezone);
}
