//! Arithmetic and text of instants. All instants of the product are whole milliseconds.

use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp, TimestampArithmetic};
use serde::{Serialize, Serializer};

/// The earliest date of a clock that is believed. Earlier ones come from clocks that start in 1970 or 2000 and were not
/// set.
pub const EARLIEST_CLOCK: Timestamp = Timestamp::constant(1_577_836_800, 0); // 2020-01-01

pub fn saturating_sub(at: Timestamp, span: impl Into<TimestampArithmetic>) -> Timestamp {
    at.checked_sub(span).unwrap_or(Timestamp::MIN)
}

pub fn saturating_add(at: Timestamp, span: impl Into<TimestampArithmetic>) -> Timestamp {
    at.checked_add(span).unwrap_or(Timestamp::MAX)
}

pub fn just_before(at: Timestamp) -> Timestamp {
    saturating_sub(at, SignedDuration::from_millis(1))
}

/// Serializes a time in the format of [`instant`].
#[derive(Debug, Clone, Copy)]
pub struct JsonTimestamp(pub Timestamp);

impl Serialize for JsonTimestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&instant(self.0))
    }
}

/// An instant as `2026-01-01T09:00:00Z`, with milliseconds if it has a fraction of a second.
pub fn instant(at: Timestamp) -> String {
    format_instant(at, "Z")
}

/// Same as [`instant`], but with `+00:00` in place of `Z`: the format of `next_run`.
pub fn instant_with_offset(at: Timestamp) -> String {
    format_instant(at, "+00:00")
}

/// Same as [`instant`], but without a zone: the format of `timestamp` in `GET /health`.
pub fn instant_without_zone(at: Timestamp) -> String {
    format_instant(at, "")
}

fn format_instant(at: Timestamp, zone: &str) -> String {
    // Rounded down, also before 1970: the rest of the program counts in whole milliseconds.
    let has_fraction = at.as_millisecond().rem_euclid(1000) != 0;
    let local = Offset::UTC.to_datetime(at);
    let Some(year) = u32::try_from(local.year()).ok() else {
        let mut text = if has_fraction { format!("{at:.3}") } else { format!("{at:.0}") };
        text.truncate(text.len() - 1);
        return text + zone;
    };
    // Written digit by digit: a list has hundreds of instants, and the formatter takes several times as long.
    let mut text = Vec::with_capacity("2026-01-01T09:00:00.000+00:00".len());
    push_digits(&mut text, year, [1_000, 100, 10, 1]);
    for (separator, number) in [
        (b'-', local.month()),
        (b'-', local.day()),
        (b'T', local.hour()),
        (b':', local.minute()),
        (b':', local.second()),
    ] {
        text.push(separator);
        push_digits(&mut text, u32::from(number.unsigned_abs()), [10, 1]);
    }
    if has_fraction {
        text.push(b'.');
        push_digits(&mut text, u32::from(local.millisecond().unsigned_abs()), [100, 10, 1]);
    }
    text.extend_from_slice(zone.as_bytes());
    // Digits, separators and a zone are ASCII.
    String::from_utf8(text).unwrap_or_default()
}

fn push_digits<const COUNT: usize>(text: &mut Vec<u8>, number: u32, places: [u32; COUNT]) {
    for place in places {
        // Less than 10.
        let digit = (number / place % 10) as u8;
        text.push(b'0' + digit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn arithmetic_stops_at_the_ends_of_representable_time() {
        let hour = SignedDuration::from_hours(1);
        assert_eq!(saturating_sub(Timestamp::MIN, hour), Timestamp::MIN);
        assert_eq!(saturating_add(Timestamp::MAX, hour), Timestamp::MAX);
        assert_eq!(just_before(Timestamp::MIN), Timestamp::MIN);
    }

    #[test]
    fn an_instant_has_milliseconds_only_with_a_fraction_and_the_zone_of_its_format() {
        assert_eq!(instant(at("2026-01-01T10:00:00.25+01:00")), "2026-01-01T09:00:00.250Z");
        assert_eq!(instant(at("1969-12-31T23:59:59.5Z")), "1969-12-31T23:59:59.500Z");
        assert_eq!(instant_with_offset(at("2026-01-01T09:00:00Z")), "2026-01-01T09:00:00+00:00");
        assert_eq!(instant_without_zone(at("2026-01-01T09:00:00.5Z")), "2026-01-01T09:00:00.500");
    }

    #[test]
    fn instants_are_written_as_the_library_writes_them() {
        let (first, last) = (Timestamp::MIN.as_millisecond(), Timestamp::MAX.as_millisecond());
        let step = (last - first) / 20_011;
        for number in 0..20_011 {
            let at = Timestamp::from_millisecond(first + number * step).unwrap();
            let whole = Timestamp::from_second(at.as_second()).unwrap();
            assert_eq!(instant(whole), format!("{whole:.0}"));
            if at.as_millisecond().rem_euclid(1000) != 0 {
                assert_eq!(instant(at), format!("{at:.3}"));
            }
        }
        for text in ["0000-01-01T00:00:00Z", "-000001-12-31T23:59:59Z", "9999-12-30T21:59:59.999Z"]
        {
            assert_eq!(instant(at(text)), text);
        }
    }
}
