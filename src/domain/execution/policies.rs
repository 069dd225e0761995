//! What happens to the runs of a cue that overlap, or that take too long (contract §4.16).

use jiff::{SignedDuration, Timestamp};

use crate::domain::text::word_enum;
use crate::domain::time::saturating_add;

/// Seconds from the scheduled instant: at least a minute, at most 30 days.
pub const MIN_MAX_AGE: i64 = 60;
pub const MAX_MAX_AGE: i64 = 2_592_000;

/// Seconds from the delivery: at least ten, at most a week.
pub const MIN_OUTCOME_DEADLINE: i64 = 10;
pub const MAX_OUTCOME_DEADLINE: i64 = 604_800;

word_enum! {
    /// What a scheduled run does that falls due while an earlier execution of its cue is not finished.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Overlap {
        #[default]
        Allow = "allow",
        /// It does not run, and is recorded as missed.
        Skip = "skip",
        /// One waits for the end of the earlier ones. Further ones are skipped.
        BufferOne = "buffer_one",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policies {
    pub overlap: Overlap,
    /// An execution that has not succeeded that long after its scheduled instant fails.
    pub max_age_seconds: Option<u32>,
    /// Webhook cues: the deadline for a reported outcome, counted from the delivery.
    pub outcome_deadline_seconds: Option<u32>,
}

/// `error_message` of an execution that has reached the maximum age, after the `error` of its last attempt.
pub fn expired_message(max_age_seconds: u32, error: Option<&str>) -> String {
    let message = format!(
        "not successful within {max_age_seconds} s of its scheduled time (max_age_seconds)"
    );
    match error {
        Some(error) => format!("{message}; the last attempt: {error}"),
        None => message,
    }
}

impl Policies {
    pub fn expires_at(&self, scheduled_for: Timestamp) -> Option<Timestamp> {
        let age = SignedDuration::from_secs(self.max_age_seconds?.into());
        Some(saturating_add(scheduled_for, age))
    }

    /// How many of the runs that are due now may become executions.
    pub fn free_runs(&self, is_running: bool, is_waiting: bool) -> usize {
        match self.overlap {
            Overlap::Allow => usize::MAX,
            Overlap::Skip => usize::from(!is_running),
            Overlap::BufferOne => usize::from(!is_running) + usize::from(!is_waiting),
        }
    }
}
