//! An execution: one run of a cue, its states and what may move it between them (contract §5 to §7).

pub mod evidence;
pub mod outcome;
pub mod retry_after;
pub mod verification;
pub mod worker;

use jiff::{SignedDuration, Timestamp};

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::execution::verification::OutcomeState;
use crate::domain::execution::worker::FRESH;
use crate::domain::ids::ExecutionId;

/// How long a claim holds without a sign of life (contract §7).
pub const LEASE: SignedDuration = SignedDuration::from_secs(900);

/// The state of an execution (contract §5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExecutionStatus {
    /// Made; nobody has taken it up.
    Pending,
    /// A delivery is under way, or a worker holds a claim.
    Delivering,
    /// An attempt failed; another one follows.
    Retrying,
    /// Over: delivered, or reported as a success.
    Success,
    /// Over: given up, or reported as a failure.
    Failed,
}

impl ExecutionStatus {
    /// The words of the contract.
    pub const WORDS: [&'static str; 5] = ["pending", "delivering", "retrying", "success", "failed"];

    /// The word of the contract.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivering => "delivering",
            Self::Retrying => "retrying",
            Self::Success => "success",
            Self::Failed => "failed",
        }
    }

    /// The status that `word` names.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Pending, Self::Delivering, Self::Retrying, Self::Success, Self::Failed]
            .into_iter()
            .find(|status| status.as_str() == word)
    }

    /// Whether nothing more happens to it by itself.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Success | Self::Failed)
    }
}

/// What made an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// The cue's schedule.
    Schedule,
    /// A call of `fire`.
    ManualFire,
    /// A replay of an earlier execution.
    Replay,
}

impl Trigger {
    /// The words of the contract.
    pub const WORDS: [&'static str; 3] = ["schedule", "manual_fire", "replay"];

    /// The word of the contract.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Schedule => "schedule",
            Self::ManualFire => "manual_fire",
            Self::Replay => "replay",
        }
    }

    /// The trigger that `word` names.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Schedule, Self::ManualFire, Self::Replay].into_iter().find(|trigger| trigger.as_str() == word)
    }
}

/// How often, and after which pauses, a failed attempt is followed by another (contract §4).
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicy {
    /// All attempts, the first included: 1 to 10.
    pub max_attempts: u32,
    /// Minutes before the second, third, … attempt; the last repeats. Never empty, no entry negative.
    pub backoff_minutes: Vec<f64>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max_attempts: 4, backoff_minutes: vec![1.0, 5.0, 15.0] }
    }
}

impl RetryPolicy {
    /// The pause after the failed attempt number `attempt` (from 1).
    #[must_use]
    pub fn backoff(&self, attempt: u32) -> SignedDuration {
        let index = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
        let minutes = self.backoff_minutes.get(index).or(self.backoff_minutes.last()).copied().unwrap_or(0.0);
        SignedDuration::try_from_secs_f64(minutes * 60.0).unwrap_or(SignedDuration::ZERO)
    }
}

/// How an attempt to deliver ended, as far as the rules care.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptResult {
    /// The receiver answered.
    Answered {
        /// Its HTTP status.
        http_status: u16,
        /// The pause that it asked for, where its status gives the header a meaning.
        retry_after: Option<SignedDuration>,
    },
    /// There was no answer: a time-out or a fault of the connection.
    Unanswered,
}

/// What follows an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// Delivered.
    Success,
    /// Another attempt at this instant.
    RetryAt(Timestamp),
    /// Given up.
    Failed,
}

impl NextStep {
    /// What the execution is then.
    #[must_use]
    pub fn status(self) -> ExecutionStatus {
        match self {
            Self::Success => ExecutionStatus::Success,
            Self::RetryAt(_) => ExecutionStatus::Retrying,
            Self::Failed => ExecutionStatus::Failed,
        }
    }
}

