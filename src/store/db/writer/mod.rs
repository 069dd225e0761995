//! The writer thread: takes a batch of the queued jobs, runs each in its own savepoint, commits once, then sends the
//! results. `write_queue` decides the order of the jobs and the end of a batch.
//!
//! A result is sent only after its commit is on the disk. A job that fails is rolled back alone. An idle writer commits
//! a single job at once, and while it commits, the jobs of the next batch queue up.

pub(in crate::store) mod write_queue;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, Params};
use tokio::sync::oneshot;

use crate::domain::notification::event::{Emitted, Event, EventSink, EventType, MAX_SINGLE_PER_COMMIT};
use crate::error::{Error, Result};
use crate::metrics::Stopwatch;
use crate::panics;
use crate::store::db::checkpoints::Checkpoints;
use crate::store::db::counters::CounterDeltas;
use crate::store::db::open;
use crate::store::db::readers::{CorruptionFlag, Pending, ReadTx, execute};
use crate::store::db::write_stats::{EventCounts, WriteEvent, WriteStats};
use crate::store::db::writer::write_queue::{QueuedJob, WriteQueue, WriteSource};

/// The listeners outside the store that learn of a commit.
#[derive(Clone)]
pub struct CommitListeners {
    /// Called after each successful commit.
    pub wake: Arc<dyn Fn(WakeSet) + Send + Sync>,
    /// Gets the events of each commit.
    pub events: Option<Arc<dyn EventSink>>,
}

