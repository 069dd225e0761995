//! Executions: one run of a cue, its states and the rules for changing them (contract §5 to §7).

pub mod attempt;
pub mod evidence;
pub mod outcome;
pub mod verification;
pub mod worker;

use jiff::{SignedDuration, Timestamp};

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::execution::attempt::FailureCause;
use crate::domain::execution::verification::OutcomeState;
use crate::domain::execution::worker::ACTIVE_FOR;
use crate::domain::ids::ExecutionId;
use crate::domain::text::word_enum::word_enum;
use crate::domain::time::saturating_add;

pub use crate::domain::execution::attempt::{AttemptResult, NextStep, RetryPolicy, after_attempt};

/// The lease of a claim: the time without a sign of life after which it may be lost (contract §7).
pub const LEASE: SignedDuration = SignedDuration::from_secs(900);

word_enum! {
    /// The state of an execution (contract §5).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum ExecutionStatus {
        /// Created, not started.
        Pending = "pending",
        /// A delivery is in progress, or a worker holds a claim.
        Delivering = "delivering",
        /// An attempt failed and another one is scheduled.
        Retrying = "retrying",
        /// Ended: delivered, or reported as a success.
        Success = "success",
        /// Ended: attempts exhausted, or reported as a failure.
        Failed = "failed",
    }
}

impl ExecutionStatus {
    /// Returns whether the status is final unless a request changes it.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Success | Self::Failed)
    }
}

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Trigger {
        Schedule = "schedule",
        ManualFire = "manual_fire",
        Replay = "replay",
    }
}

/// The status after losing the claim of attempt number `attempt` out of `max_attempts` (contract §7).
pub fn after_lost_claim(max_attempts: u32, attempt: u32) -> ExecutionStatus {
    if attempt >= max_attempts { ExecutionStatus::Failed } else { ExecutionStatus::Pending }
}

/// The instant at which a claim is lost: its lease has expired, and its worker, if it ever sent a heartbeat, has been
/// silent for longer than [`ACTIVE_FOR`].
pub fn claim_lost_at(lease_expires_at: Timestamp, last_heartbeat: Option<Timestamp>) -> Timestamp {
    // Instants are whole milliseconds, so "longer" starts one millisecond later.
    let grace = ACTIVE_FOR + SignedDuration::from_millis(1);
    let silent_at = last_heartbeat.map(|last| saturating_add(last, grace));
    silent_at.map_or(lease_expires_at, |silent_at| silent_at.max(lease_expires_at))
}

/// The expiry of a lease that is taken or renewed at `now`.
pub fn lease_from(now: Timestamp) -> Timestamp {
    saturating_add(now, LEASE)
}

/// Checks that a worker may claim an execution in `status`.
pub fn may_claim(is_worker: bool, status: ExecutionStatus) -> Result<(), Refusal> {
    if is_worker && status == ExecutionStatus::Pending {
        return Ok(());
    }
    let message = match status {
        _ if !is_worker => "Not a worker execution".to_owned(),
        ExecutionStatus::Delivering => "A worker has already claimed the execution".to_owned(),
        _ => format!("Only a pending execution can be claimed; this one has the status {}", status.as_str()),
    };
    Err(Refusal::new(ErrorCode::AlreadyClaimed, message))
}

/// Checks that `worker`, or a caller that names no worker, may renew the claim of `holder`.
/// Errors: `execution_not_claiming` unless a worker holds the execution, `not_execution_owner` when another worker
/// holds it.
pub fn may_extend(
    status: ExecutionStatus,
    holder: Option<&str>,
    worker: Option<&str>,
) -> Result<(), Refusal> {
    let (ExecutionStatus::Delivering, Some(holder)) = (status, holder) else {
        return Err(Refusal::new(ErrorCode::ExecutionNotClaiming, "No worker holds this execution"));
    };
    if worker.is_some_and(|worker| worker != holder) {
        return Err(Refusal::new(ErrorCode::NotExecutionOwner, "Another worker holds this execution"));
    }
    Ok(())
}

