//! The scheduler's thread: one pass over all work that is due, then a wait until the next is. Fires due cues (`pass`),
//! releases expired claims and removes old rows (`reaper`, `retention_sweeper`), and reports changes of the database and of
//! the clock: to the event streams at once (contract §8.13), and a clock that stays behind by an alert to every account with
//! an active cue.

pub mod pass;
pub mod reaper;
pub mod retention_sweeper;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;

use crate::app::App;
use crate::domain::cue::retention::SETTLING_TIME;
use crate::domain::notification::event::{Event, ServerChange};
use crate::domain::schedule::wall_clock::{ClockFault, PROOF_TIME};
use crate::engine::delivery::dispatcher::{DispatchHandle, promote_batch};
use crate::engine::scheduler::pass::Scheduler;
use crate::engine::scheduler::reaper::Cleanup;
use crate::engine::scheduler::retention_sweeper::{RetentionSweeper, SweepOutcome};
use crate::engine::{AFTER_FAULT, EngineThread};
use crate::error::{Error, Result};
use crate::panics;
use crate::service::alerts;
use crate::store::WriteTx;
use crate::store::db::hold;
use crate::store::executions::delivery_queue;

/// Accounts that an alert is raised to in one transaction.
const BATCH: u32 = 500;

/// Starts the thread. Executions that it creates are claimed through `deliveries` in the same write.
pub(in crate::engine) fn start(app: &Arc<App>, deliveries: Arc<DispatchHandle>) -> Result<EngineThread> {
    let mut tasks = Tasks {
        scheduler: Scheduler::start(app)?,
        sweeper: RetentionSweeper::default(),
        cleanup: Cleanup::default(),
        server_watch: ServerWatch::default(),
        clock_alert: ClockAlert::default(),
    };
    let app = Arc::clone(app);
    let run = move |stopping: &AtomicBool| run(&app, &mut tasks, &deliveries, stopping);
    EngineThread::start("scheduler", Arc::default(), run)
        .map_err(|error| Error::fault_from("the scheduler cannot start", error))
}

/// The tasks of the thread, with their state between two passes.
struct Tasks {
    scheduler: Scheduler,
    sweeper: RetentionSweeper,
    cleanup: Cleanup,
    server_watch: ServerWatch,
    clock_alert: ClockAlert,
}

fn run(app: &App, tasks: &mut Tasks, deliveries: &DispatchHandle, stop: &AtomicBool) {
    // While the sweeper has more to do, the pass counts as one: a test clock moves on only after its end.
    let mut pass = None;
    while !stop.load(Ordering::SeqCst) {
        let seen = app.notifiers.schedule.generation();
        app.notifiers.set_next_wakeup(None);
        app.engine_stats.heartbeat(app.clock.monotonic());
        pass.get_or_insert_with(|| app.engine_stats.begin_pass(&app.notifiers.progress));
        app.store.probe_disk();
        match panics::catch("the scheduler", || run_once(app, tasks, deliveries, stop)) {
            Ok(SweepOutcome::Again) => {}
            Ok(SweepOutcome::At(deadline)) => {
                pass = None;
                app.notifiers.set_next_wakeup(deadline);
                app.clock.wait(&app.notifiers.schedule, seen, deadline);
            }
            Err(error) => {
                pass = None;
                tracing::error!(%error, "scheduler pass failed; retrying in 1 s");
                app.clock.sleep(AFTER_FAULT);
            }
        }
    }
}

