//! Due cues → executions and `next_run`. [`Scheduler::run_once`] is one pass; the waiting is in the engine's loop.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::app::App;
use crate::domain::account::plan::Plans;
use crate::domain::cue::retention::Retention;
use crate::domain::schedule::catch_up::{MissReason, Outage, jumped};
use crate::engine::delivery::delivery_service::DispatchHandle;
use crate::engine::scheduler::scheduler_thread::caught;
use crate::error::Result;
use crate::metrics::engine::SchedulerPass;
use crate::random::ExecutionIdSource;
use crate::store::WriteTx;
use crate::store::accounts::usage;
use crate::store::cues::due_cues;
use crate::store::cues::fire::{CueFirer, plan};
use crate::store::db::{hold, meta};

/// Cues fired in one transaction: larger ones are no faster and hold up other writes.
const BATCH: usize = 500;

/// The scheduler between two passes.
pub struct Scheduler {
    /// The newest instant that this file has seen; before it nothing fires by schedule (contract §4).
    seen: Timestamp,
    /// The time in which nothing could fire; cues still due from it catch up.
    gap: Outage,
    wall: Timestamp,
    monotonic: Duration,
    /// Whether the file was held when it was last looked at.
    is_held: bool,
}

/// What a pass did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FireSummary {
    /// Cues that were due.
    pub cues: usize,
    /// Executions that were made of them.
    pub executions: usize,
}

impl Scheduler {
    /// The scheduler of a server that starts now: what was due before was missed while it was down.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn start(app: &App) -> Result<Self> {
        let now = app.clock.now();
        let seen = app.store.read_blocking(meta::last_seen)?;
        let seen = seen.unwrap_or(now);
        app.engine_stats.record_last_seen(seen);
        if now < seen {
            tracing::warn!(
                "the clock stands at {now}, but this file has seen {seen}: nothing fires by schedule before then; \
                 set the clock right, or give a new --db if the file was used with --test-clock"
            );
        }
        let held_since = app.store.read_blocking(hold::held_since)?;
        if let Some(since) = held_since {
            tracing::warn!(
                "this file is a copy that was made at {since} and is held: all of it is shown, and nothing is fired, \
                 sent or claimed until `cued promote --db {}`",
                app.config.db.display()
            );
        }
        Ok(Self {
            seen,
            gap: Outage::before(now, MissReason::Downtime),
            wall: now,
            monotonic: app.clock.monotonic(),
            is_held: held_since.is_some(),
        })
    }

    /// A pass over a file that is held: nothing fires.
    pub fn rest(&mut self, app: &App) {
        self.is_held = true;
        let ended = app.clock.monotonic();
        app.engine_stats.record_pass(SchedulerPass {
            last_run: Some(app.clock.now()),
            ended,
            ..SchedulerPass::default()
        });
    }

    /// Looks at the clock, then fires what is due, batch by batch, until nothing is.
    ///
    /// # Errors
    /// When the file cannot be read or written; what was not fired is fired by the next pass.
    pub fn run_once(&mut self, app: &App) -> Result<FireSummary> {
        self.run_once_at(app, None)
    }

    /// As [`Scheduler::run_once`]; what it fires is taken up at `desk`.
    pub(in crate::engine) fn run_once_at(
        &mut self,
        app: &App,
        desk: Option<&DispatchHandle>,
    ) -> Result<FireSummary> {
        let (now, begun) = (app.clock.now(), app.clock.monotonic());
        if std::mem::take(&mut self.is_held) {
            // Nobody fired in the meantime, whether or not this process ran.
            tracing::info!("the file was promoted: what was due while it was held catches up");
            (self.gap, self.wall, self.monotonic) = (Outage::before(now, MissReason::Downtime), now, begun);
        }
        self.look_at_the_clock(app, now);
        app.record_outage(self.gap);
        let mut fired = FireSummary::default();
        while now >= self.seen && app.store.read_blocking(due_cues::next)?.is_some_and(|next| next <= now) {
            let batch = fire_batch(app, desk, now, self.gap)?;
            fired.cues += batch.cues;
            fired.executions += batch.executions;
            // At once: a fault may end the pass before the next batch.
            app.engine_stats.add_fired(u64::try_from(batch.executions).unwrap_or(u64::MAX));
            app.engine_stats.heartbeat(app.clock.monotonic());
        }
        self.seen = self.seen.max(now);
        app.engine_stats.record_last_seen(self.seen);
        let ended = app.clock.monotonic();
        app.engine_stats.record_pass(SchedulerPass {
            last_run: Some(now),
            ended,
            cues: fired.cues,
            took: ended - begun,
        });
        Ok(fired)
    }

    /// The next instant at which a cue is due; none while the clock stands before what the file has seen.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn deadline(&self, app: &App) -> Result<Option<Timestamp>> {
        let next = app.store.read_blocking(due_cues::next)?;
        Ok(next.map(|next| next.max(self.seen)))
    }

    fn look_at_the_clock(&mut self, app: &App, now: Timestamp) {
        let monotonic = app.clock.monotonic();
        let real = SignedDuration::try_from(monotonic - self.monotonic).unwrap_or(SignedDuration::MAX);
        // A test clock is moved on purpose, instant by instant: what it passes fires.
        if !app.clock.is_test() && jumped(now.duration_since(self.wall), real) {
            tracing::warn!("the wall clock jumped from {} to {now}: missed runs catch up", self.wall);
            self.gap = Outage::before(now, MissReason::Clock);
        } else if self.wall < self.seen && self.seen <= now {
            // What came due while the clock was behind could not fire either.
            self.gap = Outage::before(now, MissReason::Clock);
        }
        if now < self.seen && self.wall >= self.seen {
            tracing::warn!(
                "the wall clock went back to {now}: nothing fires by schedule before {}",
                self.seen
            );
        }
        (self.wall, self.monotonic) = (now, monotonic);
    }
}

