//! Two reader threads, each on a read-only connection of the pool, and the answer that a caller waits for.
//!
//! A job runs to its end on its lane's thread: a request that waits costs no thread.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::panics;
use crate::store::db::corruption::CorruptionFlag;

/// A transaction that only reads: one consistent picture of the file.
pub struct ReadTx<'a>(&'a Connection);

impl<'a> ReadTx<'a> {
    pub(in crate::store) fn new(connection: &'a Connection) -> Self {
        Self(connection)
    }
}

impl Deref for ReadTx<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0
    }
}

/// The answer to a job: awaited by a handler, waited for by a thread.
#[must_use = "a write is only known to be on the disk once its answer has come"]
pub struct Pending<T>(PendingState<T>);

enum PendingState<T> {
    /// It is there, and nobody has taken it yet.
    Done(Option<Result<T>>),
    /// It comes from a lane.
    Coming(oneshot::Receiver<Result<T>>),
}

// Nothing in it is pinned: an answer that is there is moved out of it.
impl<T> Unpin for Pending<T> {}

impl<T> Pending<T> {
    pub(in crate::store) fn new(receiver: oneshot::Receiver<Result<T>>) -> Self {
        Self(PendingState::Coming(receiver))
    }

    /// An answer that is there.
    pub(in crate::store) fn done(answer: Result<T>) -> Self {
        Self(PendingState::Done(Some(answer)))
    }

    /// The answer of a store that has been closed.
    pub(in crate::store) fn closed() -> Self {
        Self::done(Err(ended()))
    }

    /// Blocks the calling thread until the answer is there. Not for use in a task.
    ///
    /// # Errors
    /// What the job answered, or [`Error::Storage`] when its change could not be made durable.
    pub fn wait(self) -> Result<T> {
        match self.0 {
            PendingState::Done(answer) => answer.unwrap_or_else(|| Err(ended())),
            PendingState::Coming(receiver) => receiver.blocking_recv().unwrap_or_else(|_| Err(ended())),
        }
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            PendingState::Done(answer) => Poll::Ready(answer.take().unwrap_or_else(|| Err(ended()))),
            PendingState::Coming(receiver) => {
                Pin::new(receiver).poll(context).map(|answer| answer.unwrap_or_else(|_| Err(ended())))
            }
        }
    }
}

pub(in crate::store) fn ended() -> Error {
    Error::storage("the store has been closed")
}

/// The pool of read-only connections.
pub type ConnectionPool = r2d2::Pool<SqliteConnectionManager>;

type ReadJob = Box<dyn FnOnce(&ConnectionPool) + Send>;

/// Hands jobs to the reader threads; they end when the last handle is dropped.
#[derive(Clone)]
pub struct ReaderThreads {
    jobs: Sender<ReadJob>,
    damage: CorruptionFlag,
}

impl ReaderThreads {
    /// Starts `count` threads on connections of `pool`.
    pub fn start(
        pool: &ConnectionPool,
        count: usize,
        damage: &CorruptionFlag,
    ) -> std::io::Result<(Self, Vec<JoinHandle<()>>)> {
        let (jobs, waiting) = channel::<ReadJob>();
        let waiting = Arc::new(Mutex::new(waiting));
        let threads = (0..count)
            .map(|_| {
                let (pool, waiting) = (pool.clone(), Arc::clone(&waiting));
                std::thread::Builder::new().name("reader".to_owned()).spawn(move || run(&pool, &waiting))
            })
            .collect::<std::io::Result<Vec<_>>>()?;
        Ok((Self { jobs, damage: damage.clone() }, threads))
    }

    /// Queues `job` for the next free reader.
    pub fn submit<T, F>(&self, job: F) -> Pending<T>
    where
        T: Send + 'static,
        F: FnOnce(&ReadTx<'_>) -> Result<T> + Send + 'static,
    {
        let (answer, pending) = oneshot::channel();
        let damage = self.damage.clone();
        let job = move |pool: &ConnectionPool| {
            // Nobody waits any more when the caller hung up.
            drop(answer.send(damage.noted(panics::catch("a read", || read(pool, job)))));
        };
        // A send fails only when the readers have ended; the dropped answer tells the caller.
        drop(self.jobs.send(Box::new(job)));
        Pending::new(pending)
    }
}

fn run(pool: &ConnectionPool, waiting: &Mutex<Receiver<ReadJob>>) {
    loop {
        let next = waiting.lock().recv();
        match next {
            Ok(job) => job(pool),
            Err(_) => return,
        }
    }
}

/// Runs `job` on a free connection of `pool`, on the calling thread.
pub(in crate::store) fn read<T>(
    pool: &ConnectionPool,
    job: impl FnOnce(&ReadTx<'_>) -> Result<T>,
) -> Result<T> {
    let connection = pool.get()?;
    read_on(&connection, job)
}

/// Runs `job` in a transaction of its own. Its two statements are kept prepared: they are asked for as often as the
/// rows that they enclose.
pub(in crate::store) fn read_on<T>(
    connection: &Connection,
    job: impl FnOnce(&ReadTx<'_>) -> Result<T>,
) -> Result<T> {
    let snapshot = Snapshot::begin(connection)?;
    job(&ReadTx::new(snapshot.0))
}

/// A transaction that ends, by a panic too, when it is dropped.
struct Snapshot<'a>(&'a Connection);

impl<'a> Snapshot<'a> {
    fn begin(connection: &'a Connection) -> Result<Self> {
        // One that could not be ended would otherwise refuse every later one.
        if !connection.is_autocommit() {
            execute(connection, "ROLLBACK")?;
        }
        execute(connection, "BEGIN DEFERRED")?;
        Ok(Self(connection))
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        // It changed nothing, and the next one looks whether it has ended.
        drop(execute(self.0, "ROLLBACK"));
    }
}

/// Runs a statement that answers nothing.
pub(in crate::store) fn execute(connection: &Connection, sql: &str) -> Result<()> {
    connection.prepare_cached(sql)?.execute([])?;
    Ok(())
}
