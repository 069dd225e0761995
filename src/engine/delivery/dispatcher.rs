//! Webhook delivery as a service. The dispatcher claims executions that are ready to be sent and records attempts that
//! have ended, in one commit per pass; the threads of a pool send them (`attempt`). This file also promotes executions
//! whose waiting time is over and requeues those that an earlier process left in flight.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::app::{App, CallLimiter};
use crate::domain::account::plan::CALL_INTERVAL;
use crate::domain::notification::event::EventType;
use crate::domain::row_keys::CueKey;
use crate::domain::time::saturating_add;
use crate::domain::webhook::flow::{FlowState, is_flow};
use crate::engine::delivery::attempt::{FinishedAttempt, cause_label, deliver, log, unread};
use crate::engine::delivery::fair_share::{AttemptEnd, DestinationKey, FairShare};
use crate::engine::delivery::threads::{DeliveryThreads, SMALL};
use crate::engine::webhook_client::WebhookClient;
use crate::engine::{EngineThread, NextPass, run_if_due, run_passes};
use crate::error::{Error, Result};
use crate::service::deadlines::fail_expired;
use crate::service::events;
use crate::service::finish::record_attempt;
use crate::service::fire::CueFirer;
use crate::store::cues::flows;
use crate::store::executions::delivery_queue::{
    self, AttemptRecord, ClaimedDelivery, LoadedDelivery,
};
use crate::store::fair_queue::{Grant, Rotation};
use crate::store::{WakeSet, WriteTx};
use crate::system::cores;
use crate::system::locks::Mutex;
use crate::system::panics;

/// Waiting executions promoted in one transaction; as many as the cues that one transaction fires.
const BATCH: u32 = 500;

/// Attempts under way for each thread. On a slow disk a commit takes as long as many attempts, and results wait for the
/// next one while others are sent: with commits of 12 ms, a destination that has 128 of 512 makes about 5,000
/// deliveries a second.
const AHEAD: usize = 8;

/// An attempt up to this duration is quick ([`AttemptEnd::Quick`]).
const QUICK: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DispatcherMode {
    Running,
    /// The program is stopping: a pass only records ended attempts.
    Draining,
}

pub struct Dispatcher {
    claims: Arc<Mutex<Claims>>,
    unrecorded: Vec<Arc<AttemptRecord>>,
}

struct Claims {
    share: FairShare,
    rotation: Rotation,
    /// Granted in the write that runs.
    uncommitted: Vec<DestinationKey>,
    /// When the next claim may find more: at the next turn of the flows that this one has met, or soon if it has not
    /// tried all destinations.
    next: NextPass,
}

impl Claims {
    /// Claims what the shares allow. Users with unconfirmed addresses have only the calls that `calls` admits: their
    /// other executions wait for the next.
    fn claim(
        &mut self,
        tx: &WriteTx<'_>,
        now: Timestamp,
        calls: Option<&CallLimiter>,
    ) -> Result<Vec<ClaimedDelivery>> {
        let Self { share, rotation, uncommitted, next } = self;
        let (mut held_up, mut turns) = (BTreeMap::new(), FlowTurns::new(now));
        let claimed = delivery_queue::claim_batch(tx, now, rotation, |user_key, destination| {
            if let Some(seconds) = calls.and_then(|calls| calls.lock().refused_for(user_key, now)) {
                held_up.insert(user_key, seconds);
                return Ok(Grant::AccountBusy);
            }
            let key = (user_key, destination);
            if is_flow(destination) && !turns.has_turn(tx, key, share.under_way_of(key))? {
                return Ok(Grant::DestinationBusy);
            }
            let grant = share.try_acquire(user_key, destination);
            if grant == Grant::Granted {
                uncommitted.push(key);
                turns.start(key);
                if let Some(calls) = calls
                    && delivery_queue::is_unconfirmed(tx, user_key)?
                {
                    calls.lock().admit(user_key, now);
                }
            }
            Ok(grant)
        })?;
        turns.save(tx, &claimed)?;
        *next = if rotation.leaves_untried() { NextPass::Soon } else { NextPass::At(turns.next) };
        for (user_key, seconds) in held_up {
            let free_at = saturating_add(now, SignedDuration::from_secs(i64::from(seconds)));
            delivery_queue::hold_up(tx, user_key, free_at, CALL_INTERVAL, now)?;
        }
        Ok(claimed)
    }

