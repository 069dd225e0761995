//! `overlap` of a cue (contract §4.16): which of its scheduled runs are skipped, which one waits, and what starts it.

use jiff::Timestamp;

use crate::domain::cue_fields::Overlap;
use crate::domain::row_keys::{CueKey, ExecutionKey};
use crate::domain::schedule::Occurrences;
use crate::domain::schedule::catch_up::FirePlan;
use crate::error::Result;
use crate::store::WriteTx;
use crate::store::cues::due_cues::DueCue;
use crate::store::executions::{claims, delivery_queue, policies};

/// Takes the runs that may not become executions out of the plan, and returns them.
pub fn skip_overlapping(
    tx: &WriteTx<'_>,
    cue: &DueCue,
    fire_plan: &mut FirePlan,
    now: Timestamp,
) -> Result<Occurrences> {
    if cue.policies.overlap == Overlap::Allow || fire_plan.runs.is_empty() {
        return Ok(Occurrences::default());
    }
    start_waiting_if_free(tx, cue.key, now)?;
    let is_running = policies::is_running(tx, cue.key, now)?;
    if is_running && cue.is_worker {
        claims::check_again(tx, cue.key)?;
    }
    // One that has lost its claim waits as soon as another run starts.
    let is_waiting = policies::buffered(tx, cue.key)?.is_some()
        || (!is_running && policies::has_lost(tx, cue.key)?);
    let free = cue.policies.free_runs(is_running, is_waiting);
    let skipped = fire_plan.runs.split_off(free.min(fire_plan.runs.len()));
    let count = u64::try_from(skipped.len()).unwrap_or(u64::MAX);
    Ok(Occurrences { first: skipped.first().copied(), last: skipped.last().copied(), count })
}

/// Returns whether a run that is created now waits for the earlier ones.
pub fn must_wait(tx: &WriteTx<'_>, cue: &DueCue, now: Timestamp) -> Result<bool> {
    Ok(cue.policies.overlap == Overlap::BufferOne && policies::is_running(tx, cue.key, now)?)
}

/// After the end of an execution: the one that waits for it starts.
pub fn after_end(tx: &WriteTx<'_>, key: ExecutionKey, now: Timestamp) -> Result<()> {
    policies::end(tx, key)?.map_or(Ok(()), |cue_key| start_waiting_if_free(tx, cue_key, now))
}

/// The cue no longer holds up its runs.
pub fn start_waiting(tx: &WriteTx<'_>, cue_key: CueKey, now: Timestamp) -> Result<()> {
    while let Some(key) = policies::buffered(tx, cue_key)? {
        delivery_queue::release(tx, key, now)?;
    }
    Ok(())
}

/// Call it after the end of an execution and after a lost claim, which frees the way: the one that waits starts, and
/// those that have lost their claims wait for its end, so that no two workers hold runs of the cue.
pub fn start_waiting_if_free(tx: &WriteTx<'_>, cue_key: CueKey, now: Timestamp) -> Result<()> {
    if policies::is_running(tx, cue_key, now)? {
        return Ok(());
    }
    let Some(key) = policies::buffered(tx, cue_key)? else { return Ok(()) };
    policies::hold_lost(tx, cue_key, now)?;
    delivery_queue::release(tx, key, now).map(drop)
}
