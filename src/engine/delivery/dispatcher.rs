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
use crate::engine::delivery::fair_share::{AttemptEnd, DestinationKey, FairShare};
use crate::error::{Error, Result};
use crate::locks::Mutex;
use crate::service::events;
use crate::service::fire::CueFirer;
use crate::service::outcome::record_attempt;
use crate::store::WriteTx;
use crate::store::executions::delivery_queue::{AttemptRecord, ClaimedDelivery};
use crate::store::executions::{delivery_queue, queue_changes};
use crate::store::fair_queue::{Grant, Rotation};

/// Attempts under way for each thread. On a slow disk a commit takes as long as many attempts, and results wait for the
/// next one while others are sent: with commits of 12 ms, a destination that has 128 of 512 makes about 5,000 deliveries a
/// second.
const AHEAD: usize = 8;

/// An attempt up to this duration is quick ([`AttemptEnd::Quick`]).
const QUICK: Duration = Duration::from_millis(50);

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
    claims: Arc<Mutex<Claims>>,
    /// Ended attempts that are not committed yet.
    unrecorded: Vec<Arc<AttemptRecord>>,
}

struct Claims {
    share: FairShare,
    rotation: Rotation,
    /// Granted in the write that runs.
    uncommitted: Vec<DestinationKey>,
}

impl Claims {
    /// Claims what the shares allow. Users with unconfirmed addresses have only the calls that `calls` admits: their other
    /// executions wait for the next.
    fn claim(
        &mut self,
        tx: &WriteTx<'_>,
        now: Timestamp,
        calls: Option<&CallLimiter>,
    ) -> Result<Vec<ClaimedDelivery>> {
        let Self { share, rotation, uncommitted } = self;
        let mut held_up = BTreeMap::new();
        let claimed = delivery_queue::claim_batch(tx, now, rotation, |user_key, destination| {
            if let Some(seconds) = calls.and_then(|calls| calls.lock().refused_for(user_key, now)) {
                held_up.insert(user_key, seconds);
                return Ok(Grant::AccountBusy);
            }
            let grant = share.try_acquire(user_key, destination);
            if grant == Grant::Granted {
                uncommitted.push((user_key, destination));
                if let Some(calls) = calls
                    && queue_changes::is_unconfirmed(tx, user_key)?
                {
                    calls.lock().admit(user_key, now);
                }
            }
            Ok(grant)
        })?;
        for (user_key, seconds) in held_up {
            let free_at = saturating_add(now, SignedDuration::from_secs(i64::from(seconds)));
            queue_changes::hold_up(tx, user_key, (free_at, CALL_INTERVAL), now)?;
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

impl Dispatcher {
    pub fn new(threads: usize) -> Self {
        let (share, rotation) = (FairShare::new(threads, threads.max(1) * AHEAD), Rotation::default());
        let claims = Claims { share, rotation, uncommitted: Vec::new() };
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
            && (!self.unrecorded.is_empty() || app.store.read_blocking(delivery_queue::has_ready)?);
        if self.unrecorded.is_empty() && !may_claim {
            return Ok(Vec::new());
        }
        let claimed = self.write(app, may_claim, |_| Ok(())).map(|((), claimed)| claimed);
        // A retry helps after a disk error, not after a fault: record the others one by one, so that a result that can
        // never be recorded holds up nothing.
        if matches!(claimed, Err(Error::Fault(_) | Error::Corrupt(_))) {
            self.record_each(app)?;
        }
        claimed
    }

    /// Frees the shares of ended attempts. Returns whether no other one may be claimed.
    fn release(&mut self, app: &App, finished: Vec<FinishedAttempt>) -> bool {
        let mut claims = self.claims.lock();
        for FinishedAttempt { claimed, record, timed_out, .. } in finished {
            let labels = [record.next.status().as_str(), cause_label(record.cause)];
            app.engine_stats.deliveries.attempts.with(labels).add(1);
            let end = match Duration::try_from(record.duration) {
                _ if timed_out => AttemptEnd::TimedOut,
                Ok(took) if took > QUICK => AttemptEnd::InTime,
                _ => AttemptEnd::Quick,
            };
            let (user_key, destination) = claimed.destination_key();
            claims.share.release(user_key, destination, end);
            self.unrecorded.push(Arc::new(record));
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
        let (now, unrecorded, claims) = (app.clock.now(), self.unrecorded.clone(), Arc::clone(&self.claims));
        let (firer, calls) = (CueFirer::new(app, now), app.unconfirmed_calls.clone());
        let write = app.store.write_with_priority(move |tx| {
            for record in &unrecorded {
                record_attempt(tx, record, &firer)?;
            }
            let done = first(tx)?;
            let claimed = if may_claim { claims.lock().claim(tx, now, calls.as_ref())? } else { Vec::new() };
            for ClaimedDelivery { attempt_ref: it, .. } in &claimed {
                events::execution(tx, EventType::ExecutionStarted, it.user_key, it.key, now);
            }
            Ok((done, claimed))
        });
        let written = write.wait();
        self.claims.lock().end_write(written.is_ok());
        let written = written?;
        let recorded = std::mem::take(&mut self.unrecorded).len();
        count(app, recorded);
        Ok(written)
    }

    /// Records the ended attempts one by one after they failed together. One that cannot be recorded is dropped: the next
    /// start delivers that execution again.
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
