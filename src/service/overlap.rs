//! `overlap` of a cue (contract §4.16): which of its scheduled runs are skipped, which one waits, and what starts it.

use jiff::Timestamp;

use crate::domain::execution::policies::Overlap;
use crate::domain::schedule::Occurrences;
use crate::domain::schedule::catch_up::FirePlan;
use crate::error::Result;
use crate::store::WriteTx;
use crate::store::cues::due_cues::DueCue;
use crate::store::executions::{delivery_queue, policies};

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
    let is_waiting = policies::buffered(tx, cue.key)?.is_some();
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
pub fn after_end(tx: &WriteTx<'_>, key: i64, now: Timestamp) -> Result<()> {
    policies::end(tx, key)?.map_or(Ok(()), |cue_key| start_waiting_if_free(tx, cue_key, now))
}

/// A worker that has lost its claim frees the way.
pub fn after_lost_claim(tx: &WriteTx<'_>, key: i64, now: Timestamp) -> Result<()> {
    policies::unblock(tx, key)?.map_or(Ok(()), |cue_key| start_waiting_if_free(tx, cue_key, now))
}

/// The cue no longer holds up its runs.
pub fn start_waiting(tx: &WriteTx<'_>, cue_key: i64, now: Timestamp) -> Result<()> {
    match policies::buffered(tx, cue_key)? {
        Some(key) => delivery_queue::release(tx, key, now).map(drop),
        None => Ok(()),
    }
}

fn start_waiting_if_free(tx: &WriteTx<'_>, cue_key: i64, now: Timestamp) -> Result<()> {
    if policies::is_running(tx, cue_key, now)? { Ok(()) } else { start_waiting(tx, cue_key, now) }
}
