//! Cron expressions in the syntax of crontab(5) (contract §4): parsing, and arithmetic on five sets of values in the
//! plain calendar. Time zones and daylight saving are in `schedule`.
//!
//! The only module that uses saffron, which finds the next run. saffron counts Sunday as 1 and differs from crontab(5)
//! in other points, so it receives lists of numbers and never a user's text.

mod words;

use std::ops::{Add, Sub};
use std::time::Duration;

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, date};

/// A cron expression: the user's text, and a bit set for each field: bit n is the value n, Sunday is 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronExpr {
    text: String,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Both day fields are restricted, so that a day matches if either of them matches (crontab(5)).
    either_day: bool,
    saffron: saffron::Cron,
}

const ALL_HOURS: u64 = (1 << 24) - 1;
const ALL_DAYS: u64 = ((1 << 31) - 1) << 1;
const ALL_WEEKDAYS: u64 = (1 << 7) - 1;
/// Longer than an expression that lists every value of every field.
const MAX_BYTES: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct CronError {
    /// `minute`, `hour`, `day-of-month`, `month`, `day-of-week`, or `expression` for the whole text.
    pub field: &'static str,
    /// The problem and the correct form.
    pub message: String,
    /// The part of the expression, in characters, half open: empty where something is missing.
    pub span: (usize, usize),
}