/// The status after a report. An outcome ends a worker execution even if its claim has been lost, and leaves a
/// webhook execution unchanged (contract §5, §7).
pub fn after_outcome(is_worker: bool, status: ExecutionStatus, success: bool) -> ExecutionStatus {
    match (is_worker, success) {
        (false, _) => status,
        (true, true) => ExecutionStatus::Success,
        (true, false) => ExecutionStatus::Failed,
    }
}

/// `error_message` of a cancelled execution.
pub const CANCELLED: &str = "cancelled";

/// Checks that an execution in `status` may be sent now. `is_waiting` is true until it is due: a retry that is due already
/// is sent now anyway, and accepted, so that the answer does not depend on the moment.
/// Errors: `execution_in_flight` during an attempt, `invalid_state` if it has ended or waits for nothing but its
/// turn.
pub fn may_retry(status: ExecutionStatus, is_waiting: bool) -> Result<(), Refusal> {
    match status {
        ExecutionStatus::Retrying => Ok(()),
        ExecutionStatus::Pending if is_waiting => Ok(()),
        ExecutionStatus::Pending => Err(Refusal::new(
            ErrorCode::InvalidState,
            "The execution is due already: it begins as soon as a delivery thread or a worker takes it",
        )),
        ExecutionStatus::Delivering => {
            Err(in_flight("An attempt of the execution is running: wait for its end before you retry it"))
        }
        ExecutionStatus::Success | ExecutionStatus::Failed => Err(Refusal::new(
            ErrorCode::InvalidState,
            "The execution has ended and has no attempt left to send now: replay it to run it again",
        )),
    }
}

/// Checks that an execution in `status` may be cancelled.
/// Errors: `execution_in_flight` during an attempt or a claim, `invalid_state` if it has ended.
pub fn may_cancel(status: ExecutionStatus) -> Result<(), Refusal> {
    match status {
        ExecutionStatus::Pending | ExecutionStatus::Retrying => Ok(()),
        ExecutionStatus::Delivering => Err(in_flight(
            "An attempt of the execution is running, or a worker has claimed it: only a waiting one can be cancelled",
        )),
        ExecutionStatus::Success | ExecutionStatus::Failed => {
            Err(Refusal::new(ErrorCode::InvalidState, "The execution has ended: there is nothing to cancel"))
        }
    }
}

fn in_flight(message: &'static str) -> Refusal {
    Refusal::new(ErrorCode::ExecutionInFlight, message)
}

impl Execution {
    /// The delay of the first attempt; `None` before it. A clock that was set back makes no run early.
    pub fn lateness(&self) -> Option<SignedDuration> {
        self.started_at
            .map(|started_at| started_at.duration_since(self.scheduled_for).max(SignedDuration::ZERO))
    }
}

