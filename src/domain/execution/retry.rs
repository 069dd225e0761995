//! Retries: what follows an attempt to deliver, and when (contract §4 and §6).

use jiff::{SignedDuration, Timestamp};

use crate::domain::execution::ExecutionStatus;

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
    /// The status of the execution.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
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
}
