//! Tables of schedules: cron expressions, clock changes, words, and their errors. What needs no table is tested beside the
//! code, in `src/domain/schedule`.

mod random;

use std::collections::HashMap;

use cued::domain::api_error::{ErrorCode, Refusal};
use cued::domain::schedule::cron::CronExpr;
use cued::domain::schedule::words::understand;
use cued::domain::schedule::{CatchUp, Schedule, ScheduleError, ScheduleRule, Zone};
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

fn refusal(cron: &str) -> Refusal {
    Schedule::recurring(cron, "UTC", CatchUp::Latest).unwrap_err().into()
}

#[test]
fn a_cron_error_names_field_and_remedy() {
    let long = format!("{} * * * *", "1".repeat(50));
    let (cut, stars) = (format!("minute: {}… is out of range 0-59", &long[..40]), "*".repeat(1025));
    let too_long = "expression: it is longer than 1024 bytes; use ranges and steps";
    let rows = rows(include_str!("../../../data/cron-errors.tsv"));
    assert_eq!(rows.len(), 34);
    for [cron, message] in rows.into_iter().chain([[long.as_str(), &cut], [&stars, too_long]]) {
        let refusal = refusal(cron);
        assert_eq!(
            (refusal.code, &*refusal.message),
            (ErrorCode::InvalidSchedule, message),
            "{cron}"
        );
    }
}

const NOW: &str = "2026-11-26T12:00:00Z";

/// The schedule and its description without the zone, or the message of the error.
fn understood(text: &str) -> Result<(String, String), ScheduleError> {
    let schedule = understand(text, &zone("Europe/Berlin"), at(NOW))?.schedule;
    let rule = match &schedule.rule {
        ScheduleRule::Recurring(cron) => cron.text().to_owned(),
        ScheduleRule::Every(interval) => format!("every {}", interval.text()),
        ScheduleRule::Once(at) => format!("at {at}"),
    };
    Ok((rule, schedule.describe().strip_suffix(", Europe/Berlin").unwrap().to_owned()))
}

#[test]
fn every_row_of_the_table_of_words_holds() {
    let rows = rows(include_str!("../../../data/schedule-words.tsv"));
    let wrong: Vec<_> = rows
        .iter()
        .map(|[text, rule, description]| (text, understood(text), (*rule, *description)))
        .filter(|(_, found, (rule, description))| {
            found.as_ref().ok() != Some(&((*rule).to_owned(), (*description).to_owned()))
        })
        .collect();
    assert!(rows.len() > 70 && wrong.is_empty(), "{wrong:#?}");
}

/// Later than any word of a schedule reaches, and no multiple of a week.
const MUCH_LATER: &str = "2028-01-01T12:00:00Z";

#[test]
fn a_text_is_relative_if_it_means_another_schedule_later() {
    let rows = rows(include_str!("../../../data/schedule-words.tsv"));
    let read = |text: &str, now: &str| understand(text, &zone("Europe/Berlin"), at(now)).unwrap();
    let mut relative = 0;
    for [text, _, _] in &rows {
        let (now, later) = (read(text, NOW), read(text, MUCH_LATER));
        assert_eq!(now.is_relative, now.schedule != later.schedule, "{text}");
        relative += usize::from(now.is_relative);
    }
    assert!(relative > 10 && relative < rows.len() / 2, "{relative}");
}

#[test]
fn a_text_that_is_no_schedule_is_marked_where_it_goes_wrong() {
    let rows = rows(include_str!("../../../data/schedule-words-errors.tsv"));
    let mut wrong = Vec::new();
    for [text, marked, message] in &rows {
        let refusal = understood(text).map_err(Refusal::from).expect_err(text);
        let part = refusal.schedule_part.as_deref().unwrap();
        let (from, to) = part.span.unwrap();
        let found: String = text.chars().skip(from).take(to - from).collect();
        let is_right = (refusal.code, part.field) == (ErrorCode::InvalidSchedule, "text")
            && found == *marked
            && refusal.message.starts_with(message);
        if !is_right {
            wrong.push((*text, found, refusal.message.to_string()));
        }
    }
    assert!(rows.len() > 25 && wrong.is_empty(), "{wrong:#?}");
    let generic = understood("soon").unwrap_err().to_string();
    assert_contains(&generic, &["`soon` is not understood here", "every weekday at 9"]);
}

/// The guide promises what the grammar takes.
#[test]
fn every_text_of_the_guide_is_understood() {
    let guide = include_str!("../../../../src/docs/reference/schedules.md");
    let chapter = guide.split("\n## ").find(|chapter| chapter.starts_with("In words")).unwrap();
    let texts = chapter
        .lines()
        .filter(|line| line.starts_with("| `"))
        .filter_map(|line| line.split('|').nth(1));
    let texts: Vec<&str> = texts.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    assert!(texts.len() > 25, "{texts:?}");
    for text in texts {
        understood(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
}
