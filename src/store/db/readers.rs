//! The reader threads, which share a pool of read-only connections, and [`Pending`], the result that a caller waits
//! for.
//!
//! A waiting request occupies no thread: its job runs on a reader thread while its task is suspended.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::{Connection, OptionalExtension, Params};
use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::locks::Mutex;
use crate::panics;
use crate::store::db::columns::{FromRow, from_row};

/// A read transaction: all its statements see the same snapshot of the database.
#[derive(Clone, Copy)]
pub struct ReadTx<'a>(&'a Connection);

impl<'a> ReadTx<'a> {
    pub(in crate::store) fn new(connection: &'a Connection) -> Self {
        Self(connection)
    }

    /// The first row of a query, or `None`.
    pub(in crate::store) fn find<T: FromRow>(&self, sql: &str, params: impl Params) -> Result<Option<T>> {
        Ok(self.prepare_cached(sql)?.query_row(params, from_row).optional()?)
    }

    /// The first row of a query that has one.
    pub(in crate::store) fn one<T: FromRow>(&self, sql: &str, params: impl Params) -> Result<T> {
        Ok(self.prepare_cached(sql)?.query_row(params, from_row)?)
    }

    pub(in crate::store) fn all<T: FromRow>(&self, sql: &str, params: impl Params) -> Result<Vec<T>> {
        Ok(self.prepare_cached(sql)?.query_map(params, from_row)?.collect::<rusqlite::Result<_>>()?)
    }

    /// Returns whether a query has a row.
    pub(in crate::store) fn any(&self, sql: &str, params: impl Params) -> Result<bool> {
        Ok(self.prepare_cached(sql)?.exists(params)?)
    }
}

impl Deref for ReadTx<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0
    }
}

/// The future result of a job. A handler awaits it; a thread calls [`Pending::wait`].
#[must_use = "a write is known to be on the disk only once its result has arrived"]
pub struct Pending<T>(PendingState<T>);

enum PendingState<T> {
    /// The result, until `poll` has returned it.
    Ready(Option<Result<T>>),
    /// The job runs on another thread.
    Waiting(oneshot::Receiver<Result<T>>),
}

// Nothing in it is pinned: `poll` moves a ready result out.
impl<T> Unpin for Pending<T> {}

impl<T> Pending<T> {
    pub(in crate::store) fn new(receiver: oneshot::Receiver<Result<T>>) -> Self {
        Self(PendingState::Waiting(receiver))
    }

    pub(in crate::store) fn ready(result: Result<T>) -> Self {
        Self(PendingState::Ready(Some(result)))
    }

    /// Blocks the calling thread until the result arrives. Not for use in an async task.
    /// Errors: the error of the job, or [`Error::Storage`] if the commit failed or the store is closed.
    pub fn wait(self) -> Result<T> {
        match self.0 {
            PendingState::Ready(result) => result.unwrap_or_else(|| Err(store_closed())),
            PendingState::Waiting(receiver) => {
                receiver.blocking_recv().unwrap_or_else(|_| Err(store_closed()))
            }
        }
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            PendingState::Ready(result) => Poll::Ready(result.take().unwrap_or_else(|| Err(store_closed()))),
            PendingState::Waiting(receiver) => {
                Pin::new(receiver).poll(context).map(|result| result.unwrap_or_else(|_| Err(store_closed())))
            }
        }
    }
}

/// Set once any read or write has found the file corrupt; shared by all threads of the store. It is never cleared,
/// since only the next start checks the file again.
#[derive(Debug, Clone, Default)]
pub struct CorruptionFlag(Arc<AtomicBool>);

