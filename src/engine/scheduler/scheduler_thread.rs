//! The scheduler's thread: one pass over all that falls due by the clock, then a wait for the next instant.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::app::{App, Notifiers};
use crate::engine::delivery::delivery_service;
use crate::engine::delivery::delivery_service::DispatchHandle;
use crate::engine::scheduler::pass::Scheduler;
use crate::engine::scheduler::reaper;
use crate::engine::scheduler::retention_sweeper::{RetentionSweeper, SweepOutcome};
use crate::error::{Error, Result};
use crate::store::db::hold;
use crate::store::executions::delivery_queue;

/// The pause after a fault of the machine, before the pass is tried again.
const AFTER_A_FAULT: Duration = Duration::from_secs(1);

/// The running thread.
pub struct SchedulerThread {
    thread: JoinHandle<()>,
    stop: Arc<AtomicBool>,
    app: Arc<App>,
}

impl SchedulerThread {
    /// Starts the thread; what it fires is taken up at `desk`.
    ///
    /// # Errors
    /// When the file cannot be read, or the system starts no more threads.
    pub fn start(app: &Arc<App>, desk: Arc<DispatchHandle>) -> Result<Self> {
        let (mut scheduler, mut sweeper) = (Scheduler::start(app)?, RetentionSweeper::default());
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (Arc::clone(app), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("scheduler".to_owned())
            .spawn(move || run(&shared, &mut scheduler, &mut sweeper, &desk, &stopped))
            .map_err(|error| Error::Fault(format!("the scheduler cannot start: {error}")))?;
        Ok(Self { thread, stop, app: Arc::clone(app) })
    }

    /// Set to end the thread; ring the schedule's bell then.
    pub(in crate::engine) fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    pub(in crate::engine) fn notifiers(&self) -> Arc<Notifiers> {
        Arc::clone(&self.app.notifiers)
    }

    /// Ends the thread after the pass that is under way.
    pub fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.app.notifiers.schedule.notify();
        if self.thread.join().is_err() {
            tracing::error!("the scheduler's thread ended by a panic");
        }
    }
}

fn run(
    app: &App,
    scheduler: &mut Scheduler,
    sweeper: &mut RetentionSweeper,
    desk: &DispatchHandle,
    stop: &AtomicBool,
) {
    // One pass for a test clock's eyes as long as the sweeper has more to do: the clock is moved on when all is done.
    let mut pass = None;
    while !stop.load(Ordering::SeqCst) {
        let seen = app.notifiers.schedule.generation();
        app.notifiers.set_next_wakeup(None);
        app.engine_stats.heartbeat(app.clock.monotonic());
        pass.get_or_insert_with(|| app.engine_stats.begin_pass(&app.notifiers.progress));
        app.store.probe_disk();
        match caught(|| turn(app, scheduler, sweeper, desk)) {
            Ok(SweepOutcome::Again) => {}
            Ok(SweepOutcome::At(deadline)) => {
                pass = None;
                app.notifiers.set_next_wakeup(deadline);
                app.clock.wait(&app.notifiers.schedule, seen, deadline);
            }
            Err(error) => {
                pass = None;
                tracing::error!("what fell due could not be taken up, and will be: {error}");
                app.clock.sleep(AFTER_A_FAULT);
            }
        }
    }
}

/// One turn over everything that falls due by the clock; answers when the next thing does. Of a file that is held
/// nothing does.
fn turn(
    app: &App,
    scheduler: &mut Scheduler,
    sweeper: &mut RetentionSweeper,
    desk: &DispatchHandle,
) -> Result<SweepOutcome> {
    if app.store.read_blocking(hold::is_held)? {
        scheduler.rest(app);
        return Ok(SweepOutcome::At(None));
    }
    scheduler.run_once_at(app, Some(desk))?;
    while delivery_service::promote(app)? > 0 {}
    while reaper::return_lost_claims(&app.store, app.clock.now())? > 0 {
        app.engine_stats.heartbeat(app.clock.monotonic());
    }
    reaper::forget_answers(&app.store, app.clock.now())?;
    reaper::forget_logins(&app.store, app.clock.now())?;
    let SweepOutcome::At(sweep) = sweeper.run_once(app)? else { return Ok(SweepOutcome::Again) };
    let waiting = app.store.read_blocking(delivery_queue::next_waiting)?;
    let deadlines = [scheduler.deadline(app)?, waiting, reaper::next(&app.store)?, sweep];
    Ok(SweepOutcome::At(deadlines.into_iter().flatten().min()))
}

/// What `pass` answers; a panic in it is a fault like others. A thread that it ended would end all that it does for
/// ever, with nobody told.
pub(in crate::engine) fn caught<T>(pass: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(pass)).unwrap_or_else(|_| Err(Error::Fault("the pass panicked".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_in_a_pass_is_an_error() {
        let empty: Vec<u8> = Vec::new();
        assert!(matches!(caught(|| Ok(empty[0])), Err(Error::Fault(_))));
        assert!(matches!(caught(|| Ok(1)), Ok(1)));
    }
}
