//! The consequences of a finished execution: a `once` cue ends with its only run; a failure lengthens the cue's failure
//! streak and may cause an alert, notifications and a pause (contract §4.2, §6.8, §6.9). Also the ends that users ask
//! for: a pause, and a cancelled execution (§5.4).

use jiff::{SignedDuration, Timestamp};

use crate::domain::account::figures::{Figures, whole_millis};
use crate::domain::cue::Cue;
use crate::domain::execution::{CANCELLED, Execution, ExecutionStatus, Trigger};
use crate::domain::notification::alert::{ALERT_THRESHOLD, NewAlert};
use crate::domain::notification::event::EventType;
use crate::domain::schedule::catch_up::MissReason;
use crate::domain::time::just_before;
use crate::error::{Error, Result};
use crate::service::fire::{CueFirer, end_once_cue};
use crate::service::notify::{mail_failure, post_failure};
use crate::service::{alerts, events};
use crate::store::WriteTx;
use crate::store::cues::{self, due_cues, pauses};
use crate::store::executions::queue_changes;
use crate::store::notifications::on_failure;

/// A finished execution, already stored as such.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinishedExecution {
    pub key: i64,
    pub user_key: i64,
    pub cue_key: i64,
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
            timing: times
                .map(|(started_at, last)| AttemptTiming { started_at, took: now.duration_since(last) }),
            failed_before: execution.status.is_over().then_some(execution.updated_at),
        }
    }
}

/// Applies the consequences of a finished execution, which must be stored as finished. Every finished execution goes
/// through this function, with three exceptions. When an account is disabled, its cues are paused as well, and the
/// operator who does it needs no notification. An execution above the quota only ends a `once` cue, because the usage
/// shows why it failed, and so does a cancelled one, because its user wanted it. `firer` fires a run that is due before
/// the cue is paused.
pub fn on_execution_finished(tx: &WriteTx<'_>, finished: &FinishedExecution, firer: &CueFirer) -> Result<()> {
    let success = finished.success;
    count_end(tx, finished, firer.now());
    let event_type = if success { EventType::ExecutionSucceeded } else { EventType::ExecutionFailed };
    events::execution(tx, event_type, finished.user_key, finished.key, firer.now());
    if finished.by_schedule {
        end_once_cue(tx, finished.cue_key, finished.scheduled_for, success, firer.now())?;
    }
    if success {
        on_failure::delete_streak(tx, finished.cue_key)
    } else {
        after_failure(tx, finished.key, firer)
    }
}

/// Counts an attempt that another one follows, after a delivery or a lost claim.
pub fn count_retry(tx: &WriteTx<'_>, user_key: i64, now: Timestamp) {
    tx.counters().add_to_hour(user_key, now, &Figures { retried: 1, ..Figures::default() });
}

/// Counts an execution that ended. Executions above the quota and those of a disabled account, which end elsewhere, are
/// counted by the store.
fn count_end(tx: &WriteTx<'_>, finished: &FinishedExecution, now: Timestamp) {
    let success = finished.success;
    let mut end =
        Figures { succeeded: i64::from(success), failed: i64::from(!success), ..Figures::default() };
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

/// Adds the failed execution in row `key` to the failure streak, raises an alert if the streak is long enough, and
/// applies the cue's `on_failure` settings. Does nothing for a disabled user.
fn after_failure(tx: &WriteTx<'_>, key: i64, firer: &CueFirer) -> Result<()> {
    let now = firer.now();
    let Some(failed) = on_failure::find_failed(tx, key)? else { return Ok(()) };
    let cue_key = failed.subject.cue_key;
    let failures = on_failure::increment_streak(tx, cue_key)?;
    if failures >= ALERT_THRESHOLD {
        alerts::raise_for(tx, &failed.subject, &NewAlert::ConsecutiveFailures { failures }, now)?;
    }
    if let Some(url) = &failed.webhook {
        post_failure(tx, &failed, url, now)?;
    }
    if failed.email {
        mail_failure(tx, &failed, now)?;
    }
    if failed.pause { pause(tx, cue_key, firer) } else { Ok(()) }
}

/// Pauses the cue in row `cue_key`. A run that is due fires first; runs that cannot be fired are recorded as missed.
pub(super) fn pause(tx: &WriteTx<'_>, cue_key: i64, firer: &CueFirer) -> Result<()> {
    let Some(mut cue) = cues::find_by_key(tx, cue_key)? else { return Ok(()) };
    if firer.fire_overdue(tx, &cue)? > 0
        && let Some(fired) = cues::find_by_key(tx, cue_key)?
    {
        cue = fired;
    }
    record_overdue_as_missed(tx, &cue, firer.now())?;
    pauses::pause(tx, &cue, firer.now())?;
    events::cue(tx, EventType::CuePaused, cue.user_key, cue.key, firer.now());
    Ok(())
}

/// Records the runs of `cue` that are overdue at `now` as missed, and returns their number. Call it before a change
/// replaces `next_run`, because these runs can no longer be fired afterwards.
pub fn record_overdue_as_missed(tx: &WriteTx<'_>, cue: &Cue, now: Timestamp) -> Result<i64> {
    let (Some(next_run), Ok(schedule)) = (cue.next_run, cue.schedule.read()) else { return Ok(0) };
    let before = just_before(next_run);
    let missed = schedule.occurrences(before, now);
    due_cues::insert_missed(tx, (cue.user_key, cue.key), missed, MissReason::Downtime, now)?;
    events::missed(tx, cue.user_key, cue.key, missed, MissReason::Downtime, now);
    let count = i64::try_from(missed.count).unwrap_or(i64::MAX);
    if count > 0 {
        due_cues::add_missed_count(tx, cue.key, count)?;
    }
    Ok(count)
}

/// Fails a queued execution as cancelled, and ends the `once` cue whose run it is. It is no failure of the cue: no streak
/// grows, and no notification is sent.
pub fn cancel_queued(tx: &WriteTx<'_>, execution: &Execution, now: Timestamp) -> Result<()> {
    if !queue_changes::cancel(tx, execution.key, CANCELLED, now)? {
        return Err(Error::fault(format!("the waiting execution {} is in no queue", execution.id)));
    }
    events::execution(tx, EventType::ExecutionCancelled, execution.user_key, execution.key, now);
    tx.counters().add_to_hour(execution.user_key, now, &Figures { failed: 1, ..Figures::default() });
    if execution.triggered_by == Trigger::Schedule {
        end_once_cue(tx, execution.cue_key, execution.scheduled_for, false, now)?;
    }
    Ok(())
}
