//! Attempts: their results and causes, what follows an attempt to deliver, and when (contract §1.9, §4 to §6).

use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};

use crate::domain::execution::ExecutionStatus;
use crate::domain::text::word_enum::word_enum;

/// Counted attempts whose result is kept per execution: the largest number of attempts that a cue allows. An execution
/// may have more while requests cannot be read from the database; then the oldest give way.
pub const MAX_KEPT: u32 = 10;

/// Maximum bytes of a response body that are shown (contract §5.1). A stored body that is longer was cut.
pub const MAX_SHOWN_BODY: usize = 2000;

/// The part of a stored response body that is shown: only whole characters.
pub fn shown_body(stored: &str) -> &str {
    let end = (0..=MAX_SHOWN_BODY.min(stored.len())).rev().find(|end| stored.is_char_boundary(*end));
    &stored[..end.unwrap_or(0)]
}

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AttemptEnd {
        Success = "success",
        /// Failed, and another one was planned.
        Retrying = "retrying",
        /// Failed, and no other one followed.
        Failed = "failed",
        /// The program ended during the attempt. It did not count and was repeated under the same number.
        Cut = "cut",
        /// The lease of the worker's claim expired.
        ClaimLost = "claim_lost",
    }
}

word_enum! {
    /// Why a delivery attempt was no success.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum FailureCause {
        /// No complete response within the time limit.
        Timeout = "timeout",
        /// The address policy allows no address of the host.
        BlockedAddress = "blocked_address",
        /// The host has no address.
        UnknownName = "unknown_name",
        /// No connection, a broken one, or a response that is not HTTP.
        Connection = "connection",
        /// No trusted TLS connection.
        Tls = "tls",
        /// There is no valid request to send.
        Unsendable = "unsendable",
        Status3xx = "status_3xx",
        Status4xx = "status_4xx",
        Status5xx = "status_5xx",
        /// A status below 200 or above 599.
        StatusOther = "status_other",
        /// An error of the program or of its database.
        Fault = "fault",
    }
}

impl FailureCause {
    /// The cause that a status stands for; `None` for a success.
    pub fn of_status(http_status: u16) -> Option<Self> {
        match http_status {
            200..=299 => None,
            300..=399 => Some(Self::Status3xx),
            400..=499 => Some(Self::Status4xx),
            500..=599 => Some(Self::Status5xx),
            _ => Some(Self::StatusOther),
        }
    }
}

/// The least pause after a timeout. An attempt that times out holds a delivery thread for 30 s; without a pause, a cue
/// with a back-off of 0 would hold it without a break.
const MIN_PAUSE_AFTER_TIMEOUT: SignedDuration = SignedDuration::from_secs(5);

/// Number of attempts and the back-off between them (contract §4.6).
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicy {
    /// All attempts including the first: 1 to 10.
    pub max_attempts: u32,
    /// Minutes before the second, third, … attempt; the last entry repeats. Never empty, no entry negative.
    pub backoff_minutes: Vec<f64>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max_attempts: 4, backoff_minutes: vec![1.0, 5.0, 15.0] }
    }
}

impl RetryPolicy {
    /// The back-off after failed attempt number `attempt` (from 1).
    pub fn backoff(&self, attempt: u32) -> SignedDuration {
        let index = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
        let minutes = self.backoff_minutes.get(index).or(self.backoff_minutes.last()).copied().unwrap_or(0.0);
        SignedDuration::try_from_secs_f64(minutes * 60.0).unwrap_or(SignedDuration::ZERO)
    }
}

/// The result of a delivery attempt, as far as the retry rules need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptResult {
    /// The receiver sent a response.
    Responded {
        http_status: u16,
        /// The requested pause, if `Retry-After` applies to the status.
        retry_after: Option<SignedDuration>,
    },
    /// No response: a connection error, or a request that cannot be built.
    NoResponse,
    /// No complete response within the time limit.
    TimedOut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    Success,
    RetryAt(Timestamp),
    /// No attempts are left, or the receiver refused for good.
    Failed,
}

impl NextStep {
    pub fn status(self) -> ExecutionStatus {
        match self {
            Self::Success => ExecutionStatus::Success,
            Self::RetryAt(_) => ExecutionStatus::Retrying,
            Self::Failed => ExecutionStatus::Failed,
        }
    }
}

/// The next step after attempt number `attempt` (from 1), which ended at `now` (contract §6).
pub fn after_attempt(retry: &RetryPolicy, attempt: u32, ended: &AttemptResult, now: Timestamp) -> NextStep {
    let requested = match ended {
        AttemptResult::Responded { http_status: 200..=299, .. } => return NextStep::Success,
        AttemptResult::Responded { http_status: 410, .. } => return NextStep::Failed,
        AttemptResult::Responded { retry_after, .. } => retry_after.unwrap_or(SignedDuration::ZERO),
        AttemptResult::NoResponse => SignedDuration::ZERO,
        AttemptResult::TimedOut => MIN_PAUSE_AFTER_TIMEOUT,
    };
    if attempt >= retry.max_attempts {
        return NextStep::Failed;
    }
    // Past the end of representable time there is no later instant: fail instead of wrapping.
    now.checked_add(retry.backoff(attempt).max(requested)).map_or(NextStep::Failed, NextStep::RetryAt)
}

