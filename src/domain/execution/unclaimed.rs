//! Executions that no worker claims: when the user gets an alert, and when they fail (contract §7.6).

use jiff::{SignedDuration, Timestamp};

use crate::domain::schedule::catch_up::Outage;
use crate::domain::time::saturating_add;

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
///
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
