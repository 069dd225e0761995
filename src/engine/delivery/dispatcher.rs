//! Claims executions that are ready to be sent and records attempts that have ended, in one commit per pass. The
//! dispatcher sends nothing itself: `delivery_service` owns its thread and the thread pool.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::app::{App, CallLimiter};
use crate::domain::account::plan::CALL_INTERVAL;
use crate::domain::execution::failure_cause::FailureCause;
use crate::domain::notification::event::EventType;
use crate::domain::time::saturating_add;
use crate::domain::webhook::request::AttemptRef;
use crate::engine::delivery::fair_share::FairShare;
use crate::engine::delivery::memory_budget::{MemoryBudget, SMALL};
use crate::error::{Error, Result};
use crate::service::events;
use crate::service::fire::CueFirer;
use crate::service::outcome::record_attempt;
use crate::store::WriteTx;
use crate::store::executions::delivery_queue;
use crate::store::executions::delivery_queue::{AttemptRecord, ClaimLimits, ClaimedDelivery};
use crate::store::executions::queue_changes;
use crate::store::fair_queue::{Grant, Rotation};

/// An attempt that a delivery thread has ended.
pub struct FinishedAttempt {
    pub claimed: ClaimedDelivery,
    pub record: AttemptRecord,
    /// True if the attempt ended by its timeout.
    pub timed_out: bool,
    /// More than the error message says, for the log only.
    pub detail: Option<String>,
    /// The public id of the cue, for the log only.
    pub cue_id: Option<String>,
}

/// The mode of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DispatcherMode {
    Running,
    /// The program is stopping: a pass only records ended attempts.
    Draining,
}

/// The state of the deliveries between two passes.
pub struct Dispatcher {
    shares: DeliveryShares,
    rotation: Rotation,
    /// Ended attempts that are not committed yet.
    unrecorded: Vec<Arc<AttemptRecord>>,
    /// Attempts that are not made, and not back in the queue yet.
    given_back: Vec<AttemptRef>,
}

/// The threads and the memory that the deliveries under way hold.
#[derive(Clone)]
struct DeliveryShares {
    threads: FairShare,
    memory: MemoryBudget,
    /// The last grant is for an attempt ahead.
    is_ahead: bool,
    /// Counts the calls of users with unconfirmed addresses, if they are bounded.
    calls: Option<CallLimiter>,
    now: Timestamp,
    /// Users that have used up their calls, with the seconds until the next.
    held_up: BTreeMap<i64, u32>,
}

impl ClaimLimits for DeliveryShares {
    fn grant(&mut self, user_key: i64, destination: i64) -> Grant {
        let calls = self.calls.as_ref();
        if let Some(seconds) = calls.and_then(|calls| calls.lock().refused_for(user_key, self.now)) {
            self.held_up.insert(user_key, seconds);
            return Grant::AccountBusy;
        }
        let grant = self.threads.grant(user_key, destination);
        self.is_ahead = grant != Grant::Granted;
        if self.is_ahead { self.threads.grant_ahead(user_key, destination, grant) } else { grant }
    }

    fn try_take(&mut self, claimed: &ClaimedDelivery) -> bool {
        let has_room = self.try_take_room(claimed);
        if let Some(calls) = self.calls.as_ref().filter(|_| has_room && claimed.is_unconfirmed) {
            calls.lock().admit(claimed.attempt_ref.user_key, self.now);
        }
        has_room
    }
}

impl DeliveryShares {
    fn try_take_room(&mut self, claimed: &ClaimedDelivery) -> bool {
        let AttemptRef { user_key, destination, .. } = claimed.attempt_ref;
        if self.is_ahead {
            // Memory is for those that are sent. To be ahead saves little where a body is large.
            let is_small = claimed.memory() <= SMALL;
            if is_small {
                self.threads.acquire_ahead(user_key, destination);
            }
            return is_small;
        }
        let has_memory = self.memory.try_take(claimed, self.threads.is_trusted(user_key));
        if has_memory {
            self.threads.acquire(user_key, destination);
        }
        has_memory
    }
}

impl Dispatcher {
    pub fn new(threads: usize) -> Self {
        let (threads, memory) = (FairShare::new(threads), MemoryBudget::default());
        let shares = DeliveryShares {
            threads,
            memory,
            is_ahead: false,
            calls: None,
            now: Timestamp::MIN,
            held_up: BTreeMap::new(),
        };
        Self { shares, rotation: Rotation::default(), unrecorded: Vec::new(), given_back: Vec::new() }
    }

    /// Number of attempts that run, wait for a thread of their destination, or are not recorded yet.
    pub fn unfinished(&self) -> usize {
        let threads = &self.shares.threads;
        threads.in_use() + threads.ahead() + self.unrecorded.len() + self.given_back.len()
    }

    /// The threads that the destination of `claimed` holds: that many of its attempts may run now.
    pub fn threads_of(&self, claimed: &ClaimedDelivery) -> usize {
        self.shares.threads.threads_of(claimed.attempt_ref.user_key, claimed.attempt_ref.destination)
    }

    /// Takes back claimed attempts that have not begun. The next pass returns them to the queue.
    pub fn give_back(&mut self, not_begun: Vec<ClaimedDelivery>) {
        for claimed in not_begun {
            let AttemptRef { user_key, destination, .. } = claimed.attempt_ref;
            self.shares.threads.give_back(user_key, destination);
            self.shares.memory.release(&claimed);
            self.given_back.push(claimed.attempt_ref);
        }
    }

