//! Cron as crontab(5) has it (contract §4): the parsed expression and its minutes in the plain calendar.
//! The only door to saffron, which counts Sunday as 1 and reads much else differently: it is handed
//! canonical numbers, never a user's text. Zones and daylight saving are `schedule`'s.

mod field;
mod pattern;

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use jiff::civil;

use crate::domain::schedule::cron::pattern::Pattern;

/// A cron expression: as the user wrote it, and what it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronExpr {
    text: String,
    pattern: Pattern,
    saffron: saffron::Cron,
}

/// What is wrong with a cron expression, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronError {
    /// `minute`, `hour`, `day-of-month`, `month`, `day-of-week`, or `expression` for the whole.
    pub field: &'static str,
    /// What is wrong there and what to write instead.
    pub message: String,
}

impl CronExpr {
    /// Reads five fields or a macro such as `@daily`.
    ///
    /// # Errors
    /// What crontab(5) does not know, values out of range, steps larger than the field.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        let pattern = Pattern::parse(text)?;
        let saffron = pattern.canonical().parse().map_err(|error| CronError {
            field: "expression",
            message: format!("it cannot be scheduled ({error}); write it in a simpler form"),
        })?;
        Ok(Self { text: text.to_owned(), pattern, saffron })
    }

    /// The expression as the user wrote it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether any date of the calendar matches: `0 0 30 2 *` never does.
    #[must_use]
    pub fn ever_matches(&self) -> bool {
        self.pattern.ever_matches()
    }

    /// Whether the hour field covers all 24 hours, which the rule for daylight saving asks (contract §4).
    #[must_use]
    pub fn covers_every_hour(&self) -> bool {
        self.pattern.covers_every_hour()
    }

    /// The first matching minute strictly after a reading of the clock, up to the end of the year 9999.
    #[must_use]
    pub fn next_civil(&self, after: civil::DateTime) -> Option<civil::DateTime> {
        let mut after = after;
        loop {
            let next = saffron_next(&self.saffron, after)?;
            // saffron cannot AND two day fields: it has the day of month only, the weekday is kept here.
            if self.pattern.includes_day(next.date()) {
                return Some(next);
            }
            after = next.date().at(23, 59, 0, 0);
        }
    }

    /// The last matching minute in (`after`, `until`].
    #[must_use]
    pub fn last_civil(&self, after: civil::DateTime, until: civil::DateTime) -> Option<civil::DateTime> {
        self.pattern.last(after, until)
    }

    /// How many matching minutes there are in (`after`, `until`].
    #[must_use]
    pub fn count_civil(&self, after: civil::DateTime, until: civil::DateTime) -> u64 {
        self.pattern.count(after, until)
    }
}

impl fmt::Display for CronError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for CronError {}

fn saffron_next(cron: &saffron::Cron, after: civil::DateTime) -> Option<civil::DateTime> {
    const EPOCH: civil::DateTime = civil::date(1970, 1, 1).at(0, 0, 0, 0);
    let minute = after.date().at(after.hour(), after.minute(), 0, 0);
    let next = cron.next_after(at_second(minute.duration_since(EPOCH).as_secs()))?;
    EPOCH.checked_add(jiff::SignedDuration::from_secs(next.timestamp())).ok()
}

/// saffron's type of time (whose crate is not ours to name), so many seconds from its default, the epoch.
fn at_second<T>(seconds: i64) -> T
where
    T: Default + Add<Duration, Output = T> + Sub<Duration, Output = T>,
{
    let distance = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { T::default() - distance } else { T::default() + distance }
}
