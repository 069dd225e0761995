//! The one writer: takes what is waiting, runs each job in its own savepoint, commits once, then answers them all.
//!
//! An answer that was given is on the disk; a job that fails rolls back alone. No timer: under light load a write
//! commits at once, under load the batch grows by itself.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::metrics::Stopwatch;
use crate::panics;
use crate::store::db::corruption::CorruptionFlag;
use crate::store::db::counters::CounterDeltas;
use crate::store::db::readers::{Pending, ReadTx, execute};
use crate::store::db::write_stats::{EventCounts, WriteEvent, WriteStats};

/// The most jobs that share one commit; bounds how long the first of them waits for the last.
const MAX_BATCH_JOBS: usize = 512;

/// How long the writer looks for another job before it sleeps.
const LINGER: Duration = Duration::from_micros(200);

/// Which bells a write rings once it is on the disk.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct WakeSet {
    /// Something is due by the clock at this instant, perhaps earlier than the scheduler knew.
    pub schedule: Option<Timestamp>,
    /// An execution is ready to be sent.
    pub send: bool,
    /// An execution is ready to be claimed.
    pub claim: bool,
    /// A notice of a failure is ready to be told.
    pub notifications: bool,
}

impl WakeSet {
    fn and(self, other: Self) -> Self {
        Self {
            schedule: self.schedule.into_iter().chain(other.schedule).min(),
            send: self.send || other.send,
            claim: self.claim || other.claim,
            notifications: self.notifications || other.notifications,
        }
    }
}

/// An action that runs after a commit.
type CommitHook = Box<dyn FnOnce() + Send>;

/// A write transaction. Derefs to [`ReadTx`], so that whatever can be read can be read here too.
pub struct WriteTx<'a> {
    read: ReadTx<'a>,
    rings: Cell<WakeSet>,
    tally: CounterDeltas,
    count: EventCounts,
    on_commit: RefCell<Vec<CommitHook>>,
}

impl<'a> WriteTx<'a> {
    fn on(connection: &'a Connection) -> Self {
        let (tally, count) = (CounterDeltas::default(), EventCounts::default());
        let on_commit = RefCell::default();
        Self { read: ReadTx::new(connection), rings: Cell::default(), tally, count, on_commit }
    }

    /// The counters that this write moves; they are stored at its end.
    pub fn tally(&self) -> &CounterDeltas {
        &self.tally
    }

    /// Counts for metrics what this write does, if it is not rolled back.
    pub fn count(&self, deed: WriteEvent, times: u64) {
        self.count.add(deed, times);
    }

    /// Rings `rings` after the commit that makes this write durable, and not if it fails.
    pub fn wake(&self, rings: WakeSet) {
        self.rings.set(self.rings.get().and(rings));
    }

    /// Runs `action` after the commit that makes this write durable, before its caller gets the result; not at all if
    /// the write fails. For log lines: inside the transaction they would report what may still be rolled back.
    ///
    /// It runs on the writer's thread, so other writes wait for it.
    pub fn on_commit(&self, action: impl FnOnce() + Send + 'static) {
        self.on_commit.borrow_mut().push(Box::new(action));
    }
}

impl<'a> Deref for WriteTx<'a> {
    type Target = ReadTx<'a>;

    fn deref(&self) -> &ReadTx<'a> {
        &self.read
    }
}

/// Hands jobs to the writer thread. Cloned handles feed the same thread; it ends when the last is dropped.
#[derive(Clone)]
pub struct Writer {
    jobs: Sender<Box<dyn WriteJob>>,
    state: Arc<WriterState>,
}

/// What the writer's thread lets others know.
#[derive(Default)]
struct WriterState {
    /// Whether the newest commit that was to change anything failed.
    fails: AtomicBool,
    damage: CorruptionFlag,
    write_stats: WriteStats,
}