impl CronExpr {
    /// Parses five fields, or a macro such as `@daily`.
    /// Errors: syntax unknown to crontab(5), a value out of range, a step larger than its field.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        Self::read(text)
            .map_err(|error| CronError { span: in_characters(text, error.span), ..error })
    }

    /// An error has its span in bytes.
    fn read(text: &str) -> Result<Self, CronError> {
        if text.len() > MAX_BYTES {
            let surplus =
                (0..=MAX_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            let message = format!("it is longer than {MAX_BYTES} bytes; use ranges and steps");
            return Err(whole((surplus, text.len()), message));
        }
        if let Some(advice) = foreign(text) {
            return Err(whole((0, text.len()), advice));
        }
        let name = text.trim_ascii();
        let expression = if name.starts_with('@') {
            let start = text.len() - text.trim_ascii_start().len();
            expand(name).map_err(|message| whole((start, start + name.len()), message))?
        } else {
            text
        };
        let fields: Vec<&str> = expression.split_ascii_whitespace().collect();
        if let Some(span) = words_of_a_person(expression, &fields) {
            return Err(whole(span, NO_WORDS.to_owned()));
        }
        let fields: [&str; 5] =
            fields.try_into().map_err(|found: Vec<_>| wrong_count(expression, &found))?;
        let mut sets = [0; 5];
        for (set, (field, text)) in sets.iter_mut().zip(FIELDS.iter().zip(fields)) {
            *set = field.parse(text).map_err(|(part, message)| CronError {
                field: field.name,
                message,
                span: span_in(expression, part),
            })?;
        }
        let [minutes, hours, days, months, weekdays] = sets;
        // crontab(5): a day field that starts with a star, `*/2` included, counts as unrestricted.
        let restricted = |field: &str| !field.starts_with(['*', '?']);
        let either_day = restricted(fields[2]) && restricted(fields[4]);
        let days_of_week = list(weekdays << 1);
        let (month_days, week_days) = match (days, weekdays) {
            _ if either_day => (list(days), days_of_week),
            (ALL_DAYS, ALL_WEEKDAYS) => ("*".to_owned(), "*".to_owned()),
            (ALL_DAYS, _) => ("*".to_owned(), days_of_week),
            // saffron cannot AND two day fields: it gets the day of month, and `next_civil` filters the weekday.
            _ => (list(days), "*".to_owned()),
        };
        let canonical =
            format!("{} {} {month_days} {} {week_days}", list(minutes), list(hours), list(months));
        let saffron = canonical.parse().map_err(|error| {
            let message = format!("it cannot be scheduled ({error}); write it in a simpler form");
            whole((0, text.len()), message)
        })?;
        Ok(Self {
            text: text.to_owned(),
            minutes,
            hours,
            days,
            months,
            weekdays,
            either_day,
            saffron,
        })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The days and times in English, such as `At 09:00, Monday to Friday`. Expressions with the same meaning have the
    /// same words. A long list is cut to its number of values and the first three.
    pub fn describe(&self) -> String {
        words::describe(self)
    }

    pub fn day_of_month_span(&self) -> (usize, usize) {
        let field = self.text.split_ascii_whitespace().nth(2).unwrap_or(&self.text);
        in_characters(&self.text, span_in(&self.text, field))
    }

    /// Returns whether any date matches: `0 0 30 2 *` has none.
    pub fn ever_matches(&self) -> bool {
        const LONGEST_DAY: [u32; 13] = [0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        // Every date, 29 February included, eventually falls on each weekday.
        self.either_day
            || (1..).zip(&LONGEST_DAY[1..]).any(|(month, longest)| {
                has(self.months, month) && self.days.trailing_zeros() <= *longest
            })
    }

    /// Returns whether the hour field covers all 24 hours: the condition of the daylight saving rule (contract §4).
    pub fn covers_every_hour(&self) -> bool {
        self.hours == ALL_HOURS
    }

    fn includes_day(&self, date: Date) -> bool {
        if !has(self.months, date.month()) {
            return false;
        }
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        if self.either_day { day || weekday } else { day && weekday }
    }

    pub fn next_civil(&self, after: DateTime) -> Option<DateTime> {
        const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);
        let mut minute = after.date().at(after.hour(), after.minute(), 0, 0);
        loop {
            let next =
                self.saffron.next_after(at_second(minute.duration_since(EPOCH).as_secs()))?;
            let next = EPOCH.checked_add(SignedDuration::from_secs(next.timestamp())).ok()?;
            if self.includes_day(next.date()) {
                return Some(next);
            }
            minute = next.date().at(23, 59, 0, 0);
        }
    }

    /// The number of matching minutes in (`after`, `until`]: whole days by multiplication, the ends by rank.
    pub fn count_civil(&self, after: DateTime, until: DateTime) -> u64 {
        if until <= after {
            return 0;
        }
        let per_day = u64::from(self.hours.count_ones() * self.minutes.count_ones());
        let mut days = 0;
        let mut date = after.date();
        while date < until.date() {
            days += u64::from(self.includes_day(date));
            // Cannot fail: `until` is a later date.
            date = date.tomorrow().unwrap_or(Date::MAX);
        }
        days * per_day + self.rank(until) - self.rank(after)
    }

    pub fn last_civil(&self, after: DateTime, until: DateTime) -> Option<DateTime> {
        let mut until = until;
        while until > after {
            if self.includes_day(until.date())
                && let Some((hour, minute)) = self.last_time(until.hour(), until.minute())
            {
                return Some(until.date().at(hour, minute, 0, 0)).filter(|last| *last > after);
            }
            until = until.date().yesterday().ok()?.at(23, 59, 0, 0);
        }
        None
    }

    fn rank(&self, at: DateTime) -> u64 {
        if !self.includes_day(at.date()) {
            return 0;
        }
        let hours_before = (self.hours & below(at.hour())).count_ones();
        let minutes =
            if has(self.hours, at.hour()) { self.minutes & through(at.minute()) } else { 0 };
        u64::from(hours_before * self.minutes.count_ones() + minutes.count_ones())
    }

    fn last_time(&self, hour: i8, minute: i8) -> Option<(i8, i8)> {
        if has(self.hours, hour)
            && let Some(minute) = highest(self.minutes & through(minute))
        {
            return Some((hour, minute));
        }
        Some((highest(self.hours & below(hour))?, highest(self.minutes)?))
    }
}

/// The fields that a macro stands for, or what is wrong with it.
fn expand(name: &str) -> Result<&'static str, String> {
    const MACROS: [(&str, &str); 7] = [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
    ];
    if let Some((_, fields)) = MACROS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        return Ok(fields);
    }
    if name.eq_ignore_ascii_case("@reboot") {
        return Err("@reboot has no time; use @daily or five fields".to_owned());
    }
    let known = MACROS.map(|(known, _)| known).join(" ");
    Err(format!("`{}` is not a macro; use {known} or five fields", shown(name)))
}

