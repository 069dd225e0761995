//! The rule by which a lost stream is opened again: the pause before, and the refusals after which it never is.

use std::time::Duration;

use uuid::Uuid;

use crate::client::error::ClientError;

/// The longest pause between two attempts to connect: a server that is back is noticed within it.
pub(in crate::client) const MAX_PAUSE: Duration = Duration::from_secs(30);

/// The longest wait that a server can ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// Half of the pause is by chance, so that the clients of a server that was restarted come one after the other.
pub(in crate::client) fn pause(retry: Duration, failures: u32, jitter: f64) -> Duration {
    let full = retry.saturating_mul(2_u32.saturating_pow(failures.min(16))).min(MAX_PAUSE);
    full.mul_f64((1.0 + jitter) / 2.0)
}

/// From 0 to 1. Its quality matters little.
pub(in crate::client) fn jitter() -> f64 {
    f64::from(Uuid::new_v4().as_bytes()[0]) / 255.0
}

pub(in crate::client) fn is_rate_limited(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(refused) if refused.status == 429 && refused.code != "too_many_streams")
}

/// The same request would be refused for ever. A proxy without its server is no such refusal.
pub(in crate::client) fn is_final(error: &ClientError) -> bool {
    match error {
        ClientError::Refused(refused) => {
            (400..500).contains(&refused.status) && !matches!(refused.status, 408 | 425 | 429)
        }
        ClientError::Unreachable { .. } | ClientError::NotCued { .. } => false,
        _ => true,
    }
}

pub(in crate::client) fn retry_after(error: &ClientError) -> Option<Duration> {
    match error {
        ClientError::Refused(refused) => refused.retry_after.map(|pause| pause.min(MAX_RETRY_AFTER)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_half_a_minute() {
        let seconds =
            |failures: u32, jitter: f64| pause(Duration::from_secs(2), failures, jitter).as_secs_f64();
        assert_eq!([0, 1, 3, 4, 99].map(|failures| seconds(failures, 1.0)), [2.0, 4.0, 16.0, 30.0, 30.0]);
        assert_eq!(seconds(0, 0.0), 1.0);
    }
}
