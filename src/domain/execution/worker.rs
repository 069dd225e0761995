//! Workers: their liveness (contract §7), and executions that no worker claims: when an alert follows, and when they
//! fail (§7.6).

use jiff::{SignedDuration, Timestamp};

use crate::domain::json::JsonText;
use crate::domain::schedule::catch_up::Outage;
use crate::domain::text::word_enum;
use crate::domain::time::saturating_add;

pub const ACTIVE_FOR: SignedDuration = SignedDuration::from_secs(180);

pub const DEAD_AFTER: SignedDuration = SignedDuration::from_secs(900);

/// A worker that has been silent for this long and holds no claim is forgotten.
pub const FORGOTTEN_AFTER: SignedDuration = SignedDuration::from_hours(30 * 24);

pub const ANONYMOUS: &str = "anonymous-worker";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    pub worker_id: String,
    pub handlers: JsonText,
    pub last_heartbeat: Timestamp,
    pub registered_since: Timestamp,
}

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum HeartbeatStatus {
        Active = "active",
        Stale = "stale",
        Dead = "dead",
    }
}

impl HeartbeatStatus {
    pub fn at(last_heartbeat: Timestamp, now: Timestamp) -> Self {
        let silence = now.duration_since(last_heartbeat);
        match silence {
            silence if silence < ACTIVE_FOR => Self::Active,
            silence if silence < DEAD_AFTER => Self::Stale,
            _ => Self::Dead,
        }
    }
}

pub const UNCLAIMED_AFTER: SignedDuration = SignedDuration::from_mins(15);

/// At most one alert per cue in this time. Later runs raise the alert again.
pub const ALERT_INTERVAL: SignedDuration = SignedDuration::from_hours(1);

/// `error_message` of an execution that was not claimed within the time of its cue.
pub const NOT_CLAIMED: &str = "not claimed in time";

/// After an outage workers get this long to come back before an execution counts as unclaimed. A long poll lasts 30 s.
const RETURN_TIME: SignedDuration = SignedDuration::from_mins(1);

/// The next step for a claimable execution. An instant of `None` is never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnclaimedStep {
    Fail,
    Alert(Option<Timestamp>),
    Wait(Option<Timestamp>),
}

/// The step at `now` of an execution that is claimable since `since`. `last_alert` is that of the cue: it covers every
/// execution that waited then, and a later one is reported at the end of [`ALERT_INTERVAL`], as is an instant
/// `due_again` at which the execution has held up its cue.
pub fn unclaimed_step(
    since: Timestamp,
    due_again: Option<Timestamp>,
    claim_within: Option<SignedDuration>,
    last_alert: Option<Timestamp>,
    now: Timestamp,
) -> UnclaimedStep {
    let deadline = claim_within.map(|within| saturating_add(since, within));
    if deadline.is_some_and(|deadline| deadline <= now) {
        return UnclaimedStep::Fail;
    }
    let until =
        |at: Timestamp| UnclaimedStep::Wait(Some(deadline.map_or(at, |deadline| deadline.min(at))));
    let alert_at = saturating_add(since, UNCLAIMED_AFTER);
    if alert_at > now {
        return until(alert_at);
    }
    match last_alert {
        Some(last) if last > due_again.unwrap_or(since) => UnclaimedStep::Wait(deadline),
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
