//! Workers, and executions that no worker claims: an alert, and failure after the limit of the cue (contract §7.6).

use jiff::{SignedDuration, Timestamp};

use crate::app::App;
use crate::domain::api_error::ErrorCode;
use crate::domain::execution::worker::{ALERT_INTERVAL, DEAD_AFTER, UnclaimedStep, unclaimed_step};
use crate::domain::notification::alert::{AlertType, MAX_COUNTED_WAITING, MAX_KEPT, NewAlert};
use crate::domain::row_keys::UserKey;
use crate::domain::time::{saturating_add, saturating_sub};
use crate::error::{Error, Result};
use crate::service::events;
use crate::service::finish::{FinishedExecution, on_execution_finished};
use crate::service::fire::CueFirer;
use crate::service::notify::raise_alert;
use crate::store::executions::claims::{self, UnclaimedExecution};
use crate::store::executions::workers;
use crate::store::{Pending, WriteTx, alerts, cues};

/// At the limit of workers the oldest dead one gives way. Refused with `worker_limit_exceeded` if none is dead.
pub fn record_heartbeat(
    app: &App,
    user_key: UserKey,
    worker_id: String,
    handlers: String,
) -> Pending<Timestamp> {
    let (now, limit) = (app.clock.now(), app.config.plans.max_workers());
    app.store.write_for(user_key, move |tx| {
        events::worker_seen(tx, user_key, &worker_id, now)?;
        if workers::record_heartbeat(tx, user_key, &worker_id, &handlers, now)? {
            return Ok(now);
        }
        if let Some(limit) = limit
            && workers::has_at_least(tx, user_key, limit)?
            && !workers::delete_oldest(tx, user_key, saturating_sub(now, DEAD_AFTER))?
        {
            let message = format!(
                "The account has {limit} workers that are alive, which is the limit: let workers keep their worker_id \
                 across restarts, or remove one"
            );
            return Err(Error::refused(ErrorCode::WorkerLimitExceeded, message));
        }
        workers::insert(tx, user_key, &worker_id, &handlers, now)?;
        Ok(now)
    })
}

/// Removes a worker of the user. Its claims last until their leases expire. Refused with `worker_not_found`.
pub fn remove(app: &App, user_key: UserKey, worker_id: String) -> Pending<()> {
    app.store.write_for(user_key, move |tx| {
        if workers::delete(tx, user_key, &worker_id)? {
            Ok(())
        } else {
            Err(Error::refused(ErrorCode::WorkerNotFound, "Worker not found"))
        }
    })
}

/// Returns whether there may be more.
pub fn check_unclaimed(tx: &WriteTx<'_>, firer: &CueFirer, limit: usize) -> Result<bool> {
    let due = claims::list_due(tx, firer.now(), limit)?;
    for execution in &due {
        check_one(tx, execution, firer)?;
    }
    Ok(due.len() == limit)
}

fn check_one(tx: &WriteTx<'_>, execution: &UnclaimedExecution, firer: &CueFirer) -> Result<()> {
    let (key, cue_key, now) = (execution.key, execution.cue_key, firer.now());
    if execution.is_deleted {
        return claims::set_check(tx, key, None);
    }
    let within =
        execution.claim_within_minutes.map(|minutes| SignedDuration::from_mins(minutes.into()));
    let last_alert = alerts::newest_of_cue(tx, cue_key, AlertType::Unclaimed, now)?;
    let due_again =
        execution.due_again.filter(|again| *again <= now && *again > execution.scheduled_for);
    match unclaimed_step(execution.claimable_since, due_again, within, last_alert, now) {
        UnclaimedStep::Fail => fail_one(tx, execution, firer),
        UnclaimedStep::Wait(at) => claims::set_check(tx, key, at),
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
            claims::set_check(tx, key, Some(at.map_or(later, |at| at.min(later))))
        }
        UnclaimedStep::Alert(at) => {
            let pending = now.duration_since(execution.claimable_since).as_mins();
            let waiting = claims::count_waiting(tx, cue_key, MAX_COUNTED_WAITING)?;
            let held_up = if due_again.is_some() { held_up(tx, execution, now)? } else { None };
            let task = execution.task.as_deref();
            let alert = |name: &str| NewAlert::unclaimed(name, pending, waiting, task, held_up);
            raise_alert(tx, key, alert, now)?;
            claims::set_check(tx, key, at)
        }
    }
}

/// The number of instants at which the cue was due since the execution, and the first of them.
fn held_up(
    tx: &WriteTx<'_>,
    execution: &UnclaimedExecution,
    now: Timestamp,
) -> Result<Option<(u64, Timestamp)>> {
    let cue = cues::find_by_key(tx, execution.cue_key)?;
    let schedule = cue.and_then(|cue| cue.fields.schedule.read().ok());
    let later =
        schedule.map_or(0, |schedule| schedule.occurrences(execution.scheduled_for, now).count);
    Ok((later > 0).then_some((later + 1, execution.scheduled_for)))
}

fn fail_one(tx: &WriteTx<'_>, execution: &UnclaimedExecution, firer: &CueFirer) -> Result<()> {
    if !claims::fail_unclaimed(tx, execution.key, firer.now())? {
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
