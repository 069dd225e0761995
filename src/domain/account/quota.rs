//! The monthly quota of executions: the warning level, and the grace period above the limit, one in a month (contract §8).

use jiff::{SignedDuration, Timestamp};

/// The grace period, from the first execution above the limit.
pub const GRACE: SignedDuration = SignedDuration::from_hours(24);

/// The multiple of the quota up to which executions run within the grace period. The grace period is
/// for a busy day; without this bound one account could run any number of executions in it.
const GRACE_FACTOR: i64 = 2;

/// The `error_message` of an execution rejected by the quota.
pub const LIMIT_EXCEEDED: &str = "execution_limit_exceeded";

/// A user's executions in one month, and the limit of its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// `None` is no limit.
    pub limit: Option<u32>,
    pub used: i64,
    /// The creation time of the first execution of the month above the limit, or that of an earlier plan.
    pub over_quota_since: Option<Timestamp>,
}

impl Quota {
    /// Counts an execution created at `now`. Returns `false`, without counting, when it must not run.
    pub fn try_use(&mut self, now: Timestamp) -> bool {
        match self.limit.map(i64::from) {
            Some(limit) if self.used >= limit => {
                // Kept until the month ends: a change of plan and back does not start another grace period.
                let since = *self.over_quota_since.get_or_insert(now);
                if now.duration_since(since) >= GRACE || self.used >= limit.saturating_mul(GRACE_FACTOR) {
                    return false;
                }
            }
            _ => {}
        }
        self.used += 1;
        true
    }
}

/// Returns whether `used` executions are at least 80 % of the limit.
pub fn is_nearly_used_up(limit: Option<u32>, used: i64) -> bool {
    limit.is_some_and(|limit| used.saturating_mul(5) >= i64::from(limit) * 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("2026-01-{text}:00Z").parse().unwrap()
    }

    #[test]
    fn a_clock_that_went_back_rejects_nothing() {
        let mut quota = Quota { limit: Some(10), used: 10, over_quota_since: Some(at("20T00:00")) };
        assert!(quota.try_use(at("01T00:00")));
    }

    #[test]
    fn eighty_percent_is_nearly_used_up() {
        for (limit, used, near) in [
            (300, 239, false),
            (300, 240, true),
            (300, 9_999, true),
            (1, 0, false),
            (1, 1, true),
            (0, 0, true),
        ] {
            assert_eq!(is_nearly_used_up(Some(limit), used), near, "{used} of {limit}");
        }
        assert!(!is_nearly_used_up(None, i64::MAX));
    }
}
