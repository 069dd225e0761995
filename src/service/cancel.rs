//! Cancels a queued execution by request (contract §5.4).

use jiff::Timestamp;

use crate::domain::account::figures::Figures;
use crate::domain::execution::queue_change::CANCELLED;
use crate::domain::execution::{Execution, Trigger};
use crate::domain::notification::event::EventType;
use crate::error::{Error, Result};
use crate::service::events;
use crate::service::once::end_once_cue;
use crate::store::WriteTx;
use crate::store::executions::queue_changes;

/// Fails a queued execution as cancelled, and ends the `once` cue whose run it is. It is no failure of the cue: no streak
/// grows, and nobody is notified.
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
