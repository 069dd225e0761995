//! Takes up what is ready and records what has ended, in one commit per pass. It sends nothing itself: see `delivery`.

use std::sync::Arc;

use crate::app::App;
use crate::engine::delivery::fair_share::FairShare;
use crate::error::{Error, Result};
use crate::lifecycle::finish::record_attempt;
use crate::store::WriteTx;
use crate::store::executions::delivery_queue;
use crate::store::executions::delivery_queue::{AttemptRecord, ClaimedDelivery};

/// An attempt that has come back from a thread.
pub struct FinishedAttempt {
    /// What is recorded of it.
    pub ended: AttemptRecord,
    /// Whether the receiver kept its thread until the time was up.
    pub timed_out: bool,
    /// Why it was no success, in one word; `none` for one that was.
    pub cause: &'static str,
}

/// Whether a pass takes up new attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DispatcherMode {
    /// It does.
    Running,
    /// It only records: the program is stopping.
    Draining,
}

/// The deliveries between two passes.
pub struct Dispatcher {
    shares: FairShare,
    /// The lane that was looked at last: the next pass goes on behind it.
    lane: i64,
    /// Attempts whose result is not on the disk yet.
    unstored: Vec<Arc<AttemptRecord>>,
}

impl Dispatcher {
    /// A dispatcher for this many delivery threads.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self { shares: FairShare::new(threads), lane: 0, unstored: Vec::new() }
    }

    /// Attempts that are under way or not recorded yet.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.shares.under_way() + self.unstored.len()
    }

    /// One pass: records what came back and takes up what there are threads for, all in one write. Where there is
    /// nothing to do nothing is written.
    ///
    /// # Errors
    /// When the file cannot be read or written. Nothing was taken then; results are kept for the next pass.
    pub fn run_once(
        &mut self,
        app: &App,
        returned: Vec<FinishedAttempt>,
        intake: DispatcherMode,
    ) -> Result<Vec<ClaimedDelivery>> {
        let _pass = app.engine_stats.begin_pass(&app.notifiers.progress);
        for FinishedAttempt { ended, timed_out, cause } in returned {
            app.engine_stats.deliveries.attempts.with([ended.next.status().as_str(), cause]).add(1);
            self.shares.release(ended.ticket.lane, timed_out);
            self.unstored.push(Arc::new(ended));
        }
        // Where results are written anyway, a look for what is ready costs less there.
        let takes = intake == DispatcherMode::Running
            && self.shares.free() > 0
            && (!self.unstored.is_empty() || app.store.read_blocking(delivery_queue::any_to_send)?);
        let taken = match (self.unstored.is_empty(), takes) {
            (true, false) => Ok(Vec::new()),
            (_, takes) => self.write(app, takes, |_| Ok(())).map(|((), taken)| taken),
        };
        // Trying again mends a disk, not a fault: what can be recorded is, so that the rest holds up nothing.
        if matches!(taken, Err(Error::Fault(_) | Error::Damaged(_))) {
            self.record_each(app)?;
        }
        self.shares.forget_idle();
        taken
    }

    /// One write: records what came back, does `first`, and takes up what is ready then, where it `takes`.
    ///
    /// # Errors
    /// As [`Dispatcher::run_once`], and what `first` answers.
    pub fn write<T: Send + 'static>(
        &mut self,
        app: &App,
        takes: bool,
        first: impl FnOnce(&WriteTx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<(T, Vec<ClaimedDelivery>)> {
        let (now, unstored) = (app.clock.now(), self.unstored.clone());
        let (mut shares, mut lane) = (self.shares.clone(), self.lane);
        let most = if takes { shares.free() } else { 0 };
        let write = app.store.write(move |tx| {
            for ended in &unstored {
                record_attempt(tx, ended, now)?;
            }
            let done = first(tx)?;
            let taken =
                delivery_queue::claim_batch(tx, now, most, &mut lane, |lane| shares.try_acquire(lane))?;
            Ok((done, taken, shares, lane))
        });
        let (done, taken);
        (done, taken, self.shares, self.lane) = write.wait()?;
        let recorded = std::mem::take(&mut self.unstored).len();
        count(app, recorded);
        Ok((done, taken))
    }

    /// Records one by one what could not be recorded together. The result at fault is given up: the next start
    /// delivers that execution again.
    fn record_each(&mut self, app: &App) -> Result<()> {
        let now = app.clock.now();
        while let Some(ended) = self.unstored.last().map(Arc::clone) {
            let id = ended.ticket.id;
            match app.store.write(move |tx| record_attempt(tx, &ended, now)).wait() {
                Err(error @ Error::Storage(_)) => return Err(error),
                Err(error) => tracing::error!("the result of execution {id} cannot be recorded: {error}"),
                Ok(_) => {}
            }
            self.unstored.pop();
            count(app, 1);
        }
        Ok(())
    }
}

/// Counts attempts whose end is on the disk.
fn count(app: &App, attempts: usize) {
    if attempts > 0 {
        app.engine_stats.add_delivered(u64::try_from(attempts).unwrap_or(u64::MAX));
    }
}
