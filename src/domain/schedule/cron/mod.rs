//! Cron expressions in the syntax of crontab(5) (contract §4): parsing, and matching in the plain calendar.
//!
//! The only module that uses saffron. saffron counts Sunday as 1 and differs from crontab(5) in other points, so it
//! receives numbers in canonical form and never a user's text. Time zones and daylight saving are in `schedule`.

mod field;
mod pattern;
mod words;

use std::ops::{Add, Sub};
use std::time::Duration;

use jiff::civil;

use crate::domain::schedule::cron::field::Token;
use crate::domain::schedule::cron::pattern::Pattern;

/// A cron expression: the user's text and its meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronExpr {
    text: String,
    pattern: Pattern,
    saffron: saffron::Cron,
}

/// The error in a cron expression, with the field.
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
        let pattern = Pattern::parse(text)
            .map_err(|error| CronError { span: in_characters(text, error.span), ..error })?;
        let saffron = pattern.canonical().parse().map_err(|error| CronError {
            field: "expression",
            message: format!("it cannot be scheduled ({error}); write it in a simpler form"),
            span: in_characters(text, (0, text.len())),
        })?;
        Ok(Self { text: text.to_owned(), pattern, saffron })
    }

    /// The expression as the user wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The days and times in English, such as `At 09:00, Monday to Friday`. Expressions with the same meaning have the
    /// same words. A long list is cut to its number of values and the first three.
    pub fn describe(&self) -> String {
        words::describe(&self.pattern)
    }

    /// The place of the day-of-month field in the text, in characters.
    pub fn day_of_month_span(&self) -> (usize, usize) {
        let field = Token::whole(&self.text).words().nth(2);
        in_characters(&self.text, field.map_or((0, self.text.len()), Token::span))
    }

    /// Returns whether any date matches: `0 0 30 2 *` has none.
    pub fn ever_matches(&self) -> bool {
        self.pattern.ever_matches()
    }

    /// Returns whether the hour field covers all 24 hours: the condition of the daylight saving rule (contract §4).
    pub fn covers_every_hour(&self) -> bool {
        self.pattern.covers_every_hour()
    }

    /// The first matching minute strictly after `after`, up to the end of the year 9999.
    pub fn next_civil(&self, after: civil::DateTime) -> Option<civil::DateTime> {
        let mut after = after;
        loop {
            let next = saffron_next(&self.saffron, after)?;
            // saffron cannot AND two day fields: it gets the day of month, and the weekday is filtered here.
            if self.pattern.includes_day(next.date()) {
                return Some(next);
            }
            after = next.date().at(23, 59, 0, 0);
        }
    }

    /// The last matching minute in (`after`, `until`].
    pub fn last_civil(&self, after: civil::DateTime, until: civil::DateTime) -> Option<civil::DateTime> {
        self.pattern.last(after, until)
    }

    /// The number of matching minutes in (`after`, `until`].
    pub fn count_civil(&self, after: civil::DateTime, until: civil::DateTime) -> u64 {
        self.pattern.count(after, until)
    }
}

/// A span of bytes as a span of characters. All spans begin and end at characters.
fn in_characters(text: &str, (from, to): (usize, usize)) -> (usize, usize) {
    let characters = |end: usize| text.get(..end).map_or(0, |before| before.chars().count());
    (characters(from), characters(to))
}

fn saffron_next(cron: &saffron::Cron, after: civil::DateTime) -> Option<civil::DateTime> {
    const EPOCH: civil::DateTime = civil::date(1970, 1, 1).at(0, 0, 0, 0);
    let minute = after.date().at(after.hour(), after.minute(), 0, 0);
    let next = cron.next_after(at_second(minute.duration_since(EPOCH).as_secs()))?;
    EPOCH.checked_add(jiff::SignedDuration::from_secs(next.timestamp())).ok()
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
