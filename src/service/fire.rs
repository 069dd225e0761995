//! Fires due cues, in batches; a change to a cue first fires the runs that are already due.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use jiff::Timestamp;

use crate::app::App;
use crate::domain::account::plan::{LIMIT_EXCEEDED, Plans, Quota};
use crate::domain::cue::retention::Retention;
use crate::domain::cue::{Cue, CueStatus, ScheduleSpec, after_only_run};
use crate::domain::execution::{NewExecution, Trigger};
use crate::domain::ids::ExecutionId;
use crate::domain::notification::event::EventType;
use crate::domain::row_keys::{CueKey, UserKey};
use crate::domain::schedule::catch_up::{
    CaughtUp, FirePlan, MissReason, Outage, fire_plan, outage_at,
};
use crate::error::Result;
use crate::service::{events, notify, overlap};
use crate::store::accounts::users;
use crate::store::cues::due_cues::{self, DueCue};
use crate::store::db::counters::WriteEvent;
use crate::store::db::meta;
use crate::store::executions::{self, claims, policies};
use crate::store::{ReadTx, WakeSet, WriteTx, cues};
use crate::system::panics;
use crate::system::random::ExecutionIdSource;

/// Runs that a change fires at most before it applies (contract §4.12). Only a test clock leaves more for one cue.
pub(super) const MAX_OVERDUE_RUNS: usize = 500;

#[derive(Debug)]
pub struct CueFirer {
    ids: Arc<ExecutionIdSource>,
    plans: Plans,
    retention: Retention,
    outage: Option<Outage>,
    /// The latest time at which the scheduler ran. Nothing fires by schedule before it (contract §4.12).
    last_seen: Timestamp,
    /// True if the clock is a test clock. Moving a test clock is deliberate, so the skipped time is not an outage.
    is_test: bool,
    now: Timestamp,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FireSummary {
    pub cues: usize,
    pub executions: usize,
    pub caught_up: BTreeMap<UserKey, CaughtUp>,
}

impl FireSummary {
    pub fn add(&mut self, other: &Self) {
        self.cues += other.cues;
        self.executions += other.executions;
        for (user_key, caught_up) in &other.caught_up {
            self.add_caught_up(*user_key, *caught_up);
        }
    }

    fn add_caught_up(&mut self, user_key: UserKey, caught_up: CaughtUp) {
        let sum = self.caught_up.entry(user_key);
        sum.and_modify(|sum| *sum = sum.and(caught_up)).or_insert(caught_up);
    }
}

impl CueFirer {
    pub fn new(app: &App, now: Timestamp) -> Self {
        Self {
            ids: Arc::clone(&app.ids),
            plans: app.config.plans.clone(),
            retention: app.config.retention,
            outage: app.outage(),
            last_seen: app.engine_stats.last_seen(),
            is_test: app.clock.is_test(),
            now,
        }
    }

    /// A firer for a command that changes the file beside the server. Errors: the file cannot be read.
    pub fn for_command(read: &ReadTx<'_>, plans: &Plans, now: Timestamp) -> Result<Self> {
        // A run that is late by over a minute is fired like one after an outage, so no recorded outage is needed.
        let last_seen = meta::last_seen(read)?.unwrap_or(Timestamp::MIN);
        let (ids, plans, retention) = (Arc::default(), plans.clone(), Retention::default());
        Ok(Self { ids, plans, retention, outage: None, last_seen, is_test: false, now })
    }

    pub fn now(&self) -> Timestamp {
        self.now
    }

    pub(super) fn next_id(&self) -> Result<ExecutionId> {
        self.ids.next(self.now)
    }

    pub fn plans(&self) -> &Plans {
        &self.plans
    }

