//! The writer thread: runs the queued jobs of a batch, each in its own savepoint, and commits once. A result is sent
//! only after its commit is on the disk. A job that fails is rolled back alone.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::domain::notification::event::EventSink;
use crate::domain::row_keys::UserKey;
use crate::error::{Error, Result};
use crate::metrics::Stopwatch;
use crate::store::db::checkpoints::Checkpoints;
use crate::store::db::counters::WriteStats;
use crate::store::db::open;
use crate::store::db::transactions::{
    CommitHook, CorruptionFlag, Effects, Pending, WakeSet, WriteTx, begin, execute, join,
};
use crate::system::panics;

/// Jobs in one commit. A smaller batch pays for more commits under load. Other values were not measured.
const MAX_BATCH_JOBS: usize = 512;

/// A due run waits for one batch at most, and has 100 ms (contract §11.5), most of it for the commit on a slow disk.
const MAX_BATCH_TIME: Duration = Duration::from_millis(20);

/// The idle writer polls for this long before it sleeps. One client that creates cues: 3,320 a second with it, 2,700
/// without. It costs up to 0.2 ms of processor time per isolated write, yielded to any other thread.
const IDLE_POLL: Duration = Duration::from_micros(200);

/// The writer gathers the callers of the last batch for this share of a sync. They ask again one after the other:
/// without it the first of sixteen starts a commit alone.
const GATHER_SHARE: u32 = 4;

/// The limit on that time: on a disk with slow syncs, a quarter of one is a long wait by itself.
const MAX_GATHER: Duration = Duration::from_millis(5);

/// The writer polls through a shorter time: to sleep and wake takes about as long.
const MIN_SLEEP: Duration = Duration::from_micros(300);

#[derive(Clone)]
pub struct CommitListeners {
    pub wake: Arc<dyn Fn(WakeSet) + Send + Sync>,
    pub events: Option<Arc<dyn EventSink>>,
}

pub trait WriteFn<T>: FnOnce(&WriteTx<'_>) -> Result<T> + Send + 'static {}

impl<T, F: FnOnce(&WriteTx<'_>) -> Result<T> + Send + 'static> WriteFn<T> for F {}

/// The writer thread. Dropped, it ends after its queued jobs, and the write-ahead log is moved into the file.
pub(in crate::store) struct Writer {
    jobs: Option<Sender<QueuedJob>>,
    pub thread: Option<JoinHandle<Connection>>,
    pub state: Arc<WriterState>,
}

#[derive(Default)]
pub(in crate::store) struct WriterState {
    /// A commit has failed, and none that changes something has succeeded since.
    pub is_failing: AtomicBool,
    corruption: CorruptionFlag,
    pub write_stats: WriteStats,
    /// Commits so far, also those that failed or changed nothing. It grows before a caller has its result.
    pub commits: AtomicU64,
}

impl Writer {
    pub fn start(
        path: &Path,
        connection: Connection,
        corruption: CorruptionFlag,
        listeners: CommitListeners,
    ) -> std::io::Result<Self> {
        let (jobs, submitted) = channel();
        let state = Arc::new(WriterState { corruption, ..WriterState::default() });
        let checkpoints = Checkpoints::new(path);
        let (queue, shared) = (WriteQueue::new(submitted), Arc::clone(&state));
        let writer = WriterThread { connection, queue, listeners, state: shared };
        let thread = std::thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || writer.run(checkpoints))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), state })
    }

    /// The job runs even if the caller drops the [`Pending`].
    pub(in crate::store) fn submit<T: Send + 'static>(
        &self,
        source: WriteSource,
        job: impl WriteFn<T>,
    ) -> Pending<T> {
        let (sender, pending) = oneshot::channel();
        // Sending fails only after the writer has ended; `Pending` then returns an error.
        let job = Box::new(TypedJob { job: Some(job), result: None, sender });
        drop(self.jobs.as_ref().map(|jobs| jobs.send(QueuedJob { source, job })));
        Pending::new(pending)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(connection) = self.thread.take().and_then(join) {
            open::checkpoint(connection);
        }
    }
}

