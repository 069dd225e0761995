//! The store: all SQL, as free functions in one module per aggregate, and [`Store`], which runs them on one SQLite
//! file.
//!
//! - [`Store::write`], for every change: on the single writer thread, which commits many writes at once. Requests of a
//!   user use [`Store::write_for`], the engine uses [`Store::write_with_priority`].
//! - [`Store::read_inline`], for a few rows by key: on the calling thread.
//! - [`Store::read`], for a page of a list: on one of two reader threads. [`Store::read_slow`], for a scan of a long
//!   history: on a thread of its own. [`Store::read_blocking`], for threads of the engine.
//!
//! No function reads the clock, and all return an error when the database cannot be read or written. A bound limit is
//! written `LIMIT ?1 + 0`: with a bare `?1` SQLite plans the query again in every call (50 µs).

pub mod accounts;
pub mod alerts;
pub mod billing;
pub mod channels;
pub mod cues;
pub mod db;
pub mod event_data;
pub mod executions;
pub mod fair_queue;
pub mod maintenance;
pub mod outbox;
mod scan;
pub mod stats;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use crate::store::db::open::OpenError;
pub use crate::store::db::transactions::{Pending, ReadFn, ReadTx, WakeSet, WriteTx};
pub use crate::store::db::writer::{CommitListeners, WriteFn};

use crate::domain::row_keys::UserKey;
use crate::error::{Error, Result};
use crate::store::db::counters::WriteStats;
use crate::store::db::open::ServerLock;
use crate::store::db::open::{self, SCHEMA_VERSION};
use crate::store::db::transactions::{ConnectionPool, CorruptionFlag, ReaderThreads};
use crate::store::db::writer::{WriteSource, Writer};
use crate::store::db::{meta, transactions};
use crate::store::maintenance::{check, migrations};
use crate::system::cores;
use crate::system::panics;

/// Threads of [`Store::read`]. Two saturate two cores; each further one costs a page cache of 2 MB.
const READER_THREADS: usize = 2;

/// Beside one for each HTTP thread: for the engine. A read that finds none free runs on a reader thread.
const ENGINE_CONNECTIONS: usize = 1;

/// A list with larger entries is shorter, but has at least one. A hundred executions with the largest payload: 600 MB.
pub const MAX_LIST_BYTES: usize = 4 << 20;

/// The open database file. The fields are dropped in their order.
pub struct Store {
    path: PathBuf,
    corruption: CorruptionFlag,
    readers: ReaderThreads,
    slow_readers: ReaderThreads,
    inline: ConnectionPool,
    // After the other connections: it moves the write-ahead log into the file.
    writer: Writer,
    // Last: no second server can start until everything is closed.
    _lock: Option<ServerLock>,
}

impl Store {
    /// For a server: acquires the lock, creates or upgrades the schema, starts the threads. `wake` is called after each
    /// commit. A refused file is unchanged.
    pub fn open(
        path: &Path,
        wake: Arc<dyn Fn(WakeSet) + Send + Sync>,
    ) -> std::result::Result<Self, OpenError> {
        Self::open_with(path, CommitListeners { wake, events: None })
    }

    pub fn open_with(
        path: &Path,
        listeners: CommitListeners,
    ) -> std::result::Result<Self, OpenError> {
        let version = open::check(path)?;
        let lock = ServerLock::acquire(path)?;
        check::check_pages(path)?;
        if is_earlier(version) {
            migrations::upgrade(path)?;
        } else if version != 0 {
            check::check_schema(path)?;
            migrations::resolve_pending_copies(path, version);
        }
        Self::start(path, listeners, Some(lock))
    }

    /// Beside a server, for commands. Errors: as [`Store::open`], except [`OpenError::InUse`]; an earlier version is
    /// refused.
    pub fn open_shared(path: &Path) -> std::result::Result<Self, OpenError> {
        let version = open::check(path)?;
        if is_earlier(version) {
            return Err(OpenError::Older { path: path.to_owned(), version });
        }
        Self::start(path, CommitListeners { wake: Arc::new(|_| ()), events: None }, None)
    }

