//! Webhook delivery as a service: the dispatcher's thread and the pool of delivery threads, how they start and stop.
//!
//! `dispatcher` holds one pass, `attempt` one attempt. This file also promotes executions whose waiting time is over
//! and requeues those that an earlier process left in flight.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::app::App;
use crate::clock::MAX_WAIT;
use crate::cores;
use crate::engine::delivery::attempt::{deliver, log, unread};
use crate::engine::delivery::delivery_pool::{DeliveryPool, Destination, DestinationKey, Submission};
use crate::engine::delivery::dispatcher::{Dispatcher, DispatcherMode, FinishedAttempt};
use crate::engine::delivery::memory_budget::SMALL;
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

/// The longest time that a claimed attempt waits for a thread of its destination. Such a destination has answered within a
/// fifth of it ([`DestinationSlots`]), so it has begun to hang.
///
/// [`DestinationSlots`]: crate::engine::delivery::destination_slots::DestinationSlots
const LONGEST_AHEAD: Duration = Duration::from_millis(250);

/// Attempts at a destination that answers within a millisecond, for each core, that run at once.
const CPU_BOUND_PER_CORE: usize = 4;

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
    pool: DeliveryPool<ClaimedDelivery>,
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
        self.submit(app, &dispatcher, claimed);
        if self.pool.oldest().is_some() {
            // The dispatcher does not know of those that wait now.
            app.notifiers.send.notify();
        }
        Ok(done)
    }

    /// Starts claimed attempts. The caller holds the dispatcher: no later pass must change the shares before.
    fn submit(&self, app: &App, dispatcher: &Dispatcher, claimed: Vec<ClaimedDelivery>) {
        let submit = |claimed| Submission {
            destination: destination(&claimed),
            threads: dispatcher.threads_of(&claimed),
            job: claimed,
        };
        self.pool.submit(claimed.into_iter().map(submit), app.clock.monotonic());
    }

    /// One pass of the dispatcher, with the attempts that have ended. Returns the number of those that it has claimed.
    fn pass(&self, app: &App, finished: Vec<FinishedAttempt>) -> Result<usize> {
        let mut dispatcher = self.lock();
        let (now, mut hanging) = (app.clock.monotonic(), HashSet::new());
        hanging.extend(finished.iter().filter(|it| it.timed_out).map(|it| destination(&it.claimed)));
        dispatcher.give_back(
            self.pool.take_back(|it, since| hanging.contains(&it) || now >= since + LONGEST_AHEAD),
        );
        let claimed = dispatcher.run_once(app, finished, DispatcherMode::Running)?;
        let count = claimed.len();
        self.submit(app, &dispatcher, claimed);
        Ok(count)
    }

    /// The time until an attempt will have waited too long, if no result comes before.
    fn left(&self, app: &App) -> Duration {
        let oldest = self.pool.oldest();
        oldest.map_or(MAX_WAIT, |since| (since + LONGEST_AHEAD).saturating_sub(app.clock.monotonic()))
    }

    fn lock(&self) -> MutexGuard<'_, Dispatcher> {
        // A pass that panics has changed nothing: the dispatcher takes its new state over after the commit.
        self.dispatcher.lock()
    }
}