/// What to write in place of a form of another scheduler.
pub fn foreign(text: &str) -> Option<String> {
    let text = text.trim_ascii();
    let begins =
        |with: &str| text.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with));
    let mut values = text.split([' ', '\t', ',']);
    let advice = match () {
        () if begins("CRON_TZ=") || begins("TZ=") => {
            "the time zone stands beside the expression, as `timezone` or --tz, not in front of its fields"
        }
        () if begins("rate(") => "rate(…) is a form of AWS; write `every 5m` for `rate(5 minutes)`",
        () if begins("cron(") => {
            "cron(…) is a form of AWS; write its first five fields alone, with names of days: there 1 is Sunday"
        }
        () if values
            .any(|value| value == "H" || value.starts_with("H/") || value.starts_with("H(")) =>
        {
            "H is a form of Jenkins; write a number for `H`, and `*/15` for `H/15`"
        }
        () if text.contains('~') => {
            "~ is a random value in the crontabs of cronie and OpenBSD; write a number, and set a jitter to spread runs"
        }
        () => return None,
    };
    Some(advice.to_owned())
}

const NO_WORDS: &str = "not a cron expression; send a phrase as `text` to the preview, and store the schedule that it returns";

/// The place of words such as `every weekday at 9`: no field of a minute begins with a letter.
fn words_of_a_person(expression: &str, fields: &[&str]) -> Option<(usize, usize)> {
    let (first, last) = (fields.first()?, fields.last()?);
    let is_word = first.starts_with(|char: char| char.is_ascii_alphabetic());
    // The name of a day in place of the minute is a mistake in a cron expression.
    let is_meant = is_word && (fields.len() != 5 || first.len() > 3);
    is_meant.then(|| (span_in(expression, first).0, span_in(expression, last).1))
}

/// The error points at the fields after the fifth, or at the end where fields are missing.
fn wrong_count(expression: &str, found: &[&str]) -> CronError {
    let end = expression.len();
    let (count, hint, span) = match found {
        [_, _, _, _, _, first, ..] => {
            let last = found.last().unwrap_or(first);
            let hint = "leave out seconds and years, and put no spaces into lists";
            (found.len(), hint, (span_in(expression, first).0, span_in(expression, last).1))
        }
        _ => (found.len(), "write * for a field that does not matter", (end, end)),
    };
    let order = "minute hour day-of-month month day-of-week";
    let plural = if count == 1 { "" } else { "s" };
    whole(span, format!("it has {count} field{plural}, a cron has five ({order}); {hint}"))
}

fn whole(span: (usize, usize), message: String) -> CronError {
    CronError { field: "expression", message, span }
}

/// A span of bytes as a span of characters. All spans begin and end at characters.
fn in_characters(text: &str, (from, to): (usize, usize)) -> (usize, usize) {
    let characters = |end: usize| text.get(..end).map_or(0, |before| before.chars().count());
    (characters(from), characters(to))
}

/// An instant in saffron's time type. Generic, because its crate (chrono) is not a dependency of ours; the type's
/// default is the epoch.
fn at_second<T>(seconds: i64) -> T
where
    T: Default + Add<Duration, Output = T> + Sub<Duration, Output = T>,
{
    let distance = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { T::default() - distance } else { T::default() + distance }
}