    /// Fires cues due after `outage` (of these only `turns`, if any), then those it has missed. At most `limit` cues
    /// and executions, at least one cue. A cue that cannot be fired becomes `failed`, so that it does not hold up the
    /// others.
    pub fn fire_due(
        &self,
        tx: &WriteTx<'_>,
        outage: Outage,
        turns: &[CueKey],
        limit: usize,
    ) -> Result<FireSummary> {
        let mut due = match turns {
            [] => due_cues::list(tx, outage.until, self.now, limit)?,
            turns => {
                due_cues::find_all(tx, &turns[..limit.min(turns.len())], outage.until, self.now)?
            }
        };
        let missed_until = outage.until.min(self.now);
        due.extend(due_cues::list(tx, Timestamp::MIN, missed_until, limit - due.len())?);
        let mut fired = FireSummary::default();
        // The quota is read once per user and batch, because many due cues often belong to one user.
        let mut quotas = BTreeMap::new();
        let mut planned = Vec::new();
        for (key, cue) in due {
            let (cue, mut fire_plan) =
                match cue.map_err(|error| error.to_string()).and_then(|cue| {
                    let fire_plan = guarded_plan(&cue, outage)?;
                    Ok((cue, fire_plan))
                }) {
                    Ok(planned) => planned,
                    Err(reason) => {
                        due_cues::fail_cue(tx, key, &reason, self.now)?;
                        events::cue_of(tx, EventType::CueFailed, key, self.now)?;
                        fired.cues += 1;
                        continue;
                    }
                };
            // The next transaction fires this cue and the others, with all of their runs.
            if fired.executions > 0 && fired.executions + fire_plan.runs.len() > limit {
                break;
            }
            fired.cues += 1;
            let quota = match quotas.entry(cue.user_key) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    new.insert(users::quota(tx, &self.plans, cue.user_key, self.now)?)
                }
            };
            if quota.is_none() {
                due_cues::fail_cue(tx, key, "The account is disabled", self.now)?;
                events::cue(tx, EventType::CueFailed, cue.user_key, key, self.now);
                continue;
            }
            skip_fired_ahead(tx, &cue, &mut fire_plan)?;
            self.advance(tx, &cue, &mut fire_plan, Some(outage))?;
            fired.executions += fire_plan.runs.len();
            if let Some(caught_up) = CaughtUp::from_runs(&fire_plan.runs, outage) {
                fired.add_caught_up(cue.user_key, caught_up);
            }
            planned.push((cue, fire_plan.runs));
        }
        self.create_all(tx, &planned, outage, &mut quotas)?;
        for (user_key, caught_up) in &fired.caught_up {
            notify::add_caught_up(tx, *user_key, outage, *caught_up, self.now)?;
        }
        for (user_key, quota) in quotas {
            let Some(quota) = quota else { continue };
            events::quota(tx, user_key, &quota, self.now)?;
            users::save_quota(tx, user_key, &quota, self.now)?;
        }
        meta::record_last_seen(tx, self.now)?;
        Ok(fired)
    }

    /// Call it before a change replaces `next_run`. Returns the number of runs; a gap of missed runs counts as one. A
    /// cue that cannot be fired now, and runs above `MAX_OVERDUE_RUNS`, stay: the caller records them as missed.
    pub fn fire_overdue(&self, tx: &WriteTx<'_>, cue: &Cue) -> Result<usize> {
        let now = self.now;
        if cue.next_run.is_none_or(|next_run| next_run > now)
            || now < self.last_seen
            || meta::is_held(tx)?
        {
            return Ok(0);
        }
        let Some(mut quota) = users::quota(tx, &self.plans, cue.user_key, now)? else {
            return Ok(0);
        };
        let mut runs = 0;
        while let Some(due) = due_cues::find(tx, cue.key, now)? {
            let outage =
                if self.is_test { self.outage } else { outage_at(self.outage, due.next_run, now) };
            let Ok(mut fire_plan) = plan(&due, outage) else { break };
            if runs + fire_plan.runs.len() > MAX_OVERDUE_RUNS {
                break;
            }
            skip_fired_ahead(tx, &due, &mut fire_plan)?;
            self.advance(tx, &due, &mut fire_plan, outage)?;
            for run in &fire_plan.runs {
                self.create(tx, &due, *run, outage, &mut quota)?;
            }
            if let Some(outage) = outage
                && let Some(caught_up) = CaughtUp::from_runs(&fire_plan.runs, outage)
            {
                notify::add_caught_up(tx, cue.user_key, outage, caught_up, now)?;
            }
            // A plan without runs only records missed ones. It counts as well: the cue has changed.
            runs += fire_plan.runs.len().max(1);
        }
        if runs > 0 {
            events::quota(tx, cue.user_key, &quota, now)?;
            users::save_quota(tx, cue.user_key, &quota, now)?;
            meta::record_last_seen(tx, now)?;
        }
        Ok(runs)
    }

    /// Moves the cue to its next run. The runs that `overlap` skips leave the plan.
    fn advance(
        &self,
        tx: &WriteTx<'_>,
        cue: &DueCue,
        fire_plan: &mut FirePlan,
        outage: Option<Outage>,
    ) -> Result<()> {
        let skipped = overlap::skip_overlapping(tx, cue, fire_plan, self.now)?;
        let reason = outage.map_or(MissReason::Downtime, |outage| outage.reason);
        for (missed, reason) in [(fire_plan.missed, reason), (skipped, MissReason::Overlap)] {
            due_cues::insert_missed(tx, cue.user_key, cue.key, missed, reason, self.now)?;
            events::missed(tx, cue.user_key, cue.key, missed, reason, self.now);
        }
        let missed = fire_plan.missed.count + skipped.count;
        due_cues::advance(tx, cue.key, fire_plan.next_run, fire_plan.runs.len(), missed, self.now)?;
        match (&cue.schedule.when, fire_plan.next_run, skipped.first) {
            (ScheduleSpec::Once(_), _, Some(run)) => {
                end_once_cue(tx, cue.key, run, false, self.now)?
            }
            (ScheduleSpec::Once(_), _, None) | (_, Some(_), _) => {}
            (_, None, _) => {
                due_cues::complete(tx, cue.user_key, cue.key, self.now)?;
                events::cue_of(tx, EventType::CueCompleted, cue.key, self.now)?;
            }
        }
        self.queue_retention_if_due(tx, cue.key, cue.run_count, fire_plan.runs.len())
    }

    /// After `runs` more runs than the `before` it had. [`Retention`] decides how often.
    pub(super) fn queue_retention_if_due(
        &self,
        tx: &WriteTx<'_>,
        cue_key: CueKey,
        before: i64,
        runs: usize,
    ) -> Result<()> {
        let after = before.saturating_add(i64::try_from(runs).unwrap_or(i64::MAX));
        if self.retention.is_sweep_due(cue_key, before, after) {
            cues::queue_for_retention(tx, cue_key)
        } else {
            Ok(())
        }
    }

    /// Oldest first over all cues, because a destination gets them in the order of their creation.
    fn create_all(
        &self,
        tx: &WriteTx<'_>,
        planned: &[(DueCue, Vec<Timestamp>)],
        outage: Outage,
        quotas: &mut BTreeMap<UserKey, Option<Quota>>,
    ) -> Result<()> {
        let mut runs = Vec::new();
        for (cue, due) in planned {
            runs.extend(due.iter().map(|run| (*run, cue)));
        }
        runs.sort_by_key(|(run, _)| *run);
        for (run, cue) in runs {
            if let Some(Some(quota)) = quotas.get_mut(&cue.user_key) {
                self.create(tx, cue, run, Some(outage), quota)?;
            }
        }
        Ok(())
    }

    /// The caller stores `quota`. If it is used up, the execution fails at once.
    fn create(
        &self,
        tx: &WriteTx<'_>,
        cue: &DueCue,
        run: Timestamp,
        outage: Option<Outage>,
        quota: &mut Quota,
    ) -> Result<()> {
        let is_catch_up = outage.is_some_and(|outage| run <= outage.until);
        let is_buffered = overlap::must_wait(tx, cue, self.now)?;
        let new = NewExecution {
            is_buffered,
            ..new_execution(cue, run, self.next_id()?, is_catch_up, self.now)
        };
        if quota.try_use(self.now) {
            if !is_buffered {
                policies::hold_lost(tx, cue.key, self.now)?;
            }
            return enqueue(tx, &new);
        }
        let key = executions::insert_failed(tx, &new, LIMIT_EXCEEDED)?;
        events::execution(tx, EventType::ExecutionCreated, new.user_key, key, self.now);
        events::execution(tx, EventType::ExecutionFailed, new.user_key, key, self.now);
        tx.count(WriteEvent::OverQuota, 1);
        end_once_cue(tx, new.cue_key, new.scheduled_for, false, self.now)
    }
}