/// A closure for [`Store::write`](crate::store::Store::write).
pub trait WriteFn<T>: FnOnce(&WriteTx<'_>) -> Result<T> + Send + 'static {}

impl<T, F: FnOnce(&WriteTx<'_>) -> Result<T> + Send + 'static> WriteFn<T> for F {}

/// The writer thread. Dropped, it ends after its queued jobs, and the write-ahead log is moved into the file.
pub struct Writer {
    /// `None` while it ends, as is the thread.
    jobs: Option<Sender<QueuedJob>>,
    thread: Option<JoinHandle<Connection>>,
    state: Arc<WriterState>,
}

/// State that the writer thread shares with its handles.
#[derive(Default)]
struct WriterState {
    /// A commit has failed, and none that changes something has succeeded since.
    is_failing: AtomicBool,
    corruption: CorruptionFlag,
    write_stats: WriteStats,
}

impl Writer {
    /// Starts the thread on `connection` to the file `path`.
    pub fn start(
        path: &Path,
        connection: Connection,
        corruption: CorruptionFlag,
        listeners: CommitListeners,
    ) -> std::io::Result<Self> {
        let (jobs, submitted) = channel();
        let state = Arc::new(WriterState { corruption, ..WriterState::default() });
        let shared = Arc::clone(&state);
        let checkpoints = Checkpoints::new(path);
        let thread = std::thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || run(connection, checkpoints, WriteQueue::new(submitted), &listeners, &shared))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), state })
    }

    pub fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    pub fn is_writable(&self) -> bool {
        !self.state.is_failing.load(Ordering::Relaxed)
    }

    pub fn write_stats(&self) -> &WriteStats {
        &self.state.write_stats
    }

    /// Queues `job` for a commit, in the place that `source` gives it. It runs even if the caller drops the
    /// [`Pending`].
    pub(in crate::store) fn submit<T: Send + 'static>(
        &self,
        source: WriteSource,
        job: impl WriteFn<T>,
    ) -> Pending<T> {
        let (sender, pending) = oneshot::channel();
        // Sending fails only after the writer has ended. The result's sender is then dropped, and `Pending` returns an
        // error.
        let job = Box::new(TypedJob { job: Some(job), result: None, sender });
        drop(self.jobs.as_ref().map(|jobs| jobs.send(QueuedJob { source, job })));
        Pending::new(pending)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        // A write may be the last owner of the store, and a thread cannot join itself.
        let joins = |thread: &JoinHandle<Connection>| thread.thread().id() != std::thread::current().id();
        match self.thread.take().filter(joins).map(JoinHandle::join) {
            Some(Ok(connection)) => open::checkpoint(connection),
            Some(Err(_)) => tracing::error!("writer thread panicked"),
            None => {}
        }
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
                run_hooks(std::mem::take(&mut done.effects.on_commit));
                let emitted = std::mem::take(&mut done.effects.emitted);
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
            (listeners.wake)(done.effects.wake);
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
    match &committed {
        // A commit without changes writes nothing and succeeds even on a full disk, so it does not count.
        Ok(done) if done.changed => {
            state.write_stats.record_commit(batch.len(), stopwatch.elapsed());
            state.write_stats.add(&done.effects.events);
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

/// The effects of writes outside the file. They take place after the commit.
#[derive(Default)]
struct Effects {
    wake: WakeSet,
    events: EventCounts,
    on_commit: Vec<CommitHook>,
    emitted: Vec<Emitted>,
}

impl Effects {
    fn append(&mut self, mut later: Self) {
        self.wake = self.wake.merge(later.wake);
        self.events.add_all(&later.events);
        self.on_commit.append(&mut later.on_commit);
        self.emitted.append(&mut later.emitted);
    }
}

#[derive(Default)]
struct CommitSummary {
    effects: Effects,
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

pub(in crate::store::db) trait WriteJob: Send {
    /// Runs the closure and returns whether it succeeded. If not, its changes are rolled back.
    fn run(&mut self, tx: &WriteTx<'_>) -> bool;
    fn error(&self) -> Option<&Error>;
    /// Sends the result, or an error if the commit failed with `fault`.
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
            (Some(Err(error @ (Error::Fault(_) | Error::Corrupt(_) | Error::Storage(_)))), _) => Err(error),
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
        Error::Storage(fault) | Error::Fault(fault) | Error::Corrupt(fault) => Error::Storage(fault.clone()),
        Error::Refused(refusal) => Error::storage(refusal.to_string()),
    }
}

/// The engine threads to wake after a commit.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct WakeSet {
    /// Something falls due at this instant, which may be earlier than the scheduler's next pass.
    pub schedule: Option<Timestamp>,
    /// An execution is ready to be sent.
    pub send: bool,
    /// An execution is ready to be claimed.
    pub claim: bool,
    /// A failure notification is ready to be sent.
    pub notifications: bool,
}

impl WakeSet {
    fn merge(self, other: Self) -> Self {
        Self {
            schedule: self.schedule.into_iter().chain(other.schedule).min(),
            send: self.send || other.send,
            claim: self.claim || other.claim,
            notifications: self.notifications || other.notifications,
        }
    }
}

type CommitHook = Box<dyn FnOnce() + Send>;

/// A write transaction. Dereferences to [`ReadTx`], so that every function that reads also works in a write.
pub struct WriteTx<'a> {
    read: ReadTx<'a>,
    counters: CounterDeltas,
    effects: RefCell<Effects>,
    /// The receiver of events; `None` while nobody follows them.
    sink: Option<&'a dyn EventSink>,
    singles: RefCell<BTreeMap<i64, u32>>,
}

impl<'a> WriteTx<'a> {
    fn new(connection: &'a Connection, sink: Option<&'a dyn EventSink>) -> Self {
        Self {
            read: ReadTx::new(connection),
            counters: CounterDeltas::default(),
            effects: RefCell::default(),
            sink: sink.filter(|sink| sink.is_watched()),
            singles: RefCell::default(),
        }
    }

    /// Runs a part of this write that fails alone: an error of `part` rolls back what it has changed, and the write goes
    /// on. Its counters are stored at its end, so the next part reads them.
    pub fn part<T>(&self, part: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let inner = Self {
            read: self.read,
            counters: CounterDeltas::default(),
            effects: RefCell::default(),
            sink: self.sink,
            singles: self.singles.clone(),
        };
        execute(self, "SAVEPOINT part")?;
        let done = part(&inner).and_then(|done| inner.counters().flush(self).map(|()| done));
        if done.is_err() {
            // After some errors, such as a full disk, SQLite has rolled the whole transaction back: no savepoint is left.
            if !self.is_autocommit() {
                execute(self, "ROLLBACK TO part")?;
                execute(self, "RELEASE part")?;
            }
            return done;
        }
        execute(self, "RELEASE part")?;
        self.effects.borrow_mut().append(inner.effects.take());
        self.singles.replace(inner.singles.take());
        done
    }

    pub(in crate::store) fn run(&self, sql: &str, params: impl Params) -> Result<()> {
        self.change(sql, params).map(drop)
    }

    /// Runs a statement. Returns the number of rows that it changed.
    pub(in crate::store) fn change(&self, sql: &str, params: impl Params) -> Result<usize> {
        Ok(self.prepare_cached(sql)?.execute(params)?)
    }

    /// Runs a statement. Returns whether it changed any row.
    pub(in crate::store) fn changes(&self, sql: &str, params: impl Params) -> Result<bool> {
        Ok(self.change(sql, params)? > 0)
    }

    /// The changes of this write to the stored counters. They are stored at its end.
    pub fn counters(&self) -> &CounterDeltas {
        &self.counters
    }

    /// Counts events for the metrics, unless this write is rolled back.
    pub fn count(&self, event: WriteEvent, times: u64) {
        self.effects.borrow_mut().events.add(event, times);
    }

    /// Wakes the threads in `wake` after the commit that makes this write durable; not if the write fails.
    pub fn wake(&self, wake: WakeSet) {
        let mut effects = self.effects.borrow_mut();
        effects.wake = effects.wake.merge(wake);
    }

    /// Returns whether anybody follows the events of any user.
    pub fn is_watched(&self) -> bool {
        self.sink.is_some()
    }

    /// Emits an event of a user after the commit that makes this write durable, unless the write fails. `build` reads what
    /// the event says, and runs only if the user follows events and gets this one as a single event. An error of it is
    /// logged: whether somebody watches must not change the result of a write.
    pub fn emit(&self, user_key: i64, event_type: EventType, build: impl FnOnce() -> Result<Option<Event>>) {
        if !self.sink.is_some_and(|sink| sink.is_watched_by(user_key)) {
            return;
        }
        let is_counted = {
            let mut singles = self.singles.borrow_mut();
            let singles = singles.entry(user_key).or_default();
            *singles += 1;
            *singles > MAX_SINGLE_PER_COMMIT
        };
        let emitted = match is_counted {
            true => Ok(Some(Emitted::Counted { user_key, event_type })),
            false => build().map(|event| event.map(Emitted::Event)),
        };
        match emitted {
            Ok(emitted) => self.effects.borrow_mut().emitted.extend(emitted),
            Err(error) => self.on_commit(move || {
                tracing::error!(event_type = event_type.as_str(), %error, "an event cannot be built");
            }),
        }
    }

    /// Runs `action` after the commit that makes this write durable, before its caller gets the result; not at all if
    /// the write fails. For log lines: inside the transaction they would report what may still be rolled back. It runs
    /// on the writer's thread, so other writes wait for it.
    pub fn on_commit(&self, action: impl FnOnce() + Send + 'static) {
        self.effects.borrow_mut().on_commit.push(Box::new(action));
    }
}

impl<'a> Deref for WriteTx<'a> {
    type Target = ReadTx<'a>;

    fn deref(&self) -> &ReadTx<'a> {
        &self.read
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crate::error::Error;
    use crate::store::db::counters::QueueName;
    use crate::store::db::writer::commit_single;
    use crate::store::test_support::memory_database;

    #[test]
    fn a_part_that_fails_changes_nothing_and_the_others_stay() {
        let (database, hooks) = (memory_database(), Arc::new(AtomicUsize::new(0)));
        commit_single(&database, |tx| {
            for (name, is_refused) in [("a", false), ("b", true), ("c", false)] {
                let done = tx.part(|tx| {
                    tx.execute("INSERT INTO meta (name, value) VALUES (?1, 1)", [name])?;
                    tx.counters().add_queued(QueueName::Send, 1);
                    let hooks = Arc::clone(&hooks);
                    tx.on_commit(move || {
                        hooks.fetch_add(1, Ordering::Relaxed);
                    });
                    if is_refused { Err(Error::fault("no")) } else { Ok(()) }
                });
                assert_eq!(done.is_err(), is_refused);
            }
            Ok(())
        })
        .unwrap();
        let count = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(count("SELECT count(*) FROM meta WHERE name IN ('a', 'b', 'c')"), 2);
        assert_eq!(count("SELECT count(*) FROM meta WHERE name = 'b'"), 0);
        assert_eq!(count("SELECT count FROM backlog WHERE name = 'send'"), 2);
        assert_eq!(hooks.load(Ordering::Relaxed), 2);
    }
}
