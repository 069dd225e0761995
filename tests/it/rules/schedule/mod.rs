//! Schedules: cron expressions, descriptions, instants, spans.

mod occurrences;
mod random;
mod words;

use std::collections::HashMap;

use cued::domain::schedule::cron::CronExpr;
use cued::domain::schedule::{CatchUp, Schedule, ScheduleRule, Zone, parse_instant};
use jiff::tz::Offset;

use crate::support::*;

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

const TABLE: &str = include_str!("../../../data/cron-cases.tsv");

fn response(expression: &str, after: &str) -> String {
    let Ok(cron) = CronExpr::parse(expression) else { return "error".to_owned() };
    if !cron.ever_matches() {
        return "never".to_owned();
    }
    let after: Timestamp = after.parse().unwrap();
    let next = cron.next_civil(Offset::UTC.to_datetime(after)).unwrap();
    Offset::UTC.to_timestamp(next).unwrap().to_string()
}

#[test]
fn every_row_of_the_cron_table_holds() {
    let rows = rows(TABLE);
    let differs = |&&[cron, after, expected]: &&[&str; 3]| response(cron, after) != expected;
    let wrong: Vec<_> =
        rows.iter().filter(differs).map(|row| (row, response(row[0], row[1]))).collect();
    assert!(rows.len() == 4000 && wrong.is_empty(), "{wrong:#?}");
}

fn described(cron: &str) -> String {
    CronExpr::parse(cron).unwrap_or_else(|error| panic!("{cron}: {error}")).describe()
}

/// The rows of a table of `tests/data` and their columns. Lines that begin with `#` are comments.
fn rows<const COLUMNS: usize>(table: &str) -> Vec<[&str; COLUMNS]> {
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    rows.map(|row| row.split('\t').collect::<Vec<_>>().try_into().expect(row)).collect()
}

#[test]
fn a_cron_expression_reads_as_english() {
    let rows = rows(include_str!("../../../data/cron-words.tsv"));
    let differs = |&&[cron, words]: &&[&str; 2]| described(cron) != words;
    let wrong: Vec<_> =
        rows.iter().filter(differs).map(|[cron, _]| (cron, described(cron))).collect();
    assert!(rows.len() == 99 && wrong.is_empty(), "{wrong:#?}");
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

/// The values of the fields, and whether a day matches if either day field does.
type Meaning = (Vec<Vec<usize>>, bool);

/// One field: single values, lists, ranges and steps.
fn field(random: &mut Random, least: usize, greatest: usize) -> (String, Vec<usize>) {
    let size = greatest - least + 1;
    let mut chosen = match random.index(7) {
        0 | 1 => return ("*".to_owned(), (least..=greatest).collect()),
        // Starts with a star: both day fields must then match.
        6 => {
            let step = 1 + random.index(size);
            return (format!("*/{step}"), (least..=greatest).step_by(step).collect());
        }
        2 => vec![least + random.index(size)],
        3 => (0..random.index(size) + 1).map(|_| least + random.index(size)).collect(),
        4 => {
            let first = least + random.index(size);
            (first..=greatest).step_by(1 + random.index(size)).collect()
        }
        _ => {
            let (one, other) = (least + random.index(size), least + random.index(size));
            (one.min(other)..=one.max(other)).collect::<Vec<_>>()
        }
    };
    chosen.sort_unstable();
    chosen.dedup();
    let text: Vec<String> = chosen.iter().map(ToString::to_string).collect();
    (text.join(","), chosen)
}

#[test]
fn equal_crons_have_equal_words_and_different_crons_different_words() {
    const CASES: usize = 40_000;
    /// Longer than any description: the longest has cut lists in all fields.
    const LONGEST: usize = 300;
    let mut random = Random::new(1);
    let mut known: HashMap<String, (Meaning, String)> = HashMap::new();
    let mut repeated = 0;
    for _ in 0..CASES {
        let fields = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
        let (texts, mut sets): (Vec<String>, Vec<Vec<usize>>) =
            fields.map(|(least, greatest)| field(&mut random, least, greatest)).into_iter().unzip();
        let line = texts.join(" ");
        let words = described(&line);
        assert!(words.chars().count() <= LONGEST, "{line}: {words}");
        let has_all = sets[2].len() == 31 || sets[4].len() == 7;
        let mut either_day = !texts[2].starts_with('*') && !texts[4].starts_with('*');
        // A list of all values is not a star, and the other field no longer restricts the days.
        if either_day && has_all {
            (sets[2], sets[4]) = ((1..=31).collect(), (0..=6).collect());
            either_day = false;
        }
        if words.contains('…') {
            continue;
        }
        // The same sets, written backwards and as ranges.
        let backwards = |text: &String| {
            let range = |value: &str| {
                if value.starts_with('*') { value.to_owned() } else { format!("{value}-{value}") }
            };
            text.split(',').rev().map(range).collect::<Vec<_>>().join(",")
        };
        let reversed: Vec<String> = texts.iter().map(backwards).collect();
        assert_eq!(described(&reversed.join(" ")), words, "{line}");
        match known.get(&words) {
            Some((other, of)) => {
                assert_eq!(*other, (sets, either_day), "{words}: {line} and {of}");
                repeated += 1;
            }
            None => {
                known.insert(words, ((sets, either_day), line));
            }
        }
    }
    assert!(repeated > 100 && known.len() > 10_000, "{repeated} {}", known.len());
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
