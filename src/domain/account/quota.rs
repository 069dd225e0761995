//! The quota of executions in a month: when it is near, and what may still run above it (contract §8).

use jiff::{SignedDuration, Timestamp};

/// How long runs go on above the quota, from the first one over it.
pub const GRACE: SignedDuration = SignedDuration::from_hours(24);

/// The `error_message` of a run that the quota kept from being sent.
pub const LIMIT_EXCEEDED: &str = "execution_limit_exceeded";

/// A user's executions in one month against what its plan allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// The plan's limit; none where there is none.
    pub limit: Option<u32>,
    /// Executions counted.
    pub used: i64,
    /// When the first one over the limit was made.
    pub over_since: Option<Timestamp>,
}

impl Quota {
    /// Counts one execution that is made at `now`; `false` when it may not run, and then it does not count.
    #[must_use]
    pub fn take(&mut self, now: Timestamp) -> bool {
        if self.limit.is_none_or(|limit| self.used < i64::from(limit)) {
            // A plan or a table of plans with more room: the next one over it begins a grace of its own.
            self.over_since = None;
        } else if now.duration_since(*self.over_since.get_or_insert(now)) >= GRACE {
            return false;
        }
        self.used += 1;
        true
    }
}

/// Whether `used` executions are 80 % of the limit or more.
#[must_use]
pub fn is_near(limit: Option<u32>, used: i64) -> bool {
    limit.is_some_and(|limit| used.saturating_mul(5) >= i64::from(limit) * 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("2026-01-{text}:00Z").parse().unwrap()
    }

    fn quota(limit: u32, used: i64) -> Quota {
        Quota { limit: Some(limit), used, over_since: None }
    }

    #[test]
    fn the_first_run_over_the_quota_starts_a_grace_period_of_24_hours() {
        let mut quota = quota(300, 299);
        assert!(quota.take(at("05T10:00")));
        assert_eq!((quota.used, quota.over_since), (300, None));
        for (now, runs) in [
            ("05T11:00", true),
            ("05T23:00", true),
            ("06T10:59", true),
            ("06T11:00", false),
            ("20T11:00", false),
        ] {
            assert_eq!(quota.take(at(now)), runs, "{now}");
        }
        assert_eq!((quota.used, quota.over_since), (303, Some(at("05T11:00"))));
    }

    #[test]
    fn a_larger_limit_ends_the_grace_period() {
        let mut quota = Quota { over_since: Some(at("01T00:00")), ..quota(11, 10) };
        assert!(quota.take(at("20T00:00")));
        assert!(quota.take(at("21T00:00")));
        assert_eq!(quota.over_since, Some(at("21T00:00")));
    }

    #[test]
    fn a_clock_moved_back_blocks_no_run() {
        let mut quota = Quota { over_since: Some(at("20T00:00")), ..quota(10, 10) };
        assert!(quota.take(at("01T00:00")));
    }

    #[test]
    fn without_a_limit_everything_runs_and_counts() {
        let mut quota = Quota { limit: None, used: i64::from(u32::MAX), over_since: None };
        assert!(quota.take(at("01T00:00")));
        assert_eq!(quota.used, i64::from(u32::MAX) + 1);
    }

    #[test]
    fn eighty_percent_is_near() {
        for (limit, used, near) in [
            (300, 239, false),
            (300, 240, true),
            (300, 9_999, true),
            (1, 0, false),
            (1, 1, true),
            (0, 0, true),
        ] {
            assert_eq!(is_near(Some(limit), used), near, "{used} of {limit}");
        }
        assert!(!is_near(None, i64::MAX));
    }
}
