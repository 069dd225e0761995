//! The scheduler's thread: one pass over all work that is due, then a wait until the next is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::app::{App, Notifiers};
use crate::domain::cue::retention::SETTLING_TIME;
use crate::engine::delivery::delivery_service::{self, DispatchHandle};
use crate::engine::scheduler::cleanup::Cleanup;
use crate::engine::scheduler::pass::Scheduler;
use crate::engine::scheduler::reaper;
use crate::engine::scheduler::retention_sweeper::{RetentionSweeper, SweepOutcome};
use crate::engine::scheduler::server_watch::{ClockAlert, ServerWatch};
use crate::error::{Error, Result};
use crate::panics;
use crate::store::db::hold;
use crate::store::executions::delivery_queue;

/// The pause before a failed pass is repeated: long enough to keep the log readable while a disk is full.
const AFTER_FAULT: Duration = Duration::from_secs(1);

pub struct SchedulerThread {
    thread: JoinHandle<()>,
    stop: Arc<AtomicBool>,
    app: Arc<App>,
}

impl SchedulerThread {
    /// Starts the thread. Executions that it creates are claimed through `deliveries` in the same write.
    pub fn start(app: &Arc<App>, deliveries: Arc<DispatchHandle>) -> Result<Self> {
        let mut tasks = Tasks {
            scheduler: Scheduler::start(app)?,
            sweeper: RetentionSweeper::default(),
            cleanup: Cleanup::default(),
            server_watch: ServerWatch::default(),
            clock_alert: ClockAlert::default(),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (Arc::clone(app), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("scheduler".to_owned())
            .spawn(move || run(&shared, &mut tasks, &deliveries, &stopped))
            .map_err(|error| Error::fault_from("the scheduler cannot start", error))?;
        Ok(Self { thread, stop, app: Arc::clone(app) })
    }

    /// The flag that ends the thread; notify `schedule` after setting it.
    pub(in crate::engine) fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    pub(in crate::engine) fn notifiers(&self) -> Arc<Notifiers> {
        Arc::clone(&self.app.notifiers)
    }

    /// Waits for the running pass to end, then ends the thread.
    pub fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.app.notifiers.schedule.notify();
        if self.thread.join().is_err() {
            tracing::error!("scheduler thread panicked");
        }
    }
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
    scheduler
        .run_once_at(app, Some(deliveries), || delivery_service::promote_batch(app).map(|_| goes_on()))?;
    clock_alert.raise_if_due(app)?;
    if goes_on() && delivery_service::promote_batch(app)? > 0 {
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
