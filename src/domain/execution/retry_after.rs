//! What a receiver asks for by `Retry-After` (contract §6): how to read the header, and when it is followed.

use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};

/// The longest wait that a receiver can ask for.
pub const LONGEST: SignedDuration = SignedDuration::from_hours(24);

/// How long the text of a `Retry-After` header asks to wait, from `now` on: never negative, 24 hours at most.
/// `None` if it is neither a number of seconds nor an HTTP date.
#[must_use]
pub fn retry_after(text: &str, now: Timestamp) -> Option<SignedDuration> {
    let text = text.trim_matches([' ', '\t']);
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that no integer holds is longer than a day too.
        let wait = text.parse().map_or(LONGEST, SignedDuration::from_secs);
        return Some(wait.min(LONGEST));
    }
    let date = DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(date.duration_since(now).clamp(SignedDuration::ZERO, LONGEST))
}

/// The wait that an answer asks for where it is followed: only with 429 and 503.
#[must_use]
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
    fn an_invalid_retry_after_is_ignored() {
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