/// Inserts an execution and wakes whoever handles it.
pub fn enqueue(tx: &WriteTx<'_>, new: &NewExecution) -> Result<()> {
    let key = executions::insert(tx, new)?;
    events::execution(tx, EventType::ExecutionCreated, new.user_key, key, new.now);
    let is_ready = new.scheduled_for <= new.now && !new.is_buffered;
    let next_step = match (is_ready, new.is_worker) {
        (true, true) => claims::check_at(tx, key)?,
        (true, false) => None,
        (false, _) => Some(new.scheduled_for).filter(|_| !new.is_buffered),
    };
    let schedule = next_step.into_iter().chain(new.policies.expires_at(new.scheduled_for)).min();
    tx.wake(WakeSet {
        schedule,
        send: is_ready && !new.is_worker,
        claim: is_ready && new.is_worker,
        ..WakeSet::default()
    });
    Ok(())
}

/// Like [`plan`], but returns a panic as an error. A panic would abort the whole batch, again in every pass.
fn guarded_plan(cue: &DueCue, outage: Outage) -> std::result::Result<FirePlan, String> {
    panics::catch("the plan of a cue", || Ok(plan(cue, Some(outage))))
        .unwrap_or_else(|_| Err("The schedule cannot be computed: a fault inside cued".to_owned()))
}