struct WriterThread {
    connection: Connection,
    queue: WriteQueue,
    listeners: CommitListeners,
    state: Arc<WriterState>,
}

impl WriterThread {
    fn run(mut self, mut checkpoints: Checkpoints) -> Connection {
        Checkpoints::observe(&self.connection);
        let (mut last_batch, mut sync) = (0, Duration::ZERO);
        while self.queue.wait() {
            self.queue.gather(last_batch, sync);
            let mut batch = Vec::new();
            let mut committed = self.timed_commit(&mut batch);
            match &mut committed {
                Ok(done) => {
                    if done.effects.checkpoint {
                        checkpoints.run_full(&self.connection);
                    }
                    run_hooks(std::mem::take(&mut done.effects.on_commit));
                    let emitted = std::mem::take(&mut done.effects.emitted);
                    // Before the results: who has the result of a write finds its events handed out.
                    if let Some(sink) = self.sink().filter(|_| !emitted.is_empty()) {
                        sink.publish(emitted);
                    }
                }
                Err(Error::Storage(_)) => {}
                Err(fault) => tracing::error!(error = %fault, count = batch.len(), "commit failed"),
            }
            last_batch = batch.len();
            for job in batch {
                job.finish(committed.as_ref().err());
            }
            if let Ok(done) = committed {
                // A single sync may take much longer than the others.
                sync = (3 * sync + done.sync) / 4;
                (self.listeners.wake)(done.effects.wake);
            }
            checkpoints.after_commit(&self.connection);
        }
        self.connection
    }

    fn sink(&self) -> Option<&dyn EventSink> {
        self.listeners.events.as_deref()
    }

    /// Records the metrics before any result is sent: they include the write of the caller that reads them.
    fn timed_commit(&mut self, batch: &mut Vec<Job>) -> Result<CommitSummary> {
        let stopwatch = Stopwatch::start();
        let committed = self.commit(batch);
        let state = &self.state;
        state.commits.fetch_add(1, Ordering::Release);
        match &committed {
            // A commit without changes writes nothing and succeeds even on a full disk, so it does not count.
            Ok(done) if done.changed => {
                state.write_stats.record_commit(batch.len(), stopwatch.elapsed());
                state.write_stats.add(&done.effects.events);
                if state.is_failing.swap(false, Ordering::Relaxed) {
                    tracing::info!("the database can be written again");
                }
            }
            Ok(_) => {}
            Err(_) => state.write_stats.failed_commits.add(1),
        }
        let errors = || batch.iter().filter_map(|job| job.error());
        let is_storage = |error: &&Error| matches!(error, Error::Storage(_));
        // Logged once: a full disk refuses every write.
        if let Some(error) = committed.as_ref().err().or_else(|| errors().find(is_storage))
            && !state.is_failing.swap(true, Ordering::Relaxed)
        {
            tracing::error!(%error, "the database cannot be written: writes are refused until it can");
        }
        errors().chain(committed.as_ref().err()).for_each(|error| state.corruption.record(error));
        committed
    }

    fn commit(&mut self, batch: &mut Vec<Job>) -> Result<CommitSummary> {
        if let Err(error) = begin(&self.connection, "BEGIN IMMEDIATE") {
            // The jobs of the batch fail without being run: their callers must not wait until the disk works again.
            let mut progress = self.queue.begin_batch();
            batch.extend(std::iter::from_fn(|| self.queue.next(&mut progress)));
            return Err(error);
        }
        let done = self.run_batch(batch).and_then(|mut done| {
            if !self.connection.is_autocommit() {
                let stopwatch = Stopwatch::start();
                execute(&self.connection, "COMMIT")?;
                done.sync = stopwatch.elapsed();
            }
            Ok(done)
        });
        if done.is_err() && !self.connection.is_autocommit() {
            execute(&self.connection, "ROLLBACK")?;
        }
        done
    }