    /// One pass: records the attempts in `finished` and claims as many executions as there are free threads, and those
    /// that may go ahead, in one write. Writes nothing if there is nothing to do.
    /// Errors: the database fails. Nothing is claimed then, and the results are kept for the next pass.
    pub fn run_once(
        &mut self,
        app: &App,
        finished: Vec<FinishedAttempt>,
        mode: DispatcherMode,
    ) -> Result<Vec<ClaimedDelivery>> {
        let _pass = app.engine_stats.begin_pass(&app.notifiers.progress);
        for FinishedAttempt { claimed, record, timed_out, .. } in finished {
            let labels = [record.next.status().as_str(), cause_label(record.cause)];
            app.engine_stats.deliveries.attempts.with(labels).add(1);
            let AttemptRef { user_key, destination, .. } = claimed.attempt_ref;
            self.shares.threads.release(user_key, destination, timed_out);
            let took = Duration::try_from(record.duration).unwrap_or(Duration::ZERO);
            self.shares.threads.count_pace(user_key, destination, took);
            self.shares.memory.release(&claimed);
            self.unrecorded.push(Arc::new(record));
        }
        // If results are written anyway, the write itself finds the executions that are ready: one read less.
        let is_clear = self.unrecorded.is_empty() && self.given_back.is_empty();
        let may_claim = mode == DispatcherMode::Running
            && self.shares.threads.free() > 0
            && (!is_clear || app.store.read_blocking(delivery_queue::has_ready)?);
        let claimed = match (is_clear, may_claim) {
            (true, false) => Ok(Vec::new()),
            (_, may_claim) => self.write(app, may_claim, |_| Ok(())).map(|((), claimed)| claimed),
        };
        // A retry helps after a disk error, not after a fault: record the others one by one, so that a result that can
        // never be recorded holds up nothing.
        if matches!(claimed, Err(Error::Fault(_) | Error::Corrupt(_))) {
            self.record_each(app)?;
        }
        self.shares.threads.forget_idle();
        claimed
    }

    /// One write: records the ended attempts, runs `first`, then claims executions if `may_claim`.
    /// Errors: as [`Dispatcher::run_once`], and the errors of `first`.
    pub fn write<T: Send + 'static>(
        &mut self,
        app: &App,
        may_claim: bool,
        first: impl FnOnce(&WriteTx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<(T, Vec<ClaimedDelivery>)> {
        let (now, unrecorded, given_back) =
            (app.clock.now(), self.unrecorded.clone(), self.given_back.clone());
        let firer = CueFirer::new(app, now);
        let (mut shares, mut rotation) = (self.shares.clone(), self.rotation.clone());
        let most = if may_claim { shares.threads.claimable() } else { 0 };
        shares.threads.begin_pass();
        (shares.calls, shares.now) = (app.unconfirmed_calls.clone(), now);
        let write = app.store.write_with_priority(move |tx| {
            for record in &unrecorded {
                record_attempt(tx, record, &firer)?;
            }
            for attempt_ref in &given_back {
                queue_changes::give_back(tx, attempt_ref, now)?;
            }
            let done = first(tx)?;
            let claimed = delivery_queue::claim_batch(tx, now, most, &mut rotation, &mut shares)?;
            for (user_key, seconds) in std::mem::take(&mut shares.held_up) {
                let free_at = saturating_add(now, SignedDuration::from_secs(i64::from(seconds)));
                queue_changes::hold_up(tx, user_key, (free_at, CALL_INTERVAL), now)?;
            }
            for ClaimedDelivery { attempt_ref, .. } in &claimed {
                events::execution(
                    tx,
                    EventType::ExecutionStarted,
                    attempt_ref.user_key,
                    attempt_ref.key,
                    now,
                );
            }
            Ok((done, claimed, shares, rotation))
        });
        let (done, claimed);
        (done, claimed, self.shares, self.rotation) = write.wait()?;
        self.given_back.clear();
        let recorded = std::mem::take(&mut self.unrecorded).len();
        count(app, recorded);
        Ok((done, claimed))
    }

    /// Records the ended attempts one by one after they failed together, and so those that were given back. One that
    /// cannot be recorded is dropped: the next start delivers that execution again.
    fn record_each(&mut self, app: &App) -> Result<()> {
        let now = app.clock.now();
        while let Some(record) = self.unrecorded.last().map(Arc::clone) {
            let id = record.attempt_ref.id;
            let firer = CueFirer::new(app, now);
            match app.store.write_with_priority(move |tx| record_attempt(tx, &record, &firer)).wait() {
                Err(error @ Error::Storage(_)) => return Err(error),
                Err(error) => tracing::error!(execution_id = %id, %error, "cannot record an attempt"),
                Ok(_) => {}
            }
            self.unrecorded.pop();
            count(app, 1);
        }
        while let Some(attempt_ref) = self.given_back.last().copied() {
            let write =
                app.store.write_with_priority(move |tx| queue_changes::give_back(tx, &attempt_ref, now));
            match write.wait() {
                Err(error @ Error::Storage(_)) => return Err(error),
                Err(error) => tracing::error!(execution_id = %attempt_ref.id, %error, "cannot give back"),
                Ok(_) => {}
            }
            self.given_back.pop();
        }
        Ok(())
    }
}

/// The label of a cause in metrics and the log.
pub fn cause_label(cause: Option<FailureCause>) -> &'static str {
    cause.map_or("none", FailureCause::as_str)
}

/// Counts attempts whose result is committed.
fn count(app: &App, attempts: usize) {
    if attempts > 0 {
        app.engine_stats.add_delivered(u64::try_from(attempts).unwrap_or(u64::MAX));
    }
}