fn plan(cue: &DueCue, outage: Option<Outage>) -> std::result::Result<FirePlan, String> {
    let schedule =
        cue.schedule.read().map_err(|error| format!("The schedule cannot be computed: {error}"))?;
    let fire_plan = fire_plan(&schedule, cue.next_run, outage);
    let recurs = !matches!(cue.schedule.when, ScheduleSpec::Once(_));
    if fire_plan.next_run.is_none() && recurs && schedule.bounds.end.is_none() {
        return Err("The schedule has no later run".to_owned());
    }
    Ok(fire_plan)
}

fn skip_fired_ahead(tx: &WriteTx<'_>, cue: &DueCue, fire_plan: &mut FirePlan) -> Result<()> {
    if !due_cues::has_fired_ahead(tx)? {
        return Ok(());
    }
    let runs = std::mem::take(&mut fire_plan.runs);
    for run in runs {
        if !due_cues::is_fired_ahead(tx, cue.key, run)? {
            fire_plan.runs.push(run);
        }
    }
    due_cues::forget_fired_ahead(tx, cue.key, fire_plan.next_run.unwrap_or(Timestamp::MAX))
}

fn new_execution(
    cue: &DueCue,
    run: Timestamp,
    id: ExecutionId,
    is_catch_up: bool,
    now: Timestamp,
) -> NewExecution {
    NewExecution {
        id,
        cue_key: cue.key,
        user_key: cue.user_key,
        is_worker: cue.is_worker,
        destination: cue.destination,
        task: cue.task.clone(),
        agent: cue.agent.clone(),
        scheduled_for: run,
        triggered_by: Trigger::Schedule,
        payload_key: cue.payload_key,
        replayed_from: None,
        is_catch_up,
        is_buffered: false,
        policies: cue.policies,
        now,
    }
}

/// Ends a `once` cue (contract §4.2) after its only scheduled execution. Leaves every other cue unchanged.
pub(super) fn end_once_cue(
    tx: &WriteTx<'_>,
    cue_key: CueKey,
    scheduled_for: Timestamp,
    success: bool,
    now: Timestamp,
) -> Result<()> {
    let Some(cue) = due_cues::find_once(tx, cue_key)? else { return Ok(()) };
    match after_only_run(cue.at, cue.is_due, scheduled_for, success) {
        Some(status) => {
            due_cues::end_once(tx, cue_key, &cue, status, now)?;
            let has_failed = status == CueStatus::Failed;
            let event_type =
                if has_failed { EventType::CueFailed } else { EventType::CueCompleted };
            events::cue_of(tx, event_type, cue_key, now)
        }
        None => Ok(()),
    }
}