impl Writer {
    /// Starts the thread on `connection`; `ring` is called after each commit that asked for it.
    pub fn start(
        connection: Connection,
        damage: CorruptionFlag,
        ring: Arc<dyn Fn(WakeSet) + Send + Sync>,
    ) -> std::io::Result<(Self, JoinHandle<Connection>)> {
        let (jobs, waiting) = channel();
        let state = Arc::new(WriterState { damage, ..WriterState::default() });
        let noted = Arc::clone(&state);
        let thread = std::thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || run(connection, &waiting, &*ring, &noted))?;
        Ok((Self { jobs, state }, thread))
    }

    /// Whether the newest commit that was to change anything succeeded.
    pub fn works(&self) -> bool {
        !self.state.fails.load(Ordering::Relaxed)
    }

    /// What was written so far.
    pub fn write_stats(&self) -> &WriteStats {
        &self.state.write_stats
    }

    /// Queues `job` for the next commit. It runs to its end even if nobody waits for the answer.
    pub fn submit<T, F>(&self, job: F) -> Pending<T>
    where
        T: Send + 'static,
        F: FnOnce(&WriteTx<'_>) -> Result<T> + Send + 'static,
    {
        let (answer, pending) = oneshot::channel();
        // A send fails only when the writer has ended; the answer's sender is then dropped and `Pending` says so.
        drop(self.jobs.send(Box::new(TypedJob { job: Some(job), result: None, answer })));
        Pending::new(pending)
    }
}

