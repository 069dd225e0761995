//! Daylight saving changes, zone by zone (contract §4.5).

use super::{at, recurring};

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
