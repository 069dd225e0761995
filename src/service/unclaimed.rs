//! Executions that no worker claims: the user gets an alert, and those that wait longer than their cue allows fail
//! (contract §7.6).

use jiff::SignedDuration;

use crate::domain::execution::worker::{ALERT_INTERVAL, UnclaimedStep, unclaimed_step};
use crate::domain::notification::alert::{AlertType, MAX_COUNTED_WAITING, MAX_KEPT, NewAlert};
use crate::domain::time::{saturating_add, saturating_sub};
use crate::error::Result;
use crate::service::alerts::raise;
use crate::service::finish::{FinishedExecution, on_execution_finished};
use crate::service::fire::CueFirer;
use crate::store::WriteTx;
use crate::store::executions::unclaimed::{self, UnclaimedExecution};
use crate::store::notifications::alerts;

/// Checks the claimable executions that are due for it, longest due first, at most `limit`. Once there are fewer, the
/// next part of a cue whose limit has changed becomes due. Returns whether there may be more.
pub fn check_due(tx: &WriteTx<'_>, firer: &CueFirer, limit: usize) -> Result<bool> {
    let due = unclaimed::list_due(tx, firer.now(), limit)?;
    for execution in &due {
        check(tx, execution, firer)?;
    }
    Ok(due.len() == limit || unclaimed::continue_recheck(tx)?)
}

fn check(tx: &WriteTx<'_>, execution: &UnclaimedExecution, firer: &CueFirer) -> Result<()> {
    let (key, cue_key, now) = (execution.key, execution.cue_key, firer.now());
    if execution.is_deleted {
        return unclaimed::set_check(tx, key, None);
    }
    let within = execution.claim_within_minutes.map(|minutes| SignedDuration::from_mins(minutes.into()));
    let last_alert = alerts::newest_of_cue(tx, cue_key, AlertType::Unclaimed, now)?;
    match unclaimed_step(execution.claimable_since, within, last_alert, now) {
        UnclaimedStep::Fail => fail(tx, execution, firer),
        UnclaimedStep::Wait(at) => unclaimed::set_check(tx, key, at),
        // The alert of this cue within the hour may have been deleted as surplus.
        UnclaimedStep::Alert(at)
            if alerts::has_more_since(
                tx,
                execution.user_key,
                saturating_sub(now, ALERT_INTERVAL),
                MAX_KEPT - 1,
            )? =>
        {
            let later = saturating_add(now, ALERT_INTERVAL);
            unclaimed::set_check(tx, key, Some(at.map_or(later, |at| at.min(later))))
        }
        UnclaimedStep::Alert(at) => {
            let pending = now.duration_since(execution.claimable_since).as_mins();
            let waiting = unclaimed::count_waiting(tx, cue_key, MAX_COUNTED_WAITING)?;
            let task = execution.task.clone();
            raise(tx, key, &NewAlert::Unclaimed { pending_minutes: pending, waiting, task }, now)?;
            unclaimed::set_check(tx, key, at)
        }
    }
}

fn fail(tx: &WriteTx<'_>, execution: &UnclaimedExecution, firer: &CueFirer) -> Result<()> {
    if !unclaimed::fail(tx, execution.key, firer.now())? {
        return Ok(());
    }
    let finished = FinishedExecution {
        key: execution.key,
        user_key: execution.user_key,
        cue_key: execution.cue_key,
        scheduled_for: execution.scheduled_for,
        by_schedule: execution.by_schedule,
        success: false,
        timing: None,
        failed_before: None,
    };
    on_execution_finished(tx, &finished, firer)
}