impl CorruptionFlag {
    /// Records the error of `result`, if it has one, and returns `result`.
    pub fn observe<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| self.record(error))
    }

    /// Sets the flag if `error` reports corruption.
    pub fn record(&self, error: &Error) {
        if matches!(error, Error::Corrupt(_)) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

fn store_closed() -> Error {
    Error::storage("the store has been closed")
}

pub type ConnectionPool = r2d2::Pool<SqliteConnectionManager>;

type ReadJob = Box<dyn FnOnce(&ConnectionPool) + Send>;

/// A closure for [`Store::read`](crate::store::Store::read).
pub trait ReadFn<T>: FnOnce(&ReadTx<'_>) -> Result<T> + Send + 'static {}

impl<T, F: FnOnce(&ReadTx<'_>) -> Result<T> + Send + 'static> ReadFn<T> for F {}

/// The reader threads. Dropped, they end after their queued jobs.
pub struct ReaderThreads {
    /// `None` while they end.
    jobs: Option<Sender<ReadJob>>,
    threads: Vec<JoinHandle<()>>,
    corruption: CorruptionFlag,
}

impl ReaderThreads {
    pub fn start(pool: &ConnectionPool, count: usize, corruption: &CorruptionFlag) -> std::io::Result<Self> {
        let (jobs, waiting) = channel::<ReadJob>();
        let waiting = Arc::new(Mutex::new(waiting));
        let threads = (0..count)
            .map(|_| {
                let (pool, waiting) = (pool.clone(), Arc::clone(&waiting));
                std::thread::Builder::new().name("reader".to_owned()).spawn(move || run(&pool, &waiting))
            })
            .collect::<std::io::Result<Vec<_>>>()?;
        Ok(Self { jobs: Some(jobs), threads, corruption: corruption.clone() })
    }

    /// Queues `job` for the next free thread.
    pub fn submit<T: Send + 'static>(&self, job: impl ReadFn<T>) -> Pending<T> {
        let (sender, pending) = oneshot::channel();
        let corruption = self.corruption.clone();
        let job = move |pool: &ConnectionPool| {
            // Sending fails if the caller no longer waits.
            drop(sender.send(corruption.observe(panics::catch("a read", || read(&*pool.get()?, job)))));
        };
        // Sending fails only after the readers have ended. The result's sender is then dropped, and `Pending` returns
        // an error.
        drop(self.jobs.as_ref().map(|jobs| jobs.send(Box::new(job))));
        Pending::new(pending)
    }
}

impl Drop for ReaderThreads {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A job on one of the store's own threads may be its last owner, and a thread cannot join itself.
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                tracing::error!("reader thread panicked");
            }
        }
    }
}

fn run(pool: &ConnectionPool, waiting: &Mutex<Receiver<ReadJob>>) {
    loop {
        let next = waiting.lock().recv();
        let Ok(job) = next else { return };
        job(pool);
    }
}

/// Runs `job` in a transaction of its own. BEGIN and ROLLBACK are prepared once and cached: they run as often as the
/// queries between them.
pub(in crate::store) fn read<T>(
    connection: &Connection,
    job: impl FnOnce(&ReadTx<'_>) -> Result<T>,
) -> Result<T> {
    let snapshot = Snapshot::begin(connection)?;
    job(&ReadTx::new(snapshot.0))
}

/// A transaction that ends when it is dropped, also by a panic. Not a part of [`read`], of which the program contains a
/// copy for each job.
struct Snapshot<'a>(&'a Connection);

impl<'a> Snapshot<'a> {
    #[inline(never)]
    fn begin(connection: &'a Connection) -> Result<Self> {
        // An earlier rollback may have failed. The transaction it left open would make every later BEGIN fail.
        if !connection.is_autocommit() {
            execute(connection, "ROLLBACK")?;
        }
        execute(connection, "BEGIN DEFERRED")?;
        Ok(Self(connection))
    }
}

impl Drop for Snapshot<'_> {
    #[inline(never)]
    fn drop(&mut self) {
        // It has no changes to lose, and `begin` repeats a rollback that failed.
        drop(execute(self.0, "ROLLBACK"));
    }
}

/// Runs a statement that returns no rows, prepared once and cached.
pub(in crate::store) fn execute(connection: &Connection, sql: &str) -> Result<()> {
    connection.prepare_cached(sql)?.execute([])?;
    Ok(())
}
