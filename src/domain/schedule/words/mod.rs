//! A schedule in the words of a person: `every weekday at 9`, `mon,wed 18:30`, `in 10 minutes`. The one grammar of the
//! command line and the page, which ask the server (contract §4.13); cues store the schedule that is meant, never the
//! words. `src/docs/reference/schedules.md` explains it to users.
//!
//! ```text
//! text     = a cron line | an instant | interval | later | recurring | single
//! interval = ("every" | "@every") span                     span: 5m, 20 min, 1h30m, PT5M
//! later    = "in" span | "+" span
//! recurring = days [times] | times days                    without times at 0:00
//! days     = "daily" | "every day" | "weekdays" | "every weekday" | "weekends" | "every weekend"
//!          | "hourly" | "every hour" | "every minute"      the hour takes ":15" as its time
//!          | ["weekly" ["on"]] weekdays | "weekly"
//!          | ["monthly" ["on" ["the"]]] "1st", … ["of" ["the" | "every"] "month"] | "monthly"
//! weekdays = "every" name | plural name | name "-" name | name ("," | "and") name …
//! single   = ("today" | "tomorrow" | a date | a weekday) [time] | time …, the next one
//! times    = ["at"] time (("," | "and") time) …            time: 9:00, 18:30, 9am, 6:30 pm, noon; after "at": 9
//! ```

mod parser;

use jiff::civil::{DateTime, Time};
use jiff::{SignedDuration, Timestamp};

use crate::domain::schedule::cron::{CronExpr, foreign};
use crate::domain::schedule::interval::{BadInterval, Interval, elapsed};
use crate::domain::schedule::words::parser::{
    Clock, Days, Parser, is_date, is_month, weekday_name,
};
use crate::domain::schedule::{
    CatchUp, EARLIEST, Schedule, ScheduleError, ScheduleRule, Zone, is_instant, parse_instant,
};

/// Longer than any text of the grammar, apart from cron lines with long lists.
pub const MAX_CHARS: usize = 1_024;

pub const EXAMPLES: &str =
    "examples are `every 5m`, `every weekday at 9`, `mon,wed 18:30` and `tomorrow 9:00`";

const NO_LAST_DAY: &str = "a cron has no last day of a month: `monthly on the 1st at 0:00` runs right after it; or \
                           write `0 18 28-31 * *`, and have the receiver check that tomorrow is the 1st";

const WEEKDAYS: [&str; 7] =
    ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WordsError {
    pub message: String,
    /// The part of the text, in characters, half open: empty where something is missing.
    pub span: (usize, usize),
}

/// The schedule that a text means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Understood {
    pub schedule: Schedule,
    /// The local time of a single run, if it was given as one, in a form that [`Schedule::skipped_note`] reads.
    pub local: Option<String>,
    /// At another instant the text means another schedule, as `tomorrow 9:00` does.
    pub is_relative: bool,
}

impl From<Schedule> for Understood {
    fn from(schedule: Schedule) -> Self {
        Self { schedule, local: None, is_relative: false }
    }
}

/// The schedule that `text` means for a person in `zone` at `now`. An instant that has passed is accepted here, as by
/// [`Schedule::once`].
///
/// ```
/// use cued::domain::schedule::{Zone, words::understand};
///
/// let berlin = Zone::find("Europe/Berlin")?;
/// let understood = understand("every weekday at 9", &berlin, "2026-11-26T12:00:00Z".parse()?)?;
/// assert_eq!(understood.schedule.describe(), "At 09:00, Monday to Friday, Europe/Berlin");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn understand(text: &str, zone: &Zone, now: Timestamp) -> Result<Understood, ScheduleError> {
    if text.chars().count() > MAX_CHARS {
        let message = format!("the text has more than {MAX_CHARS} characters; {EXAMPLES}");
        return Err(WordsError { message, span: (MAX_CHARS, text.chars().count()) }.into());
    }
    if let Some(message) = foreign(text) {
        return Err(WordsError { message, span: (0, text.chars().count()) }.into());
    }
    if is_cron(text) {
        return Ok(Schedule::recurring(text, zone.name(), CatchUp::default())?.into());
    }
    let instant = text.trim();
    if is_instant(instant) {
        let at = parse_instant(instant, zone)?;
        let schedule = once(Some(at), zone, (0, text.chars().count()))?;
        return Ok(Understood { local: Some(instant.to_owned()), ..schedule.into() });
    }
    let mut parser = Parser::new(text);
    let understood = read(&mut parser, zone, now)?;
    if !parser.is_at_end() {
        return Err(parser.left_over().into());
    }
    Ok(understood)
}

