//! Arithmetic and text of instants. All instants of the product are whole milliseconds.

use jiff::{SignedDuration, Timestamp, TimestampArithmetic};

/// The earliest date of a clock that is believed. Earlier ones come from clocks that start in 1970 or 2000 and were not set.
pub const EARLIEST_CLOCK: Timestamp = Timestamp::constant(1_577_836_800, 0); // 2020-01-01

/// `at` minus `span`, or the first representable instant.
pub fn saturating_sub(at: Timestamp, span: impl Into<TimestampArithmetic>) -> Timestamp {
    at.checked_sub(span).unwrap_or(Timestamp::MIN)
}

/// `at` plus `span`, or the last representable instant.
pub fn saturating_add(at: Timestamp, span: impl Into<TimestampArithmetic>) -> Timestamp {
    at.checked_add(span).unwrap_or(Timestamp::MAX)
}

/// The last whole millisecond before `at`.
pub fn just_before(at: Timestamp) -> Timestamp {
    saturating_sub(at, SignedDuration::from_millis(1))
}

/// RFC 3339 in UTC, with milliseconds only where there is a fraction of a second (contract §2).
pub fn rfc3339(at: Timestamp) -> String {
    if at.subsec_nanosecond() == 0 { at.to_string() } else { format!("{at:.3}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_stops_at_the_ends_of_representable_time() {
        let hour = SignedDuration::from_hours(1);
        let at: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        assert_eq!(saturating_sub(at, hour).to_string(), "2026-01-01T00:00:00Z");
        assert_eq!(saturating_add(at, hour).to_string(), "2026-01-01T02:00:00Z");
        assert_eq!(saturating_sub(Timestamp::MIN, hour), Timestamp::MIN);
        assert_eq!(saturating_add(Timestamp::MAX, hour), Timestamp::MAX);
        assert_eq!(just_before(Timestamp::MIN), Timestamp::MIN);
    }

    #[test]
    fn text_has_milliseconds_only_for_a_fraction() {
        let text = |text: &str| rfc3339(text.parse().unwrap());
        assert_eq!(text("2026-01-01T01:00:00+01:00"), "2026-01-01T00:00:00Z");
        assert_eq!(text("2026-01-01T00:00:00.5Z"), "2026-01-01T00:00:00.500Z");
    }
}