fn fire_batch(app: &App, desk: Option<&DispatchHandle>, now: Timestamp, gap: Outage) -> Result<FireSummary> {
    let (ids, plans, retention) = (Arc::clone(&app.ids), app.config.plans.clone(), app.config.retention);
    let fire = move |tx: &WriteTx<'_>| fire_due(tx, &ids, &plans, &retention, now, gap);
    match desk {
        Some(desk) => desk.write(app, fire),
        None => app.store.write(fire).wait(),
    }
}

fn fire_due(
    tx: &WriteTx<'_>,
    ids: &ExecutionIdSource,
    plans: &Plans,
    retention: &Retention,
    now: Timestamp,
    gap: Outage,
) -> Result<FireSummary> {
    let due_cues = due_cues::list(tx, now, BATCH)?;
    let mut fired = FireSummary { cues: due_cues.len(), executions: 0 };
    // One look per user and batch: a herd of one user is one row.
    let mut quotas = BTreeMap::new();
    let firing = CueFirer { retention, next_id: &|| ids.next(now), now };
    for (key, cue) in due_cues {
        // A panic would take the whole batch along, and again at every pass.
        let planned = cue.map_err(|error| error.to_string()).and_then(|cue| {
            let step = caught(|| Ok(plan(&cue, Some(gap))))
                .unwrap_or_else(|_| Err("The schedule cannot be computed: a fault inside cued".to_owned()))?;
            Ok((cue, step))
        });
        let (cue, step) = match planned {
            Ok(planned) => planned,
            Err(reason) => {
                due_cues::fail_cue(tx, key, &reason, now)?;
                continue;
            }
        };
        let quota = match quotas.entry(cue.user_key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(usage::quota(tx, plans, cue.user_key, now)?),
        };
        let Some(quota) = quota else {
            due_cues::fail_cue(tx, key, "The account is disabled", now)?;
            continue;
        };
        firing.fire(tx, &cue, &step, Some(gap), quota)?;
        fired.executions += step.runs.len();
    }
    for (user_key, quota) in quotas {
        quota.map_or(Ok(()), |quota| usage::save_quota(tx, user_key, &quota, now))?;
    }
    meta::saw(tx, now)?;
    Ok(fired)
}
