//! Cron expressions in the syntax of crontab(5) (contract §4): parsing, and arithmetic on five sets of values in the plain
//! calendar. Time zones and daylight saving are in `schedule`.
//!
//! The only module that uses saffron, which finds the next run. saffron counts Sunday as 1 and differs from crontab(5) in
//! other points, so it receives lists of numbers and never a user's text.

mod field;
mod words;

use std::ops::{Add, Sub};
use std::time::Duration;

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, date};

use crate::domain::schedule::cron::field::{FIELDS, Token, shown};

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
    ///
    /// ```
    /// use cued::domain::schedule::cron::CronExpr;
    ///
    /// let cron = CronExpr::parse("30 22 * * fri-mon").unwrap();
    /// let next = cron.next_civil("2026-03-03T00:00".parse().unwrap()); // a Tuesday
    /// assert_eq!(next, Some("2026-03-06T22:30".parse().unwrap()));
    ///
    /// let error = CronExpr::parse("61 * * * *").unwrap_err();
    /// assert_eq!((error.field, error.span), ("minute", (0, 2)));
    /// ```
    /// Errors: syntax unknown to crontab(5), a value out of range, a step larger than its field.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        Self::read(text).map_err(|error| CronError { span: in_characters(text, error.span), ..error })
    }

    /// An error has its span in bytes.
    fn read(text: &str) -> Result<Self, CronError> {
        if text.len() > MAX_BYTES {
            let surplus = (0..=MAX_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            let message = format!("it is longer than {MAX_BYTES} bytes; use ranges and steps");
            return Err(whole((surplus, text.len()), message));
        }
        let name = text.trim_ascii();
        let expression = if name.starts_with('@') {
            let start = text.len() - text.trim_ascii_start().len();
            Token::whole(expand(name).map_err(|message| whole((start, start + name.len()), message))?)
        } else {
            Token::whole(text)
        };
        let fields: Vec<Token<'_>> = expression.words().collect();
        let fields: [Token<'_>; 5] =
            fields.try_into().map_err(|found: Vec<_>| wrong_count(expression, &found))?;
        let mut sets = [0; 5];
        for (set, (field, text)) in sets.iter_mut().zip(FIELDS.iter().zip(fields)) {
            *set = field.parse(text)?;
        }
        let [minutes, hours, days, months, weekdays] = sets;
        // crontab(5): a day field that starts with a star, `*/2` included, counts as unrestricted.
        let restricted = |field: Token<'_>| !field.text.starts_with(['*', '?']);
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
        Ok(Self { text: text.to_owned(), minutes, hours, days, months, weekdays, either_day, saffron })
    }

    /// The expression as the user wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The days and times in English, such as `At 09:00, Monday to Friday`. Expressions with the same meaning have the
    /// same words. A long list is cut to its number of values and the first three.
    pub fn describe(&self) -> String {
        words::describe(self)
    }

    /// The place of the day-of-month field in the text, in characters.
    pub fn day_of_month_span(&self) -> (usize, usize) {
        let field = Token::whole(&self.text).words().nth(2);
        in_characters(&self.text, field.map_or((0, self.text.len()), Token::span))
    }

    /// Returns whether any date matches: `0 0 30 2 *` has none.
    pub fn ever_matches(&self) -> bool {
        const LONGEST_DAY: [u32; 13] = [0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        // Every date, 29 February included, eventually falls on each weekday.
        self.either_day
            || (1..)
                .zip(&LONGEST_DAY[1..])
                .any(|(month, longest)| has(self.months, month) && self.days.trailing_zeros() <= *longest)
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

    /// The first matching minute strictly after `after`, up to the end of the year 9999.
    pub fn next_civil(&self, after: DateTime) -> Option<DateTime> {
        const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);
        let mut minute = after.date().at(after.hour(), after.minute(), 0, 0);
        loop {
            let next = self.saffron.next_after(at_second(minute.duration_since(EPOCH).as_secs()))?;
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

    /// The last matching minute in (`after`, `until`].
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

    /// The number of matching minutes of this day up to and including `at`.
    fn rank(&self, at: DateTime) -> u64 {
        if !self.includes_day(at.date()) {
            return 0;
        }
        let hours_before = (self.hours & below(at.hour())).count_ones();
        let minutes = if has(self.hours, at.hour()) { self.minutes & through(at.minute()) } else { 0 };
        u64::from(hours_before * self.minutes.count_ones() + minutes.count_ones())
    }

    /// The last matching time of day up to and including this one.
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

/// The error points at the fields after the fifth, or at the end where fields are missing.
fn wrong_count(expression: Token<'_>, found: &[Token<'_>]) -> CronError {
    let (_, end) = expression.span();
    let (count, hint, span) = match found {
        [_, _, _, _, _, first, ..] => {
            let last = found.last().unwrap_or(first);
            let hint = "leave out seconds and years, and write lists without blanks";
            (found.len(), hint, (first.span().0, last.span().1))
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

/// The values of a set as saffron reads them.
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
