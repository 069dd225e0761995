//! Pauses a cue after its due run has fired, and records overdue runs that cannot be fired as missed.

use jiff::Timestamp;

use crate::domain::cue::Cue;
use crate::domain::notification::event::EventType;
use crate::domain::schedule::catch_up::MissReason;
use crate::domain::time::just_before;
use crate::error::Result;
use crate::service::events;
use crate::service::fire::CueFirer;
use crate::store::cues::{due_cues, pauses};
use crate::store::{WriteTx, cues};

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