trait WriteJob: Send {
    /// Runs the closure; tells whether its changes are to be kept.
    fn run(&mut self, tx: &WriteTx<'_>) -> bool;
    /// What let the closure down.
    fn error(&self) -> Option<&Error>;
    /// Sends the result, or `fault` in its place when the commit failed.
    fn answer(self: Box<Self>, fault: Option<&Error>);
}

struct TypedJob<T, F> {
    job: Option<F>,
    result: Option<Result<T>>,
    answer: oneshot::Sender<Result<T>>,
}

impl<T: Send, F: FnOnce(&WriteTx<'_>) -> Result<T> + Send> WriteJob for TypedJob<T, F> {
    fn run(&mut self, tx: &WriteTx<'_>) -> bool {
        let Some(job) = self.job.take() else { return false };
        let result = panics::catch("a write", || job(tx));
        let keep = result.is_ok();
        self.result = Some(result);
        keep
    }

    fn error(&self) -> Option<&Error> {
        self.result.as_ref()?.as_ref().err()
    }

    fn answer(self: Box<Self>, fault: Option<&Error>) {
        let result = match (self.result, fault) {
            // Nothing of a faulty job was to be written, whatever became of the others.
            (Some(Err(error @ (Error::Fault(_) | Error::Damaged(_) | Error::Storage(_)))), _) => Err(error),
            // A refusal too: what the job was refused for (a claim, a report) may have gone with the commit.
            (_, Some(Error::Storage(fault) | Error::Fault(fault) | Error::Damaged(fault))) => {
                Err(Error::Storage(fault.clone()))
            }
            (_, Some(Error::Refused(refusal))) => Err(Error::storage(refusal.to_string())),
            (Some(result), None) => result,
            (None, None) => Err(Error::fault("a write was not run")),
        };
        // Nobody waits any more when the caller hung up; the write stands all the same.
        drop(self.answer.send(result));
    }
}

fn run(
    connection: Connection,
    waiting: &Receiver<Box<dyn WriteJob>>,
    ring: &dyn Fn(WakeSet),
    state: &WriterState,
) -> Connection {
    while let Some(first) = next(waiting) {
        let mut batch = vec![first];
        while batch.len() < MAX_BATCH_JOBS {
            let Ok(next) = waiting.try_recv() else { break };
            batch.push(next);
        }
        let mut committed = timed_commit(&connection, &mut batch, state);
        match &mut committed {
            Ok(done) => run_hooks(std::mem::take(&mut done.on_commit)),
            Err(fault) => tracing::error!("a commit of {} writes failed: {fault}", batch.len()),
        }
        for job in batch {
            job.answer(committed.as_ref().err());
        }
        if let Ok(done) = committed {
            ring(done.rings);
        }
    }
    connection
}

/// Runs the actions that wait for a commit. A panic in one of them ends neither the others nor the writer.
fn run_hooks(hooks: Vec<CommitHook>) {
    for hook in hooks {
        if let Err(error) = panics::catch("an action after a commit", || {
            hook();
            Ok(())
        }) {
            tracing::error!(%error, "an action after a commit failed");
        }
    }
}

/// The next job; none once there will be none. Who has just been answered often asks again at once, and a thread that
/// sleeps is woken later than a commit of a fast disk takes: so it looks about for a moment first.
fn next(waiting: &Receiver<Box<dyn WriteJob>>) -> Option<Box<dyn WriteJob>> {
    let stopwatch = Stopwatch::start();
    while stopwatch.elapsed() < LINGER {
        match waiting.try_recv() {
            Ok(job) => return Some(job),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => std::thread::yield_now(),
        }
    }
    waiting.recv().ok()
}

/// Commits and notes how that went, before anybody is answered: who reads the figures then finds its own write.
fn timed_commit(
    connection: &Connection,
    batch: &mut [Box<dyn WriteJob>],
    state: &WriterState,
) -> Result<CommitSummary> {
    let stopwatch = Stopwatch::start();
    let committed = commit(connection, batch);
    match &committed {
        // Nothing reaches the disk of what changes nothing, and a full one lets it through.
        Ok(done) if done.changed => {
            state.write_stats.committed(batch.len(), stopwatch.elapsed());
            state.write_stats.add(&done.count);
            state.fails.store(false, Ordering::Relaxed);
        }
        Ok(_) => {}
        Err(_) => state.write_stats.failed_commits.add(1),
    }
    let errors = || batch.iter().filter_map(|job| job.error());
    if committed.is_err() || errors().any(|error| matches!(error, Error::Storage(_))) {
        state.fails.store(true, Ordering::Relaxed);
    }
    errors().chain(committed.as_ref().err()).for_each(|error| state.damage.note(error));
    committed
}

/// What the writes of a commit have done.
#[derive(Default)]
struct CommitSummary {
    rings: WakeSet,
    count: EventCounts,
    on_commit: Vec<CommitHook>,
    /// Whether there was anything to be put on the disk.
    changed: bool,
}

/// Runs the batch in one transaction. On an error nothing of it is on the disk.
fn commit(connection: &Connection, batch: &mut [Box<dyn WriteJob>]) -> Result<CommitSummary> {
    // A rollback that failed would otherwise refuse every later transaction.
    if !connection.is_autocommit() {
        execute(connection, "ROLLBACK")?;
    }
    execute(connection, "BEGIN IMMEDIATE")?;
    let done = run_batch(connection, batch).and_then(|done| {
        // A job that was alone and failed has taken the transaction along.
        if !connection.is_autocommit() {
            execute(connection, "COMMIT")?;
        }
        Ok(done)
    });
    if done.is_err() && !connection.is_autocommit() {
        execute(connection, "ROLLBACK")?;
    }
    done
}

fn run_batch(connection: &Connection, batch: &mut [Box<dyn WriteJob>]) -> Result<CommitSummary> {
    let mut done = CommitSummary::default();
    // A savepoint copies every page that is changed for the first time; a job that is alone ends with its transaction.
    let alone = batch.len() == 1;
    for job in batch {
        let tx = WriteTx::on(connection);
        let changes = connection.total_changes();
        if !alone {
            execute(connection, "SAVEPOINT job")?;
        }
        let keep = job.run(&tx);
        // SQLite ends the whole transaction by itself after some faults (a full disk): the batch is lost then.
        if connection.is_autocommit() {
            return Err(Error::storage("the transaction was ended by a fault of the disk"));
        }
        if keep {
            tx.tally().flush(&tx)?;
            done.rings = done.rings.and(tx.rings.get());
            done.count.add_all(&tx.count);
            done.on_commit.append(&mut tx.on_commit.take());
            done.changed |= connection.total_changes() > changes;
        } else {
            execute(connection, if alone { "ROLLBACK" } else { "ROLLBACK TO job" })?;
        }
        if !alone {
            execute(connection, "RELEASE job")?;
        }
    }
    Ok(done)
}

/// Runs one job in a transaction of its own, on a connection that no writer thread has.
pub(in crate::store) fn commit_alone<T>(
    connection: &Connection,
    job: impl FnOnce(&WriteTx<'_>) -> Result<T>,
) -> Result<T> {
    execute(connection, "BEGIN IMMEDIATE")?;
    let tx = WriteTx::on(connection);
    let done = job(&tx).and_then(|done| tx.tally().flush(&tx).map(|()| done));
    execute(connection, if done.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    if done.is_ok() {
        run_hooks(tx.on_commit.take());
    }
    done
}
