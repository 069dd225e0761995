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
        let offset_at = text.get(10..)?.find(['Z', 'z', '+', '-']).map_or(text.len(), |at| at + 10);
        let (time, offset) = text.split_at(offset_at);
        let (time, fraction) = time.split_once('.').map_or((time, None), |(time, rest)| (time, Some(rest)));
        let is_fraction = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let has_seconds = has_form(time, "0000-00-00T00:00:00") && fraction.is_none_or(is_fraction);
        let has_minutes = fraction.is_none() && has_form(time, "0000-00-00T00:00");
        if !(has_seconds || has_minutes) {
            return None;
        }
        let number = |at: usize| time.get(at..at + 2).unwrap_or("0").parse().ok();
        // Of any length, cut to milliseconds.
        let millisecond = format!("{:0<3}", fraction.unwrap_or_default()).get(..3)?.parse().ok()?;
        let (month, day, hour, minute) = (number(5)?, number(8)?, number(11)?, number(14)?);
        let (year, second, offset) = (time.get(..4)?.parse().ok()?, number(17)?, offset_seconds(offset)?);
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

/// The seconds of an offset; `Some(None)` if there is none.
fn offset_seconds(text: &str) -> Option<Option<i32>> {
    if text.is_empty() || text.eq_ignore_ascii_case("z") {
        return Some((!text.is_empty()).then_some(0));
    }
    let (sign, digits) = text.strip_prefix('-').map_or((1, text.strip_prefix('+')), |rest| (-1, Some(rest)));
    let digits = digits.filter(|digits| has_form(digits, "00:00") || has_form(digits, "0000"))?;
    let (hours, minutes): (i32, i32) =
        (digits.get(..2)?.parse().ok()?, digits.get(digits.len() - 2..)?.parse().ok()?);
    (hours < 24 && minutes < 60).then_some(Some(sign * (hours * 3600 + minutes * 60)))
}

/// Returns whether the text has a digit for each `0` of the form, for `T` one of the separators of RFC 3339, and the other
/// characters.
fn has_form(text: &str, form: &str) -> bool {
    let fits = |(byte, form): (u8, u8)| match form {
        b'0' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b't' | b' '),
        _ => byte == form,
    };
    text.len() == form.len() && text.bytes().zip(form.bytes()).all(fits)
}
