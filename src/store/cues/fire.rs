//! A due cue → its executions, its missed runs and its next instant: for the scheduler, and for a change that comes
//! before it.

use jiff::Timestamp;

use crate::domain::account::quota::{LIMIT_EXCEEDED, Quota};
use crate::domain::cue::ScheduleSpec;
use crate::domain::cue::retention::Retention;
use crate::domain::execution::{NewExecution, Trigger};
use crate::domain::ids::ExecutionId;
use crate::domain::schedule::catch_up::{FirePlan, MissReason, Outage, fire_plan};
use crate::error::Result;
use crate::store::cues::due_cues;
use crate::store::cues::due_cues::DueCue;
use crate::store::db::write_stats::WriteEvent;
use crate::store::maintenance::retention;
use crate::store::{WakeSet, WriteTx, cues, executions};

/// What a due cue does, or why it cannot go on, in words for its owner.
///
/// # Errors
/// The schedule cannot be computed, or is not due at any later instant.
pub fn plan(cue: &DueCue, gap: Option<Outage>) -> std::result::Result<FirePlan, String> {
    let schedule =
        cue.schedule.read().map_err(|error| format!("The schedule cannot be computed: {error}"))?;
    let step = fire_plan(&schedule, cue.next_run, gap);
    if step.next_run.is_none() && matches!(cue.schedule.when, ScheduleSpec::Recurring(_)) {
        return Err("The schedule is not due at any later instant".to_owned());
    }
    Ok(step)
}

/// How cues are fired at an instant.
pub struct CueFirer<'a> {
    /// How much history is kept of each.
    pub retention: &'a Retention,
    /// Where ids come from.
    pub next_id: &'a dyn Fn() -> Result<ExecutionId>,
    /// The present.
    pub now: Timestamp,
}

impl CueFirer<'_> {
    /// Makes the executions of `step`, accounts for what it leaves out, and moves the cue on; runs are taken from
    /// `quota`, which the caller stores.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn fire(
        &self,
        tx: &WriteTx<'_>,
        cue: &DueCue,
        step: &FirePlan,
        gap: Option<Outage>,
        quota: &mut Quota,
    ) -> Result<()> {
        let reason = gap.map_or(MissReason::Downtime, |gap| gap.reason);
        due_cues::insert_missed(tx, cue.key, step.missed, reason)?;
        due_cues::advance(tx, cue.key, step.next_run, step.runs.len(), step.missed.count, self.now)?;
        retention::note_runs(tx, self.retention, cue.key, cue.run_count, step.runs.len())?;
        for run in &step.runs {
            self.make(tx, &execution(cue, *run, (self.next_id)()?, self.now), quota)?;
        }
        Ok(())
    }

    /// Stores a run; one that the quota forbids is over at once, and so is the `once` cue whose only run it was.
    fn make(&self, tx: &WriteTx<'_>, new: &NewExecution, quota: &mut Quota) -> Result<()> {
        if quota.try_use(self.now) {
            executions::insert(tx, new)?;
            // Who waits for the other kind is left asleep.
            tx.ring(WakeSet { send: !new.is_worker, claim: new.is_worker, ..WakeSet::default() });
        } else {
            executions::insert_failed(tx, new, LIMIT_EXCEEDED)?;
            tx.count(WriteEvent::OverQuota, 1);
            cues::end_once(tx, new.cue_key, new.scheduled_for, false, self.now)?;
        }
        Ok(())
    }
}

fn execution(cue: &DueCue, run: Timestamp, id: ExecutionId, now: Timestamp) -> NewExecution {
    NewExecution {
        id,
        cue_key: cue.key,
        user_key: cue.user_key,
        is_worker: cue.is_worker,
        lane: cue.lane,
        task: cue.task.clone(),
        agent: cue.agent.clone(),
        scheduled_for: run,
        triggered_by: Trigger::Schedule,
        payload_key: cue.payload_key,
        now,
    }
}
