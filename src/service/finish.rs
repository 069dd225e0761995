//! The end of an attempt (contract §6.4), outcomes (§5.5, §6.10), and what a finished execution causes (§4.2, §6.8,
//! §6.9). Also a pause, by request or by a smaller plan (§8.1), and a cancelled execution (§5.4).

use jiff::{SignedDuration, Timestamp};

use crate::domain::account::stats::{Figures, whole_millis};
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::channel::{FAILURE_MAILS, alert_event};
use crate::domain::cue::Cue;
use crate::domain::execution::outcome::{
    Outcome, OutcomeState, VerificationMode, after_report, failure_reason,
};
use crate::domain::execution::{
    CANCELLED, Execution, ExecutionStatus, NextStep, Trigger, after_outcome,
};
use crate::domain::notification::alert::{AlertType, NewAlert};
use crate::domain::notification::event::EventType;
use crate::domain::row_keys::{CueKey, ExecutionKey, UserKey};
use crate::domain::schedule::catch_up::MissReason;
use crate::domain::time::just_before;
use crate::domain::webhook::delivery::AttemptRef;
use crate::error::{Error, Result};
use crate::service::fire::{CueFirer, MAX_OVERDUE_RUNS, end_once_cue};
use crate::service::mails::mail_failure;
use crate::service::notify::{self, post_failure};
use crate::service::{channels, events, overlap};
use crate::store::accounts::users;
use crate::store::alerts::AlertSubject;
use crate::store::cues::{self, due_cues};
use crate::store::executions::delivery_queue::{self, AttemptRecord};
use crate::store::executions::{self, ExecutionDetails, policies};
use crate::store::outbox::{self, FailedExecution};
use crate::store::{WakeSet, WriteTx};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinishedExecution {
    pub key: ExecutionKey,
    pub user_key: UserKey,
    pub cue_key: CueKey,
    pub scheduled_for: Timestamp,
    /// True if the schedule created it. A manual run does not end a `once` cue.
    pub by_schedule: bool,
    /// False if the last attempt failed, the worker reported a failure, or the last claim expired.
    pub success: bool,
    /// The times of the attempt that ended it; `None` if none was under way.
    pub timing: Option<AttemptTiming>,
    /// When it had failed before, if a late report of its worker turns the failure into a success.
    pub failed_before: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptTiming {
    pub started_at: Timestamp,
    pub took: SignedDuration,
}

impl FinishedExecution {
    /// The end at `now` of an execution of a worker, which holds its state before it.
    pub fn new(execution: &Execution, success: bool, now: Timestamp) -> Self {
        let is_claimed = execution.status == ExecutionStatus::Delivering;
        let times = execution.started_at.zip(execution.last_attempt_at).filter(|_| is_claimed);
        Self {
            key: execution.key,
            user_key: execution.user_key,
            cue_key: execution.cue_key,
            scheduled_for: execution.scheduled_for,
            by_schedule: execution.triggered_by == Trigger::Schedule,
            success,
            timing: times.map(|(started_at, last)| AttemptTiming {
                started_at,
                took: now.duration_since(last),
            }),
            failed_before: execution.status.is_over().then_some(execution.updated_at),
        }
    }
}

/// Applies the consequences of a finished execution, which must be stored as finished. Every finished execution goes
/// through this function, with three exceptions. When an account is disabled, its cues are paused as well, and the
/// operator who does it needs no notification. An execution above the quota only ends a `once` cue, because the usage
/// shows why it failed, and so does a cancelled one, because its user wanted it. `firer` fires a run that is due before
/// the cue is paused.
pub fn on_execution_finished(
    tx: &WriteTx<'_>,
    finished: &FinishedExecution,
    firer: &CueFirer,
) -> Result<()> {
    let success = finished.success;
    count_end(tx, finished, firer.now());
    let event_type =
        if success { EventType::ExecutionSucceeded } else { EventType::ExecutionFailed };
    events::execution(tx, event_type, finished.user_key, finished.key, firer.now());
    if finished.by_schedule {
        end_once_cue(tx, finished.cue_key, finished.scheduled_for, success, firer.now())?;
    }
    overlap::after_end(tx, finished.key, firer.now())?;
    if !success {
        return after_failure(tx, finished.key, firer);
    }
    let Some(streak) = outbox::delete_streak(tx, finished.cue_key)? else { return Ok(()) };
    let FinishedExecution { user_key, cue_key, key, .. } = *finished;
    channels::announce_recovery(tx, user_key, cue_key, key, streak, firer.now())
}

pub fn count_retry(tx: &WriteTx<'_>, user_key: UserKey, now: Timestamp) {
    tx.counters().add_to_hour(user_key, now, &Figures { retried: 1, ..Figures::default() });
}

/// Executions above the quota and those of a disabled account are counted by the store.
fn count_end(tx: &WriteTx<'_>, finished: &FinishedExecution, now: Timestamp) {
    let success = finished.success;
    let mut end = Figures {
        succeeded: i64::from(success),
        failed: i64::from(!success),
        ..Figures::default()
    };
    if let Some(AttemptTiming { started_at, took }) = finished.timing {
        let late = whole_millis(started_at.duration_since(finished.scheduled_for));
        (end.measured, end.took_sum_ms) = (1, whole_millis(took));
        (end.late_sum_ms, end.late_max_ms) = (late, late);
    }
    tx.counters().add_to_hour(finished.user_key, now, &end);
    if let Some(failed_at) = finished.failed_before {
        let taken_back = Figures { failed: -1, ..Figures::default() };
        tx.counters().add_to_hour(finished.user_key, failed_at, &taken_back);
    }
}

/// Lengthens the failure streak, raises or changes its alert, and applies `on_failure`. Does nothing for a disabled user.
fn after_failure(tx: &WriteTx<'_>, key: ExecutionKey, firer: &CueFirer) -> Result<()> {
    let now = firer.now();
    let Some(failed) = outbox::find_failed(tx, key)? else { return Ok(()) };
    let cue_key = failed.subject.cue_key;
    let streak = outbox::increment_streak(tx, cue_key, key, now)?;
    let alert = notify::alert_streak(tx, &failed.subject, &streak, now)?;
    let is_mailed =
        channels::announce_failure(tx, &failed, key, streak.failures, alert.as_ref(), now)?
            || (failed.by_schedule && notify::is_told(tx, cue_key, FAILURE_MAILS, now)?);
    apply_on_failure(tx, &failed, is_mailed, firer)
}

/// The delivery was no failure, so that no streak grows.
pub(super) fn on_missing_outcome(
    tx: &WriteTx<'_>,
    key: ExecutionKey,
    deadline_seconds: u32,
    firer: &CueFirer,
) -> Result<()> {
    let Some(failed) = outbox::find_failed(tx, key)? else { return Ok(()) };
    let alert = NewAlert::outcome_missing(&failed.subject.cue_name, deadline_seconds);
    notify::raise_alert_for(tx, &failed.subject, alert, firer.now())?;
    let error = format!("delivered, but no outcome was reported within {deadline_seconds} s");
    let AlertSubject { user_key, cue_key, .. } = failed.subject;
    let event = alert_event(AlertType::OutcomeMissing);
    let is_mailed = channels::is_mailed(tx, user_key, cue_key, &event)?;
    apply_on_failure(tx, &FailedExecution { error: Some(error), ..failed }, is_mailed, firer)
}

/// `is_mailed` if the failure is not mailed: a channel does, or an earlier one of the streak was.
fn apply_on_failure(
    tx: &WriteTx<'_>,
    failed: &FailedExecution,
    is_mailed: bool,
    firer: &CueFirer,
) -> Result<()> {
    let now = firer.now();
    if let Some(url) = &failed.webhook {
        post_failure(tx, failed, url, now)?;
    }
    if failed.email && !is_mailed {
        mail_failure(tx, failed, now)?;
    }
    if !failed.pause {
        return Ok(());
    }
    pause(tx, failed.subject.cue_key, firer)?;
    let AlertSubject { user_key, cue_key, .. } = failed.subject;
    channels::announce_pause(tx, user_key, cue_key, "because a run failed", now)
}

/// Pauses the cue in row `cue_key`. A run that is due fires first; runs that cannot be fired are recorded as missed.
pub(super) fn pause(tx: &WriteTx<'_>, cue_key: CueKey, firer: &CueFirer) -> Result<()> {
    let Some(mut cue) = cues::find_by_key(tx, cue_key)? else { return Ok(()) };
    if firer.fire_overdue(tx, &cue)? > 0
        && let Some(fired) = cues::find_by_key(tx, cue_key)?
    {
        cue = fired;
    }
    record_overdue_as_missed(tx, &cue, firer.now())?;
    cues::pause(tx, &cue, firer.now())?;
    events::cue(tx, EventType::CuePaused, cue.user_key, cue.key, firer.now());
    Ok(())
}

/// Call it before a change replaces `next_run`: these runs can no longer be fired afterwards. Returns their number.
pub fn record_overdue_as_missed(tx: &WriteTx<'_>, cue: &Cue, now: Timestamp) -> Result<i64> {
    let (Some(next_run), Ok(schedule)) = (cue.next_run, cue.fields.schedule.read()) else {
        return Ok(0);
    };
    let before = just_before(next_run);
    let missed = schedule.occurrences(before, now);
    due_cues::insert_missed(tx, cue.user_key, cue.key, missed, MissReason::Downtime, now)?;
    events::missed(tx, cue.user_key, cue.key, missed, MissReason::Downtime, now);
    let count = i64::try_from(missed.count).unwrap_or(i64::MAX);
    if count > 0 {
        due_cues::add_missed_count(tx, cue.key, count)?;
    }
    Ok(count)
}

/// A cancelled execution is no failure of the cue: no streak grows, and no notification is sent.
pub fn cancel_queued(tx: &WriteTx<'_>, execution: &Execution, now: Timestamp) -> Result<()> {
    if !delivery_queue::fail_queued(tx, execution.key, CANCELLED, None, now)? {
        return Err(Error::fault(format!("the waiting execution {} is in no queue", execution.id)));
    }
    events::execution(tx, EventType::ExecutionCancelled, execution.user_key, execution.key, now);
    tx.counters().add_to_hour(
        execution.user_key,
        now,
        &Figures { failed: 1, ..Figures::default() },
    );
    overlap::after_end(tx, execution.key, now)?;
    if execution.triggered_by == Trigger::Schedule {
        end_once_cue(tx, execution.cue_key, execution.scheduled_for, false, now)?;
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq)]
pub struct RecordedOutcome {
    pub outcome: Outcome,
    pub state: OutcomeState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportedBy {
    /// A request of its own. It is refused if its texts exceed the storage of the plan.
    Request,
    /// It cannot be refused any more: without room for its texts, success or failure alone is recorded.
    Response,
}

/// Only the first report counts. Errors: `outcome_already_reported`, and `storage_limit_exceeded` for a request.
pub fn record_outcome(
    tx: &WriteTx<'_>,
    details: &ExecutionDetails,
    mut outcome: Outcome,
    by: ReportedBy,
    firer: &CueFirer,
) -> Result<RecordedOutcome> {
    let ExecutionDetails { execution, verification, .. } = details;
    let (key, user_key, now) = (execution.key, execution.user_key, firer.now());
    let (before, ..) = users::stored_bytes(tx, user_key)?;
    if !executions::insert_outcome(tx, key, &outcome)? {
        let message = "An outcome has already been reported";
        return Err(Refusal::new(ErrorCode::OutcomeAlreadyReported, message).into());
    }
    if let Some(refusal) = users::storage_refusal(tx, firer.plans(), user_key, before, 0)? {
        match by {
            ReportedBy::Request => return Err(refusal.into()),
            ReportedBy::Response => {
                outcome.report = outcome.report.without_texts();
                executions::replace_outcome(tx, key, &outcome)?;
            }
        }
    }
    let success = outcome.report.success;
    users::record_outcome(tx, user_key, success, now)?;
    let status = after_outcome(execution.is_worker, execution.status, success);
    if execution.is_worker {
        executions::complete_execution(tx, key, status, &outcome)?;
    }
    // A report after the claim expired for good must not count as a second failure.
    if status != execution.status {
        on_execution_finished(tx, &FinishedExecution::new(execution, success, now), firer)?;
    }
    let state = after_report(*verification, success, &outcome.report.evidence);
    let recorded = RecordedOutcome { outcome, state };
    set_outcome_state(tx, execution, *verification, &recorded, now)?;
    events::execution(tx, EventType::ExecutionOutcome, user_key, key, now);
    Ok(recorded)
}

/// `execution` has the state before this change. Every change goes through here, so the alert is raised in one place.
pub fn set_outcome_state(
    tx: &WriteTx<'_>,
    execution: &Execution,
    mode: VerificationMode,
    recorded: &RecordedOutcome,
    now: Timestamp,
) -> Result<()> {
    executions::set_outcome_state(tx, execution.key, recorded.state, now)?;
    let failed = OutcomeState::VerificationFailed;
    if recorded.state == failed && execution.outcome_state != Some(failed) {
        let reason = failure_reason(mode, recorded.outcome.verdict.as_ref());
        let alert = |cue_name: &str| NewAlert::verification_failed(cue_name, &reason);
        notify::raise_alert(tx, execution.key, alert, now)?;
    }
    Ok(())
}

/// Returns `false` and changes nothing if the execution was deleted or is no longer in this attempt. No other attempt
/// follows if the account is disabled.
pub fn record_attempt(tx: &WriteTx<'_>, attempt: &AttemptRecord, firer: &CueFirer) -> Result<bool> {
    let given_up;
    let attempt = if attempt.is_retried() && users::is_disabled(tx, attempt.attempt_ref.user_key)? {
        given_up = AttemptRecord { next: NextStep::Failed, ..attempt.clone() };
        &given_up
    } else {
        attempt
    };
    if !delivery_queue::record(tx, attempt, firer.now())? {
        return Ok(false);
    }
    if attempt.is_retried() {
        let AttemptRef { user_key, key, .. } = attempt.attempt_ref;
        count_retry(tx, user_key, firer.now());
        events::execution(tx, EventType::ExecutionRetrying, user_key, key, firer.now());
        return Ok(true);
    }
    let attempt_ref = &attempt.attempt_ref;
    let timing = AttemptTiming { started_at: attempt_ref.started_at, took: attempt.duration };
    let finished = FinishedExecution {
        key: attempt_ref.key,
        user_key: attempt_ref.user_key,
        cue_key: attempt_ref.cue_key,
        scheduled_for: attempt_ref.scheduled_for,
        by_schedule: attempt_ref.by_schedule,
        success: attempt.next == NextStep::Success,
        timing: Some(timing),
        failed_before: None,
    };
    if attempt.has_outcome_deadline && finished.success && attempt.outcome.is_none() {
        let schedule = policies::expect_outcome(tx, attempt_ref.key, firer.now())?;
        tx.wake(WakeSet { schedule, ..WakeSet::default() });
    }
    on_execution_finished(tx, &finished, firer)?;
    // The outcome that the response reports, unless one was reported during the delivery.
    if let Some(outcome) = &attempt.outcome
        && let Some(details) = executions::find(tx, attempt_ref.user_key, attempt_ref.id)?
        && details.outcome.is_none()
    {
        let outcome = Outcome { recorded_at: firer.now(), ..outcome.clone() };
        record_outcome(tx, &details, outcome, ReportedBy::Response, firer)?;
    }
    Ok(true)
}

/// Fires as many runs as one write may fire. Call it while the old plan still applies.
pub fn fire_overdue_above_limit(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    limit: Option<u32>,
    firer: &CueFirer,
) -> Result<()> {
    let Some(limit) = limit else { return Ok(()) };
    let mut runs = 0;
    for key in cues::overdue_above_limit(tx, user_key, limit, firer.now())? {
        if runs >= MAX_OVERDUE_RUNS {
            break;
        }
        if let Some(cue) = cues::find_by_key(tx, key)? {
            runs += firer.fire_overdue(tx, &cue)?;
        }
    }
    Ok(())
}

/// Records overdue runs of recurring cues as missed. A due `once` cue stays active. Returns the number of paused cues.
pub fn pause_above_limit(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    limit: Option<u32>,
    now: Timestamp,
) -> Result<usize> {
    let Some(limit) = limit else { return Ok(0) };
    for key in cues::overdue_above_limit(tx, user_key, limit, now)? {
        if let Some(cue) = cues::find_by_key(tx, key)? {
            record_overdue_as_missed(tx, &cue, now)?;
        }
    }
    let paused = cues::pause_above_limit(tx, user_key, limit, now)?;
    for key in &paused {
        events::cue(tx, EventType::CuePaused, user_key, *key, now);
        channels::announce_pause(
            tx,
            user_key,
            *key,
            "because more cues were active than the plan allows",
            now,
        )?;
    }
    Ok(paused.len())
}
