//! A pause, and the runs that a cue was due for and has not fired when its next instant is taken away.

use jiff::Timestamp;

use crate::domain::cue::Cue;
use crate::domain::schedule::catch_up::MissReason;
use crate::domain::time::just_before;
use crate::error::Result;
use crate::store::cues::{due_cues, pauses};
use crate::store::{WriteTx, cues};

/// Pauses the cue in row `cue_key`; runs that are overdue are recorded as missed.
pub(super) fn pause(tx: &WriteTx<'_>, cue_key: i64, now: Timestamp) -> Result<()> {
    let Some(cue) = cues::find_by_key(tx, cue_key)? else { return Ok(()) };
    record_overdue_as_missed(tx, &cue, now)?;
    pauses::pause(tx, &cue, now)
}

/// Records the runs that `cue` was due for until `now` and has not fired as missed: the server was too late for them.
/// Called before a change takes its `next_run` away. Returns the number of runs.
pub fn record_overdue_as_missed(tx: &WriteTx<'_>, cue: &Cue, now: Timestamp) -> Result<i64> {
    let (Some(due), Ok(schedule)) = (cue.next_run, cue.schedule.read()) else { return Ok(0) };
    let before = just_before(due);
    let missed = schedule.occurrences(before, now);
    due_cues::insert_missed(tx, cue.key, missed, MissReason::Downtime)?;
    let count = i64::try_from(missed.count).unwrap_or(i64::MAX);
    if count > 0 {
        due_cues::add_missed_count(tx, cue.key, count)?;
    }
    Ok(count)
}
