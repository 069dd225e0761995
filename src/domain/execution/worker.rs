//! A worker: who announced itself by heartbeat, and how alive that makes it (contract §7).

use jiff::{SignedDuration, Timestamp};

/// How long a worker counts as alive after its last heartbeat.
pub const FRESH: SignedDuration = SignedDuration::from_secs(180);

/// After this silence a worker counts as dead.
pub const DEAD: SignedDuration = SignedDuration::from_secs(900);

/// The default name of a worker (contract §7.2).
pub const ANONYMOUS: &str = "anonymous-worker";

/// A worker that has sent a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// The name that it gave itself.
    pub worker_id: String,
    /// The tasks that it handles.
    pub handlers: Vec<String>,
    /// Its newest heartbeat.
    pub last_heartbeat: Timestamp,
    /// Its first heartbeat.
    pub registered_since: Timestamp,
}

/// How alive a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeartbeatStatus {
    /// Heard of within [`FRESH`].
    Active,
    /// Silent, and not yet given up.
    Stale,
    /// Silent for [`DEAD`] or longer.
    Dead,
}

impl HeartbeatStatus {
    /// The status after a silence from `last_heartbeat` to `now`.
    #[must_use]
    pub fn at(last_heartbeat: Timestamp, now: Timestamp) -> Self {
        let silence = now.duration_since(last_heartbeat);
        match silence {
            silence if silence < FRESH => Self::Active,
            silence if silence < DEAD => Self::Stale,
            _ => Self::Dead,
        }
    }

    /// The word of the contract.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Stale => "stale",
            Self::Dead => "dead",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_active_then_stale_then_dead() {
        let last: Timestamp = "2026-01-01T10:00:00Z".parse().unwrap();
        // A heartbeat from the future, after the clock went back, is as good as one from now.
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
