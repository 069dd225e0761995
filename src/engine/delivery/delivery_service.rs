//! The delivery of webhooks as it runs: a dispatcher's thread, the pool that sends, their start and their end.
//!
//! One pass is in `dispatcher`, one attempt in `attempt`. Also here: the passes over executions that wait and over
//! those that an earlier process left under way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::app::App;
use crate::engine::delivery::attempt::{classify, log, send};
use crate::engine::delivery::dispatcher::{Dispatcher, DispatcherMode, FinishedAttempt};
use crate::engine::delivery::thread_pool::ThreadPool;
use crate::engine::webhook_client::WebhookClient;
use crate::error::Result;
use crate::panics;
use crate::store::WriteTx;
use crate::store::executions::delivery_queue;
use crate::store::executions::delivery_queue::ClaimedDelivery;

/// How long a stop waits for running deliveries (contract §1).
pub(in crate::engine) const DRAIN: Duration = Duration::from_secs(30);

/// The pause after a fault of the disk.
const AFTER_FAULT: Duration = Duration::from_secs(1);

/// Waiting executions made ready in one transaction.
const BATCH: u32 = 500;

/// The running delivery of webhooks.
pub struct DeliveryService {
    app: Arc<App>,
    desk: Arc<DispatchHandle>,
    thread: JoinHandle<()>,
}

/// Where executions are taken up: by the dispatcher's thread, or by a write that makes them.
pub struct DispatchHandle {
    dispatcher: Mutex<Dispatcher>,
    pool: ThreadPool<ClaimedDelivery>,
    stopping: Arc<AtomicBool>,
}

