//! Occurrences of schedules, daylight saving nights, refused schedules.

use cued::domain::api_error::{ErrorCode, Refusal};
use cued::domain::schedule::time_zone::Zone;
use cued::domain::schedule::{CatchUp, Schedule, ScheduleError, offset_text};

use crate::rules::schedule::{at, recurring};

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

/// The next two runs of a cron expression in a zone.
fn check(zone: &str, cron: &str, after: &str, runs: &[&str]) {
    let found = recurring(cron, zone).upcoming(at(after), runs.len());
    let expected: Vec<_> = runs.iter().map(|run| at(run)).collect();
    assert_eq!(found, expected, "{cron} in {zone} after {after}");
}

#[test]
fn a_skipped_time_runs_once_when_the_gap_ends() {
    let new_york = |cron, runs| check("America/New_York", cron, "2026-03-08T05:30:00Z", runs);
    new_york("30 2 * * *", &["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"]);
    new_york("0,15,30,45 2 * * *", &["2026-03-08T07:00:00Z", "2026-03-09T06:00:00Z"]);
    new_york("0 2,3 * * *", &["2026-03-08T07:00:00Z", "2026-03-09T06:00:00Z"]);
    new_york("30 1,2,3 * * *", &["2026-03-08T06:30:00Z", "2026-03-08T07:00:00Z", "2026-03-08T07:30:00Z"]);
    new_york("30 2 8 3 *", &["2026-03-08T07:00:00Z", "2027-03-08T07:30:00Z"]);
    // The instant of the end of a gap counts as after it: the run has passed.
    check("America/New_York", "30 2 * * *", "2026-03-08T07:00:00Z", &["2026-03-09T06:30:00Z"]);
    check("America/New_York", "30 2 * * *", "2026-03-08T06:59:59.999Z", &["2026-03-08T07:00:00Z"]);
}

#[test]
fn a_repeated_time_runs_the_first_time_only() {
    let new_york = |cron, after, runs| check("America/New_York", cron, after, runs);
    new_york("30 1 * * *", "2026-11-01T05:00:00Z", &["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"]);
    // Between the two occurrences of 01:30, at the second one and just before it.
    for after in ["2026-11-01T05:30:00Z", "2026-11-01T06:29:59.999Z", "2026-11-01T06:30:00Z"] {
        new_york("30 1 * * *", after, &["2026-11-02T06:30:00Z"]);
    }
    new_york("0 0-22 * * *", "2026-11-01T05:00:00Z", &["2026-11-01T07:00:00Z"]);
    new_york("*/30 1,2 * * *", "2026-11-01T05:10:00Z", &["2026-11-01T05:30:00Z", "2026-11-01T07:00:00Z"]);
}

#[test]
fn an_hourly_schedule_keeps_its_cadence_on_both_nights() {
    let quarters = ["06:45:00Z", "07:00:00Z", "07:15:00Z"].map(|time| format!("2026-03-08T{time}"));
    check(
        "America/New_York",
        "*/15 * * * *",
        "2026-03-08T06:30:00Z",
        &quarters.each_ref().map(String::as_str),
    );
    let quarters =
        ["05:45:00Z", "06:00:00Z", "06:15:00Z", "06:30:00Z"].map(|time| format!("2026-11-01T{time}"));
    check(
        "America/New_York",
        "*/15 * * * *",
        "2026-11-01T05:30:00Z",
        &quarters.each_ref().map(String::as_str),
    );
    // All 24 hours in a list are the same as a star.
    check("America/New_York", "0 0-11,12-23 * * *", "2026-11-01T05:00:00Z", &["2026-11-01T06:00:00Z"]);
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
        assert_eq!(schedule.occurrences(before(midnight), before(next_midnight)).count, 12, "{midnight}");
    }
}

#[test]
fn every_day_runs_despite_a_gap_or_fold_at_midnight() {
    check(
        "America/Havana",
        "0 0 * * *",
        "2026-03-07T12:00:00Z",
        &["2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z"],
    );
    check(
        "America/Havana",
        "0 0 * * *",
        "2026-10-31T12:00:00Z",
        &["2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"],
    );
    check(
        "America/Santiago",
        "0 0 * * *",
        "2026-09-05T12:00:00Z",
        &["2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"],
    );
    check(
        "America/Santiago",
        "30 23 * * *",
        "2026-04-04T12:00:00Z",
        &["2026-04-05T02:30:00Z", "2026-04-06T03:30:00Z"],
    );
    check(
        "Asia/Beirut",
        "0 0 * * *",
        "2026-03-28T12:00:00Z",
        &["2026-03-28T22:00:00Z", "2026-03-29T21:00:00Z"],
    );
    // The weekday of the skipped midnight counts: 8 March 2026 is a Sunday.
    check(
        "America/Havana",
        "0 0 * * 0",
        "2026-03-07T12:00:00Z",
        &["2026-03-08T05:00:00Z", "2026-03-15T04:00:00Z"],
    );
}

