//! Attempts: their results and causes, what follows an attempt to deliver, and when (contract §1.9, §4 to §6).

use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};
use serde::{Serialize, Serializer};

use crate::domain::execution::ExecutionStatus;
use crate::domain::text::word_enum;

/// Counted attempts whose result is kept per execution: as many as a cue allows.
pub const MAX_KEPT: u32 = 10;

/// Maximum bytes of a response body that are shown (contract §5.1). A stored body that is longer was cut.
pub const MAX_SHOWN_BODY: usize = 2000;

/// The part of a stored response body that is shown: only whole characters.
pub fn shown_body(stored: &str) -> &str {
    let end =
        (0..=MAX_SHOWN_BODY.min(stored.len())).rev().find(|end| stored.is_char_boundary(*end));
    &stored[..end.unwrap_or(0)]
}

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AttemptEnd {
        Success = "success",
        Retrying = "retrying",
        Failed = "failed",
        /// The program ended during the attempt. It did not count and was repeated under the same number.
        Cut = "cut",
        ClaimLost = "claim_lost",
    }
}

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum FailureCause {
        Timeout = "timeout",
        BlockedAddress = "blocked_address",
        UnknownName = "unknown_name",
        /// No connection, a broken one, or a response that is not HTTP.
        Connection = "connection",
        Tls = "tls",
        Unsendable = "unsendable",
        /// It has not succeeded within `max_age_seconds`.
        Expired = "expired",
        Status3xx = "status_3xx",
        Status4xx = "status_4xx",
        Status5xx = "status_5xx",
        StatusOther = "status_other",
        Fault = "fault",
    }
}

impl FailureCause {
    pub fn from_status(http_status: u16) -> Option<Self> {
        match http_status {
            200..=299 => None,
            300..=399 => Some(Self::Status3xx),
            400..=499 => Some(Self::Status4xx),
            500..=599 => Some(Self::Status5xx),
            _ => Some(Self::StatusOther),
        }
    }
}

/// The least pause after a timeout: with a back-off of 0, an attempt would hold a delivery thread without a break.
const MIN_PAUSE_AFTER_TIMEOUT: SignedDuration = SignedDuration::from_secs(5);

/// Number of attempts and the back-off between them (contract §4.6). Serializes to the JSON of the API.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RetryPolicy {
    /// All attempts including the first: 1 to 10.
    pub max_attempts: u32,
    /// Minutes before the second, third, … attempt; the last entry repeats. Never empty, no entry negative.
    #[serde(serialize_with = "minutes")]
    pub backoff_minutes: Vec<f64>,
    /// In place of the minutes, which are then these, rounded up. Never empty. Absent in JSON if the pauses are in minutes:
    /// a client that compares `retry` as a whole sees what it did before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_seconds: Option<Vec<u32>>,
}

/// Serializes whole numbers as integers (contract §4.6).
fn minutes<S: Serializer>(minutes: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(untagged)]
    enum Minutes {
        Whole(i64),
        Parts(f64),
    }
    // At most the minutes of a year (see `MAX_BACKOFF_MINUTES`), so the integer cannot overflow.
    let number =
        |it: &f64| if it.fract() == 0.0 { Minutes::Whole(*it as i64) } else { Minutes::Parts(*it) };
    serializer.collect_seq(minutes.iter().map(number))
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max_attempts: 4, backoff_minutes: vec![1.0, 5.0, 15.0], backoff_seconds: None }
    }
}

impl RetryPolicy {
    pub fn set_backoff_seconds(&mut self, seconds: Option<Vec<u32>>) {
        if let Some(seconds) = &seconds {
            self.backoff_minutes = seconds.iter().map(|pause| pause.div_ceil(60).into()).collect();
        }
        self.backoff_seconds = seconds;
    }