/// A stored execution without its payload and outcome, which have rows of their own. The fields are the contract's
/// (§5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    pub key: i64,
    pub id: ExecutionId,
    pub cue_key: i64,
    pub user_key: i64,
    pub is_worker: bool,
    pub status: ExecutionStatus,
    pub scheduled_for: Timestamp,
    pub triggered_by: Trigger,
    pub payload_key: Option<i64>,
    pub task: Option<String>,
    pub agent: Option<String>,
    pub attempts: u32,
    pub started_at: Option<Timestamp>,
    pub last_attempt_at: Option<Timestamp>,
    pub delivered_at: Option<Timestamp>,
    pub next_retry: Option<Timestamp>,
    pub http_status: Option<u16>,
    pub error_message: Option<String>,
    pub response_body: Option<String>,
    /// The duration of the latest attempt, or of a worker's claim until its report.
    pub duration: Option<SignedDuration>,
    /// Why the latest delivery failed.
    pub cause: Option<FailureCause>,
    pub replayed_from: Option<ExecutionId>,
    pub claimed_by_worker: Option<String>,
    pub claimed_at: Option<Timestamp>,
    pub lease_expires_at: Option<Timestamp>,
    pub outcome_state: Option<OutcomeState>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// An execution to create: the initial values of its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewExecution {
    pub id: ExecutionId,
    pub cue_key: i64,
    pub user_key: i64,
    pub is_worker: bool,
    /// Fairness key of the destination; `None` for worker executions.
    pub destination: Option<i64>,
    pub task: Option<String>,
    pub agent: Option<String>,
    pub scheduled_for: Timestamp,
    pub triggered_by: Trigger,
    pub payload_key: Option<i64>,
    pub replayed_from: Option<ExecutionId>,
    /// True for a run of an outage: runs that fall due now are sent first.
    pub is_catch_up: bool,
    /// The present. An execution with a later `scheduled_for` waits for it.
    pub now: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn only_a_pending_worker_execution_may_be_claimed_and_only_its_worker_may_extend_the_claim() {
        for status in ExecutionStatus::ALL {
            for is_worker in [true, false] {
                let allowed = is_worker && status == ExecutionStatus::Pending;
                let code = may_claim(is_worker, status).map_err(|refusal| refusal.code);
                assert_eq!(code, if allowed { Ok(()) } else { Err(ErrorCode::AlreadyClaimed) }, "{status:?}");
            }
            let (a, b) = (Some("a"), Some("b"));
            for (holder, worker) in [(None, None), (None, a), (a, None), (a, a), (a, b)] {
                let expected = match (status, holder, worker) {
                    (ExecutionStatus::Delivering, Some("a"), Some("b")) => Err(ErrorCode::NotExecutionOwner),
                    (ExecutionStatus::Delivering, Some("a"), _) => Ok(()),
                    _ => Err(ErrorCode::ExecutionNotClaiming),
                };
                let code = may_extend(status, holder, worker).map_err(|refusal| refusal.code);
                assert_eq!(code, expected, "{status:?} held by {holder:?}, extended by {worker:?}");
            }
        }
    }

    #[test]
    fn an_expired_claim_returns_to_pending_until_attempts_run_out() {
        let after = [1, 2, 3, 4].map(|attempt| after_lost_claim(3, attempt).as_str());
        assert_eq!(after, ["pending", "pending", "failed", "failed"]);
    }

    #[test]
    fn a_claim_expires_with_its_lease_unless_its_worker_sends_heartbeats() {
        let lease = at("2026-01-01T10:00:00Z");
        assert_eq!(claim_lost_at(lease, None), lease);
        assert_eq!(claim_lost_at(lease, Some(at("2026-01-01T09:50:00Z"))), lease);
        // Silent for exactly 180 s is not yet "over 180 s".
        assert_eq!(claim_lost_at(lease, Some(at("2026-01-01T09:57:00Z"))), at("2026-01-01T10:00:00.001Z"));
        assert_eq!(claim_lost_at(lease, Some(at("2026-01-01T09:59:00Z"))), at("2026-01-01T10:02:00.001Z"));
        assert_eq!(claim_lost_at(lease, Some(Timestamp::MAX)), Timestamp::MAX);
    }

    #[test]
    fn only_a_waiting_execution_may_be_sent_now_or_cancelled() {
        use ErrorCode::{ExecutionInFlight as InFlight, InvalidState};
        for (status, retry_waiting, retry_due, cancel) in [
            (ExecutionStatus::Pending, Ok(()), Err(InvalidState), Ok(())),
            (ExecutionStatus::Retrying, Ok(()), Ok(()), Ok(())),
            (ExecutionStatus::Delivering, Err(InFlight), Err(InFlight), Err(InFlight)),
            (ExecutionStatus::Success, Err(InvalidState), Err(InvalidState), Err(InvalidState)),
            (ExecutionStatus::Failed, Err(InvalidState), Err(InvalidState), Err(InvalidState)),
        ] {
            let code = |checked: Result<(), Refusal>| checked.map_err(|refusal| refusal.code);
            assert_eq!(code(may_retry(status, true)), retry_waiting, "{status:?}");
            assert_eq!(code(may_retry(status, false)), retry_due, "{status:?}");
            assert_eq!(code(may_cancel(status)), cancel, "{status:?}");
        }
    }
}
