//! The pauses after failed requests.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);

/// A server that is away for hours is asked once a minute.
const LONGEST: Duration = Duration::from_secs(60);

/// Failures in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Counts a failure. Returns the pause before the next request: 1 second, doubled with each failure in a row, or
    /// what the server asks for if that is longer.
    pub fn fail(&mut self, retry_after: Option<Duration>) -> Duration {
        let pause = FIRST.saturating_mul(2_u32.saturating_pow(self.failures)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        // Without a bound, a wrong header would stop the worker for ever.
        retry_after.map_or(pause, |requested| requested.min(LONGEST).max(pause))
    }

    pub fn succeed(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u64> = (0..9).map(|_| backoff.fail(None).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        backoff.succeed();
        assert_eq!(backoff.fail(None).as_secs(), 1);
    }

    #[test]
    fn the_pause_that_the_server_asks_for_counts_up_to_a_minute() {
        let after = |seconds| Backoff::default().fail(Some(Duration::from_secs(seconds))).as_secs();
        assert_eq!([after(0), after(7), after(86_400)], [1, 7, 60]);
    }
}