/// What follows attempt number `attempt` (from 1), ended at `now` (contract §6).
#[must_use]
pub fn after_attempt(retry: &RetryPolicy, attempt: u32, ended: &AttemptResult, now: Timestamp) -> NextStep {
    let asked = match ended {
        AttemptResult::Answered { http_status: 200..=299, .. } => return NextStep::Success,
        AttemptResult::Answered { http_status: 410, .. } => return NextStep::Failed,
        AttemptResult::Answered { retry_after, .. } => retry_after.unwrap_or(SignedDuration::ZERO),
        AttemptResult::Unanswered => SignedDuration::ZERO,
    };
    if attempt >= retry.max_attempts {
        return NextStep::Failed;
    }
    // At the end of representable time there is no later instant: give up rather than wrap.
    now.checked_add(retry.backoff(attempt).max(asked)).map_or(NextStep::Failed, NextStep::RetryAt)
}

/// What follows a claim that was lost with attempt number `attempt`, of `max_attempts` (contract §7).
#[must_use]
pub fn after_lost_claim(max_attempts: u32, attempt: u32) -> ExecutionStatus {
    if attempt >= max_attempts { ExecutionStatus::Failed } else { ExecutionStatus::Pending }
}

/// The first instant at which a claim is lost: its lease is over, and its worker, if it ever sent a heartbeat, has
/// been silent for longer than [`FRESH`].
#[must_use]
pub fn claim_lost_at(lease_expires_at: Timestamp, last_heartbeat: Option<Timestamp>) -> Timestamp {
    // Instants are whole milliseconds, so "longer" begins one millisecond later.
    let grace = FRESH + SignedDuration::from_millis(1);
    let silent_at = last_heartbeat.map(|last| last.checked_add(grace).unwrap_or(Timestamp::MAX));
    silent_at.map_or(lease_expires_at, |silent_at| silent_at.max(lease_expires_at))
}

/// When a claim that shows a sign of life at `now` is over.
#[must_use]
pub fn lease_from(now: Timestamp) -> Timestamp {
    now.checked_add(LEASE).unwrap_or(Timestamp::MAX)
}

/// Whether a worker may claim an execution in `status`.
///
/// # Errors
/// `already_claimed` unless it is a pending worker execution.
pub fn may_claim(is_worker: bool, status: ExecutionStatus) -> Result<(), Refusal> {
    if is_worker && status == ExecutionStatus::Pending {
        return Ok(());
    }
    let message =
        if is_worker { "Execution is already claimed or not pending" } else { "Not a worker execution" };
    Err(Refusal::new(ErrorCode::AlreadyClaimed, message))
}

/// Whether `worker`, or a caller who does not say which worker it is, may extend the claim that `holder` has.
///
/// # Errors
/// `execution_not_claiming` unless a worker holds the execution, `not_execution_owner` when another one does.
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

/// The status after a report: an outcome ends a worker execution, whatever became of the claim meanwhile, and
/// leaves a webhook one as it is (contract §5, §7).
#[must_use]
pub fn after_outcome(is_worker: bool, status: ExecutionStatus, success: bool) -> ExecutionStatus {
    match (is_worker, success) {
        (false, _) => status,
        (true, true) => ExecutionStatus::Success,
        (true, false) => ExecutionStatus::Failed,
    }
}

