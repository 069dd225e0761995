//! Executions: one run of a cue, its states and the rules for changing them (contract §5 to §7).

pub mod attempt;
pub mod outcome;
pub mod worker;

use jiff::{SignedDuration, Timestamp};

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::cue_fields::Policies;
use crate::domain::execution::attempt::FailureCause;
use crate::domain::execution::outcome::OutcomeState;
use crate::domain::execution::worker::ACTIVE_FOR;
use crate::domain::ids::ExecutionId;
use crate::domain::row_keys::{CueKey, ExecutionKey, UserKey};
use crate::domain::text::word_enum;
use crate::domain::time::saturating_add;

pub use crate::domain::execution::attempt::{AttemptResult, NextStep, RetryPolicy, after_attempt};

/// The lease of a claim: the time without a sign of life after which it may be lost (contract §7).
pub const LEASE: SignedDuration = SignedDuration::from_secs(900);

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum ExecutionStatus {
        Pending = "pending",
        Delivering = "delivering",
        Retrying = "retrying",
        Success = "success",
        Failed = "failed",
    }
}

impl ExecutionStatus {
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

pub fn lease_from(now: Timestamp) -> Timestamp {
    saturating_add(now, LEASE)
}

pub fn may_claim(is_worker: bool, status: ExecutionStatus) -> Result<(), Refusal> {
    if is_worker && status == ExecutionStatus::Pending {
        return Ok(());
    }
    let message = match status {
        _ if !is_worker => "Not a worker execution".to_owned(),
        ExecutionStatus::Delivering => "A worker has already claimed the execution".to_owned(),
        _ => format!(
            "Only a pending execution can be claimed; this one has the status {}",
            status.as_str()
        ),
    };
    Err(Refusal::new(ErrorCode::AlreadyClaimed, message))
}

/// Checks that `worker`, or a caller that names no worker, may renew the claim of `holder`.
pub fn may_extend(
    status: ExecutionStatus,
    holder: Option<&str>,
    worker: Option<&str>,
) -> Result<(), Refusal> {
    let (ExecutionStatus::Delivering, Some(holder)) = (status, holder) else {
        return Err(Refusal::new(
            ErrorCode::ExecutionNotClaiming,
            "No worker has claimed this execution; its claim may have expired",
        ));
    };
    if worker.is_some_and(|worker| worker != holder) {
        return Err(Refusal::new(
            ErrorCode::NotExecutionOwner,
            "Another worker holds this execution",
        ));
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

pub const CANCELLED: &str = "cancelled";

/// Checks that an execution in `status` may be sent now. `is_waiting` is true until it is due: a retry that is due
/// already is sent now anyway, and accepted, so that the answer does not depend on the moment.
pub fn may_retry(status: ExecutionStatus, is_waiting: bool) -> Result<(), Refusal> {
    match status {
        ExecutionStatus::Retrying => Ok(()),
        ExecutionStatus::Pending if is_waiting => Ok(()),
        ExecutionStatus::Pending => Err(Refusal::new(
            ErrorCode::InvalidState,
            "The execution is due already: it begins as soon as a delivery thread or a worker takes it",
        )),
        ExecutionStatus::Delivering => Err(in_flight(
            "An attempt of the execution is running: wait for its end before you retry it",
        )),
        ExecutionStatus::Success | ExecutionStatus::Failed => Err(Refusal::new(
            ErrorCode::InvalidState,
            "The execution has ended and has no attempt left to send now: replay it to run it again",
        )),
    }
}

pub fn may_cancel(status: ExecutionStatus) -> Result<(), Refusal> {
    match status {
        ExecutionStatus::Pending | ExecutionStatus::Retrying => Ok(()),
        ExecutionStatus::Delivering => Err(in_flight(
            "An attempt of the execution is running, or a worker has claimed it: only a waiting one can be cancelled",
        )),
        ExecutionStatus::Success | ExecutionStatus::Failed => Err(Refusal::new(
            ErrorCode::InvalidState,
            "The execution has ended: there is nothing to cancel",
        )),
    }
}

fn in_flight(message: &'static str) -> Refusal {
    Refusal::new(ErrorCode::ExecutionInFlight, message)
}

impl Execution {
    /// The delay of the first attempt; `None` before it. A clock that was set back makes no run early.
    pub fn lateness(&self) -> Option<SignedDuration> {
        self.started_at.map(|started_at| {
            started_at.duration_since(self.scheduled_for).max(SignedDuration::ZERO)
        })
    }
}

/// A stored execution (contract §5). Its payload and outcome have rows of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    pub key: ExecutionKey,
    pub id: ExecutionId,
    pub cue_key: CueKey,
    pub user_key: UserKey,
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
    pub cause: Option<FailureCause>,
    pub replayed_from: Option<ExecutionId>,
    pub claimed_by_worker: Option<String>,
    pub claimed_at: Option<Timestamp>,
    pub lease_expires_at: Option<Timestamp>,
    pub outcome_state: Option<OutcomeState>,
    /// When it fails, unless it has succeeded. `None` without a maximum age, and after the end.
    pub expires_at: Option<Timestamp>,
    /// Until when somebody has to report the outcome of a delivered execution.
    pub outcome_due_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewExecution {
    pub id: ExecutionId,
    pub cue_key: CueKey,
    pub user_key: UserKey,
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
    /// True if it waits for the end of the earlier executions of its cue.
    pub is_buffered: bool,
    pub policies: Policies,
    /// The current time. An execution with a later `scheduled_for` waits for it.
    pub now: Timestamp,
}
