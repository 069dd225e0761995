//! Workers: programs that announce themselves by heartbeat, their liveness (contract §7), and executions that no worker
//! claims: when the user gets an alert, and when they fail (contract §7.6).

use jiff::{SignedDuration, Timestamp};

use crate::domain::json::JsonText;
use crate::domain::schedule::catch_up::Outage;
use crate::domain::text::word_enum::word_enum;
use crate::domain::time::saturating_add;

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

/// The wait for a claim after which the user gets an alert.
pub const UNCLAIMED_AFTER: SignedDuration = SignedDuration::from_mins(15);

/// At most one alert per cue in this time. Later runs raise the alert again.
pub const ALERT_INTERVAL: SignedDuration = SignedDuration::from_hours(1);

/// `error_message` of an execution that was not claimed within the time of its cue.
pub const NOT_CLAIMED: &str = "not claimed in time";

/// The range of `claim_within_minutes`: up to a week, because a worker that stays away longer needs a person.
pub const MIN_CLAIM_WITHIN: i64 = 1;
pub const MAX_CLAIM_WITHIN: i64 = 10_080;

/// After an outage workers get this long to come back before an execution counts as unclaimed. A long poll lasts 30 s.
const RETURN_TIME: SignedDuration = SignedDuration::from_mins(1);

/// The next step for a claimable execution. An instant of `None` is never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnclaimedStep {
    Fail,
    /// Tells the user, and looks again at the instant.
    Alert(Option<Timestamp>),
    /// Looks again at the instant.
    Wait(Option<Timestamp>),
}

/// The step at `now` of an execution that is claimable since `since`. `claim_within` is the limit of its cue, and
/// `last_alert` the time of the cue's newest alert about unclaimed executions.
/// An alert covers every execution of its cue that waited then. One that began to wait later is reported at the end of
/// [`ALERT_INTERVAL`].
pub fn unclaimed_step(
    since: Timestamp,
    claim_within: Option<SignedDuration>,
    last_alert: Option<Timestamp>,
    now: Timestamp,
) -> UnclaimedStep {
    let deadline = claim_within.map(|within| saturating_add(since, within));
    if deadline.is_some_and(|deadline| deadline <= now) {
        return UnclaimedStep::Fail;
    }
    let until = |at: Timestamp| UnclaimedStep::Wait(Some(deadline.map_or(at, |deadline| deadline.min(at))));
    let alert_at = saturating_add(since, UNCLAIMED_AFTER);
    if alert_at > now {
        return until(alert_at);
    }
    match last_alert {
        Some(last) if last > since => UnclaimedStep::Wait(deadline),
        Some(last) if saturating_add(last, ALERT_INTERVAL) > now => {
            until(saturating_add(last, ALERT_INTERVAL))
        }
        _ => UnclaimedStep::Alert(deadline),
    }
}

/// The instant before which no execution counts as unclaimed, because of the last outage.
pub fn workers_return_by(outage: Option<Outage>) -> Timestamp {
    outage.map_or(Timestamp::MIN, |outage| saturating_add(outage.until, RETURN_TIME))
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