/// The longest pause that a receiver can request. A longer one would keep an execution from ending.
pub const MAX_PAUSE: SignedDuration = SignedDuration::from_hours(24);

/// The pause requested by the `Retry-After` header of a response, counted from `now`: zero to 24 hours. `None` if the text
/// is neither a number of seconds nor an HTTP date, or the status neither 429 nor 503.
pub fn requested_pause(http_status: u16, header: Option<&str>, now: Timestamp) -> Option<SignedDuration> {
    let text = header.filter(|_| matches!(http_status, 429 | 503))?.trim_matches([' ', '\t']);
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number too large for an integer is longer than a day.
        let pause = text.parse().map_or(MAX_PAUSE, SignedDuration::from_secs);
        return Some(pause.min(MAX_PAUSE));
    }
    let date = DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(date.duration_since(now).clamp(SignedDuration::ZERO, MAX_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn every_status_but_a_success_is_a_cause() {
        let words = [199, 200, 299, 302, 404, 503, 600]
            .map(|http_status| FailureCause::of_status(http_status).map_or("", FailureCause::as_str));
        let expected = ["status_other", "", "", "status_3xx", "status_4xx", "status_5xx", "status_other"];
        assert_eq!(words, expected);
    }

    #[test]
    fn the_next_step_follows_the_retry_policy() {
        let retry = RetryPolicy { max_attempts: 3, backoff_minutes: vec![1.0, 5.0] };
        let now = at("2026-01-01T10:00:00Z");
        let responded = |http_status, secs: Option<i64>| AttemptResult::Responded {
            http_status,
            retry_after: secs.map(SignedDuration::from_secs),
        };
        let again = |text| NextStep::RetryAt(at(text));
        for (attempt, ended, expected) in [
            (1, responded(200, None), NextStep::Success),
            (3, responded(299, None), NextStep::Success),
            (1, responded(300, None), again("2026-01-01T10:01:00Z")),
            (1, responded(500, None), again("2026-01-01T10:01:00Z")),
            (2, responded(500, None), again("2026-01-01T10:05:00Z")),
            (3, responded(500, None), NextStep::Failed),
            (1, responded(410, None), NextStep::Failed),
            (1, responded(429, Some(3_600)), again("2026-01-01T11:00:00Z")),
            (1, responded(503, Some(1)), again("2026-01-01T10:01:00Z")),
            (1, AttemptResult::NoResponse, again("2026-01-01T10:01:00Z")),
            (3, AttemptResult::NoResponse, NextStep::Failed),
        ] {
            assert_eq!(after_attempt(&retry, attempt, &ended, now), expected, "attempt {attempt}: {ended:?}");
        }
    }

    #[test]
    fn the_attempt_after_a_timeout_waits_at_least_five_seconds() {
        let now = at("2026-01-01T10:00:00Z");
        for (backoff, ended, expected) in [
            (0.0, AttemptResult::TimedOut, "2026-01-01T10:00:05Z"),
            (0.05, AttemptResult::TimedOut, "2026-01-01T10:00:05Z"),
            (1.0, AttemptResult::TimedOut, "2026-01-01T10:01:00Z"),
            (0.0, AttemptResult::NoResponse, "2026-01-01T10:00:00Z"),
        ] {
            let retry = RetryPolicy { max_attempts: 3, backoff_minutes: vec![backoff] };
            assert_eq!(after_attempt(&retry, 1, &ended, now), NextStep::RetryAt(at(expected)), "{backoff}");
            assert_eq!(after_attempt(&retry, 3, &ended, now), NextStep::Failed);
        }
    }

    #[test]
    fn the_last_pause_repeats() {
        let retry = RetryPolicy { max_attempts: 10, backoff_minutes: vec![0.5, 2.0] };
        let pauses: Vec<i64> = (1..=4).map(|attempt| retry.backoff(attempt).as_secs()).collect();
        assert_eq!(pauses, [30, 120, 120, 120]);
    }

    #[test]
    fn a_pause_is_read_from_seconds_or_a_date_up_to_a_day() {
        for (text, seconds) in [
            ("0", Some(0)),
            (" 120\t", Some(120)),
            ("007", Some(7)),
            ("86401", Some(86_400)),
            ("99999999999999999999999", Some(86_400)),
            ("Sat, 21 Nov 2026 10:02:30 GMT", Some(150)),
            ("Sat, 21 Nov 2026 09:59:59 GMT", Some(0)),
            ("Tue, 31 Dec 2999 23:59:59 GMT", Some(86_400)),
            ("", None),
            ("-1", None),
            ("+5", None),
            ("1.5", None),
            ("1e3", None),
            ("soon", None),
            ("120 s", None),
            ("٣", None),
            ("2026-11-21T10:02:30Z", None),
        ] {
            for (http_status, counts) in [(429, true), (503, true), (200, false), (301, false), (500, false)]
            {
                let pause = requested_pause(http_status, Some(text), at("2026-11-21T10:00:00Z"));
                let expected = seconds.filter(|_| counts);
                assert_eq!(pause.map(|pause| pause.as_secs()), expected, "{http_status} {text}");
            }
        }
    }
}
