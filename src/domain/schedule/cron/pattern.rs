//! The meaning of a cron expression: five sets of values and the rule for the two day fields.
//!
//! Counts and searches backward by arithmetic on the sets. Searching forward is saffron's part, in `cron`.

use jiff::civil::{Date, DateTime};

use crate::domain::schedule::cron::CronError;
use crate::domain::schedule::cron::field::{FIELDS, Token, shown};

/// Five bit sets: bit n is the value n, Sunday is 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    pub(super) minutes: u64,
    pub(super) hours: u64,
    pub(super) days: u64,
    pub(super) months: u64,
    pub(super) weekdays: u64,
    /// Both day fields are restricted, so that a day matches if either of them matches (crontab(5)).
    pub(super) either_day: bool,
}

const ALL_HOURS: u64 = (1 << 24) - 1;
pub(super) const ALL_DAYS: u64 = ((1 << 31) - 1) << 1;
pub(super) const ALL_WEEKDAYS: u64 = (1 << 7) - 1;
/// Longer than an expression that lists every value of every field.
const MAX_BYTES: usize = 1024;

impl Pattern {
    /// Parses an expression; an error has its span in bytes.
    pub(super) fn parse(text: &str) -> Result<Self, CronError> {
        let expression = Token::whole(text);
        if text.len() > MAX_BYTES {
            let surplus = (0..=MAX_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            let message = format!("it is longer than {MAX_BYTES} bytes; use ranges and steps");
            return Err(whole((surplus, text.len()), message));
        }
        let name = text.trim_ascii();
        if name.starts_with('@') {
            let start = text.len() - text.trim_ascii_start().len();
            let fields = expand(name).map_err(|message| whole((start, start + name.len()), message))?;
            return Self::from_fields(Token::whole(fields));
        }
        Self::from_fields(expression)
    }

    fn from_fields(expression: Token<'_>) -> Result<Self, CronError> {
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
        Ok(Self { minutes, hours, days, months, weekdays, either_day })
    }

    /// The canonical form that saffron reads as crontab(5) does: numbers only, Sunday as 1.
    ///
    /// If both day fields must match, it contains the day of month only; see `CronExpr::next_civil`.
    pub(super) fn canonical(&self) -> String {
        let star = || "*".to_owned();
        let (days, weekdays) = match (self.days, self.weekdays) {
            (days, weekdays) if self.either_day => (list(days), list(weekdays << 1)),
            (ALL_DAYS, ALL_WEEKDAYS) => (star(), star()),
            (ALL_DAYS, weekdays) => (star(), list(weekdays << 1)),
            (days, _) => (list(days), star()),
        };
        format!("{} {} {days} {} {weekdays}", list(self.minutes), list(self.hours), list(self.months))
    }

    pub(super) fn ever_matches(&self) -> bool {
        const LONGEST_DAY: [u32; 13] = [0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        // Every date, 29 February included, eventually falls on each weekday.
        self.either_day
            || (1..)
                .zip(&LONGEST_DAY[1..])
                .any(|(month, longest)| has(self.months, month) && self.days.trailing_zeros() <= *longest)
    }

    pub(super) fn covers_every_hour(&self) -> bool {
        self.hours == ALL_HOURS
    }

    pub(super) fn includes_day(&self, date: Date) -> bool {
        if !has(self.months, date.month()) {
            return false;
        }
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        if self.either_day { day || weekday } else { day && weekday }
    }

    /// The number of matching minutes in (`after`, `until`]: whole days by multiplication, the ends by rank.
    pub(super) fn count(&self, after: DateTime, until: DateTime) -> u64 {
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
    pub(super) fn last(&self, after: DateTime, until: DateTime) -> Option<DateTime> {
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

/// The values of a set as ranges: `0,15-17,45`.
fn list(set: u64) -> String {
    let mut parts = Vec::new();
    let mut rest = set;
    while rest != 0 {
        let first = rest.trailing_zeros();
        let length = (rest >> first).trailing_ones();
        parts.push(match length {
            1 => first.to_string(),
            _ => format!("{first}-{}", first + length - 1),
        });
        rest &= !(((1 << length) - 1) << first);
    }
    parts.join(",")
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

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn saffron_gets_numbers_with_sunday_as_1() {
        for (text, canonical) in [
            ("@daily", "0 0 * 1-12 *"),
            ("*/15 22-2 ? jan,MAR fri-mon", "0,15,30,45 0-2,22-23 * 1,3 1-2,6-7"),
            ("0 0 13 * 5", "0 0 13 1-12 6"),
            ("0 0 1-31 * 7", "0 0 1-31 1-12 1"),
            // Both must match: saffron gets the day of month, and the weekday is kept afterwards.
            ("0 0 1-7 * */3", "0 0 1-7 1-12 *"),
            ("0 0 */10 * mon", "0 0 1,11,21,31 1-12 *"),
        ] {
            assert_eq!(Pattern::parse(text).unwrap().canonical(), canonical, "{text}");
        }
    }
}
