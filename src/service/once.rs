//! Ends a `once` cue with its only run (contract §4.2).

use jiff::Timestamp;

use crate::domain::cue::{CueStatus, after_only_run};
use crate::domain::notification::event::EventType;
use crate::error::Result;
use crate::service::events;
use crate::store::{WriteTx, cues};

/// Ends the `once` cue in row `cue_key` after its scheduled execution of `scheduled_for` has finished. Leaves every
/// other cue unchanged.
pub(super) fn end_once_cue(
    tx: &WriteTx<'_>,
    cue_key: i64,
    scheduled_for: Timestamp,
    success: bool,
    now: Timestamp,
) -> Result<()> {
    let Some(cue) = cues::find_once(tx, cue_key)? else { return Ok(()) };
    match after_only_run(cue.at, cue.is_due, scheduled_for, success) {
        Some(status) => {
            cues::end_once(tx, cue_key, &cue, status, now)?;
            let has_failed = status == CueStatus::Failed;
            let event_type = if has_failed { EventType::CueFailed } else { EventType::CueCompleted };
            events::cue_of(tx, event_type, cue_key, now)
        }
        None => Ok(()),
    }
}
