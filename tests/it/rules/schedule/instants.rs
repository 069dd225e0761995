//! The instant of a schedule that runs once (contract §2.6).

use cued::domain::schedule::{Schedule, parse_instant};

use super::{at, zone};

fn read(text: &str, zone_name: &str) -> Option<String> {
    parse_instant(text, &zone(zone_name)).ok().map(|instant| instant.to_string())
}

#[test]
fn an_offset_decides_and_the_zone_does_not() {
    for text in [
        "2030-01-31T09:00:00Z",
        "2030-01-31t09:00:00z",
        "2030-01-31 09:00:00Z",
        "2030-01-31T09:00Z",
        "2030-01-31T10:30:00+01:30",
        "2030-01-31T10:30:00+0130",
        "2030-01-30T23:00:00-10:00",
        "2030-01-31T09:00:00-00:00",
        "2030-01-31T09:00:00.000999999999999Z",
    ] {
        assert_eq!(read(text, "Asia/Tokyo").as_deref(), Some("2030-01-31T09:00:00Z"), "{text}");
    }
}

#[test]
fn a_fraction_is_kept_to_the_millisecond() {
    assert_eq!(read("2030-01-31T09:00:00.5Z", "UTC").as_deref(), Some("2030-01-31T09:00:00.5Z"));
    assert_eq!(read("2030-01-31T09:00:00.123999Z", "UTC").as_deref(), Some("2030-01-31T09:00:00.123Z"));
    assert_eq!(read("2030-01-31T09:00:00.04", "UTC").as_deref(), Some("2030-01-31T09:00:00.04Z"));
}

#[test]
fn an_instant_without_an_offset_is_local_to_the_zone() {
    for (text, zone, expected) in [
        ("2030-01-31T09:00:00", "UTC", "2030-01-31T09:00:00Z"),
        ("2030-01-31T09:00:00", "Asia/Kathmandu", "2030-01-31T03:15:00Z"),
        // A skipped time means the first instant after the gap.
        ("2026-03-08T02:00:00", "America/New_York", "2026-03-08T07:00:00Z"),
        ("2026-03-08T02:59:59.999", "America/New_York", "2026-03-08T07:00:00Z"),
        ("2026-03-08T00:30:00", "America/Havana", "2026-03-08T05:00:00Z"),
        ("2026-10-04T02:10:00", "Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
        ("2026-03-29T01:00:00", "Antarctica/Troll", "2026-03-29T01:00:00Z"),
        ("2011-12-30T12:00:00", "Pacific/Apia", "2011-12-30T10:00:00Z"),
        ("2007-03-11T03:00:00", "America/Indiana/Winamac", "2007-03-11T08:00:00Z"),
        // A repeated time means its first occurrence.
        ("2026-11-01T01:30:00", "America/New_York", "2026-11-01T05:30:00Z"),
        ("2026-02-15T02:30:00", "Africa/Casablanca", "2026-02-15T01:30:00Z"),
        ("2026-04-05T01:45:00", "Australia/Lord_Howe", "2026-04-04T14:45:00Z"),
    ] {
        assert_eq!(read(text, zone).as_deref(), Some(expected), "{text} in {zone}");
    }
}

#[test]
fn a_leap_second_is_the_second_after_it() {
    for (text, zone) in [
        ("2016-12-31T23:59:60Z", "UTC"),
        ("2017-01-01T05:29:60+05:30", "UTC"),
        ("2016-12-31T15:59:60-08:00", "UTC"),
        ("2016-12-31 23:59:60", "UTC"),
        ("2017-01-01T00:59:60", "Europe/Berlin"),
    ] {
        assert_eq!(read(text, zone).as_deref(), Some("2017-01-01T00:00:00Z"), "{text}");
    }
    assert_eq!(read("2016-12-31T23:59:60.25Z", "UTC").as_deref(), Some("2017-01-01T00:00:00.25Z"));
    assert_eq!(read("2017-01-01T00:00:60", "Europe/Berlin"), None);
}

#[test]
fn an_invalid_instant_is_refused() {
    for text in [
        "",
        "tomorrow",
        "2030-01-31",
        "09:00:00Z",
        "1900000000",
        "2030-01-31T09:00:00.Z",
        "2030-01-31T09:00:00,5Z",
        "2030-01-31T9:00:00Z",
        "30-01-31T09:00:00Z",
        "+002030-01-31T09:00:00Z",
        "2030-01-31T09:00:00Zulu",
        "2030-01-31T09:00:00Z ",
        "2030-01-31T09:00:00+1",
        "2030-01-31T09:00:00+24:00",
        "2030-01-31T09:00:00+01:60",
        "2030-01-31T09:00:00+01:",
        "2030-01-31T09:00:00[Europe/Berlin]",
        "2030-01-31T09:00:00+01:00[Europe/Berlin]",
        "2030-02-30T09:00:00Z",
        "2030-13-01T09:00:00Z",
        "2030-01-31T24:00:00Z",
        "2030-01-31T09:60:00Z",
        "2030-01-31T09:00:60Z",
        "2030-01-31T23:59:61Z",
        "2030-01-31T23:59:60+01:00",
        "9999-12-31T23:59:60Z",
        "9999-12-31T23:59:59Z",
        "9999-12-31T23:59:59-23:59",
        "２030-01-31T09:00:00Z",
    ] {
        assert_eq!(read(text, "UTC"), None, "{text}");
    }
}

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