fn list(set: u64) -> String {
    let values = (0..64).filter(|value| has(set, *value)).map(|value| value.to_string());
    values.collect::<Vec<_>>().join(",")
}

fn has(set: u64, value: i8) -> bool {
    set & (1 << value) != 0
}

fn highest(set: u64) -> Option<i8> {
    i8::try_from(set.checked_ilog2()?).ok()
}

fn below(value: i8) -> u64 {
    (1 << value) - 1
}

fn through(value: i8) -> u64 {
    below(value + 1)
}

/// The wrong part of a field, and what is wrong with it.
type PartError<'a> = (&'a str, String);

struct CronField {
    name: &'static str,
    range: (u8, u8),
    size: u8,
    /// Three-letter names, in the order of the values.
    names: &'static [&'static str],
    question: bool,
}

const FIELDS: [CronField; 5] = [
    CronField { name: "minute", range: (0, 59), size: 60, names: &[], question: false },
    CronField { name: "hour", range: (0, 23), size: 24, names: &[], question: false },
    CronField { name: "day-of-month", range: (1, 31), size: 31, names: &[], question: true },
    CronField {
        name: "month",
        range: (1, 12),
        size: 12,
        names: &[
            "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
        ],
        question: false,
    },
    // 7 is accepted for Sunday: values are taken modulo the size.
    CronField {
        name: "day-of-week",
        range: (0, 7),
        size: 7,
        names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
        question: true,
    },
];

impl CronField {
    /// The values that the text names, as a bit set: bit n is the value n, Sunday is 0.
    fn parse<'a>(&self, field: &'a str) -> Result<u64, PartError<'a>> {
        if self.question && field == "?" {
            return Ok(self.every(0, self.size - 1, 1));
        }
        let mut set = 0;
        for item in field.split(',') {
            set |= self.item(item)?;
        }
        Ok(set)
    }

    fn item<'a>(&self, item: &'a str) -> Result<u64, PartError<'a>> {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(self.step(step)?)),
            None => (item, None),
        };
        let last = self.size - 1;
        let (first, last) = match (range, range.split_once('-')) {
            ("*", _) => (0, last),
            (_, Some((first, end))) => (self.value(first)?, self.value(end)?),
            // An extension: `a/n` means `a-max/n`. crontab(5) has steps after ranges only.
            (_, None) if step.is_some() => (self.value(range)?, last),
            (_, None) => (self.value(range)?, self.value(range)?),
        };
        Ok(self.every(first, last, step.unwrap_or(1)))
    }

    /// Every `step`th value from `first` to `last`, both relative to the smallest value of the field; wraps at the
    /// end.
    fn every(&self, first: u8, last: u8, step: u8) -> u64 {
        let length = if first <= last { last - first } else { last + self.size - first };
        (0..=length)
            .step_by(usize::from(step))
            .map(|distance| 1 << (self.range.0 + (first + distance) % self.size))
            .fold(0, |set, bit: u64| set | bit)
    }

    fn value<'a>(&self, value: &'a str) -> Result<u8, PartError<'a>> {
        let (least, greatest) = self.range;
        if let Some(index) = self.names.iter().position(|name| name.eq_ignore_ascii_case(value)) {
            return Ok(u8::try_from(index).unwrap_or(greatest));
        }
        let Some(number) = number(value)? else {
            return Err((value, self.unknown(value)));
        };
        if (least..=greatest).contains(&number) {
            return Ok(number - least);
        }
        Err((value, format!("{} is out of range {least}-{greatest}", shown(value))))
    }

    fn step<'a>(&self, step: &'a str) -> Result<u8, PartError<'a>> {
        let size = self.size;
        let problem = match number(step)? {
            Some(step) if (1..=size).contains(&step) => return Ok(step),
            Some(0) => format!("a step of 0 never moves; use 1-{size}"),
            Some(_) => format!(
                "the step {} is larger than the field, which has {size} values; use 1-{size}",
                shown(step)
            ),
            None => format!("`{}` is not a step; write a number 1-{size} after /", shown(step)),
        };
        Err((step, problem))
    }

    fn unknown(&self, value: &str) -> String {
        let (least, greatest) = self.range;
        let numbers = format!("{least}-{greatest}");
        let wanted = match self.names {
            [first, .., last] => format!("a number {numbers} or a name {first}-{last}"),
            _ => format!("a number {numbers}"),
        };
        let text = shown(value);
        if text.contains(['L', 'l', 'W', 'w', '#']) && self.question {
            let is_last_day = self.name == "day-of-month" && text.eq_ignore_ascii_case("L");
            let instead = if is_last_day {
                "; day 1 at 0:00 is right after the last day of a month"
            } else {
                ""
            };
            return format!(
                "`{text}`: L, W and # are not part of crontab(5); write {wanted}{instead}"
            );
        }
        format!("`{text}` is not valid here; write {wanted}")
    }
}