    fn end_write(&mut self, is_committed: bool) {
        for (user_key, destination) in self.uncommitted.drain(..).filter(|_| !is_committed) {
            self.share.release(user_key, destination, AttemptEnd::Unclaimed);
        }
        self.share.forget_idle();
    }
}

/// The turns that a pass gives to flows.
struct FlowTurns {
    now: Timestamp,
    flows: HashMap<DestinationKey, FlowState>,
    next: Option<Timestamp>,
}

impl FlowTurns {
    fn new(now: Timestamp) -> Self {
        Self { now, flows: HashMap::new(), next: None }
    }

    /// Returns whether the limits of the flow allow another attempt beside those `under_way`.
    fn has_turn(
        &mut self,
        tx: &WriteTx<'_>,
        key: DestinationKey,
        under_way: usize,
    ) -> Result<bool> {
        let flow = match self.flows.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let mut flow = flows::find(tx, key.0, key.1)?;
                if flow.last_at.is_some_and(|last| last > self.now) {
                    flows::forget_starts(tx, key.0, key.1)?;
                    flow.last_at = None;
                }
                new.insert(flow)
            }
        };
        let turn = flow.turn(self.now).filter(|turn| *turn > self.now);
        self.next = self.next.into_iter().chain(turn).min();
        Ok(turn.is_none() && flow.has_room(under_way))
    }

    fn start(&mut self, key: DestinationKey) {
        if let Some(flow) = self.flows.get_mut(&key) {
            flow.start(self.now);
        }
    }

    /// Keeps the starts of the latest attempts.
    fn save(&self, tx: &WriteTx<'_>, claimed: &[ClaimedDelivery]) -> Result<()> {
        let in_flows = claimed.iter().filter(|it| is_flow(it.attempt_ref.destination));
        let newest: HashMap<DestinationKey, CueKey> =
            in_flows.map(|it| (it.destination_key(), it.attempt_ref.cue_key)).collect();
        for (key, flow) in &self.flows {
            if let (Some(cue_key), Some(last_at)) = (newest.get(key), flow.last_at) {
                flows::set_last(tx, *cue_key, last_at)?;
            }
        }
        Ok(())
    }
}

impl Dispatcher {
    pub fn new(threads: usize) -> Self {
        let (share, rotation) =
            (FairShare::new(threads, threads.max(1) * AHEAD), Rotation::default());
        let next = NextPass::At(None);
        let claims = Claims { share, rotation, uncommitted: Vec::new(), next };
        Self { claims: Arc::new(Mutex::new(claims)), unrecorded: Vec::new() }
    }

    /// Number of attempts that wait for a thread, run, or are not recorded yet.
    pub fn unfinished(&self) -> usize {
        self.claims.lock().share.under_way() + self.unrecorded.len()
    }

    /// One pass: records the attempts in `finished` and claims as many executions as their shares allow, in one write.
    /// Writes nothing if there is nothing to do.
    pub fn run_once(
        &mut self,
        app: &App,
        finished: Vec<FinishedAttempt>,
        mode: DispatcherMode,
    ) -> Result<Vec<ClaimedDelivery>> {
        let _pass = app.engine_stats.begin_pass(&app.notifiers.progress);
        let is_full = self.release(app, finished);
        // If results are written anyway, the write itself finds the executions that are ready: one read less.
        let may_claim = mode == DispatcherMode::Running
            && !is_full
            && (!self.unrecorded.is_empty()
                || app.store.read_blocking(delivery_queue::has_ready)?);
        if self.unrecorded.is_empty() && !may_claim {
            return Ok(Vec::new());
        }
        let claimed = self.write(app, may_claim, |_| Ok(())).map(|((), claimed)| claimed);
        // A retry helps after a disk error, not after a fault: record the results one by one, so that one bad record
        // does not block the others.
        if matches!(claimed, Err(Error::Fault(_) | Error::Corrupt(_))) {
            self.record_each(app)?;
        }
        claimed
    }

    fn next(&self) -> NextPass {
        self.claims.lock().next
    }