    fn run_batch(&mut self, batch: &mut Vec<Job>) -> Result<CommitSummary> {
        let mut done = CommitSummary::default();
        let mut progress = self.queue.begin_batch();
        // A savepoint copies every page that the job changes first. A single job does without.
        let is_single = self.queue.is_single();
        while let Some(job) = self.queue.next(&mut progress) {
            batch.push(job);
            if let Some(job) = batch.last_mut() {
                self.run_job(&mut **job, is_single, &mut done)?;
            }
            if is_single {
                break;
            }
        }
        Ok(done)
    }

    /// Runs a job of a batch and adds its effects to `done`. If it fails, only its own changes are rolled back.
    fn run_job(
        &self,
        job: &mut dyn WriteJob,
        is_single: bool,
        done: &mut CommitSummary,
    ) -> Result<()> {
        let connection = &self.connection;
        let tx = WriteTx::new(connection, self.sink());
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
            done.effects.append(tx.effects.take());
            done.changed |= connection.total_changes() > changes;
        } else {
            execute(connection, if is_single { "ROLLBACK" } else { "ROLLBACK TO job" })?;
        }
        if !is_single {
            execute(connection, "RELEASE job")?;
        }
        Ok(())
    }
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

#[derive(Default)]
struct CommitSummary {
    effects: Effects,
    changed: bool,
    /// The duration of the commit itself: almost only that of a sync of the log.
    sync: Duration,
}

trait WriteJob: Send {
    fn run(&mut self, tx: &WriteTx<'_>) -> bool;
    fn error(&self) -> Option<&Error>;
    fn finish(self: Box<Self>, fault: Option<&Error>);
}

struct TypedJob<T, F> {
    job: Option<F>,
    result: Option<Result<T>>,
    sender: oneshot::Sender<Result<T>>,
}

impl<T: Send, F: FnOnce(&WriteTx<'_>) -> Result<T> + Send> WriteJob for TypedJob<T, F> {
    fn run(&mut self, tx: &WriteTx<'_>) -> bool {
        let Some(job) = self.job.take() else { return false };
        let result = panics::catch("a write", || job(tx));
        let has_succeeded = result.is_ok();
        self.result = Some(result);
        has_succeeded
    }

    fn error(&self) -> Option<&Error> {
        self.result.as_ref()?.as_ref().err()
    }

    fn finish(self: Box<Self>, fault: Option<&Error>) {
        let result = match (self.result, fault) {
            // A job that failed returns its own error: it had no changes to commit.
            (Some(Err(error @ (Error::Fault(_) | Error::Corrupt(_) | Error::Storage(_)))), _) => {
                Err(error)
            }
            // A refusal too: the row that it was based on (a claim, a report) may be part of the failed commit.
            (_, Some(fault)) => Err(failed_commit(fault)),
            (Some(result), None) => result,
            (None, None) => Err(Error::fault("a write was not run")),
        };
        // Sending fails if the caller no longer waits. The write is committed all the same.
        drop(self.sender.send(result));
    }
}

#[cold]
fn failed_commit(fault: &Error) -> Error {
    match fault {
        Error::Storage(fault) | Error::Fault(fault) | Error::Corrupt(fault) => {
            Error::Storage(fault.clone())
        }
        Error::Refused(refusal) => Error::storage(refusal.to_string()),
    }
}

type Job = Box<dyn WriteJob>;

/// The source of a write, which decides its place in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum WriteSource {
    Engine,
    /// A request of this user; `None` if no user is known yet, as at a registration.
    Caller(Option<UserKey>),
}

struct QueuedJob {
    source: WriteSource,
    job: Job,
}

/// The waiting writes: the engine's first, then callers in turns by account. A batch runs at least one caller's write
/// if one waits: the engine cannot stop callers (contract §11.5).
struct WriteQueue {
    submitted: Receiver<QueuedJob>,
    engine: VecDeque<Job>,
    callers: CallerQueue,
}

struct BatchProgress {
    started: Stopwatch,
    jobs: usize,
    /// Jobs of callers that waited when the batch began. Later ones belong to the next batch: callers that write again
    /// at once would keep this one open.
    callers_left: usize,
    has_run_caller: bool,
}

impl WriteQueue {
    fn new(submitted: Receiver<QueuedJob>) -> Self {
        Self { submitted, engine: VecDeque::new(), callers: CallerQueue::default() }
    }