impl DeliveryService {
    /// Starts the threads. Call [`requeue_interrupted`] first.
    /// Errors: the system cannot start a thread.
    pub fn start(app: &Arc<App>, webhook_client: Arc<dyn WebhookClient>) -> std::io::Result<Self> {
        let inbox = Arc::new(Mutex::new(Vec::new()));
        let handle = Arc::new(DispatchHandle {
            dispatcher: Mutex::new(Dispatcher::new(app.config.delivery_threads)),
            pool: start_pool(app, webhook_client, &inbox)?,
            stopping: Arc::new(AtomicBool::new(false)),
        });
        let thread = {
            let (app, handle) = (Arc::clone(app), Arc::clone(&handle));
            std::thread::Builder::new()
                .name("dispatcher".to_owned())
                .spawn(move || run(&app, &handle, &inbox))?
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

/// Promotes executions whose waiting time is over to ready. Returns their number.
/// Errors: the database fails; the remaining executions are promoted by the next pass.
pub fn promote(app: &App) -> Result<u64> {
    let mut promoted = 0;
    loop {
        match promote_batch(app)? {
            0 => return Ok(promoted),
            batch => promoted += batch,
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

type Inbox = Mutex<Vec<FinishedAttempt>>;

fn start_pool(
    app: &Arc<App>,
    webhook_client: Arc<dyn WebhookClient>,
    inbox: &Arc<Inbox>,
) -> std::io::Result<DeliveryPool<ClaimedDelivery>> {
    // A weak reference: a delivery that a stop cuts off must not keep the database open.
    let (notifiers, weak_app) = (Arc::clone(&app.notifiers), Arc::downgrade(app));
    let (inbox, large_read) = (Arc::clone(inbox), Mutex::new(()));
    let run = move |claimed: ClaimedDelivery| {
        let ended = attempt(&weak_app, &*webhook_client, claimed, &large_read);
        let state = match &ended {
            Some(ended) if !ended.timed_out => {
                Destination::Answers(Duration::try_from(ended.record.duration).unwrap_or(Duration::MAX))
            }
            _ => Destination::Hangs,
        };
        (ended, state)
    };
    let record = move |ended: Option<FinishedAttempt>| {
        // One notification is enough: whoever pushed the first result has notified, and the dispatcher drains all.
        if ended.is_some_and(|ended| push(&inbox, ended)) {
            notifiers.send.notify();
        }
    };
    DeliveryPool::start(app.config.delivery_threads, cores::count() * CPU_BOUND_PER_CORE, run, record)
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

fn destination(claimed: &ClaimedDelivery) -> DestinationKey {
    (claimed.attempt_ref.user_key, claimed.attempt_ref.destination)
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

fn run(app: &App, handle: &DispatchHandle, inbox: &Inbox) {
    while !handle.stopping.load(Ordering::Acquire) {
        let seen = app.notifiers.send.generation();
        match panics::catch("the dispatcher", || handle.pass(app, drain(inbox))) {
            Ok(0) => app.clock.wait_at_most(&app.notifiers.send, seen, handle.left(app)),
            Ok(_) => {}
            Err(error) => pause_after(app, &error),
        }
    }
    let mut dispatcher = handle.lock();
    dispatcher.give_back(handle.pool.take_back(|_, _| true));
    finish(app, &mut dispatcher, inbox);
}

fn finish(app: &App, dispatcher: &mut Dispatcher, inbox: &Inbox) {
    let until = app.clock.monotonic() + DRAIN;
    while dispatcher.unfinished() > 0 && app.clock.monotonic() < until {
        let seen = app.notifiers.send.generation();
        let left = SignedDuration::try_from(until - app.clock.monotonic()).unwrap_or(SignedDuration::ZERO);
        match panics::catch("the dispatcher", || {
            dispatcher.run_once(app, drain(inbox), DispatcherMode::Draining)
        }) {
            Ok(_) if dispatcher.unfinished() == 0 => {}
            Ok(_) => app.clock.wait(&app.notifiers.send, seen, app.clock.now().checked_add(left).ok()),
            Err(error) => pause_after(app, &error),
        }
    }
    if dispatcher.unfinished() > 0 {
        tracing::warn!(count = dispatcher.unfinished(), "deliveries cut off; the next start repeats them");
    }
}

/// Adds `item` to the inbox. Returns whether the inbox was empty.
fn push<T>(inbox: &Mutex<Vec<T>>, item: T) -> bool {
    let mut inbox = inbox.lock();
    inbox.push(item);
    inbox.len() == 1
}

pub(in crate::engine) fn drain<T>(inbox: &Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut inbox.lock())
}

fn pause_after(app: &App, error: &crate::error::Error) {
    tracing::error!(%error, "delivery paused for 1 s after an error");
    app.clock.sleep(AFTER_FAULT);
}