    /// Frees the shares of ended attempts. Returns whether no other one may be claimed.
    fn release(&mut self, app: &App, finished: Vec<FinishedAttempt>) -> bool {
        let mut claims = self.claims.lock();
        claims.next = NextPass::At(None);
        for ended in finished {
            let labels = [ended.record.next.status().as_str(), cause_label(ended.record.cause)];
            app.engine_stats.attempts.with(labels).add(1);
            let end = match Duration::try_from(ended.record.duration) {
                _ if ended.has_timed_out() => AttemptEnd::TimedOut,
                Ok(took) if took > QUICK => AttemptEnd::InTime,
                _ => AttemptEnd::Quick,
            };
            let (user_key, destination) = ended.claimed.destination_key();
            claims.share.release(user_key, destination, end);
            self.unrecorded.push(Arc::new(ended.record));
        }
        claims.share.is_full()
    }

    /// One write: records the ended attempts, runs `first`, then claims executions if `may_claim`.
    pub fn write<T: Send + 'static>(
        &mut self,
        app: &App,
        may_claim: bool,
        first: impl FnOnce(&WriteTx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<(T, Vec<ClaimedDelivery>)> {
        let (now, unrecorded, claims) =
            (app.clock.now(), self.unrecorded.clone(), Arc::clone(&self.claims));
        let (firer, calls) = (CueFirer::new(app, now), app.unconfirmed_calls.clone());
        let write = app.store.write_with_priority(move |tx| {
            for record in &unrecorded {
                record_attempt(tx, record, &firer)?;
            }
            let done = first(tx)?;
            let claimed = if !may_claim {
                Vec::new()
            } else if fail_expired(tx, &firer)? {
                tx.wake(WakeSet { send: true, ..WakeSet::default() });
                Vec::new()
            } else {
                claims.lock().claim(tx, now, calls.as_ref())?
            };
            for ClaimedDelivery { attempt_ref: it, .. } in &claimed {
                events::execution(tx, EventType::ExecutionStarted, it.user_key, it.key, now);
            }
            Ok((done, claimed))
        });
        let written = write.wait();
        self.claims.lock().end_write(written.is_ok());
        if written.is_ok() {
            app.engine_stats.delivered.add(self.unrecorded.len() as u64);
            self.unrecorded.clear();
        }
        app.engine_stats.record_unfinished(self.unfinished());
        written
    }

    /// Records the ended attempts one by one after they failed together. One that cannot be recorded is dropped: the
    /// next start delivers that execution again.
    fn record_each(&mut self, app: &App) -> Result<()> {
        let now = app.clock.now();
        while let Some(record) = self.unrecorded.last().map(Arc::clone) {
            let id = record.attempt_ref.id;
            let firer = CueFirer::new(app, now);
            match app
                .store
                .write_with_priority(move |tx| record_attempt(tx, &record, &firer))
                .wait()
            {
                Err(error @ Error::Storage(_)) => return Err(error),
                Err(error) => {
                    tracing::error!(execution_id = %id, %error, "cannot record an attempt")
                }
                Ok(_) => {}
            }
            self.unrecorded.pop();
            app.engine_stats.delivered.add(1);
            app.engine_stats.record_unfinished(self.unfinished());
        }
        Ok(())
    }
}

/// The dispatcher and the threads, for the dispatcher's own thread and for the scheduler, which fires cues and claims
/// their executions in one write.
pub struct DeliveryService {
    dispatcher: Mutex<Dispatcher>,
    threads: DeliveryThreads,
    stopping: Arc<AtomicBool>,
}

impl DeliveryService {
    /// Starts the threads. Call [`requeue_interrupted`] first. A stop claims nothing more and waits until the running
    /// attempts are recorded, for 30 s at most; one that is cut off is made again after the next start.
    pub fn start(
        app: &Arc<App>,
        webhook_client: Arc<dyn WebhookClient>,
    ) -> io::Result<(Arc<Self>, EngineThread)> {
        let stopping = Arc::new(AtomicBool::new(false));
        let service = Arc::new(Self {
            dispatcher: Mutex::new(Dispatcher::new(app.config.delivery_threads)),
            threads: start_threads(app, webhook_client)?,
            stopping: Arc::clone(&stopping),
        });
        let shared = (Arc::clone(app), Arc::clone(&service));
        let thread = EngineThread::start("dispatcher", stopping, move |_| shared.1.run(&shared.0))?;
        Ok((service, thread))
    }

