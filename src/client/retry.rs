//! The rule of retries of the client: which failures, how often, after which pause.

use std::time::Duration;

use crate::client::error::ClientError;

/// Requests in all, the first one included.
const MAX_ATTEMPTS: u32 = 4;

/// Before the second attempt; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// A server that asks for a longer pause is not asked again: a command should not seem to hang.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// A failure after which the same request may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// The server's wish.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// `None` if a repetition would fail as well.
    pub fn of(error: &ClientError) -> Option<Self> {
        match error {
            ClientError::Unreachable { source, .. } if is_transient(source) => {
                Some(Self { retry_after: None })
            }
            ClientError::NotCued { status: 502..=504, .. } => Some(Self { retry_after: None }),
            ClientError::Refused(refused) if matches!(refused.status, 429 | 502..=504) => {
                Some(Self { retry_after: refused.retry_after })
            }
            _ => None,
        }
    }
}

fn is_transient(error: &ureq::Error) -> bool {
    match error {
        // An untrusted certificate is an error of this kind, and stays untrusted.
        ureq::Error::Io(error) => error.kind() != std::io::ErrorKind::InvalidData,
        // A server that is slow to answer would be as slow again.
        ureq::Error::ConnectionFailed
        | ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => true,
        _ => false,
    }
}

/// The pause before the attempt after `attempt`; `None` if that was the last.
pub fn pause_before_retry(attempt: u32, failure: Failure) -> Option<Duration> {
    if attempt >= MAX_ATTEMPTS {
        return None;
    }
    let pause = failure.retry_after.unwrap_or(FIRST_PAUSE * 2_u32.pow(attempt - 1));
    (pause <= MAX_PAUSE).then_some(pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_end_after_three_retries() {
        let pauses = [1, 2, 3, 4].map(|attempt| pause_before_retry(attempt, Failure { retry_after: None }));
        let millis = pauses.map(|pause| pause.map(|pause| pause.as_millis()));
        assert_eq!(millis, [Some(250), Some(500), Some(1_000), None]);
    }

    #[test]
    fn a_server_that_is_slow_to_answer_is_not_asked_again() {
        let failure = |timeout| {
            let (url, source) = ("http://x".to_owned(), ureq::Error::Timeout(timeout));
            Failure::of(&ClientError::Unreachable { url, source })
        };
        assert!(failure(ureq::Timeout::Connect).is_some());
        assert_eq!(failure(ureq::Timeout::Global), None);
    }

    #[test]
    fn the_pause_of_the_server_counts_unless_it_is_too_long() {
        let after = |seconds| Failure { retry_after: Some(Duration::from_secs(seconds)) };
        assert_eq!(pause_before_retry(1, after(7)), Some(Duration::from_secs(7)));
        assert_eq!(pause_before_retry(1, after(61)), None);
    }
}
