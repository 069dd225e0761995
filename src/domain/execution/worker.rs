//! Workers: programs that announce themselves by heartbeat, and their liveness (contract §7).

use jiff::{SignedDuration, Timestamp};

use crate::domain::json::JsonText;
use crate::domain::text::word_enum::word_enum;

/// A worker is active until it has been silent for this long.
pub const ACTIVE_FOR: SignedDuration = SignedDuration::from_secs(180);

/// A worker is dead when it has been silent for this long.
pub const DEAD_AFTER: SignedDuration = SignedDuration::from_secs(900);

/// A worker that has been silent for this long and holds no claim is forgotten.
pub const FORGOTTEN_AFTER: SignedDuration = SignedDuration::from_hours(30 * 24);

/// The name of a worker that gave none (contract §7).
pub const ANONYMOUS: &str = "anonymous-worker";

/// A worker that has sent a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    pub worker_id: String,
    /// A list of strings.
    pub handlers: JsonText,
    pub last_heartbeat: Timestamp,
    pub registered_since: Timestamp,
}

word_enum! {
    /// The liveness of a worker.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum HeartbeatStatus {
        Active = "active",
        /// Silent for [`ACTIVE_FOR`] or longer.
        Stale = "stale",
        /// Silent for [`DEAD_AFTER`] or longer.
        Dead = "dead",
    }
}

impl HeartbeatStatus {
    /// The status at `now` of a worker last heard at `last_heartbeat`.
    pub fn at(last_heartbeat: Timestamp, now: Timestamp) -> Self {
        let silence = now.duration_since(last_heartbeat);
        match silence {
            silence if silence < ACTIVE_FOR => Self::Active,
            silence if silence < DEAD_AFTER => Self::Stale,
            _ => Self::Dead,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_active_then_stale_then_dead() {
        let last: Timestamp = "2026-01-01T10:00:00Z".parse().unwrap();
        // A heartbeat in the future, after the clock went back, counts as one from now.
        for (millis, expected) in [
            (-1, "active"),
            (0, "active"),
            (179_999, "active"),
            (180_000, "stale"),
            (899_999, "stale"),
            (900_000, "dead"),
        ] {
            let now = last + SignedDuration::from_millis(millis);
            assert_eq!(HeartbeatStatus::at(last, now).as_str(), expected, "after {millis} ms");
        }
    }
}
