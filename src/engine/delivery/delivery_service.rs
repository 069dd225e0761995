//! Webhook delivery as a service: the dispatcher's thread and the pool of delivery threads, how they start and stop.
//!
//! `dispatcher` holds one pass, `attempt` one attempt. This file also promotes executions whose waiting time is over
//! and requeues those that an earlier process left in flight.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::app::App;
use crate::clock::MAX_WAIT;
use crate::cores;
use crate::engine::delivery::attempt::{deliver, log, unread};
use crate::engine::delivery::attempt_queue::{AttemptQueue, SMALL};
use crate::engine::delivery::dispatcher::{Dispatcher, DispatcherMode, FinishedAttempt};
use crate::engine::delivery::thread_pool::ThreadPool;
use crate::engine::webhook_client::WebhookClient;
use crate::error::Result;
use crate::locks::Mutex;
use crate::panics;
use crate::store::WriteTx;
use crate::store::executions::delivery_queue;
use crate::store::executions::delivery_queue::ClaimedDelivery;
use crate::store::executions::delivery_request::{self, LoadedDelivery};

/// Time limit of a stop for running deliveries (contract §1.3).
pub(in crate::engine) const DRAIN: Duration = Duration::from_secs(30);

/// The pause after a database error: long enough to keep the log readable while a disk is full.
const AFTER_FAULT: Duration = Duration::from_secs(1);

/// Waiting executions promoted in one transaction; as many as the cues that one transaction fires.
const BATCH: u32 = 500;

pub struct DeliveryService {
    app: Arc<App>,
    handle: Arc<DispatchHandle>,
    thread: JoinHandle<()>,
}

/// Access to the dispatcher for its own thread and for the scheduler, which fires cues and claims their executions in
/// one write.
pub struct DispatchHandle {
    dispatcher: Mutex<Dispatcher>,
    pool: ThreadPool<AttemptQueue, FinishedAttempt>,
    stopping: Arc<AtomicBool>,
}

impl DispatchHandle {
    /// Runs `first` and, unless a pass is running, claims the executions that are ready in the same write: a single
    /// due cue costs one commit, not two. The caller notifies `send` for the executions that are left.
    pub fn write<T: Send + 'static>(
        &self,
        app: &App,
        first: impl FnOnce(&WriteTx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let Some(mut dispatcher) =
            self.dispatcher.try_lock().filter(|_| !self.stopping.load(Ordering::Acquire))
        else {
            return app.store.write_with_priority(first).wait();
        };
        let (done, claimed) = dispatcher.write(app, true, first)?;
        self.pool.submit(claimed);
        Ok(done)
    }

    /// One pass of the dispatcher, with the attempts that have ended. Returns the number of those that it has claimed.
    fn pass(&self, app: &App, mode: DispatcherMode) -> Result<usize> {
        // Held until the attempts are queued: those that the scheduler claims next are younger.
        let mut dispatcher = self.dispatcher.lock();
        let claimed = dispatcher.run_once(app, self.pool.take_finished(), mode)?;
        let count = claimed.len();
        self.pool.submit(claimed);
        Ok(count)
    }
}

impl DeliveryService {
    /// Starts the threads. Call [`requeue_interrupted`] first.
    pub fn start(app: &Arc<App>, webhook_client: Arc<dyn WebhookClient>) -> std::io::Result<Self> {
        let handle = Arc::new(DispatchHandle {
            dispatcher: Mutex::new(Dispatcher::new(app.config.delivery_threads)),
            pool: start_pool(app, webhook_client)?,
            stopping: Arc::new(AtomicBool::new(false)),
        });
        let thread = {
            let (app, handle) = (Arc::clone(app), Arc::clone(&handle));
            std::thread::Builder::new().name("dispatcher".to_owned()).spawn(move || run(&app, &handle))?
        };
        Ok(Self { app: Arc::clone(app), handle, thread })
    }

    pub(in crate::engine) fn handle(&self) -> Arc<DispatchHandle> {
        Arc::clone(&self.handle)
    }

    /// The flag that stops claims; notify `send` after setting it.
    pub(in crate::engine) fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.handle.stopping)
    }

    /// Claims nothing more and waits until the running attempts are recorded, for 30 s at most. An attempt that is cut
    /// off is made again after the next start.
    pub fn stop(self) {
        self.handle.stopping.store(true, Ordering::Release);
        self.app.notifiers.send.notify();
        if self.thread.join().is_err() {
            tracing::error!("dispatcher thread panicked");
        }
    }
}

/// Promotes the executions that have waited longest, in one transaction. Returns their number; if it is not 0, call
/// again.
pub fn promote_batch(app: &App) -> Result<u64> {
    let now = app.clock.now();
    if app.store.read_blocking(delivery_queue::next_due_at)?.is_none_or(|due| due > now) {
        return Ok(0);
    }
    let promoted =
        app.store.write_with_priority(move |tx| delivery_queue::promote_due(tx, now, BATCH)).wait()?;
    app.engine_stats.heartbeat(app.clock.monotonic());
    Ok(promoted)
}

