//! Schedules in words.

use cued::domain::api_error::{ErrorCode, Refusal};
use cued::domain::schedule::words::understand;
use cued::domain::schedule::{ScheduleError, ScheduleRule};

use crate::rules::schedule::{at, rows, zone};
use crate::support::*;

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
        let part = understood(text).map_err(Refusal::from).expect_err(text).schedule_part.unwrap();
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

/// The guide promises what the grammar takes.
#[test]
fn every_text_of_the_guide_is_understood() {
    let guide = include_str!("../../../../src/docs/schedules.md");
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
