//! The store: all SQL of the program, as free functions in one module per aggregate, and [`Store`], which runs them on
//! one SQLite file.
//!
//! A caller passes a closure to `Store`, and the closure calls the functions with its transaction:
//!
//! - [`Store::write`], for every change: runs on the single writer thread, which commits many writes at once. The
//!   result arrives when the commit is on the disk. Requests of a user use [`Store::write_for`], the engine uses
//!   [`Store::write_with_priority`].
//! - [`Store::read_inline`], for a few rows by key: runs on the calling thread. A page of a list may be such a read if
//!   its bytes and the entries before it are bounded.
//! - [`Store::read`], for the other reads of a request, such as a page of a list: runs on one of two reader threads.
//! - [`Store::read_slow`], for a read that may scan a long history: runs on a thread of its own, so that short reads
//!   never wait for it.
//!
//! The engine's threads have nothing else to do while they read, and use [`Store::read_blocking`]. Each read sees a
//! snapshot of the database.
//!
//! Functions return an error when the database cannot be read or written. An `# Errors` section is present only where
//! another error is possible.
//!
//! Calls `domain` only. No function here reads the clock: instants are arguments. A bound limit is written `LIMIT ?1 +
//! 0`: with a bare `?1` SQLite uses the value to plan the query, and so plans it again in every call (50 µs).

pub mod accounts;
pub mod billing;
pub mod cues;
pub mod db;
pub mod event_data;
pub mod executions;
pub mod fair_queue;
pub mod figures;
pub mod maintenance;
pub mod notifications;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use crate::store::db::open::error::OpenError;
pub use crate::store::db::readers::{Pending, ReadFn, ReadTx};
pub use crate::store::db::writer::{CommitListeners, WakeSet, WriteFn, WriteTx};

use crate::cores;
use crate::error::{Error, Result};
use crate::panics;
use crate::store::db::open;
use crate::store::db::open::SCHEMA_VERSION;
use crate::store::db::open::server_lock::ServerLock;
use crate::store::db::readers::{ConnectionPool, CorruptionFlag, ReaderThreads};
use crate::store::db::write_stats::WriteStats;
use crate::store::db::writer::Writer;
use crate::store::db::writer::write_queue::WriteSource;
use crate::store::db::{meta, readers};
use crate::store::maintenance::{check, migrations};

/// Threads of [`Store::read`]. Two saturate two cores; each further one costs a page cache of 2 MB.
const READER_THREADS: usize = 2;

/// Connections for reads on the calling thread beside one for each HTTP thread: for the engine, so that a read rarely finds
/// them all in use. One that does runs on a reader thread.
const ENGINE_CONNECTIONS: usize = 1;

/// Bytes of texts in one list, whatever it lists: a list with larger entries is shorter than asked, but has at least one
/// entry. A hundred executions with the largest payload would take 600 MB.
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
    /// Opens `path` for a server: acquires the lock, creates the schema in a new file or upgrades an earlier one, and
    /// starts the threads. `wake` is called after each successful commit.
    /// Errors: [`OpenError`] says what is wrong with the file and what to do. A refused file is unchanged.
    pub fn open(
        path: &Path,
        wake: Arc<dyn Fn(WakeSet) + Send + Sync>,
    ) -> std::result::Result<Self, OpenError> {
        Self::open_with(path, CommitListeners { wake, events: None })
    }

    /// As [`Store::open`], with a receiver of events.
    pub fn open_with(path: &Path, listeners: CommitListeners) -> std::result::Result<Self, OpenError> {
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

    /// Opens `path` while a server may be using it, for the administration commands.
    /// Errors: as [`Store::open`], except [`OpenError::InUse`]. A file of an earlier version is refused as well.
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

    /// Queues a write. Its result arrives when the commit is on the disk.
    pub fn write<T: Send + 'static>(&self, job: impl WriteFn<T>) -> Pending<T> {
        self.writer.submit(WriteSource::Caller(None), job)
    }

    /// As [`Store::write`], for a request of a user. Users take turns, so that many writes of one do not hold up those
    /// of another.
    pub fn write_for<T: Send + 'static>(&self, user_key: i64, job: impl WriteFn<T>) -> Pending<T> {
        self.writer.submit(WriteSource::Caller(Some(user_key)), job)
    }

    /// As [`Store::write`], before the waiting writes of all callers. For the engine: a due run must not wait for
    /// requests, nor behind a clean-up that waits for them. Each such write is one small batch of the engine's work.
    pub fn write_with_priority<T: Send + 'static>(&self, job: impl WriteFn<T>) -> Pending<T> {
        self.writer.submit(WriteSource::Engine, job)
    }

    /// Returns false after a commit failed, as on a full disk, until one that changes something succeeds.
    pub fn is_writable(&self) -> bool {
        self.writer.is_writable()
    }

    /// True if a read or write has found the file corrupt since the start.
    pub fn is_corrupt(&self) -> bool {
        self.corruption.is_set()
    }

    /// Returns whether the file is writable. If the last write failed, writes a page to find out, because the next
    /// request that writes may be hours away. Otherwise writes nothing. Blocks the calling thread.
    pub fn probe_disk(&self) -> bool {
        // The writer logs the error, as of every failed commit.
        self.is_writable() || self.write_with_priority(meta::touch).wait().is_ok()
    }

    /// Moves the write-ahead log into the file, which frees the disk space of released pages. The store's threads do
    /// not wait for it. If it fails, nothing is lost.
    pub fn checkpoint(&self) -> Result<()> {
        Ok(open::checkpoint_shared(&self.path)?)
    }

    /// Runs an empty write before all others and returns whether the writer thread is alive. Blocks the calling thread;
    /// forever, if the writer hangs.
    pub fn writer_responds(&self) -> bool {
        // An error of the disk is a response too.
        drop(self.write_with_priority(|_| Ok(())).wait());
        self.writer.is_alive()
    }

    /// Counts of committed writes since the start.
    pub fn write_stats(&self) -> &WriteStats {
        self.writer.write_stats()
    }

    /// Queues a read for the reader threads.
    pub fn read<T: Send + 'static>(&self, job: impl ReadFn<T>) -> Pending<T> {
        self.readers.submit(job)
    }

    /// As [`Store::read`], on a thread of its own, for a read that may scan a long history: reads of a row or two never
    /// wait behind it.
    pub fn read_slow<T: Send + 'static>(&self, job: impl ReadFn<T>) -> Pending<T> {
        self.slow_readers.submit(job)
    }

    /// Runs `job` on the calling thread, and waits for a connection if none is free. For the engine's threads, which
    /// have nothing else to do and must not wait behind the lists of callers.
    pub fn read_blocking<T>(&self, job: impl FnOnce(&ReadTx<'_>) -> Result<T>) -> Result<T> {
        let connection = self.inline.get().map_err(Error::from);
        self.corruption.observe(connection.and_then(|connection| readers::read(&connection, job)))
    }

    /// As [`Store::read`], for a read of a few rows by key, as almost every request has one. Runs on the calling thread
    /// if a connection is free, because passing it to another thread and back takes several times as long as the read.
    pub fn read_inline<T: Send + 'static>(&self, job: impl ReadFn<T>) -> Pending<T> {
        let Some(connection) = self.inline.try_get() else { return self.readers.submit(job) };
        let result = panics::catch("a read", || readers::read(&connection, job));
        Pending::ready(self.corruption.observe(result))
    }
}

fn is_earlier(version: i64) -> bool {
    (1..SCHEMA_VERSION).contains(&version)
}

#[cfg(test)]
mod test_support;