/// Returns whether the text is meant as a cron line: a macro, or fields that words do not look like.
fn is_cron(text: &str) -> bool {
    let mut fields = text.split_ascii_whitespace();
    let Some(first) = fields.next() else { return false };
    if first.starts_with('@') {
        return !first.eq_ignore_ascii_case("@every") && first.len() > 1;
    }
    let is_name = |part: &str| part.len() == 3 && (weekday_name(part).is_some() || is_month(part));
    let is_value =
        |part: &str| part.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'*' | b'?'));
    let is_field = |field: &str| {
        let part = |part: &str| is_value(part) || is_name(&part.to_ascii_lowercase());
        field.split([',', '-', '/']).all(part)
    };
    let is_numeric = first.split([',', '-', '/']).all(is_value);
    let rest: Vec<&str> = fields.collect();
    is_numeric && !is_date(first) && (rest.len() == 4 || rest.iter().all(|it| is_field(it)))
}

/// `at` is none beyond the calendar.
fn once(at: Option<Timestamp>, zone: &Zone, span: (usize, usize)) -> Result<Schedule, WordsError> {
    // The text of an earlier instant, in a year below 0, is none that the API takes.
    let at = at.filter(|at| *at >= EARLIEST);
    let too_far =
        || WordsError { message: "that is too far away; use another date".to_owned(), span };
    Ok(Schedule::new(ScheduleRule::Once(at.ok_or_else(too_far)?), zone.clone(), CatchUp::default()))
}

fn read(parser: &mut Parser<'_>, zone: &Zone, now: Timestamp) -> Result<Understood, ScheduleError> {
    let mut is_every = parser.take_every();
    if is_every && let Some((text, span)) = parser.span()? {
        return interval(&text, span, zone);
    }
    if !is_every && (parser.take("in") || parser.take("+")) {
        let Some((text, span)) = parser.span()? else {
            return Err(parser.unexpected("a time such as 10m or 2 hours").into());
        };
        return later(&text, span, zone, now);
    }
    let (mut times, mut days) = (parser.times()?, None);
    is_every |= parser.take_every();
    if let Some(found) = parser.days(is_every)? {
        days = Some(found);
        if times.is_empty() {
            times = parser.times()?;
        }
    }
    match days {
        None if is_every => {
            Err(parser.unexpected("a time such as 5m, or a day such as weekday or monday").into())
        }
        None if times.is_empty() => Err(parser.unexpected("a schedule").into()),
        None => single(parser, None, &times, zone, now),
        Some(Days::LastOfMonth(span, weekday)) => {
            let message = weekday.map_or_else(|| NO_LAST_DAY.to_owned(), no_last_weekday);
            Err(WordsError { message, span }.into())
        }
        Some(days @ (Days::Date(_) | Days::Next(_) | Days::Ahead(_))) => {
            single(parser, Some(&days), &times, zone, now)
        }
        Some(days) => recurring(&days, &times, zone),
    }
}

/// The two day fields of a cron widen each other, so days of the month cannot narrow the weekday down.
fn no_last_weekday(weekday: i8) -> String {
    let day = usize::try_from(weekday)
        .ok()
        .and_then(|index| WEEKDAYS.get(index % 7))
        .unwrap_or(&WEEKDAYS[0]);
    format!(
        "a cron has no last {day} of a month: write `every {day} at 9`, and have the receiver check that a week later \
         is in another month; or add a single run for each date"
    )
}

/// An interval, in its shortest form unless it is written in one word.
fn interval(text: &str, span: (usize, usize), zone: &Zone) -> Result<Understood, ScheduleError> {
    let refused = |error: BadInterval| WordsError { message: error.to_string(), span };
    let read = |text: &str| Interval::parse(text, Timestamp::UNIX_EPOCH).map_err(refused);
    let mut interval = read(text)?;
    if text.contains(char::is_whitespace) {
        interval = read(&short(interval.period()))?;
    }
    Ok(Schedule::new(ScheduleRule::Every(interval), zone.clone(), CatchUp::default()).into())
}

/// `1h30m`.
fn short(period: SignedDuration) -> String {
    let mut rest = period.as_secs();
    let mut text = String::new();
    for (unit, seconds) in [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)] {
        let count = rest / seconds;
        rest %= seconds;
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
        }
    }
    text
}

/// A single run after some time. Whole seconds, because nobody means the milliseconds of this moment.
fn later(
    text: &str,
    span: (usize, usize),
    zone: &Zone,
    now: Timestamp,
) -> Result<Understood, ScheduleError> {
    let refused = |message: &str| WordsError { message: message.to_owned(), span };
    let ahead = elapsed(text).filter(|ahead| ahead.as_secs() > 0);
    // jiff refuses longer ones, and the calendar ends before.
    let too_far =
        || refused("that is no time to wait, or too far away; write it as 90s, 10m, 2 hours or 1d");
    let ahead = ahead.ok_or_else(too_far)?;
    let at = now.checked_add(ahead).ok().and_then(|at| Timestamp::from_second(at.as_second()).ok());
    let schedule = once(Some(at.ok_or_else(too_far)?), zone, span)?;
    Ok(Understood { is_relative: true, ..schedule.into() })
}