    pub fn backoff(&self, attempt: u32) -> SignedDuration {
        let index = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
        if let Some(seconds) = &self.backoff_seconds {
            let pause = seconds.get(index).or(seconds.last()).copied().unwrap_or_default();
            return SignedDuration::from_secs(pause.into());
        }
        let minutes =
            self.backoff_minutes.get(index).or(self.backoff_minutes.last()).copied().unwrap_or(0.0);
        SignedDuration::try_from_secs_f64(minutes * 60.0).unwrap_or(SignedDuration::ZERO)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptResult {
    Responded {
        http_status: u16,
        /// The requested pause, if `Retry-After` applies to the status.
        retry_after: Option<SignedDuration>,
    },
    /// No response: a connection error, or a request that cannot be built.
    NoResponse,
    TimedOut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    Success,
    RetryAt(Timestamp),
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
pub fn after_attempt(
    retry: &RetryPolicy,
    attempt: u32,
    ended: &AttemptResult,
    now: Timestamp,
) -> NextStep {
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
    now.checked_add(retry.backoff(attempt).max(requested))
        .map_or(NextStep::Failed, NextStep::RetryAt)
}

/// The longest pause that a receiver can request. A longer one would keep an execution from ending.
pub const MAX_PAUSE: SignedDuration = SignedDuration::from_hours(24);

/// The pause requested by the `Retry-After` header of a response, counted from `now`: zero to 24 hours. `None` if the
/// text is neither a number of seconds, of which a part counts as a whole one, nor an HTTP date, or the status neither
/// 429 nor 503.
pub fn requested_pause(
    http_status: u16,
    header: Option<&str>,
    now: Timestamp,
) -> Option<SignedDuration> {
    let text = header.filter(|_| matches!(http_status, 429 | 503))?.trim_matches([' ', '\t']);
    let (seconds, part) = text.split_once('.').unwrap_or((text, "0"));
    if [seconds, part]
        .iter()
        .all(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
    {
        // A number too large for an integer is longer than a day.
        let pause = seconds.parse().map_or(MAX_PAUSE, SignedDuration::from_secs).min(MAX_PAUSE);
        let is_whole = part.bytes().all(|byte| byte == b'0');
        return Some(
            pause.saturating_add(SignedDuration::from_secs((!is_whole).into())).min(MAX_PAUSE),
        );
    }
    let read = |text: &str| DateTimeParser::new().parse_timestamp(text).ok();
    let date = read(text).or_else(|| read(&imf_date(text)?))?;
    Some(date.duration_since(now).clamp(SignedDuration::ZERO, MAX_PAUSE))
}

/// A date in one of the two older forms of RFC 9110 §5.6.7 in the usual one, without the weekday:
/// `Sunday, 06-Nov-94 08:49:37 GMT` and `Sun Nov  6 08:49:37 1994`.
fn imf_date(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split([' ', '-']).filter(|word| !word.is_empty()).collect();
    match words[..] {
        [_, day, month, year, time, "GMT"] => Some(format!("{day} {month} {year} {time} GMT")),
        [_, month, day, time, year] => Some(format!("{day} {month} {year} {time} GMT")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_next_step_follows_the_retry_policy() {
        let retry =
            RetryPolicy { max_attempts: 3, backoff_minutes: vec![1.0, 5.0], backoff_seconds: None };
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
            assert_eq!(
                after_attempt(&retry, attempt, &ended, now),
                expected,
                "attempt {attempt}: {ended:?}"
            );
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
            let retry = RetryPolicy {
                max_attempts: 3,
                backoff_minutes: vec![backoff],
                backoff_seconds: None,
            };
            assert_eq!(
                after_attempt(&retry, 1, &ended, now),
                NextStep::RetryAt(at(expected)),
                "{backoff}"
            );
            assert_eq!(after_attempt(&retry, 3, &ended, now), NextStep::Failed);
        }
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
            ("1.5", Some(2)),
            ("0.001", Some(1)),
            ("2.000", Some(2)),
            ("86399.9", Some(86_400)),
            ("99999999999999999999.5", Some(86_400)),
            ("Saturday, 21-Nov-26 10:02:30 GMT", Some(150)),
            ("Sat Nov 21 10:02:30 2026", Some(150)),
            ("Sun Nov  1 10:02:30 2026", Some(0)),
            ("Tuesday, 01-Dec-26 10:00:00 GMT", Some(86_400)),
            ("1.", None),
            (".5", None),
            ("1.5.5", None),
            ("Sat Nov 31 10:02:30 2026", None),
            ("1e3", None),
            ("soon", None),
            ("120 s", None),
            ("٣", None),
            ("2026-11-21T10:02:30Z", None),
        ] {
            for (http_status, counts) in
                [(429, true), (503, true), (200, false), (301, false), (500, false)]
            {
                let pause = requested_pause(http_status, Some(text), at("2026-11-21T10:00:00Z"));
                let expected = seconds.filter(|_| counts);
                assert_eq!(pause.map(|pause| pause.as_secs()), expected, "{http_status} {text}");
            }
        }
    }
}