#[test]
fn a_change_of_half_an_hour_follows_the_same_rule() {
    let lord_howe = |cron, after, runs| check("Australia/Lord_Howe", cron, after, runs);
    lord_howe("15 2 * * *", "2026-10-03T12:00:00Z", &["2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"]);
    lord_howe("0 * * * *", "2026-10-03T14:00:00Z", &["2026-10-03T14:30:00Z", "2026-10-03T16:00:00Z"]);
    lord_howe("45 1 * * *", "2026-04-04T14:00:00Z", &["2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"]);
    let halves = ["2026-04-04T14:30:00Z", "2026-04-04T15:00:00Z", "2026-04-04T15:30:00Z"];
    lord_howe("*/30 * * * *", "2026-04-04T14:00:00Z", &halves);
}

#[test]
fn a_skipped_day_runs_at_the_start_of_the_next_one() {
    // Samoa had no 30 December 2011.
    let apia = |cron, runs| check("Pacific/Apia", cron, "2011-12-29T12:00:00Z", runs);
    apia("0 9 * * *", &["2011-12-29T19:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T19:00:00Z"]);
    apia("0 9,17 30 12 *", &["2011-12-30T10:00:00Z", "2012-12-29T19:00:00Z"]);
    // An hourly schedule follows real minutes, none of which was on the 30th that year.
    apia("0 * 30 12 *", &["2012-12-29T10:00:00Z"]);
}

#[test]
fn a_repeated_day_runs_once() {
    // Kwajalein went back by 23 hours at the end of September 1969.
    let kwajalein = |cron, after, runs| check("Pacific/Kwajalein", cron, after, runs);
    kwajalein("0 9 * * *", "1969-09-29T12:00:00Z", &["1969-09-29T22:00:00Z", "1969-10-01T21:00:00Z"]);
    kwajalein("0 9 * * *", "1969-09-30T20:00:00Z", &["1969-10-01T21:00:00Z"]);
    kwajalein("0 * * * *", "1969-09-30T11:30:00Z", &["1969-09-30T12:00:00Z", "1969-09-30T13:00:00Z"]);
}

#[test]
fn other_kinds_of_summer_time() {
    // Morocco moves its clocks back for Ramadan, Troll changes by two hours, Nepal does neither.
    let casablanca = |cron, after, runs| check("Africa/Casablanca", cron, after, runs);
    casablanca("30 2 * * *", "2026-02-15T00:00:00Z", &["2026-02-15T01:30:00Z", "2026-02-16T02:30:00Z"]);
    casablanca("30 2 * * *", "2026-03-22T00:00:00Z", &["2026-03-22T02:00:00Z", "2026-03-23T01:30:00Z"]);
    check(
        "Antarctica/Troll",
        "0,30 1,2 * * *",
        "2026-03-28T20:00:00Z",
        &["2026-03-29T01:00:00Z", "2026-03-29T23:00:00Z"],
    );
    check(
        "Asia/Kathmandu",
        "0 9 * * *",
        "2026-03-29T00:00:00Z",
        &["2026-03-29T03:15:00Z", "2026-03-30T03:15:00Z"],
    );
}

#[test]
fn the_first_transition_of_a_new_yearly_rule_counts() {
    // Ciudad Juárez moved its clocks back permanently at midnight on 30 November 2022, after the change of that autumn.
    let juarez = |cron, runs| check("America/Ciudad_Juarez", cron, "2022-11-30T05:00:00Z", runs);
    juarez("30 23 * * *", &["2022-11-30T05:30:00Z", "2022-12-01T06:30:00Z"]);
    check("America/Ciudad_Juarez", "30 23 * * *", "2022-11-30T06:00:00Z", &["2022-12-01T06:30:00Z"]);
}

#[test]
fn rules_far_in_the_future_are_those_of_today() {
    check(
        "Europe/Berlin",
        "30 2 * * *",
        "2090-03-25T12:00:00Z",
        &["2090-03-26T01:00:00Z", "2090-03-27T00:30:00Z"],
    );
}