/// A stored execution, but for its payload and outcome, which have rows of their own. Fields are the contract's (§5).
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Execution {
    /// Its row.
    pub key: i64,
    pub id: ExecutionId,
    /// The cue's row.
    pub cue_key: i64,
    /// The owner's row.
    pub user_key: i64,
    pub is_worker: bool,
    pub status: ExecutionStatus,
    pub scheduled_for: Timestamp,
    pub triggered_by: Trigger,
    /// The row of its payload.
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
    pub claimed_by_worker: Option<String>,
    pub claimed_at: Option<Timestamp>,
    pub lease_expires_at: Option<Timestamp>,
    pub outcome_state: Option<OutcomeState>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A run that is being made: what its row starts with.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct NewExecution {
    pub id: ExecutionId,
    pub cue_key: i64,
    pub user_key: i64,
    pub is_worker: bool,
    /// Fairness key of the destination; none for worker executions.
    pub lane: Option<i64>,
    pub task: Option<String>,
    pub agent: Option<String>,
    pub scheduled_for: Timestamp,
    pub triggered_by: Trigger,
    pub payload_key: Option<i64>,
    /// The present: when `scheduled_for` is later, the execution waits for it.
    pub now: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [ExecutionStatus; 5] = [
        ExecutionStatus::Pending,
        ExecutionStatus::Delivering,
        ExecutionStatus::Retrying,
        ExecutionStatus::Success,
        ExecutionStatus::Failed,
    ];

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn statuses_round_trip_through_text() {
        for status in ALL {
            assert_eq!(ExecutionStatus::parse(status.as_str()), Some(status));
        }
        assert_eq!(ExecutionStatus::parse("claimed"), None);
    }

    #[test]
    fn only_a_pending_worker_execution_may_be_claimed() {
        for status in ALL {
            for is_worker in [true, false] {
                let allowed = is_worker && status == ExecutionStatus::Pending;
                let code = may_claim(is_worker, status).map_err(|refusal| refusal.code);
                assert_eq!(code, if allowed { Ok(()) } else { Err(ErrorCode::AlreadyClaimed) }, "{status:?}");
            }
        }
    }

    #[test]
    fn only_the_owner_may_extend_a_claim() {
        for status in ALL {
            for (holder, worker) in [
                (None, None),
                (None, Some("a")),
                (Some("a"), None),
                (Some("a"), Some("a")),
                (Some("a"), Some("b")),
            ] {
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
    fn a_report_ends_every_worker_execution_and_no_webhook_one() {
        for status in ALL {
            assert_eq!(after_outcome(true, status, true), ExecutionStatus::Success);
            assert_eq!(after_outcome(true, status, false), ExecutionStatus::Failed);
            assert_eq!(after_outcome(false, status, true), status);
            assert_eq!(after_outcome(false, status, false), status);
        }
    }

    #[test]
    fn an_expired_claim_returns_to_pending_until_attempts_run_out() {
        let after: Vec<ExecutionStatus> = (1..=4).map(|attempt| after_lost_claim(3, attempt)).collect();
        assert_eq!(
            after,
            [
                ExecutionStatus::Pending,
                ExecutionStatus::Pending,
                ExecutionStatus::Failed,
                ExecutionStatus::Failed
            ]
        );
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
    fn the_next_step_after_an_attempt_follows_the_contract() {
        let retry = RetryPolicy { max_attempts: 3, backoff_minutes: vec![1.0, 5.0] };
        let now = at("2026-01-01T10:00:00Z");
        let answered = |http_status, secs: Option<i64>| AttemptResult::Answered {
            http_status,
            retry_after: secs.map(SignedDuration::from_secs),
        };
        let again = |text| NextStep::RetryAt(at(text));
        for (attempt, ended, expected) in [
            (1, answered(200, None), NextStep::Success),
            (3, answered(299, None), NextStep::Success),
            (1, answered(300, None), again("2026-01-01T10:01:00Z")),
            (1, answered(500, None), again("2026-01-01T10:01:00Z")),
            (2, answered(500, None), again("2026-01-01T10:05:00Z")),
            (3, answered(500, None), NextStep::Failed),
            (1, answered(410, None), NextStep::Failed),
            (1, answered(429, Some(3_600)), again("2026-01-01T11:00:00Z")),
            (1, answered(503, Some(1)), again("2026-01-01T10:01:00Z")),
            (1, AttemptResult::Unanswered, again("2026-01-01T10:01:00Z")),
            (3, AttemptResult::Unanswered, NextStep::Failed),
        ] {
            assert_eq!(after_attempt(&retry, attempt, &ended, now), expected, "attempt {attempt}: {ended:?}");
        }
    }

    #[test]
    fn the_last_backoff_repeats() {
        let retry = RetryPolicy { max_attempts: 10, backoff_minutes: vec![0.5, 2.0] };
        let pauses: Vec<i64> = (1..=4).map(|attempt| retry.backoff(attempt).as_secs()).collect();
        assert_eq!(pauses, [30, 120, 120, 120]);
    }
}