/// Parses digits; numbers above `u8::MAX` saturate. `None` for any other text.
fn number(text: &str) -> Result<Option<u8>, PartError<'_>> {
    if text.is_empty() {
        let problem = "a value is missing; write one on each side of every `,`, `-` and `/`";
        return Err((text, problem.to_owned()));
    }
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    Ok(is_number.then(|| text.parse().unwrap_or(u8::MAX)))
}

fn shown(text: &str) -> String {
    const MAX_CHARS: usize = 40;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The place in `text` of a part of it, in bytes, half open. Empty where something is missing.
fn span_in(text: &str, part: &str) -> (usize, usize) {
    let start = part.as_ptr().addr().saturating_sub(text.as_ptr().addr());
    (start, start + part.len())
}

#[cfg(test)]
mod tests {
    use jiff::tz::Offset;

    use super::*;
    use crate::domain::api_error::{ErrorCode, Refusal};
    use crate::domain::schedule::test_support::{at, rows};
    use crate::domain::schedule::{CatchUp, Schedule, ScheduleError};

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

    fn response(expression: &str, after: &str) -> String {
        let Ok(cron) = CronExpr::parse(expression) else { return "error".to_owned() };
        if !cron.ever_matches() {
            return "never".to_owned();
        }
        let next = cron.next_civil(Offset::UTC.to_datetime(at(after))).unwrap();
        Offset::UTC.to_timestamp(next).unwrap().to_string()
    }

    #[test]
    fn every_row_of_the_cron_table_holds() {
        let rows = rows(include_str!("../../../../tests/data/cron-cases.tsv"));
        let differs = |&&[cron, after, expected]: &&[&str; 3]| response(cron, after) != expected;
        let wrong: Vec<_> =
            rows.iter().filter(differs).map(|row| (row, response(row[0], row[1]))).collect();
        assert!(rows.len() == 4000 && wrong.is_empty(), "{wrong:#?}");
    }

    fn described(cron: &str) -> String {
        CronExpr::parse(cron).unwrap_or_else(|error| panic!("{cron}: {error}")).describe()
    }

    #[test]
    fn a_cron_expression_reads_as_english() {
        let rows = rows(include_str!("../../../../tests/data/cron-words.tsv"));
        let differs = |&&[cron, words]: &&[&str; 2]| described(cron) != words;
        let wrong: Vec<_> =
            rows.iter().filter(differs).map(|[cron, _]| (cron, described(cron))).collect();
        assert!(rows.len() == 99 && wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn a_cron_error_names_field_and_remedy() {
        let long = format!("{} * * * *", "1".repeat(50));
        let (cut, stars) =
            (format!("minute: {}… is out of range 0-59", &long[..40]), "*".repeat(1025));
        let too_long = "expression: it is longer than 1024 bytes; use ranges and steps";
        let rows = rows(include_str!("../../../../tests/data/cron-errors.tsv"));
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
}
