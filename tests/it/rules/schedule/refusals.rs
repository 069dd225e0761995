//! Invalid schedules: the code, and a message with the field and the remedy.

use cued::domain::api_error::{ErrorCode, Refusal};
use cued::domain::schedule::time_zone::Zone;
use cued::domain::schedule::{CatchUp, Schedule, ScheduleError};

use super::at;

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
    for name in [
        "",
        "Z",
        "+02:00",
        "UTC+2",
        "CEST",
        "Mars/Phobos",
        "Europe/Berlin ",
        "America",
        "localtime",
        "Factory",
        "POSIXRULES",
        "posix/Europe/Berlin",
        "Right/UTC",
        "Etc/Unknown",
        "EST5EDT,M3.2.0,M11.1.0",
        "../zoneinfo/UTC",
        "/etc/localtime",
        "zone.tab",
    ] {
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
