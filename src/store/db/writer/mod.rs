//! The writer thread: takes a batch of the queued jobs, runs each in its own savepoint, commits once, then sends the
//! results. `write_queue` decides the order of the jobs and the end of a batch.
//!
//! A result is sent only after its commit is on the disk. A job that fails is rolled back alone. An idle writer commits
//! a single job at once, and while it commits, the jobs of the next batch queue up.

mod part;
mod write_job;
pub(in crate::store) mod write_queue;
mod write_tx;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::domain::notification::event::{Emitted, EventSink};
use crate::error::{Error, Result};
use crate::metrics::Stopwatch;
use crate::panics;
use crate::store::db::checkpoints::Checkpoints;
use crate::store::db::corruption::CorruptionFlag;
use crate::store::db::readers::{Pending, execute};
use crate::store::db::write_stats::{EventCounts, WriteStats};
use crate::store::db::writer::write_job::{TypedJob, WriteJob};
use crate::store::db::writer::write_queue::{QueuedJob, WriteQueue, WriteSource};
use crate::store::db::writer::write_tx::CommitHook;

pub use crate::store::db::writer::write_tx::{WakeSet, WriteTx};

/// The listeners outside the store that learn of a commit.
#[derive(Clone)]
pub struct CommitListeners {
    /// Called after each successful commit.
    pub wake: Arc<dyn Fn(WakeSet) + Send + Sync>,
    /// Gets the events of each commit.
    pub events: Option<Arc<dyn EventSink>>,
}

/// A handle to the writer thread, which ends when the last clone of the handle is dropped.
#[derive(Clone)]
pub struct Writer {
    jobs: Sender<QueuedJob>,
    state: Arc<WriterState>,
}

/// State that the writer thread shares with its handles.
#[derive(Default)]
struct WriterState {
    /// A commit has failed, and none that changes something has succeeded since.
    is_failing: AtomicBool,
    corruption: CorruptionFlag,
    write_stats: WriteStats,
    /// Commits so far, also those that failed or changed nothing.
    commits: AtomicU64,
}

impl Writer {
    /// Starts the thread on `connection` to the file `path`, and the one of its checkpoints.
    pub fn start(
        path: &Path,
        connection: Connection,
        corruption: CorruptionFlag,
        listeners: CommitListeners,
    ) -> std::io::Result<(Self, JoinHandle<Connection>)> {
        let (jobs, submitted) = channel();
        let state = Arc::new(WriterState { corruption, ..WriterState::default() });
        let shared = Arc::clone(&state);
        let checkpoints = Checkpoints::start(path)?;
        let thread = std::thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || run(connection, checkpoints, WriteQueue::new(submitted), &listeners, &shared))?;
        Ok((Self { jobs, state }, thread))
    }

    pub fn is_writable(&self) -> bool {
        !self.state.is_failing.load(Ordering::Relaxed)
    }

    /// Commits so far. A read that begins while the number stays the same sees the same rows as one before, but for the
    /// changes of other processes: it grows before any caller has the result of its write.
    pub fn commits(&self) -> u64 {
        self.state.commits.load(Ordering::Acquire)
    }

    pub fn write_stats(&self) -> &WriteStats {
        &self.state.write_stats
    }

    /// Queues `job` for a commit, in the place that `source` gives it. It runs even if the caller drops the
    /// [`Pending`].
    pub(in crate::store) fn submit<T, F>(&self, source: WriteSource, job: F) -> Pending<T>
    where
        T: Send + 'static,
        F: FnOnce(&WriteTx<'_>) -> Result<T> + Send + 'static,
    {
        let (sender, pending) = oneshot::channel();
        // Sending fails only after the writer has ended. The result's sender is then dropped, and `Pending` returns an
        // error.
        let job = Box::new(TypedJob::new(job, sender));
        drop(self.jobs.send(QueuedJob { source, job }));
        Pending::new(pending)
    }
}

fn run(
    connection: Connection,
    mut checkpoints: Checkpoints,
    mut queue: WriteQueue,
    listeners: &CommitListeners,
    state: &WriterState,
) -> Connection {
    let sink = listeners.events.as_deref();
    Checkpoints::observe(&connection);
    let (mut last_batch, mut sync) = (0, Duration::ZERO);
    while queue.wait() {
        queue.gather(last_batch, sync);
        let mut batch = Vec::new();
        let mut committed = timed_commit(&connection, sink, &mut queue, &mut batch, state);
        match &mut committed {
            Ok(done) => {
                run_hooks(std::mem::take(&mut done.on_commit));
                let emitted = std::mem::take(&mut done.emitted);
                // Before the results: who has the result of a write finds its events handed out.
                if let Some(sink) = sink.filter(|_| !emitted.is_empty()) {
                    sink.publish(emitted);
                }
            }
            Err(fault) => tracing::error!(error = %fault, count = batch.len(), "commit failed"),
        }
        last_batch = batch.len();
        for job in batch {
            job.finish(committed.as_ref().err());
        }
        if let Ok(done) = committed {
            // A single sync may take much longer than the others.
            sync = (3 * sync + done.sync) / 4;
            (listeners.wake)(done.wake);
        }
        checkpoints.after_commit(&connection);
    }
    connection
}

/// Runs the actions of the committed writes. A panic in one of them ends neither the others nor the writer.
fn run_hooks(hooks: Vec<CommitHook>) {
    for hook in hooks {
        if let Err(error) = panics::catch("an action after a commit", || {
            hook();
            Ok(())
        }) {
            tracing::error!(error = %error, "action after a commit failed");
        }
    }
}

