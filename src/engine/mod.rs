//! Background work: the scheduler, webhook delivery and failure notifications. Every task has a `run_once`
//! that tests call; its thread is a loop around it.

pub mod channels;
pub mod delivery;
pub mod notifications;
pub mod scheduler;
pub mod test_calls;
pub mod webhook_client;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use jiff::Timestamp;

use crate::app::App;
use crate::clock::Notifier;
use crate::engine::delivery::dispatcher::{self, DeliveryService, DispatcherMode};
use crate::engine::webhook_client::WebhookClient;
use crate::error::{Error, Result};
use crate::service::fire::CueFirer;
use crate::store::db::meta;
use crate::store::{ReadTx, WriteTx};
use crate::system::panics;

/// The pause after an error, before a pass is repeated: long enough to keep the log readable while a disk is full.
const AFTER_FAULT: Duration = Duration::from_secs(1);

pub struct Engine {
    app: Arc<App>,
    scheduler: EngineThread,
    dispatcher: EngineThread,
    notifications: EngineThread,
}

impl Engine {
    /// Requeues the deliveries that a crash cut off, then starts all threads.
    pub fn start(app: &Arc<App>, webhook_client: Arc<dyn WebhookClient>) -> Result<Self> {
        let requeued = dispatcher::requeue_interrupted(app)?;
        if requeued > 0 {
            tracing::info!(count = requeued, "requeued deliveries that the last stop cut off");
        }
        app.test_caller.get_or_init(|| test_calls::caller(Arc::clone(&webhook_client)));
        let failed = |error| Error::fault_from("the threads of the engine cannot start", error);
        let notifications =
            notifications::start(app, Arc::clone(&webhook_client)).map_err(failed)?;
        let (deliveries, dispatcher) =
            DeliveryService::start(app, webhook_client).map_err(failed)?;
        let scheduler = scheduler::start(app, deliveries)?;
        Ok(Self { app: Arc::clone(app), scheduler, dispatcher, notifications })
    }

    /// A function that makes the threads start nothing more, for the signal handler: running deliveries end while the
    /// port drains, not after it.
    pub fn halt(&self) -> impl FnOnce() + Send + 'static {
        let threads = [&self.scheduler, &self.dispatcher, &self.notifications];
        let flags = threads.map(|thread| Arc::clone(&thread.stopping));
        let notifiers = Arc::clone(&self.app.notifiers);
        move || {
            for flag in flags {
                flag.store(true, Ordering::SeqCst);
            }
            notifiers.notify_all();
        }
    }

    /// Stops the scheduler, then waits until running deliveries and notifications are recorded, for 30 s at most each.
    pub fn stop(self) {
        self.scheduler.stop(&self.app.notifiers.schedule);
        self.dispatcher.stop(&self.app.notifiers.send);
        self.notifications.stop(&self.app.notifiers.notifications);
    }
}

/// Waits after a pass that failed, and logs why, unless the store has: a full disk fails every pass.
fn pause_after(app: &App, error: &Error, message: &'static str) {
    match error {
        Error::Storage(_) if !app.store.is_writable() => tracing::debug!(%error, "{message}"),
        _ => tracing::error!(%error, "{message}"),
    }
    app.clock.sleep(AFTER_FAULT);
}

/// Runs `batch` in a write if the instant that `next` reads has come.
fn run_if_due<T: Default + Send + 'static>(
    app: &App,
    now: Timestamp,
    next: impl FnOnce(&ReadTx<'_>) -> Result<Option<Timestamp>>,
    batch: impl FnOnce(&WriteTx<'_>, &CueFirer) -> Result<T> + Send + 'static,
) -> Result<T> {
    if app.store.read_blocking(next)?.is_none_or(|next| next > now) {
        return Ok(T::default());
    }
    let firer = CueFirer::new(app, now);
    app.store.write_with_priority(move |tx| batch(tx, &firer)).wait()
}

/// Runs `batch` until nothing is due at `now`. Returns when the next is, of the instants that `next` reads; none is while
/// the database is on hold.
fn run_while_due(
    app: &App,
    now: Timestamp,
    next: fn(&ReadTx<'_>) -> Result<Option<Timestamp>>,
    mut batch: impl FnMut() -> Result<()>,
) -> Result<Option<Timestamp>> {
    loop {
        let next_due = |read: &ReadTx<'_>| if meta::is_held(read)? { Ok(None) } else { next(read) };
        let next = app.store.read_blocking(next_due)?;
        if next.is_none_or(|due| due > now) {
            return Ok(next);
        }
        batch()?;
    }
}

/// Time limit of a stop for running deliveries (contract §1.3).
const DRAIN: Duration = Duration::from_secs(30);

/// The pause before a pass that looks at what the one before left untried. Each costs some 200 seeks, so that 20 in a
/// second are not felt.
const SOON: Duration = Duration::from_millis(50);

/// When the next pass of a thread begins, unless its notifier is notified before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextPass {
    Again,
    /// After 50 ms, under a test clock too.
    Soon,
    At(Option<Timestamp>),
}

/// Runs one pass of a thread, then waits for the next, in a stop for the time `left` at most. `names` are the thread in an
/// error, and the message of the log after one.
fn run_pass(
    app: &App,
    names: (&str, &'static str),
    notifier: &Notifier,
    left: Option<Duration>,
    pass: impl FnOnce() -> Result<NextPass>,
) {
    // Read before the pass looks for work, so that a notification in between is not missed.
    let seen = notifier.generation();
    match (panics::catch(names.0, pass), left) {
        (Ok(NextPass::Again), _) => {}
        (Ok(NextPass::At(_) | NextPass::Soon), Some(left)) => {
            app.clock.wait_at_most(notifier, seen, left);
        }
        (Ok(NextPass::Soon), None) => app.clock.wait_at_most(notifier, seen, SOON),
        (Ok(NextPass::At(deadline)), None) => app.clock.wait(notifier, seen, deadline),
        (Err(error), _) => pause_after(app, &error, names.1),
    }
}

/// Runs passes until the thread is stopped, then draining ones while something is unfinished, for [`DRAIN`] at most.
fn run_passes(
    app: &App,
    names: (&str, &'static str),
    notifier: &Notifier,
    stopping: &AtomicBool,
    unfinished: impl Fn() -> usize,
    mut pass: impl FnMut(DispatcherMode) -> Result<NextPass>,
) {
    while !stopping.load(Ordering::Acquire) {
        run_pass(app, names, notifier, None, || pass(DispatcherMode::Running));
    }
    let until = app.clock.monotonic() + DRAIN;
    while unfinished() > 0 && app.clock.monotonic() < until {
        let left = until.saturating_sub(app.clock.monotonic());
        run_pass(app, names, notifier, Some(left), || pass(DispatcherMode::Draining));
    }
}

pub struct EngineThread {
    name: &'static str,
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl EngineThread {
    fn start(
        name: &'static str,
        stopping: Arc<AtomicBool>,
        run: impl FnOnce(&AtomicBool) + Send + 'static,
    ) -> io::Result<Self> {
        let stopped = Arc::clone(&stopping);
        let thread = Builder::new().name(name.to_owned()).spawn(move || run(&stopped))?;
        Ok(Self { name, stopping, thread })
    }

    pub fn stop(self, notifier: &Notifier) {
        self.stopping.store(true, Ordering::SeqCst);
        notifier.notify();
        if self.thread.join().is_err() {
            tracing::error!("{} thread panicked", self.name);
        }
    }
}
