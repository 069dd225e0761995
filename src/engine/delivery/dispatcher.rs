//! Claims executions that are ready to be sent and records attempts that have ended, in one commit per pass. The
//! dispatcher sends nothing itself: `delivery_service` owns its thread and the thread pool.

use std::sync::Arc;

use crate::app::App;
use crate::domain::execution::failure_cause::FailureCause;
use crate::domain::notification::event::EventType;
use crate::domain::webhook::request::AttemptRef;
use crate::engine::delivery::fair_share::FairShare;
use crate::engine::delivery::memory_budget::MemoryBudget;
use crate::error::{Error, Result};
use crate::lifecycle::attempt::record_attempt;
use crate::lifecycle::events;
use crate::store::WriteTx;
use crate::store::executions::delivery_queue;
use crate::store::executions::delivery_queue::{AttemptRecord, ClaimLimits, ClaimedDelivery};
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
}

/// The threads and the memory that the running deliveries hold.
#[derive(Clone)]
struct DeliveryShares {
    threads: FairShare,
    memory: MemoryBudget,
}

impl ClaimLimits for DeliveryShares {
    fn grant(&mut self, user_key: i64, destination: i64) -> Grant {
        self.threads.grant(user_key, destination)
    }

    fn try_take(&mut self, claimed: &ClaimedDelivery) -> bool {
        let AttemptRef { user_key, destination, .. } = claimed.attempt_ref;
        let has_memory = self.memory.try_take(claimed, self.threads.is_trusted(user_key));
        if has_memory {
            self.threads.acquire(user_key, destination);
        }
        has_memory
    }
}

impl Dispatcher {
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let shares = DeliveryShares { threads: FairShare::new(threads), memory: MemoryBudget::default() };
        Self { shares, rotation: Rotation::default(), unrecorded: Vec::new() }
    }

    /// Number of attempts that run or are not recorded yet.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.shares.threads.in_use() + self.unrecorded.len()
    }

    /// One pass: records the attempts in `finished` and claims as many executions as there are free threads, in one
    /// write. Writes nothing if there is nothing to do.
    ///
    /// # Errors
    /// The database fails. Nothing is claimed then, and the results are kept for the next pass.
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
            self.shares.memory.release(&claimed);
            self.unrecorded.push(Arc::new(record));
        }
        // If results are written anyway, the write itself finds the executions that are ready: one read less.
        let may_claim = mode == DispatcherMode::Running
            && self.shares.threads.free() > 0
            && (!self.unrecorded.is_empty() || app.store.read_blocking(delivery_queue::has_ready)?);
        let claimed = match (self.unrecorded.is_empty(), may_claim) {
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
    ///
    /// # Errors
    /// As [`Dispatcher::run_once`], and the errors of `first`.
    pub fn write<T: Send + 'static>(
        &mut self,
        app: &App,
        may_claim: bool,
        first: impl FnOnce(&WriteTx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<(T, Vec<ClaimedDelivery>)> {
        let (now, unrecorded) = (app.clock.now(), self.unrecorded.clone());
        let firer = app.cue_firer(now);
        let (mut shares, mut rotation) = (self.shares.clone(), self.rotation.clone());
        let most = if may_claim { shares.threads.free() } else { 0 };
        let write = app.store.write_with_priority(move |tx| {
            for record in &unrecorded {
                record_attempt(tx, record, &firer)?;
            }
            let done = first(tx)?;
            let claimed = delivery_queue::claim_batch(tx, now, most, &mut rotation, &mut shares)?;
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
        let recorded = std::mem::take(&mut self.unrecorded).len();
        count(app, recorded);
        Ok((done, claimed))
    }

    /// Records the ended attempts one by one after they failed together. A result that cannot be recorded is dropped:
    /// the next start delivers that execution again.
    fn record_each(&mut self, app: &App) -> Result<()> {
        let now = app.clock.now();
        while let Some(record) = self.unrecorded.last().map(Arc::clone) {
            let id = record.attempt_ref.id;
            let firer = app.cue_firer(now);
            match app.store.write_with_priority(move |tx| record_attempt(tx, &record, &firer)).wait() {
                Err(error @ Error::Storage(_)) => return Err(error),
                Err(error) => tracing::error!(execution_id = %id, %error, "cannot record an attempt"),
                Ok(_) => {}
            }
            self.unrecorded.pop();
            count(app, 1);
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