#[test]
fn rare_dates_are_found_years_ahead() {
    check("UTC", "0 0 29 2 *", "2096-03-01T00:00:00Z", &["2104-02-29T00:00:00Z"]);
    // Day fields that start with a star are combined with AND: 29 February on a Sunday.
    check(
        "Europe/Berlin",
        "0 0 29 2 */7",
        "2026-01-01T00:00:00Z",
        &["2032-02-28T23:00:00Z", "2060-02-28T23:00:00Z"],
    );
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
    let long = "1".repeat(50);
    for (cron, message) in [
        ("0 25 * * *", "hour: 25 is out of range 0-23"),
        ("60 * * * *", "minute: 60 is out of range 0-59"),
        ("0 0 0 * *", "day-of-month: 0 is out of range 1-31"),
        ("0 0 * 13 *", "month: 13 is out of range 1-12"),
        ("0 0 * * 8", "day-of-week: 8 is out of range 0-7"),
        ("99999999999 * * * *", "minute: 99999999999 is out of range 0-59"),
        (&format!("{long} * * * *"), &format!("minute: {}… is out of range 0-59", &long[..40])),
        ("*/90 * * * *", "minute: the step 90 is larger than the field, which has 60 values; use 1-60"),
        ("* * * * */8", "day-of-week: the step 8 is larger than the field, which has 7 values; use 1-7"),
        ("*/0 * * * *", "minute: a step of 0 never moves; use 1-60"),
        ("*/x * * * *", "minute: `x` is not a step; write a number 1-60 after /"),
        ("*/5/5 * * * *", "minute: `5/5` is not a step; write a number 1-60 after /"),
        ("* 1,,2 * * *", "hour: a value is missing; write one on each side of every `,`, `-` and `/`"),
        ("* -1 * * *", "hour: a value is missing; write one on each side of every `,`, `-` and `/`"),
        ("1-2-3 * * * *", "minute: `2-3` is not valid here; write a number 0-59"),
        ("mon * * * *", "minute: `mon` is not valid here; write a number 0-59"),
        ("0 0 ? ? *", "month: `?` is not valid here; write a number 1-12 or a name jan-dec"),
        ("0 0 1,? * *", "day-of-month: `?` is not valid here; write a number 1-31"),
        ("0 0 * monday *", "month: `monday` is not valid here; write a number 1-12 or a name jan-dec"),
        ("0 0 * * monday", "day-of-week: `monday` is not valid here; write a number 0-7 or a name sun-sat"),
        ("0 0 L * *", "day-of-month: `L`: L, W and # are not part of crontab(5); write a number 1-31"),
        ("0 0 15W * *", "day-of-month: `15W`: L, W and # are not part of crontab(5); write a number 1-31"),
        (
            "0 0 * * 5#2",
            "day-of-week: `5#2`: L, W and # are not part of crontab(5); write a number 0-7 or a name sun-sat",
        ),
        (
            "* * * *",
            "expression: it has 4 fields, a cron has five (minute hour day-of-month month day-of-week); \
             write * for a field that does not matter",
        ),
        (
            "0 * * * * *",
            "expression: it has 6 fields, a cron has five (minute hour day-of-month month day-of-week); \
             leave out seconds and years, and write lists without blanks",
        ),
        (
            "",
            "expression: it has 0 fields, a cron has five (minute hour day-of-month month day-of-week); \
             write * for a field that does not matter",
        ),
        ("@reboot", "expression: @reboot has no time; use @daily or five fields"),
        (
            "@every 5m",
            "expression: `@every 5m` is not a macro; use @hourly @daily @midnight @weekly @monthly @yearly \
             @annually or five fields",
        ),
        (&"*".repeat(1025), "expression: it is longer than 1024 bytes; use ranges and steps"),
        (
            "0 0 30 2 *",
            "day-of-month: no month that the cron names has such a day, so it never runs; use a date that exists",
        ),
    ] {
        let refusal = refusal(cron, "UTC");
        assert_eq!(refusal.message, message, "{cron}");
        assert_eq!(refusal.code, ErrorCode::InvalidSchedule, "{cron}");
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
    for never in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 30,31 feb ?", "0 0 31 2 */2", "0 0 31 2 *"] {
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
        assert_eq!(Zone::find_built_in(name).unwrap().name(), canonical, "on a system without a database");
    }
    let refusal = refusal("@daily", "+02:00");
    assert_eq!(
        refusal.message,
        "`+02:00` is not a time zone; use an IANA name such as Europe/Berlin, or UTC"
    );
}

#[test]
fn a_bad_or_past_instant_is_an_invalid_schedule() {
    let remedy = "write it as 2030-01-31T09:00:00Z, or without an offset for the local time of the schedule";
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
    assert_eq!(refusal.message, "at: 2026-01-01T00:00:00Z is not in the future; use a later instant");
    assert_eq!(refusal.code, ErrorCode::InvalidSchedule);
    let zone = Refusal::from(Schedule::once("2030-01-01T00:00:00", "Nowhere").unwrap_err());
    assert_eq!(zone.code, ErrorCode::InvalidTimezone);
}