    fn start(
        path: &Path,
        listeners: CommitListeners,
        lock: Option<ServerLock>,
    ) -> std::result::Result<Self, OpenError> {
        let corruption = CorruptionFlag::default();
        let connection = open::open_writer(path)?;
        let pool = open::open_readers(path, READER_THREADS + 1)?;
        let inline = open::open_readers(path, cores::http_threads() + ENGINE_CONNECTIONS)?;
        Ok(Self {
            path: path.to_owned(),
            writer: Writer::start(path, connection, corruption.clone(), listeners)?,
            readers: ReaderThreads::start(&pool, READER_THREADS, &corruption)?,
            slow_readers: ReaderThreads::start(&pool, 1, &corruption)?,
            inline,
            corruption,
            _lock: lock,
        })
    }

    pub fn write<T: Send + 'static>(&self, job: impl WriteFn<T>) -> Pending<T> {
        self.writer.submit(WriteSource::Caller(None), job)
    }

    /// For a request of a user. Users take turns, so that many writes of one do not hold up those of another.
    pub fn write_for<T: Send + 'static>(
        &self,
        user_key: UserKey,
        job: impl WriteFn<T>,
    ) -> Pending<T> {
        self.writer.submit(WriteSource::Caller(Some(user_key)), job)
    }

    /// For the engine: a due run must not wait for requests. Each such write is one small batch.
    pub fn write_with_priority<T: Send + 'static>(&self, job: impl WriteFn<T>) -> Pending<T> {
        self.writer.submit(WriteSource::Engine, job)
    }

    pub fn is_writable(&self) -> bool {
        !self.writer.state.is_failing.load(Ordering::Relaxed)
    }

    /// The number of commits of this process: while it stays the same, rows are unchanged, except by other processes.
    pub fn commits(&self) -> u64 {
        self.writer.state.commits.load(Ordering::Acquire)
    }

    pub fn is_corrupt(&self) -> bool {
        self.corruption.is_set()
    }

    /// After a failed write, writes a page to find out: the next request that writes may be hours away. Blocks the
    /// thread.
    pub fn probe_disk(&self) -> bool {
        self.is_writable() || self.write_with_priority(meta::touch).wait().is_ok()
    }

    /// Frees the disk space of released pages. If it fails, nothing is lost.
    pub fn checkpoint(&self) -> Result<()> {
        Ok(open::checkpoint_shared(&self.path)?)
    }

    /// Returns whether the writer thread is alive. Blocks the calling thread; forever, if the writer hangs.
    pub fn writer_responds(&self) -> bool {
        // An error of the disk is a response too.
        drop(self.write_with_priority(|_| Ok(())).wait());
        self.writer.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    pub fn write_stats(&self) -> &WriteStats {
        &self.writer.state.write_stats
    }

    pub fn read<T: Send + 'static>(&self, job: impl ReadFn<T>) -> Pending<T> {
        self.readers.submit(job)
    }

    /// On a thread of its own, for a read that may scan a long history: short reads never wait behind it.
    pub fn read_slow<T: Send + 'static>(&self, job: impl ReadFn<T>) -> Pending<T> {
        self.slow_readers.submit(job)
    }

    /// On the calling thread. For the engine, which must not wait behind the lists of callers.
    pub fn read_blocking<T>(&self, job: impl FnOnce(&ReadTx<'_>) -> Result<T>) -> Result<T> {
        let connection = self.inline.get().map_err(Error::from);
        self.corruption
            .observe(connection.and_then(|connection| transactions::read(&connection, job)))
    }

    /// A few rows by key, on the calling thread if a connection is free: another thread takes several times as long.
    pub fn read_inline<T: Send + 'static>(&self, job: impl ReadFn<T>) -> Pending<T> {
        let Some(connection) = self.inline.try_get() else { return self.readers.submit(job) };
        let result = panics::catch("a read", || transactions::read(&connection, job));
        Pending::ready(self.corruption.observe(result))
    }
}

fn is_earlier(version: i64) -> bool {
    (1..SCHEMA_VERSION).contains(&version)
}

#[cfg(test)]
mod test_support;
