//! The instants of requests: RFC 3339 with any offset, or local time of a zone (contract §2.6).

use jiff::civil::DateTime;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};

use crate::domain::schedule::{ScheduleError, Zone};

/// The first instant that a caller may name: the start of the year 1 in UTC. The calendar has no year 0, and an instant
/// before it would need a sign in front of the year, which the form of an instant does not have.
pub const EARLIEST: Timestamp = Timestamp::constant(-62_135_596_800, 0);

/// Parses RFC 3339 with any offset, to the millisecond. Without an offset, `text` is a local time in `zone`: of a
/// repeated local time the first, for a skipped one the first instant after the gap. A leap second, which ends a day of
/// UTC, is the second after it: no instant of the program is within one.
/// Errors: the text has another form, the date or time does not exist, or the year is beyond 9999.
pub fn parse_instant(text: &str, zone: &Zone) -> Result<Timestamp, ScheduleError> {
    let bad = |why| ScheduleError::BadInstant(text.to_owned(), why);
    let parts = Parts::read(text).ok_or_else(|| bad("is not an instant"))?;
    let reading = parts.reading.ok_or_else(|| bad("names a date or time that does not exist"))?;
    let instant = match parts.offset {
        Some(seconds) => {
            Offset::from_seconds(seconds).and_then(|offset| offset.to_timestamp(reading)).ok()
        }
        None => zone.earliest_instant(reading),
    };
    let instant = instant.ok_or_else(|| bad("is too far away"))?;
    let is_real = !parts.is_leap_second || instant.as_second() % (24 * 3600) == 0;
    is_real.then_some(instant).ok_or_else(|| bad("names a date or time that does not exist"))
}

/// Returns whether the text has the form of an instant; it may name none that exists.
pub fn is_instant(text: &str) -> bool {
    Parts::read(text).is_some()
}

/// The local time that `text` names, if it has no offset and the clock of `zone` skips it.
pub(in crate::domain::schedule) fn skipped_time(text: &str, zone: &Zone) -> Option<DateTime> {
    let parts = Parts::read(text).filter(|parts| parts.offset.is_none())?;
    parts.reading.filter(|reading| zone.skips(*reading))
}

/// The parts of `2030-01-31T09:00:00.000+01:00`; seconds and offset are optional.
struct Parts {
    /// `None` if it does not exist. A leap second is the second after it.
    reading: Option<DateTime>,
    is_leap_second: bool,
    /// In seconds east of Greenwich.
    offset: Option<i32>,
}

impl Parts {
    fn read(text: &str) -> Option<Self> {
        let offset_at = text.get(10..)?.find(['Z', 'z', '+', '-']).map_or(text.len(), |at| at + 10);
        let (time, offset) = text.split_at(offset_at);
        let (time, fraction) =
            time.split_once('.').map_or((time, None), |(time, rest)| (time, Some(rest)));
        let is_fraction =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let has_seconds = has_form(time, "0000-00-00T00:00:00") && fraction.is_none_or(is_fraction);
        let has_minutes = fraction.is_none() && has_form(time, "0000-00-00T00:00");
        if !(has_seconds || has_minutes) {
            return None;
        }
        let is_leap_second = time.ends_with(":60") && has_seconds;
        // Of any length, cut to milliseconds.
        let millis: i64 = format!("{:0<3}", fraction.unwrap_or_default()).get(..3)?.parse().ok()?;
        let rest = SignedDuration::from_millis(millis + if is_leap_second { 1_000 } else { 0 });
        // jiff reads second 60 as 59.
        let reading =
            time.parse::<DateTime>().ok().and_then(|reading| reading.checked_add(rest).ok());
        Some(Self { reading, is_leap_second, offset: offset_seconds(offset)? })
    }
}

/// The seconds of an offset; `Some(None)` if there is none.
fn offset_seconds(text: &str) -> Option<Option<i32>> {
    if text.is_empty() || text.eq_ignore_ascii_case("z") {
        return Some((!text.is_empty()).then_some(0));
    }
    let (sign, digits) =
        text.strip_prefix('-').map_or((1, text.strip_prefix('+')), |rest| (-1, Some(rest)));
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