impl DispatchHandle {
    /// Does `first`, and unless a pass is under way takes up what is ready in the same write: a cue that is due alone
    /// is fired and taken up by one commit, not by two. Whoever calls this rings the bell for what is left.
    ///
    /// # Errors
    /// When the file cannot be read or written, and what `first` answers.
    pub fn write<T: Send + 'static>(
        &self,
        app: &App,
        first: impl FnOnce(&WriteTx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let dispatcher = match self.dispatcher.try_lock() {
            Ok(dispatcher) => Some(dispatcher),
            Err(TryLockError::Poisoned(dispatcher)) => Some(dispatcher.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let Some(mut dispatcher) = dispatcher.filter(|_| !self.stopping.load(Ordering::Acquire)) else {
            return app.store.write(first).wait();
        };
        let (done, taken) = dispatcher.write(app, true, first)?;
        taken.into_iter().for_each(|taken| self.pool.submit(taken));
        Ok(done)
    }

    fn lock(&self) -> MutexGuard<'_, Dispatcher> {
        // A pass that panics has changed nothing: what it would have changed is given back by the write's end.
        self.dispatcher.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeliveryService {
    /// Starts the threads. [`requeue_interrupted`] comes before.
    ///
    /// # Errors
    /// When the system starts no more threads.
    pub fn start(app: &Arc<App>, webhook_client: Arc<dyn WebhookClient>) -> std::io::Result<Self> {
        let returned = Arc::new(Mutex::new(Vec::new()));
        let desk = Arc::new(DispatchHandle {
            dispatcher: Mutex::new(Dispatcher::new(app.config.delivery_threads)),
            pool: start_pool(app, webhook_client, &returned)?,
            stopping: Arc::new(AtomicBool::new(false)),
        });
        let thread = {
            let (app, desk) = (Arc::clone(app), Arc::clone(&desk));
            std::thread::Builder::new()
                .name("dispatcher".to_owned())
                .spawn(move || run(&app, &desk, &returned))?
        };
        Ok(Self { app: Arc::clone(app), desk, thread })
    }

    /// Where the scheduler has what it fires taken up.
    pub(in crate::engine) fn desk(&self) -> Arc<DispatchHandle> {
        Arc::clone(&self.desk)
    }

    /// Set to take up nothing more; ring the bell for sending then.
    pub(in crate::engine) fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.desk.stopping)
    }

    /// Takes up nothing more, and returns when what is under way has ended and is recorded, or after 30 s. What is
    /// cut short then is delivered again after the next start.
    pub fn stop(self) {
        self.desk.stopping.store(true, Ordering::Release);
        self.app.notifiers.send.notify();
        if self.thread.join().is_err() {
            tracing::error!("the dispatcher ended by a panic");
        }
    }
}

/// Makes ready what waited for an instant that has come; answers how many executions.
///
/// # Errors
/// When the file cannot be read or written; what is left waits for the next pass.
pub fn promote(app: &App) -> Result<u64> {
    let now = app.clock.now();
    let mut promoted = 0;
    while app.store.read_blocking(delivery_queue::next_waiting)?.is_some_and(|due| due <= now) {
        promoted += app.store.write(move |tx| delivery_queue::promote_due(tx, now, BATCH)).wait()?;
        app.engine_stats.heartbeat(app.clock.monotonic());
    }
    Ok(promoted)
}

/// Makes ready again what an earlier process left under way; answers how many. Before [`DeliveryService::start`] only.
///
/// # Errors
/// When the file cannot be written.
pub fn requeue_interrupted(app: &App) -> Result<usize> {
    let now = app.clock.now();
    app.store.write(move |tx| delivery_queue::requeue_interrupted(tx, now)).wait()
}

type Inbox = Mutex<Vec<FinishedAttempt>>;

fn start_pool(
    app: &Arc<App>,
    webhook_client: Arc<dyn WebhookClient>,
    returned: &Arc<Inbox>,
) -> std::io::Result<ThreadPool<ClaimedDelivery>> {
    // Only for as long as it is needed: a delivery that a stop cuts short must not keep the database open.
    let (notifiers, app_while_it_runs) = (Arc::clone(&app.notifiers), Arc::downgrade(app));
    let returned = Arc::clone(returned);
    let reading =
        move || app_while_it_runs.upgrade().map(|app| (app.clock.now(), app.clock.monotonic(), app));
    ThreadPool::start(app.config.delivery_threads, move |taken: ClaimedDelivery| {
        let Some(begun) = reading().map(|(now, monotonic, app)| {
            note_lateness(&app, &taken, now);
            (now, monotonic)
        }) else {
            return;
        };
        let outcome = send(&*webhook_client, &taken, begun.0);
        if let Some((now, monotonic, app)) = reading() {
            let attempt = classify(&taken, outcome, now);
            let took = monotonic.saturating_sub(begun.1);
            app.engine_stats.deliveries.durations.note_time(took);
            log(&taken, &attempt, took);
            // Who finds others there need not ring: the dispatcher, which takes them all, has not come since they did.
            if hand_in(&returned, attempt) {
                notifiers.send.notify();
            }
        }
    })
}

/// Notes how late a run begins. A retry is late by what was agreed.
fn note_lateness(app: &App, taken: &ClaimedDelivery, now: Timestamp) {
    if taken.ticket.attempt == 1 {
        let late = now.duration_since(taken.ticket.scheduled_for);
        app.engine_stats.deliveries.lateness.note_time(Duration::try_from(late).unwrap_or(Duration::ZERO));
    }
}

fn run(app: &App, desk: &DispatchHandle, returned: &Inbox) {
    while !desk.stopping.load(Ordering::Acquire) {
        let seen = app.notifiers.send.generation();
        let passed = panics::catch("the dispatcher", || {
            desk.lock().run_once(app, drain(returned), DispatcherMode::Running)
        });
        match passed {
            Ok(taken) if taken.is_empty() => app.clock.wait(&app.notifiers.send, seen, None),
            Ok(taken) => taken.into_iter().for_each(|taken| desk.pool.submit(taken)),
            Err(error) => pause_after(app, &error),
        }
    }
    finish(app, &mut desk.lock(), returned);
}

fn finish(app: &App, dispatcher: &mut Dispatcher, returned: &Inbox) {
    let until = app.clock.monotonic() + DRAIN;
    while dispatcher.unfinished() > 0 && app.clock.monotonic() < until {
        let seen = app.notifiers.send.generation();
        let left = SignedDuration::try_from(until - app.clock.monotonic()).unwrap_or(SignedDuration::ZERO);
        match panics::catch("the dispatcher", || {
            dispatcher.run_once(app, drain(returned), DispatcherMode::Draining)
        }) {
            Ok(_) if dispatcher.unfinished() == 0 => {}
            Ok(_) => app.clock.wait(&app.notifiers.send, seen, app.clock.now().checked_add(left).ok()),
            Err(error) => pause_after(app, &error),
        }
    }
    if dispatcher.unfinished() > 0 {
        tracing::warn!(
            "{} deliveries were cut short; the next start makes them again",
            dispatcher.unfinished()
        );
    }
}

/// Puts one more among those that came back; tells whether it is the first.
fn hand_in<T>(returned: &Mutex<Vec<T>>, one: T) -> bool {
    let mut returned = returned.lock().unwrap_or_else(PoisonError::into_inner);
    returned.push(one);
    returned.len() == 1
}

/// Takes what has come back from the threads of a pool.
pub(in crate::engine) fn drain<T>(returned: &Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut returned.lock().unwrap_or_else(PoisonError::into_inner))
}

fn pause_after(app: &App, error: &crate::error::Error) {
    tracing::error!("deliveries rest for a moment: {error}");
    app.clock.sleep(AFTER_FAULT);
}
