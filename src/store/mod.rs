//! All SQL of the program, as free functions by aggregate, and [`Store`]: one writer, two readers, one for long lists,
//! connections for short looks, one file.
//!
//! Calls `domain` only. No function here reads the clock: instants arrive as arguments. A bound limit is written
//! `LIMIT ?1 + 0`: SQLite looks at the value of a bare one when it plans, and so plans anew at every call (50 µs).

pub mod accounts;
pub mod billing;
pub mod cues;
pub mod db;
pub mod executions;
pub mod maintenance;
pub mod notifications;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use rusqlite::Connection;

pub use crate::store::db::open::error::OpenError;
pub use crate::store::db::readers::{Pending, ReadTx};
pub use crate::store::db::writer::{WakeSet, WriteTx};

use crate::error::Result;
use crate::panics;
use crate::store::db::corruption::CorruptionFlag;
use crate::store::db::open;
use crate::store::db::open::schema::SCHEMA_VERSION;
use crate::store::db::open::server_lock::ServerLock;
use crate::store::db::readers::{ConnectionPool, ReaderThreads};
use crate::store::db::write_stats::WriteStats;
use crate::store::db::writer::Writer;
use crate::store::db::{meta, readers};
use crate::store::maintenance::{migrations, quick_check, schema_check};

/// How many threads read. Two saturate two cores; each more costs a page cache of 2 MB.
const READER_THREADS: usize = 2;

/// Connections for looks on the calling thread: one for each thread of HTTP, one for the engine.
const INLINE_CONNECTIONS: usize = 3;

/// The open database file.
pub struct Store {
    path: PathBuf,
    lanes: Option<StoreThreads>,
    damage: CorruptionFlag,
    // Held until the store is gone: its lock keeps a second server out.
    _lock: Option<ServerLock>,
}

struct StoreThreads {
    writer: Writer,
    looks: ConnectionPool,
    readers: ReaderThreads,
    patient: ReaderThreads,
    writer_thread: JoinHandle<Connection>,
    reader_threads: Vec<JoinHandle<()>>,
}

impl Store {
    /// Opens `path` for a server: takes the lock, creates the schema in a new file or brings an earlier one up to date,
    /// starts the lanes.
    /// `ring` is called after each commit that asked for it.
    ///
    /// # Errors
    /// [`OpenError`] says what the file is and what to do; a refused file is left as it was.
    pub fn open(
        path: &Path,
        ring: Arc<dyn Fn(WakeSet) + Send + Sync>,
    ) -> std::result::Result<Self, OpenError> {
        let version = open::check(path)?;
        let lock = ServerLock::take(path)?;
        quick_check::check(path)?;
        if is_earlier(version) {
            migrations::bring_up_to_date(path)?;
        } else if version != 0 {
            schema_check::check(path)?;
            migrations::settle_copies(path, version);
        }
        Self::start(path, ring, Some(lock))
    }

    /// Opens `path` beside a server that may be running, for the administration commands.
    ///
    /// # Errors
    /// As [`Store::open`], but for the lock; and a file of an earlier version is refused.
    pub fn open_shared(path: &Path) -> std::result::Result<Self, OpenError> {
        let version = open::check(path)?;
        if is_earlier(version) {
            return Err(OpenError::Older { path: path.to_owned(), version });
        }
        Self::start(path, Arc::new(|_| ()), None)
    }

    fn start(
        path: &Path,
        ring: Arc<dyn Fn(WakeSet) + Send + Sync>,
        lock: Option<ServerLock>,
    ) -> std::result::Result<Self, OpenError> {
        let damage = CorruptionFlag::default();
        let connection = open::open_writer(path)?;
        let pool = open::open_readers(path, READER_THREADS + 1)?;
        let looks = open::open_readers(path, INLINE_CONNECTIONS)?;
        let (writer, writer_thread) = Writer::start(connection, damage.clone(), ring)?;
        let (readers, mut reader_threads) = ReaderThreads::start(&pool, READER_THREADS, &damage)?;
        let (patient, patient_threads) = ReaderThreads::start(&pool, 1, &damage)?;
        reader_threads.extend(patient_threads);
        Ok(Self {
            path: path.to_owned(),
            lanes: Some(StoreThreads { writer, looks, readers, patient, writer_thread, reader_threads }),
            damage,
            _lock: lock,
        })
    }