    /// Runs `first` and, unless a pass is running, claims the executions that are ready in the same write: a single
    /// due cue costs one commit, not two. The caller notifies `send` for the executions that are left.
    pub fn write<T: Send + 'static>(
        &self,
        app: &App,
        first: impl FnOnce(&WriteTx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let is_running = !self.stopping.load(Ordering::Acquire);
        let Some(mut dispatcher) = self.dispatcher.try_lock().filter(|_| is_running) else {
            return app.store.write_with_priority(first).wait();
        };
        let (done, claimed) = dispatcher.write(app, true, first)?;
        self.threads.submit(claimed);
        if dispatcher.next() != NextPass::At(None) {
            // The dispatcher waits for the next claim.
            app.notifiers.send.notify();
        }
        Ok(done)
    }

    fn run(&self, app: &App) {
        let unfinished = || self.dispatcher.lock().unfinished();
        run_passes(
            app,
            ("the dispatcher", "delivery paused for 1 s after an error"),
            &app.notifiers.send,
            &self.stopping,
            unfinished,
            |mode| {
                // Held until the attempts are queued: those that the scheduler claims next are younger.
                let mut dispatcher = self.dispatcher.lock();
                let claimed = dispatcher.run_once(app, self.threads.take_finished(), mode)?;
                let has_claimed = !claimed.is_empty();
                self.threads.submit(claimed);
                // There may be more to claim.
                Ok(if has_claimed { NextPass::Again } else { dispatcher.next() })
            },
        );
        if unfinished() > 0 {
            tracing::warn!(count = unfinished(), "deliveries cut off; the next start repeats them");
        }
    }
}

/// Promotes the executions that have waited longest, in one transaction. Returns their number; if it is not 0, call
/// again.
pub fn promote_batch(app: &App) -> Result<u64> {
    let now = app.clock.now();
    let promote = move |tx: &WriteTx<'_>, _: &CueFirer| delivery_queue::promote_due(tx, now, BATCH);
    let promoted = run_if_due(app, now, delivery_queue::next_due_at, promote)?;
    app.engine_stats.heartbeat(app.clock.monotonic());
    Ok(promoted)
}

/// Requeues the executions that an earlier process left in flight. Returns their number. Only valid before
/// [`DeliveryService::start`].
pub fn requeue_interrupted(app: &App) -> Result<usize> {
    let now = app.clock.now();
    app.store.write_with_priority(move |tx| delivery_queue::requeue_interrupted(tx, now)).wait()
}

fn start_threads(
    app: &Arc<App>,
    webhook_client: Arc<dyn WebhookClient>,
) -> io::Result<DeliveryThreads> {
    // A weak reference: a delivery that a stop cuts off must not keep the database open.
    let (notifiers, weak_app) = (Arc::clone(&app.notifiers), Arc::downgrade(app));
    let large_read = Mutex::new(());
    DeliveryThreads::start(
        app.config.delivery_threads,
        cores::count(),
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
        let now = app.clock.now();
        // Later attempts are late by the retry policy.
        if claimed.attempt_ref.attempt == 1 {
            let late = Duration::try_from(now.duration_since(claimed.attempt_ref.scheduled_for));
            app.engine_stats.lateness.observe_duration(late.unwrap_or(Duration::ZERO));
        }
        (app.clock.monotonic(), load(&app, claimed, large_read).map_err(|error| (error, now)))
    };
    let mut ended = match loaded {
        Ok(loaded) => {
            deliver(webhook_client, loaded, || weak_app.upgrade().map(|app| app.clock.now()))?
        }
        Err((error, now)) => unread(claimed, &error, now),
    };
    let app = weak_app.upgrade()?;
    let took = app.clock.monotonic().saturating_sub(started);
    ended.record.duration = SignedDuration::try_from(took).unwrap_or(SignedDuration::MAX);
    app.engine_stats.attempt_durations.observe_duration(took);
    log(&ended, took);
    Some(ended)
}

/// Reads the request of a claimed delivery. Large ones are read one at a time: SQLite holds a second copy during the
/// read, and the scheduler must find a free connection.
fn load(app: &App, claimed: ClaimedDelivery, large_read: &Mutex<()>) -> Result<LoadedDelivery> {
    let _turn = (claimed.bytes > SMALL).then(|| large_read.lock());
    panics::catch("a delivery", || {
        app.store.read_blocking(|read| delivery_queue::load_request(read, claimed))
    })
}
