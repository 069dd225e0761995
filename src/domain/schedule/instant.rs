//! Parser for instants: RFC 3339, or a local time without an offset (contract §2).

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};

use crate::domain::schedule::ScheduleError;
use crate::domain::schedule::time_zone::Zone;

/// The first instant that a caller may name: the start of the year 1 in UTC. The calendar has no year 0, and an instant
/// before it would need a sign in front of the year, which the form of an instant does not have.
pub const EARLIEST: Timestamp = Timestamp::constant(-62_135_596_800, 0);

/// The number of a leap second in its minute (RFC 3339).
const LEAP_SECOND: i8 = 60;

/// Parses RFC 3339 with any offset, to the millisecond. Without an offset, `text` is a local time in `zone`: of a
/// repeated local time the first, for a skipped one the first instant after the gap. A leap second, which ends a day of
/// UTC, is the second after it: no instant of the program is within one.
/// Errors: the text has another form, the date or time does not exist, or the year is beyond 9999.
pub fn parse_instant(text: &str, zone: &Zone) -> Result<Timestamp, ScheduleError> {
    let bad = |why| ScheduleError::BadInstant(text.to_owned(), why);
    let parts = Parts::read(text).ok_or_else(|| bad("is not an instant"))?;
    let reading = parts.reading().ok_or_else(|| bad("names a date or time that does not exist"))?;
    let instant = match parts.offset {
        Some(seconds) => Offset::from_seconds(seconds).and_then(|offset| offset.to_timestamp(reading)).ok(),
        None => zone.earliest_instant(reading),
    };
    let instant = instant.ok_or_else(|| bad("is too far away"))?;
    let is_real = parts.second != LEAP_SECOND || instant.as_second() % (24 * 3600) == 0;
    is_real.then_some(instant).ok_or_else(|| bad("names a date or time that does not exist"))
}

/// The local time that `text` names, if it has no offset and the clock of `zone` skips it.
pub fn skipped_time(text: &str, zone: &Zone) -> Option<DateTime> {
    let parts = Parts::read(text).filter(|parts| parts.offset.is_none())?;
    parts.reading().filter(|reading| zone.skips(*reading))
}

/// The parts of `2030-01-31T09:00:00.000+01:00`; seconds and offset are optional.
struct Parts {
    year: i16,
    month: i8,
    day: i8,
    hour: i8,
    minute: i8,
    second: i8,
    millisecond: i32,
    /// In seconds east of Greenwich.
    offset: Option<i32>,
}

impl Parts {
    fn read(text: &str) -> Option<Self> {
        let mut rest = Rest(text.as_bytes());
        let year = rest.number(4)?;
        rest.skip(b"-")?;
        let month = rest.number(2)?;
        rest.skip(b"-")?;
        let day = rest.number(2)?;
        rest.skip(b"Tt ")?;
        let hour = rest.number(2)?;
        rest.skip(b":")?;
        let minute = rest.number(2)?;
        let (second, millisecond) = match rest.skip(b":") {
            Some(_) => (rest.number(2)?, rest.fraction()?),
            None => (0, 0),
        };
        let offset = rest.offset()?;
        Some(Self { year, month, day, hour, minute, second, millisecond, offset })
    }

    fn reading(&self) -> Option<DateTime> {
        let date = Date::new(self.year, self.month, self.day).ok()?;
        let leap = i8::from(self.second == LEAP_SECOND);
        let time =
            Time::new(self.hour, self.minute, self.second - leap, self.millisecond * 1_000_000).ok()?;
        DateTime::from_parts(date, time).checked_add(SignedDuration::from_secs(leap.into())).ok()
    }
}

struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    /// Consumes the next byte if it is one of `any_of`.
    fn skip(&mut self, any_of: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = if any_of.contains(first) { rest } else { return None };
        Some(*first)
    }

    fn number<T: TryFrom<i32>>(&mut self, digits: usize) -> Option<T> {
        let (number, rest) = self.0.split_at_checked(digits)?;
        self.0 = rest;
        let number = number
            .iter()
            .try_fold(0, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + i32::from(digit - b'0')))?;
        T::try_from(number).ok()
    }

    /// Consumes an optional fraction of a second of any length, truncated to milliseconds.
    fn fraction(&mut self) -> Option<i32> {
        if self.skip(b".").is_none() {
            return Some(0);
        }
        let length = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at_checked(length).filter(|(digits, _)| !digits.is_empty())?;
        self.0 = rest;
        let padded: Vec<u8> = digits.iter().copied().chain(*b"00").take(3).collect();
        Rest(&padded).number(3)
    }

    /// Consumes the offset at the end of the text, in seconds; `Some(None)` if there is none.
    fn offset(&mut self) -> Option<Option<i32>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let sign = match self.skip(b"Zz+-")? {
            b'+' => 1,
            b'-' => -1,
            _ => return self.0.is_empty().then_some(Some(0)),
        };
        let hours: i32 = self.number(2)?;
        if self.0.starts_with(b":") {
            self.skip(b":")?;
        }
        let minutes: i32 = self.number(2)?;
        let valid = hours < 24 && minutes < 60 && self.0.is_empty();
        valid.then_some(Some(sign * (hours * 3600 + minutes * 60)))
    }
}