/// One pass over all work that is due. Returns the instant of the next. On a database on hold nothing is ever due.
fn run_once(
    app: &App,
    tasks: &mut Tasks,
    deliveries: &DispatchHandle,
    stop: &AtomicBool,
) -> Result<SweepOutcome> {
    let Tasks { scheduler, sweeper, cleanup, server_watch, clock_alert } = tasks;
    let is_held = app.store.read_blocking(hold::is_held)?;
    server_watch.look(app, is_held);
    if is_held {
        scheduler.record_held_pass(app);
        return Ok(SweepOutcome::At(None));
    }
    // Waiting executions fall due while a backlog of cues is fired, and the other way round.
    let goes_on = || !stop.load(Ordering::SeqCst);
    scheduler.run_once_at(app, Some(deliveries), || promote_batch(app).map(|_| goes_on()))?;
    clock_alert.raise_if_due(app)?;
    if goes_on() && promote_batch(app)? > 0 {
        return Ok(SweepOutcome::Again);
    }
    let now = app.clock.now();
    let settled = sweeper.settled_for(app);
    if reaper::run_once(app, now, settled)? || (settled >= SETTLING_TIME && cleanup.run_if_due(app)?) {
        return Ok(SweepOutcome::Again);
    }
    let SweepOutcome::At(sweep) = sweeper.run_once(app)? else { return Ok(SweepOutcome::Again) };
    let waiting = app.store.read_blocking(delivery_queue::next_due_at)?;
    let (claim_end, expiry) = (reaper::next(&app.store)?, reaper::next_expiry(&app.store, now)?);
    let deadlines = [scheduler.deadline(app)?, waiting, claim_end, reaper::next_look(app)?, expiry, sweep];
    Ok(SweepOutcome::At(deadlines.into_iter().flatten().min()))
}

/// The state at the last look.
#[derive(Debug, Default)]
pub struct ServerWatch {
    last: Option<ServerState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ServerState {
    is_writable: bool,
    is_damaged: bool,
    is_held: bool,
    clock: ServerChange,
}

impl ServerWatch {
    /// Looks at the state, which is known but for the hold. The first look reports nothing.
    pub fn look(&mut self, app: &App, is_held: bool) {
        let now = ServerState {
            is_writable: app.store.is_writable(),
            is_damaged: app.store.is_corrupt(),
            is_held,
            clock: match app.clock_fault() {
                None => ServerChange::ClockRight,
                Some(ClockFault::Ahead { .. }) => ServerChange::ClockAhead,
                Some(ClockFault::Behind { .. }) => ServerChange::ClockBehind,
            },
        };
        let Some(before) = self.last.replace(now) else { return };
        let pick = |to: bool, yes, no| if to { yes } else { no };
        for (is_changed, change) in [
            (
                before.is_writable != now.is_writable,
                pick(now.is_writable, ServerChange::Writable, ServerChange::Unwritable),
            ),
            (now.is_damaged && !before.is_damaged, ServerChange::Damaged),
            (before.is_held != now.is_held, pick(now.is_held, ServerChange::Held, ServerChange::Promoted)),
            (before.clock != now.clock, now.clock),
        ] {
            if is_changed {
                app.events.publish_server(Event::server(change, app.clock.now()));
            }
        }
    }
}

/// The state between two passes.
#[derive(Debug, Default)]
pub struct ClockAlert {
    /// The start of the fault, by the monotonic clock.
    since: Option<Duration>,
    /// The newest instant of the fault that was reported last.
    reported: Option<Timestamp>,
}

impl ClockAlert {
    /// Raises the alert once the clock is behind for ten minutes: a machine without a battery is behind after every boot.
    pub fn raise_if_due(&mut self, app: &App) -> Result<()> {
        let Some(ClockFault::Behind { now, newest }) = app.clock_fault() else {
            self.since = None;
            return Ok(());
        };
        let monotonic = app.clock.monotonic();
        let since = *self.since.get_or_insert(monotonic);
        if monotonic.saturating_sub(since) < PROOF_TIME || self.reported == Some(newest) {
            return Ok(());
        }
        let mut after = Some(0);
        while let Some(user_key) = after {
            let raise = move |tx: &WriteTx<'_>| alerts::raise_clock_behind(tx, user_key, BATCH, newest, now);
            after = app.store.write_with_priority(raise).wait()?;
        }
        self.reported = Some(newest);
        Ok(())
    }
}
