//! The consequences of a finished execution: a `once` cue ends with its only run; a failure lengthens the cue's failure
//! streak and may cause an alert, notifications and a pause (contract §4.2, §6.8, §6.9).

use jiff::Timestamp;

use crate::domain::execution::{Execution, NextStep, Trigger};
use crate::domain::notification::alert::{ALERT_THRESHOLD, NewAlert};
use crate::error::Result;
use crate::lifecycle::alerts;
use crate::lifecycle::fire::CueFirer;
use crate::lifecycle::notify::{mail_failure, post_failure};
use crate::lifecycle::once::end_once_cue;
use crate::lifecycle::pause::pause;
use crate::store::WriteTx;
use crate::store::executions::delivery_queue;
use crate::store::executions::delivery_queue::AttemptRecord;
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
    pub cue_key: i64,
    pub scheduled_for: Timestamp,
    /// True if the schedule created it. A manual run does not end a `once` cue.
    pub by_schedule: bool,
    pub finish: Finish,
}

impl FinishedExecution {
    #[must_use]
    pub fn new(execution: &Execution, success: bool) -> Self {
        Self {
            key: execution.key,
            cue_key: execution.cue_key,
            scheduled_for: execution.scheduled_for,
            by_schedule: execution.triggered_by == Trigger::Schedule,
            finish: if success { Finish::Succeeded } else { Finish::Failed },
        }
    }
}

/// Records a delivery attempt and, if it was the last one, applies the consequences. Returns `false` and changes
/// nothing if the execution was deleted or is no longer in this attempt.
pub fn record_attempt(tx: &WriteTx<'_>, attempt: &AttemptRecord, firer: &CueFirer) -> Result<bool> {
    if !delivery_queue::record(tx, attempt, firer.now())? {
        return Ok(false);
    }
    let finish = match attempt.next {
        NextStep::Success => Finish::Succeeded,
        NextStep::Failed => Finish::Failed,
        NextStep::RetryAt(_) => return Ok(true),
    };
    let attempt_ref = &attempt.attempt_ref;
    let finished = FinishedExecution {
        key: attempt_ref.key,
        cue_key: attempt_ref.cue_key,
        scheduled_for: attempt_ref.scheduled_for,
        by_schedule: attempt_ref.by_schedule,
        finish,
    };
    on_execution_finished(tx, &finished, firer)?;
    Ok(true)
}

/// Applies the consequences of a finished execution, which must be stored as finished. Every finished execution goes
/// through this function, with three exceptions. When an account is disabled, its cues are paused as well, and the
/// operator who does it needs no notification. An execution above the quota only ends a `once` cue, because the usage
/// shows why it failed, and so does a cancelled one, because its user wanted it. `firer` fires a run that is due before the cue is paused.
pub fn on_execution_finished(tx: &WriteTx<'_>, finished: &FinishedExecution, firer: &CueFirer) -> Result<()> {
    let success = finished.finish == Finish::Succeeded;
    if finished.by_schedule {
        end_once_cue(tx, finished.cue_key, finished.scheduled_for, success, firer.now())?;
    }
    match finished.finish {
        Finish::Succeeded => on_failure::delete_streak(tx, finished.cue_key),
        Finish::Failed => after_failure(tx, finished.key, firer),
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