/// Takes a batch of `queue` into `batch` and commits it. Records the metrics before any result is sent, so that they
/// include the write of the caller that reads them.
fn timed_commit(
    connection: &Connection,
    sink: Option<&dyn EventSink>,
    queue: &mut WriteQueue,
    batch: &mut Vec<Box<dyn WriteJob>>,
    state: &WriterState,
) -> Result<CommitSummary> {
    let stopwatch = Stopwatch::start();
    let committed = commit(connection, sink, queue, batch);
    state.commits.fetch_add(1, Ordering::Release);
    match &committed {
        // A commit without changes writes nothing and succeeds even on a full disk, so it does not count.
        Ok(done) if done.changed => {
            state.write_stats.record_commit(batch.len(), stopwatch.elapsed());
            state.write_stats.add(&done.events);
            state.is_failing.store(false, Ordering::Relaxed);
        }
        Ok(_) => {}
        Err(_) => state.write_stats.failed_commits.add(1),
    }
    let errors = || batch.iter().filter_map(|job| job.error());
    if committed.is_err() || errors().any(|error| matches!(error, Error::Storage(_))) {
        state.is_failing.store(true, Ordering::Relaxed);
    }
    errors().chain(committed.as_ref().err()).for_each(|error| state.corruption.record(error));
    committed
}

/// The combined effects of the writes of a commit.
#[derive(Default)]
struct CommitSummary {
    wake: WakeSet,
    events: EventCounts,
    on_commit: Vec<CommitHook>,
    emitted: Vec<Emitted>,
    /// True if at least one row was changed.
    changed: bool,
    /// The duration of the commit itself: almost only that of a sync of the log.
    sync: Duration,
}

/// Runs a batch in one transaction. On an error no write of the batch is on the disk.
fn commit(
    connection: &Connection,
    sink: Option<&dyn EventSink>,
    queue: &mut WriteQueue,
    batch: &mut Vec<Box<dyn WriteJob>>,
) -> Result<CommitSummary> {
    if let Err(error) = begin(connection) {
        // The jobs of the batch fail without being run: their callers must not wait until the disk works again.
        let mut progress = queue.begin_batch();
        batch.extend(std::iter::from_fn(|| queue.next(&mut progress)));
        return Err(error);
    }
    let done = run_batch(connection, sink, queue, batch).and_then(|mut done| {
        // A single job that failed has already rolled the transaction back.
        if !connection.is_autocommit() {
            let stopwatch = Stopwatch::start();
            execute(connection, "COMMIT")?;
            done.sync = stopwatch.elapsed();
        }
        Ok(done)
    });
    if done.is_err() && !connection.is_autocommit() {
        execute(connection, "ROLLBACK")?;
    }
    done
}

fn begin(connection: &Connection) -> Result<()> {
    // An earlier rollback may have failed. The transaction it left open would make every later BEGIN fail.
    if !connection.is_autocommit() {
        execute(connection, "ROLLBACK")?;
    }
    execute(connection, "BEGIN IMMEDIATE")
}

fn run_batch(
    connection: &Connection,
    sink: Option<&dyn EventSink>,
    queue: &mut WriteQueue,
    batch: &mut Vec<Box<dyn WriteJob>>,
) -> Result<CommitSummary> {
    let mut done = CommitSummary::default();
    let mut progress = queue.begin_batch();
    // A savepoint copies every page that the job changes first. A single job does without: it ends with its
    // transaction.
    let is_single = queue.is_single();
    while let Some(job) = queue.next(&mut progress) {
        batch.push(job);
        if let Some(job) = batch.last_mut() {
            run_job(connection, sink, &mut **job, is_single, &mut done)?;
        }
        if is_single {
            break;
        }
    }
    Ok(done)
}

/// Runs a job of a batch and adds its effects to `done`. If it fails, only its own changes are rolled back.
fn run_job(
    connection: &Connection,
    sink: Option<&dyn EventSink>,
    job: &mut dyn WriteJob,
    is_single: bool,
    done: &mut CommitSummary,
) -> Result<()> {
    let tx = WriteTx::new(connection, sink);
    let changes = connection.total_changes();
    if !is_single {
        execute(connection, "SAVEPOINT job")?;
    }
    let has_succeeded = job.run(&tx);
    // After some errors, such as a full disk, SQLite itself rolls the whole transaction back: the batch is lost.
    if connection.is_autocommit() {
        return Err(Error::storage("a disk error rolled the transaction back"));
    }
    if has_succeeded {
        tx.counters().flush(&tx)?;
        done.wake = done.wake.merge(tx.wake.get());
        done.events.add_all(&tx.events);
        done.on_commit.append(&mut tx.on_commit.take());
        done.emitted.append(&mut tx.emitted.take());
        done.changed |= connection.total_changes() > changes;
    } else {
        execute(connection, if is_single { "ROLLBACK" } else { "ROLLBACK TO job" })?;
    }
    if !is_single {
        execute(connection, "RELEASE job")?;
    }
    Ok(())
}

/// Runs one job in a transaction of its own, on a connection that belongs to no writer thread.
#[cfg(test)]
pub(in crate::store) fn commit_single<T>(
    connection: &Connection,
    job: impl FnOnce(&WriteTx<'_>) -> Result<T>,
) -> Result<T> {
    execute(connection, "BEGIN IMMEDIATE")?;
    let tx = WriteTx::new(connection, None);
    let done = job(&tx).and_then(|done| tx.counters().flush(&tx).map(|()| done));
    execute(connection, if done.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    if done.is_ok() {
        run_hooks(tx.on_commit.take());
    }
    done
}