/// A single run at a local time: of the given day, or at the next one of this weekday or time of day.
fn single(
    parser: &Parser<'_>,
    day: Option<&Days>,
    times: &[Clock],
    zone: &Zone,
    now: Timestamp,
) -> Result<Understood, ScheduleError> {
    let time = match times {
        [] => Time::midnight(),
        [time] => time.time()?,
        [_, second, ..] => {
            let message =
                "a single run has one time; for more of them write `daily at 9:00 and 18:00`";
            return Err(WordsError { message: message.to_owned(), span: second.span }.into());
        }
    };
    let today = zone.reading(now).date();
    let ahead = |days: i64| today.checked_add(jiff::Span::new().days(days)).ok();
    let reading = |date: jiff::civil::Date| date.to_datetime(time);
    let is_to_come =
        |reading: &DateTime| zone.earliest_instant(*reading).is_some_and(|at| at > now);
    let found = match day {
        Some(Days::Date(date)) => Some(reading(*date)),
        Some(Days::Ahead(days)) => ahead(*days).map(reading),
        Some(Days::Next(weekday)) => (0..=7)
            .filter_map(ahead)
            .filter(|date| date.weekday() == *weekday)
            .map(reading)
            .find(is_to_come),
        // The next time that the clock shows it.
        _ => (0..=1).filter_map(ahead).map(reading).find(is_to_come),
    };
    let at = found.and_then(|reading| zone.earliest_instant(reading));
    let schedule = once(at, zone, parser.whole())?;
    let local = found.map(|reading| reading.to_string());
    Ok(Understood { schedule, local, is_relative: !matches!(day, Some(Days::Date(_))) })
}

/// A cron expression.
fn recurring(days: &Days, times: &[Clock], zone: &Zone) -> Result<Understood, ScheduleError> {
    let (minute, hours) = match days {
        Days::Minutes => ("*".to_owned(), every_minute(times)?),
        Days::Hours => (minute_of_hour(times)?.to_string(), "*".to_owned()),
        _ => times_of_day(times)?,
    };
    let (month_days, weekdays) = match days {
        Days::OfMonth(days) => (list(days), "*".to_owned()),
        Days::OfWeek(days) => ("*".to_owned(), list(days)),
        _ => ("*".to_owned(), "*".to_owned()),
    };
    let line = format!("{minute} {hours} {month_days} * {weekdays}");
    let rule = ScheduleRule::Recurring(CronExpr::parse(&line)?);
    Ok(Schedule::new(rule, zone.clone(), CatchUp::default()).into())
}

/// The hour field of a run in every minute.
fn every_minute(times: &[Clock]) -> Result<String, WordsError> {
    match times {
        [] => Ok("*".to_owned()),
        [time, ..] => Err(WordsError {
            message: "`every minute` has no time of day; leave it out, or write `daily at 9:00`"
                .to_owned(),
            span: time.span,
        }),
    }
}

fn minute_of_hour(times: &[Clock]) -> Result<i8, WordsError> {
    let refused = |time: &Clock| WordsError {
        message: "`hourly` takes one minute of the hour, such as `hourly at :15`".to_owned(),
        span: time.span,
    };
    match times {
        [] => Ok(0),
        [time] if time.hour.is_none() => Ok(time.minute),
        [time] | [_, time, ..] => Err(refused(time)),
    }
}

/// The fields of minute and hour. Without a time it is midnight, as for `@daily`.
fn times_of_day(times: &[Clock]) -> Result<(String, String), WordsError> {
    let Some(first) = times.first() else { return Ok(("0".to_owned(), "0".to_owned())) };
    let mut hours = Vec::new();
    for time in times {
        let at = time.time()?;
        if at.minute() != first.minute {
            let message = "the times of one cue have the same minute, such as 9:30 and 17:30; add a cue for each other one";
            return Err(WordsError { message: message.to_owned(), span: time.span });
        }
        hours.push(at.hour());
    }
    Ok((first.minute.to_string(), list(&hours)))
}

/// Values of a field of cron in their order, those of a whole range as `1-5`.
fn list(values: &[i8]) -> String {
    let mut values = values.to_vec();
    values.sort_unstable();
    values.dedup();
    match values.as_slice() {
        [first, _, .., last] if usize::try_from(last - first) == Ok(values.len() - 1) => {
            format!("{first}-{last}")
        }
        _ => values.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::api_error::{ErrorCode, Refusal};
    use crate::domain::schedule::test_support::{at, recurring, rows, zone};

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
        let rows = rows(include_str!("../../../../tests/data/schedule-words.tsv"));
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
        let rows = rows(include_str!("../../../../tests/data/schedule-words.tsv"));
        let read =
            |text: &str, now: &str| understand(text, &zone("Europe/Berlin"), at(now)).unwrap();
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
        let rows = rows(include_str!("../../../../tests/data/schedule-words-errors.tsv"));
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
        assert!(
            generic.contains("`soon` is not understood here")
                && generic.contains("every weekday at 9")
        );
    }

    /// The guide promises what the grammar takes.
    #[test]
    fn every_text_of_the_guide_is_understood() {
        let guide = include_str!("../../../docs/reference/schedules.md");
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
}