/// Requeues the executions that an earlier process left in flight. Returns their number. Only valid before
/// [`DeliveryService::start`].
pub fn requeue_interrupted(app: &App) -> Result<usize> {
    let now = app.clock.now();
    app.store.write_with_priority(move |tx| delivery_queue::requeue_interrupted(tx, now)).wait()
}

fn start_pool(
    app: &Arc<App>,
    webhook_client: Arc<dyn WebhookClient>,
) -> std::io::Result<ThreadPool<AttemptQueue, FinishedAttempt>> {
    // A weak reference: a delivery that a stop cuts off must not keep the database open.
    let (notifiers, weak_app, timed_app) =
        (Arc::clone(&app.notifiers), Arc::downgrade(app), Arc::downgrade(app));
    let monotonic = move || timed_app.upgrade().map_or(Duration::ZERO, |app| app.clock.monotonic());
    let (threads, large_read) = (app.config.delivery_threads, Mutex::new(()));
    ThreadPool::start(
        AttemptQueue::new(threads, cores::count(), Arc::new(monotonic)),
        threads,
        move |claimed| attempt(&weak_app, &*webhook_client, claimed, &large_read),
        move || notifiers.send.notify(),
    )
}

/// Makes a claimed attempt. Returns `None` if the program stops.
fn attempt(
    weak_app: &Weak<App>,
    webhook_client: &dyn WebhookClient,
    claimed: ClaimedDelivery,
    large_read: &Mutex<()>,
) -> Option<FinishedAttempt> {
    let (started, loaded) = {
        let app = weak_app.upgrade()?;
        record_lateness(&app, &claimed, app.clock.now());
        (app.clock.monotonic(), load(&app, claimed, large_read).map_err(|error| (error, app.clock.now())))
    };
    let mut ended = match loaded {
        Ok(loaded) => deliver(webhook_client, loaded, || weak_app.upgrade().map(|app| app.clock.now()))?,
        Err((error, now)) => unread(claimed, &error, now),
    };
    let app = weak_app.upgrade()?;
    let took = app.clock.monotonic().saturating_sub(started);
    ended.record.duration = SignedDuration::try_from(took).unwrap_or(SignedDuration::MAX);
    app.engine_stats.deliveries.durations.observe_duration(took);
    log(&ended, took);
    Some(ended)
}

/// Reads the request of a claimed delivery. Large ones are read one at a time: SQLite holds a second copy meanwhile, and
/// the scheduler must find a free connection.
fn load(app: &App, claimed: ClaimedDelivery, large_read: &Mutex<()>) -> Result<LoadedDelivery> {
    let _turn = (claimed.bytes > SMALL).then(|| large_read.lock());
    panics::catch("a delivery", || app.store.read_blocking(|read| delivery_request::load(read, claimed)))
}

/// Records how late the first attempt starts. Later attempts are late by the retry policy.
fn record_lateness(app: &App, claimed: &ClaimedDelivery, now: Timestamp) {
    if claimed.attempt_ref.attempt == 1 {
        let late = now.duration_since(claimed.attempt_ref.scheduled_for);
        app.engine_stats
            .deliveries
            .lateness
            .observe_duration(Duration::try_from(late).unwrap_or(Duration::ZERO));
    }
}

fn run(app: &App, handle: &DispatchHandle) {
    while !handle.stopping.load(Ordering::Acquire) {
        run_pass(app, handle, DispatcherMode::Running, MAX_WAIT);
    }
    // What is claimed is sent, but for what waits for a host that hangs.
    let until = app.clock.monotonic() + DRAIN;
    let unfinished = || handle.dispatcher.lock().unfinished();
    while unfinished() > 0 && app.clock.monotonic() < until {
        let left = until.saturating_sub(app.clock.monotonic());
        run_pass(app, handle, DispatcherMode::Draining, left);
    }
    if unfinished() > 0 {
        tracing::warn!(count = unfinished(), "deliveries cut off; the next start repeats them");
    }
}

/// Runs one pass, then waits unless there may be more to claim.
fn run_pass(app: &App, handle: &DispatchHandle, mode: DispatcherMode, at_most: Duration) {
    let seen = app.notifiers.send.generation();
    match panics::catch("the dispatcher", || handle.pass(app, mode)) {
        Ok(0) => app.clock.wait_at_most(&app.notifiers.send, seen, at_most),
        Ok(_) => {}
        Err(error) => {
            tracing::error!(%error, "delivery paused for 1 s after an error");
            app.clock.sleep(AFTER_FAULT);
        }
    }
}
