//! An ended execution → its cue: a `once` cue ends with its only run, a failure lengthens the cue's streak, and causes
//! the alert, the notifications and the pause that are due (contract §6).

use jiff::Timestamp;

use crate::domain::cue::after_only_run;
use crate::domain::execution::{Execution, NextStep, Trigger};
use crate::domain::notification::alert::{FAILURES_IN_A_ROW, NewAlert};
use crate::error::Result;
use crate::lifecycle::alerts::raise_about;
use crate::lifecycle::notify::{mail_failure, post_failure};
use crate::lifecycle::pause::pause;
use crate::store::executions::delivery_queue;
use crate::store::executions::delivery_queue::AttemptRecord;
use crate::store::notifications::on_failure;
use crate::store::{WriteTx, cues};

/// How an execution has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// It succeeded, which ends the cue's failure streak.
    Succeeded,
    /// Its last attempt failed, its worker reported a failure, or its last claim expired.
    Failed,
    /// It failed before the first attempt: the quota was used up. Usage shows that, so it neither counts as a failure in
    /// a row nor causes a notification.
    NotAttempted,
}

/// An execution that has ended, and whose end is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinishedExecution {
    /// Its row.
    pub key: i64,
    /// The row of its cue.
    pub cue_key: i64,
    /// The instant at which it was due.
    pub scheduled_for: Timestamp,
    /// Whether the schedule created it. A run started by hand does not end a `once` cue.
    pub by_schedule: bool,
    /// How it has ended.
    pub finish: Finish,
}

impl FinishedExecution {
    /// An execution that ended as a success or a failure.
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

/// Records a delivery attempt and, if it was the last one, the consequences. Returns `false` if the execution is gone or
/// no longer in this attempt; nothing is changed then.
pub fn record_attempt(tx: &WriteTx<'_>, attempt: &AttemptRecord, now: Timestamp) -> Result<bool> {
    if !delivery_queue::record(tx, attempt, now)? {
        return Ok(false);
    }
    let finish = match attempt.next {
        NextStep::Success => Finish::Succeeded,
        NextStep::Failed => Finish::Failed,
        NextStep::RetryAt(_) => return Ok(true),
    };
    let ticket = &attempt.attempt_ref;
    let finished = FinishedExecution {
        key: ticket.key,
        cue_key: ticket.cue_key,
        scheduled_for: ticket.scheduled_for,
        by_schedule: ticket.by_schedule,
        finish,
    };
    on_execution_finished(tx, &finished, now)?;
    Ok(true)
}

/// Applies the consequences of an execution's end, which must be stored already. Every end of an execution passes here,
/// except when a whole account is disabled: that pauses its cues itself, and the operator knows of it.
pub fn on_execution_finished(tx: &WriteTx<'_>, finished: &FinishedExecution, now: Timestamp) -> Result<()> {
    if finished.by_schedule {
        end_once(tx, finished, now)?;
    }
    match finished.finish {
        Finish::Succeeded => on_failure::delete_streak(tx, finished.cue_key),
        Finish::Failed => after_failure(tx, finished.key, now),
        Finish::NotAttempted => Ok(()),
    }
}

/// Ends a `once` cue whose only run has ended; leaves every other cue as it is.
fn end_once(tx: &WriteTx<'_>, finished: &FinishedExecution, now: Timestamp) -> Result<()> {
    let Some(cue) = cues::find_once(tx, finished.cue_key)? else { return Ok(()) };
    let success = finished.finish == Finish::Succeeded;
    match after_only_run(cue.at, cue.is_due, finished.scheduled_for, success) {
        Some(status) => cues::end_once(tx, finished.cue_key, &cue, status, now),
        None => Ok(()),
    }
}

/// Counts the failure of the execution in row `key`, raises an alert if it is one too many in a row, stores the
/// notifications that the cue asks for, and pauses the cue if it asks for that. Does nothing for a disabled user.
fn after_failure(tx: &WriteTx<'_>, key: i64, now: Timestamp) -> Result<()> {
    let Some(failed) = on_failure::find_failed(tx, key)? else { return Ok(()) };
    let cue_key = failed.subject.cue_key;
    let failures = on_failure::increment_streak(tx, cue_key)?;
    if failures >= FAILURES_IN_A_ROW {
        raise_about(tx, &failed.subject, &NewAlert::ConsecutiveFailures { failures }, now)?;
    }
    if let Some(url) = &failed.webhook {
        post_failure(tx, &failed, url, now)?;
    }
    if failed.email {
        mail_failure(tx, &failed, now)?;
    }
    if failed.pause { pause(tx, cue_key, now) } else { Ok(()) }
}
