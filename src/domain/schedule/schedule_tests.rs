//! What a schedule is and when it runs: instants, spans, notes of clock changes, and errors. The tables of cases and the
//! properties on random input are in `tests/it/rules`.

use super::words::understand;
use super::*;

/// A zone with the built-in rules, so that no test depends on the system.
fn zone(name: &str) -> Zone {
    Zone::find_built_in(name).unwrap()
}

fn recurring(cron: &str, zone_name: &str) -> Schedule {
    let cron = CronExpr::parse(cron).unwrap_or_else(|error| panic!("{cron}: {error}"));
    Schedule::new(ScheduleRule::Recurring(cron), zone(zone_name), CatchUp::Latest)
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn a_schedule_in_words_names_its_zone_and_the_instant_of_a_single_run() {
    assert_eq!(
        recurring("0 9 * * 1-5", "Europe/Berlin").describe(),
        "At 09:00, Monday to Friday, Europe/Berlin"
    );
    let once = |at, zone| Schedule::once(at, zone).unwrap().describe();
    assert_eq!(
        once("2030-01-31T09:00:00+01:00", "Europe/Berlin"),
        "Once, on Thursday 31 January 2030 at 09:00, Europe/Berlin"
    );
    assert_eq!(
        once("2030-03-05T09:00:07", "utc"),
        "Once, on Tuesday 5 March 2030 at 09:00:07, UTC"
    );
    let schedule = Schedule::recurring("@daily", "us/pacific", CatchUp::All).unwrap();
    assert_eq!(schedule.describe(), "Every day at 00:00, US/Pacific");
    assert_eq!(zone("US/Pacific").name(), "US/Pacific");
}

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
    assert_eq!(
        read("2030-01-31T09:00:00.123999Z", "UTC").as_deref(),
        Some("2030-01-31T09:00:00.123Z")
    );
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
    for text in " | tomorrow | 2030-01-31 | 09:00:00Z | 1900000000 | 2030-01-31T09:00:00.Z | \
        2030-01-31T09:00:00,5Z | 2030-01-31T9:00:00Z | 30-01-31T09:00:00Z | +002030-01-31T09:00:00Z | \
        2030-01-31T09:00:00Zulu | 2030-01-31T09:00:00Z  | 2030-01-31T09:00:00+1 | \
        2030-01-31T09:00:00+24:00 | 2030-01-31T09:00:00+01:60 | 2030-01-31T09:00:00+01: | \
        2030-01-31T09:00:00[Europe/Berlin] | 2030-01-31T09:00:00+01:00[Europe/Berlin] | \
        2030-02-30T09:00:00Z | 2030-13-01T09:00:00Z | 2030-01-31T24:00:00Z | 2030-01-31T09:60:00Z | \
        2030-01-31T09:00:60Z | 2030-01-31T23:59:61Z | 2030-01-31T23:59:60+01:00 | 9999-12-31T23:59:60Z | \
        9999-12-31T23:59:59Z | 9999-12-31T23:59:59-23:59 | ２030-01-31T09:00:00Z"
        .split(" | ")
    {
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
    for (after, until) in [(first, first), (second, first), (first, at("2026-06-02T08:59:59.999Z"))]
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

fn refusal(cron: &str, zone: &str) -> Refusal {
    Schedule::recurring(cron, zone, CatchUp::Latest).unwrap_err().into()
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

const NOW: &str = "2026-11-26T12:00:00Z";

#[test]
fn cron_expressions_and_instants_have_their_own_errors() {
    for (text, field, span) in [
        ("0 25 * * *", "hour", Some((2, 4))),
        ("0 9 * * xyz", "day-of-week", Some((8, 11))),
        ("* * * *", "expression", Some((7, 7))),
        ("0 0 9 * * MON", "expression", Some((10, 13))),
        ("@fortnightly", "expression", Some((0, 12))),
        ("0 0 L * *", "day-of-month", Some((4, 5))),
        ("2030-02-30 09:00", "at", None),
    ] {
        let error = understand(text, &zone("Europe/Berlin"), at(NOW)).expect_err(text);
        let part = Refusal::from(error).schedule_part.unwrap();
        assert_eq!((part.field, part.span), (field, span), "{text}");
    }
}

#[test]
fn the_note_of_a_skipped_time_is_that_of_the_words() {
    let note = |text: &str, now: &str| {
        let understood = understand(text, &zone("Europe/Berlin"), at(now)).unwrap();
        understood.local.and_then(|local| understood.schedule.skipped_note(&local))
    };
    let skipped = Some("gap: 02:30 does not exist, runs at 03:00".to_owned());
    assert_eq!(note("tomorrow 2:30", "2027-03-27T12:00:00Z"), skipped);
    assert_eq!(note("2027-03-28 02:30", NOW), skipped);
    assert_eq!(note("tomorrow 3:00", "2027-03-27T12:00:00Z"), None);
    assert_eq!(note("+10m", NOW), None);
}

#[test]
fn an_interval_of_words_is_counted_in_whole_seconds() {
    let at_half = at("2026-11-26T12:00:00.5Z");
    let schedule = understand("+10m", &zone("UTC"), at_half).unwrap().schedule;
    assert_eq!(schedule.rule, ScheduleRule::Once(at("2026-11-26T12:10:00Z")));
}
