//! The `Retry-After` header of a response (contract §6).

use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};

/// The longest pause that a receiver can request. A longer one would keep an execution from ending.
pub const MAX_PAUSE: SignedDuration = SignedDuration::from_hours(24);

/// The pause requested by a `Retry-After` header, counted from `now`: zero to 24 hours. `None` if the text is neither
/// a number of seconds nor an HTTP date.
pub fn retry_after(text: &str, now: Timestamp) -> Option<SignedDuration> {
    let text = text.trim_matches([' ', '\t']);
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number too large for an integer is longer than a day.
        let pause = text.parse().map_or(MAX_PAUSE, SignedDuration::from_secs);
        return Some(pause.min(MAX_PAUSE));
    }
    let date = DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(date.duration_since(now).clamp(SignedDuration::ZERO, MAX_PAUSE))
}

/// The pause requested by a response; the header counts with status 429 and 503 only.
pub fn honoured_retry_after(status: u16, header: Option<&str>, now: Timestamp) -> Option<SignedDuration> {
    header.filter(|_| matches!(status, 429 | 503)).and_then(|text| retry_after(text, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(text: &str) -> Option<i64> {
        let now = "2026-11-21T10:00:00Z".parse().unwrap();
        retry_after(text, now).map(|wait| wait.as_secs())
    }

    #[test]
    fn seconds_are_read_and_capped_at_a_day() {
        for (text, seconds) in [
            ("0", 0),
            ("120", 120),
            (" 120\t", 120),
            ("007", 7),
            ("86400", 86_400),
            ("86401", 86_400),
            ("99999999999999999999999", 86_400),
        ] {
            assert_eq!(wait(text), Some(seconds), "{text}");
        }
    }

    #[test]
    fn a_date_is_relative_to_now_and_a_past_one_means_no_delay() {
        assert_eq!(wait("Sat, 21 Nov 2026 10:02:30 GMT"), Some(150));
        assert_eq!(wait("Sat, 21 Nov 2026 09:59:59 GMT"), Some(0));
        assert_eq!(wait("Sun, 06 Nov 1994 08:49:37 GMT"), Some(0));
        assert_eq!(wait("Tue, 31 Dec 2999 23:59:59 GMT"), Some(86_400));
    }

    #[test]
    fn other_texts_are_ignored() {
        for text in
            ["", " ", "-1", "+5", "1.5", "1e3", "soon", "120 s", "٣", "2026-11-21T10:02:30Z", "Sat, 21 Nov"]
        {
            assert_eq!(wait(text), None, "{text}");
        }
    }

    #[test]
    fn retry_after_applies_to_429_and_503_only() {
        let now = "2026-11-21T10:00:00Z".parse().unwrap();
        for status in [429, 503] {
            let wait = honoured_retry_after(status, Some("5"), now);
            assert_eq!(wait, Some(SignedDuration::from_secs(5)));
            assert_eq!(honoured_retry_after(status, None, now), None);
            assert_eq!(honoured_retry_after(status, Some("soon"), now), None);
        }
        for status in [200, 202, 301, 408, 500, 502] {
            assert_eq!(honoured_retry_after(status, Some("5"), now), None);
        }
    }
}