    /// Queues a write. Its answer comes when it is on the disk.
    ///
    /// ```
    /// use cued::error::Error;
    /// use cued::store::{Store, accounts::users};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let store = Store::open_shared(&folder.path().join("cued.db"))?;
    /// # let ann = users::NewUser {
    /// #     id: "ann".to_owned(),
    /// #     email: "ann@example.com".to_owned(),
    /// #     plan: "free".to_owned(),
    /// #     webhook_secret: String::new(),
    /// #     alert_webhook_secret: String::new(),
    /// #     created_at: "2030-01-01T00:00:00Z".parse()?,
    /// # };
    /// // `wait` blocks the calling thread; a handler awaits the result instead.
    /// let user_key = store.write(move |tx| users::insert(tx, &ann)).wait()?;
    /// assert_eq!(user_key, Some(1));
    ///
    /// // A write that returns an error changes nothing.
    /// let failed = store.write(|tx| {
    ///     users::set_plan(tx, 1, "pro")?;
    ///     Err::<(), _>(Error::fault("no"))
    /// });
    /// assert!(failed.wait().is_err());
    /// let user = store.read(|read| users::find(read, 1)).wait()?;
    /// assert_eq!(user.map(|user| user.plan).as_deref(), Some("free"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn write<T, F>(&self, job: F) -> Pending<T>
    where
        T: Send + 'static,
        F: FnOnce(&WriteTx<'_>) -> Result<T> + Send + 'static,
    {
        match &self.lanes {
            Some(lanes) => lanes.writer.submit(job),
            None => Pending::closed(),
        }
    }

    /// Whether the newest commit that was to change anything succeeded: false on a full or failing disk, until such
    /// a write goes through again.
    pub fn is_writable(&self) -> bool {
        self.lanes.as_ref().is_some_and(|lanes| lanes.writer.works())
    }

    /// Whether damage was met in the file since the start.
    pub fn is_corrupt(&self) -> bool {
        self.damage.was_met()
    }

    /// Whether the disk takes writes. If it did not take the newest one, it is asked again, by a write of a page: it
    /// may be that nobody else writes for hours. While all is well nothing is written. Blocks the calling thread.
    pub fn probe_disk(&self) -> bool {
        // What it says is in the log, as of every write.
        self.is_writable() || self.write(meta::touch).wait().is_ok()
    }

    /// Puts what is in the write-ahead log into the file, which is then as short as it can be. No lane waits for it.
    ///
    /// # Errors
    /// When the file cannot be written; nothing is lost.
    pub fn checkpoint(&self) -> Result<()> {
        Ok(open::checkpoint_beside(&self.path)?)
    }

    /// Waits until the writer takes up a write that changes nothing; whether there is a writer that does. Blocks the
    /// calling thread, for good if the writer hangs.
    pub fn writer_responds(&self) -> bool {
        // That the disk fails is an answer too.
        drop(self.write(|_| Ok(())).wait());
        self.lanes.as_ref().is_some_and(|lanes| !lanes.writer_thread.is_finished())
    }

    /// What was written since the start; none of a store that is being closed.
    pub fn write_stats(&self) -> Option<&WriteStats> {
        self.lanes.as_ref().map(|lanes| lanes.writer.write_stats())
    }

    /// Queues a read on a consistent picture of the file.
    ///
    /// ```
    /// use cued::store::Store;
    /// use cued::store::cues::due_cues;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let store = Store::open_shared(&folder.path().join("cued.db"))?;
    /// let next = store.read(|read| due_cues::next(read)).wait()?;
    /// assert_eq!(next, None, "a new database has no cues");
    /// # Ok(())
    /// # }
    /// ```
    pub fn read<T, F>(&self, job: F) -> Pending<T>
    where
        T: Send + 'static,
        F: FnOnce(&ReadTx<'_>) -> Result<T> + Send + 'static,
    {
        match &self.lanes {
            Some(lanes) => lanes.readers.submit(job),
            None => Pending::closed(),
        }
    }

    /// As [`Store::read`], on a lane of its own, for what may walk a long history: requests that look at a row or two
    /// never wait behind it.
    pub fn read_slow<T, F>(&self, job: F) -> Pending<T>
    where
        T: Send + 'static,
        F: FnOnce(&ReadTx<'_>) -> Result<T> + Send + 'static,
    {
        match &self.lanes {
            Some(lanes) => lanes.patient.submit(job),
            None => Pending::closed(),
        }
    }

    /// Reads at once, on the calling thread: for the engine's threads, which have nothing else to do meanwhile and never
    /// wait behind a caller's long list.
    ///
    /// # Errors
    /// What the job answers, and when the file cannot be read.
    pub fn read_blocking<T>(&self, job: impl FnOnce(&ReadTx<'_>) -> Result<T>) -> Result<T> {
        match &self.lanes {
            Some(lanes) => self.damage.noted(readers::read(&lanes.looks, job)),
            None => Err(readers::ended()),
        }
    }

    /// As [`Store::read_inline`], for a single statement, which sees one picture of the file without a transaction.
    pub fn read_inline_single<T, F>(&self, job: F) -> Pending<T>
    where
        T: Send + 'static,
        F: FnOnce(&ReadTx<'_>) -> Result<T> + Send + 'static,
    {
        self.run_inline(job, |connection, job| job(&ReadTx::new(connection)))
    }

    /// As [`Store::read`], for what touches a few rows by their keys and is asked with almost every request. It is done
    /// on the calling thread where a connection is free: to hand it to another and back takes several times as long as
    /// the look itself.
    pub fn read_inline<T, F>(&self, job: F) -> Pending<T>
    where
        T: Send + 'static,
        F: FnOnce(&ReadTx<'_>) -> Result<T> + Send + 'static,
    {
        self.run_inline(job, |connection, job| readers::read_on(connection, job))
    }

    /// Has `job` done by `on` on a free connection here and now, or on a lane where none is free.
    fn run_inline<T, F>(&self, job: F, on: impl FnOnce(&Connection, F) -> Result<T>) -> Pending<T>
    where
        T: Send + 'static,
        F: FnOnce(&ReadTx<'_>) -> Result<T> + Send + 'static,
    {
        match &self.lanes {
            Some(lanes) => match lanes.looks.try_get() {
                Some(connection) => {
                    Pending::done(self.damage.noted(panics::catch("a read", || on(&connection, job))))
                }
                None => lanes.readers.submit(job),
            },
            None => Pending::closed(),
        }
    }
}

fn is_earlier(version: i64) -> bool {
    (1..SCHEMA_VERSION).contains(&version)
}

impl Drop for Store {
    /// Ends the lanes after what they still hold, and puts the write-ahead log back into the file.
    fn drop(&mut self) {
        let Some(StoreThreads { writer, looks, readers, patient, writer_thread, reader_threads }) =
            self.lanes.take()
        else {
            return;
        };
        drop((writer, looks, readers, patient));
        for thread in reader_threads {
            // The last owner of a store may be a job on one of its own lanes, which cannot wait for itself.
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                tracing::error!("a reader thread ended by a panic");
            }
        }
        if writer_thread.thread().id() == std::thread::current().id() {
            return;
        }
        match writer_thread.join() {
            Ok(connection) => open::checkpoint(connection),
            Err(_) => tracing::error!("the writer thread ended by a panic"),
        }
    }
}

#[cfg(test)]
mod test_support;
