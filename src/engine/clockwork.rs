//! The scheduler's thread: one pass over all that falls due by the clock, then a wait for the next instant.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;

use super::delivery::Desk;
use super::scheduler::Scheduler;
use super::{delivery, upkeep};
use crate::app::{App, Bells};
use crate::error::{Error, Result};
use crate::store::queue;

/// The pause after a fault of the machine, before the pass is tried again.
const AFTER_A_FAULT: Duration = Duration::from_secs(1);

/// The running thread.
pub struct Clockwork {
    thread: JoinHandle<()>,
    stop: Arc<AtomicBool>,
    app: Arc<App>,
}

impl Clockwork {
    /// Starts the thread; what it fires is taken up at `desk`.
    ///
    /// # Errors
    /// When the file cannot be read, or the system starts no more threads.
    pub fn start(app: &Arc<App>, desk: Arc<Desk>) -> Result<Self> {
        let mut scheduler = Scheduler::start(app)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (Arc::clone(app), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("scheduler".to_owned())
            .spawn(move || run(&shared, &mut scheduler, &desk, &stopped))
            .map_err(|error| Error::Fault(format!("the scheduler cannot start: {error}")))?;
        Ok(Self { thread, stop, app: Arc::clone(app) })
    }

    /// Set to end the thread; ring the schedule's bell then.
    pub(super) fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    pub(super) fn bells(&self) -> Arc<Bells> {
        Arc::clone(&self.app.bells)
    }

    /// Ends the thread after the pass that is under way.
    pub fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.app.bells.schedule.ring();
        if self.thread.join().is_err() {
            tracing::error!("the scheduler's thread ended by a panic");
        }
    }
}

fn run(app: &App, scheduler: &mut Scheduler, desk: &Desk, stop: &AtomicBool) {
    while !stop.load(Ordering::SeqCst) {
        let seen = app.bells.schedule.rung();
        match caught(|| turn(app, scheduler, desk)) {
            Ok(deadline) => app.clock.park(&app.bells.schedule, seen, deadline),
            Err(error) => {
                tracing::error!("what fell due could not be taken up, and will be: {error}");
                app.clock.pause(AFTER_A_FAULT);
            }
        }
    }
}

/// One pass over everything that falls due by the clock; answers when the next thing does.
fn turn(app: &App, scheduler: &mut Scheduler, desk: &Desk) -> Result<Option<Timestamp>> {
    let _pass = app.pulse.pass(&app.bells.progress);
    scheduler.run_once_at(app, Some(desk))?;
    while delivery::promote(app)? > 0 {}
    while upkeep::return_lost_claims(&app.store, app.clock.now())? > 0 {}
    upkeep::forget_answers(&app.store, app.clock.now())?;
    upkeep::forget_logins(&app.store, app.clock.now())?;
    let waiting = app.store.read_promptly(queue::next_waiting).wait()?;
    let deadlines = [scheduler.deadline(app)?, waiting, upkeep::next(&app.store)?];
    Ok(deadlines.into_iter().flatten().min())
}

/// What `pass` answers; a panic in it is a fault like others. A thread that it ended would end all that it does for
/// ever, with nobody told.
pub(super) fn caught<T>(pass: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(pass)).unwrap_or_else(|_| Err(Error::Fault("the pass panicked".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_that_panics_is_a_fault() {
        let empty: Vec<u8> = Vec::new();
        assert!(matches!(caught(|| Ok(empty[0])), Err(Error::Fault(_))));
        assert!(matches!(caught(|| Ok(1)), Ok(1)));
    }
}
