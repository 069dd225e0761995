//! The consequences of a finished execution: a `once` cue ends with its only run; a failure lengthens the cue's failure
//! streak and may cause an alert, notifications and a pause (contract §4.2, §6.8, §6.9).

use jiff::{SignedDuration, Timestamp};

use crate::domain::account::figures::{Figures, whole_millis};
use crate::domain::execution::{Execution, ExecutionStatus, Trigger};
use crate::domain::notification::alert::{ALERT_THRESHOLD, NewAlert};
use crate::domain::notification::event::EventType;
use crate::error::Result;
use crate::service::alerts;
use crate::service::events;
use crate::service::fire::CueFirer;
use crate::service::notify::{mail_failure, post_failure};
use crate::service::once::end_once_cue;
use crate::service::pause::pause;
use crate::store::WriteTx;
use crate::store::notifications::on_failure;

/// The result of a finished execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// Ends the cue's failure streak.
    Succeeded,
    /// The last attempt failed, the worker reported a failure, or the last claim expired.
    Failed,
}

/// A finished execution, already stored as such.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinishedExecution {
    pub key: i64,
    pub user_key: i64,
    pub cue_key: i64,
    pub scheduled_for: Timestamp,
    /// True if the schedule created it. A manual run does not end a `once` cue.
    pub by_schedule: bool,
    pub finish: Finish,
    /// The times of the attempt that ended it; `None` if none was under way.
    pub timing: Option<AttemptTiming>,
    /// When it had failed before, if a late report of its worker turns the failure into a success.
    pub failed_before: Option<Timestamp>,
}

/// The times of an execution that ended with an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptTiming {
    /// The start of the first attempt.
    pub started_at: Timestamp,
    /// The duration of the last one.
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
            finish: if success { Finish::Succeeded } else { Finish::Failed },
            timing: times
                .map(|(started_at, last)| AttemptTiming { started_at, took: now.duration_since(last) }),
            failed_before: execution.status.is_over().then_some(execution.updated_at),
        }
    }
}

/// Applies the consequences of a finished execution, which must be stored as finished. Every finished execution goes
/// through this function, with three exceptions. When an account is disabled, its cues are paused as well, and the
/// operator who does it needs no notification. An execution above the quota only ends a `once` cue, because the usage
/// shows why it failed, and so does a cancelled one, because its user wanted it. `firer` fires a run that is due before the cue is paused.
pub fn on_execution_finished(tx: &WriteTx<'_>, finished: &FinishedExecution, firer: &CueFirer) -> Result<()> {
    let success = finished.finish == Finish::Succeeded;
    count_end(tx, finished, firer.now());
    let event_type = if success { EventType::ExecutionSucceeded } else { EventType::ExecutionFailed };
    events::execution(tx, event_type, finished.user_key, finished.key, firer.now());
    if finished.by_schedule {
        end_once_cue(tx, finished.cue_key, finished.scheduled_for, success, firer.now())?;
    }
    match finished.finish {
        Finish::Succeeded => on_failure::delete_streak(tx, finished.cue_key),
        Finish::Failed => after_failure(tx, finished.key, firer),
    }
}

/// Counts an attempt that another one follows, after a delivery or a lost claim.
pub fn count_retry(tx: &WriteTx<'_>, user_key: i64, now: Timestamp) {
    tx.counters().add_to_hour(user_key, now, &Figures { retried: 1, ..Figures::default() });
}

/// Counts an execution that ended. Executions above the quota and those of a disabled account, which end elsewhere, are
/// counted by the store.
fn count_end(tx: &WriteTx<'_>, finished: &FinishedExecution, now: Timestamp) {
    let success = finished.finish == Finish::Succeeded;
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
