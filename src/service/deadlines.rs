//! Deadlines: the next of all, executions that reach their maximum age, and outcomes that nobody has reported in time
//! (contract §4.16).

use jiff::Timestamp;

use crate::domain::cue_fields::expired_message;
use crate::domain::execution::attempt::FailureCause;
use crate::domain::notification::event::EventType;
use crate::error::Result;
use crate::service::events;
use crate::service::finish::{FinishedExecution, on_execution_finished, on_missing_outcome};
use crate::service::fire::CueFirer;
use crate::store::accounts::users;
use crate::store::cues::due_cues;
use crate::store::db::meta;
use crate::store::executions::policies::{self, ExpiredExecution};
use crate::store::executions::{claims, delivery_queue};
use crate::store::{ReadTx, WriteTx};

/// The next instant at which the scheduler has to do with a cue, an execution or a claim. Nothing fires by schedule
/// before `seen`; unclaimed executions are not checked before `checks_from`.
pub fn next(
    read: &ReadTx<'_>,
    seen: Timestamp,
    checks_from: Timestamp,
) -> Result<Option<Timestamp>> {
    let instants = [
        due_cues::next(read)?.map(|next| next.max(seen)),
        delivery_queue::next_due_at(read)?,
        policies::next_deadline(read)?,
        claims::next_end(read)?,
        next_check(read, checks_from)?,
    ];
    Ok(instants.into_iter().flatten().min())
}

/// The next instant at which an execution that no worker has claimed is looked at.
pub fn next_check(read: &ReadTx<'_>, from: Timestamp) -> Result<Option<Timestamp>> {
    Ok(claims::next_check(read)?.map(|next| next.max(from)))
}

/// Handled in one transaction. Each takes several statements, and other writes wait for the batch.
const BATCH: usize = 200;

/// Returns whether there may be more. Call it before a claim: what has expired is not tried again.
pub fn fail_expired(tx: &WriteTx<'_>, firer: &CueFirer) -> Result<bool> {
    let expired = policies::list_expired(tx, firer.now(), BATCH)?;
    if expired.is_empty() || meta::is_held(tx)? {
        return Ok(false);
    }
    // The end of one may have fired another that is as old.
    let mut may_have_more = expired.len() == BATCH;
    for execution in &expired {
        may_have_more |= fail(tx, execution, firer)?;
    }
    Ok(may_have_more)
}

/// Returns false if it does not wait: an attempt is under way.
fn fail(tx: &WriteTx<'_>, expired: &ExpiredExecution, firer: &CueFirer) -> Result<bool> {
    let ExpiredExecution { execution, is_deleted, max_age_seconds } = expired;
    let message = expired_message(*max_age_seconds, execution.error_message.as_deref());
    let cause = Some(FailureCause::Expired);
    if *is_deleted || !delivery_queue::fail_queued(tx, execution.key, &message, cause, firer.now())?
    {
        policies::ignore_expiry(tx, execution.key)?;
        return Ok(false);
    }
    on_execution_finished(tx, &FinishedExecution::new(execution, false, firer.now()), firer)?;
    Ok(true)
}

/// Returns whether there may be more.
pub fn miss_outcomes(tx: &WriteTx<'_>, firer: &CueFirer) -> Result<bool> {
    let now = firer.now();
    let overdue = policies::list_overdue_outcomes(tx, now, BATCH)?;
    for outcome in &overdue {
        policies::miss_outcome(tx, outcome.key, now)?;
        events::execution(tx, EventType::ExecutionOutcome, outcome.user_key, outcome.key, now);
        // It was due at once, and nobody could have reported it.
        if !users::is_disabled(tx, outcome.user_key)? {
            on_missing_outcome(tx, outcome.key, outcome.deadline_seconds, firer)?;
        }
    }
    Ok(overdue.len() == BATCH)
}