    /// Returns false once all handles are dropped and every job has run. Polls for [`IDLE_POLL`] before it sleeps.
    fn wait(&mut self) -> bool {
        self.receive();
        let stopwatch = Stopwatch::start();
        while self.is_empty() && stopwatch.elapsed() < IDLE_POLL {
            match self.submitted.try_recv() {
                Ok(next) => self.push(next),
                Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => std::thread::yield_now(),
            }
        }
        if self.is_empty() {
            let Ok(next) = self.submitted.recv() else { return false };
            self.push(next);
        }
        true
    }

    /// Waits until as many jobs wait as the last batch had, at most for a share of the time that a sync of the disk takes.
    fn gather(&mut self, last_batch: usize, sync: Duration) {
        let limit = (sync / GATHER_SHARE).min(MAX_GATHER);
        self.receive();
        let stopwatch = Stopwatch::start();
        while self.waiting() < last_batch {
            let Some(left) = limit.checked_sub(stopwatch.elapsed()) else { return };
            if limit < MIN_SLEEP {
                std::thread::yield_now();
                self.receive();
            } else if let Ok(next) = self.submitted.recv_timeout(left) {
                self.push(next);
            } else {
                return;
            }
        }
    }

    fn begin_batch(&mut self) -> BatchProgress {
        self.receive();
        BatchProgress {
            started: Stopwatch::start(),
            jobs: 0,
            callers_left: self.callers.count,
            has_run_caller: false,
        }
    }

    fn is_single(&self) -> bool {
        self.waiting() == 1
    }

    fn waiting(&self) -> usize {
        self.engine.len() + self.callers.count
    }

    /// The next job of the batch, or `None` if it ends here. An engine's job that arrives during the batch joins it.
    fn next(&mut self, batch: &mut BatchProgress) -> Option<Job> {
        self.receive();
        let is_over = batch.jobs >= MAX_BATCH_JOBS
            || (batch.jobs > 0 && batch.started.elapsed() >= MAX_BATCH_TIME);
        let owes_caller = batch.callers_left > 0 && !batch.has_run_caller;
        if is_over && !owes_caller {
            return None;
        }
        let is_callers_turn = owes_caller && (is_over || batch.jobs + 1 == MAX_BATCH_JOBS);
        let engine_job = if is_callers_turn { None } else { self.engine.pop_front() };
        let job = match engine_job {
            Some(job) => job,
            None if batch.callers_left > 0 => {
                batch.callers_left -= 1;
                batch.has_run_caller = true;
                self.callers.pop()?
            }
            None => return None,
        };
        batch.jobs += 1;
        Some(job)
    }

    fn is_empty(&self) -> bool {
        self.waiting() == 0
    }

    fn receive(&mut self) {
        while let Ok(next) = self.submitted.try_recv() {
            self.push(next);
        }
    }

    fn push(&mut self, QueuedJob { source, job }: QueuedJob) {
        match source {
            WriteSource::Engine => self.engine.push_back(job),
            WriteSource::Caller(user) => self.callers.push(user, job),
        }
    }
}

#[derive(Default)]
struct CallerQueue {
    jobs: BTreeMap<Option<UserKey>, VecDeque<Job>>,
    /// The users that have jobs, each once, in the order of their turns.
    turns: VecDeque<Option<UserKey>>,
    count: usize,
}

impl CallerQueue {
    fn push(&mut self, user: Option<UserKey>, job: Job) {
        let jobs = self.jobs.entry(user).or_default();
        if jobs.is_empty() {
            self.turns.push_back(user);
        }
        jobs.push_back(job);
        self.count += 1;
    }

    fn pop(&mut self) -> Option<Job> {
        let user = self.turns.pop_front()?;
        let jobs = self.jobs.get_mut(&user)?;
        let job = jobs.pop_front()?;
        if jobs.is_empty() {
            self.jobs.remove(&user);
        } else {
            self.turns.push_back(user);
        }
        self.count -= 1;
        Some(job)
    }
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
        run_hooks(tx.effects.take().on_commit);
    }
    done
}
