//! Transactions: [`ReadTx`], [`WriteTx`], the reader threads, and [`Pending`], the result that a caller waits for without
//! occupying a thread. The writer thread is in `writer`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use jiff::Timestamp;
use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::domain::notification::event::{
    Event, EventSink, EventType, MAX_SINGLE_PER_COMMIT, PendingEvent,
};
use crate::domain::row_keys::UserKey;
use crate::error::{Error, Result};
use crate::store::db::columns::{self, FromRow, RowReader, ToRow, bind, insert_sql};
use crate::store::db::counters::{CounterDeltas, EventCounts, WriteEvent};
use crate::system::locks::Mutex;
use crate::system::panics;

/// Entries for which a page has room from the start.
const USUAL_PAGE: usize = 50;

/// A read transaction: all its statements see the same snapshot of the database.
#[derive(Clone, Copy)]
pub struct ReadTx<'a>(&'a Connection);

impl<'a> ReadTx<'a> {
    pub(in crate::store) fn new(connection: &'a Connection) -> Self {
        Self(connection)
    }

    pub(in crate::store) fn find<T: FromRow>(
        &self,
        sql: &str,
        parameters: impl ToRow,
    ) -> Result<Option<T>> {
        let mut statement = self.prepare_cached(sql)?;
        bind(&mut statement, parameters)?;
        let mut rows = statement.raw_query();
        Ok(rows.next()?.map(|row| RowReader::new(row).get()).transpose()?)
    }

    pub(in crate::store) fn one<T: FromRow>(&self, sql: &str, parameters: impl ToRow) -> Result<T> {
        self.find(sql, parameters)?.ok_or_else(|| rusqlite::Error::QueryReturnedNoRows.into())
    }

    pub(in crate::store) fn all<T: FromRow>(
        &self,
        sql: &str,
        parameters: impl ToRow,
    ) -> Result<Vec<T>> {
        let mut found = Vec::new();
        self.visit(sql, parameters, |columns| {
            found.push(columns.get()?);
            Ok(true)
        })?;
        Ok(found)
    }

    /// The first rows, at most `limit`, until their texts have `max_bytes`, but at least one. The statement finds one more
    /// than `limit`: returns whether there are more.
    pub(in crate::store) fn page<T: FromRow>(
        &self,
        sql: &str,
        parameters: impl ToRow,
        limit: u32,
        max_bytes: usize,
    ) -> Result<(Vec<T>, bool)> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        // A page grown entry by entry would be moved several times, and the usual one is full.
        let mut page = Vec::with_capacity(limit.min(USUAL_PAGE));
        let (mut bytes, mut has_more) = (0, false);
        self.visit(sql, parameters, |columns| {
            let entry = columns.get()?;
            bytes += columns.text_bytes();
            has_more = page.len() >= limit || (bytes > max_bytes && !page.is_empty());
            if !has_more {
                page.push(entry);
            }
            Ok(!has_more)
        })?;
        Ok((page, has_more))
    }

    /// Calls `visit` with each row until it returns false.
    pub(in crate::store) fn visit(
        &self,
        sql: &str,
        parameters: impl ToRow,
        mut visit: impl FnMut(&mut RowReader<'_, '_>) -> rusqlite::Result<bool>,
    ) -> Result<()> {
        let mut statement = self.prepare_cached(sql)?;
        bind(&mut statement, parameters)?;
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next()? {
            if !visit(&mut RowReader::new(row))? {
                break;
            }
        }
        Ok(())
    }

    pub(in crate::store) fn any(&self, sql: &str, parameters: impl ToRow) -> Result<bool> {
        let mut statement = self.prepare_cached(sql)?;
        bind(&mut statement, parameters)?;
        Ok(statement.raw_query().next()?.is_some())
    }
}

impl Deref for ReadTx<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0
    }
}

pub(in crate::store::db) type CommitHook = Box<dyn FnOnce() + Send>;

/// A write transaction. Dereferences to [`ReadTx`], so that every function that reads also works in a write.
pub struct WriteTx<'a> {
    read: ReadTx<'a>,
    counters: CounterDeltas,
    pub(in crate::store::db) effects: RefCell<Effects>,
    /// The receiver of events; `None` while no user follows them.
    sink: Option<&'a dyn EventSink>,
    singles: RefCell<BTreeMap<UserKey, u32>>,
}

impl<'a> WriteTx<'a> {
    pub(in crate::store::db) fn new(
        connection: &'a Connection,
        sink: Option<&'a dyn EventSink>,
    ) -> Self {
        Self {
            read: ReadTx::new(connection),
            counters: CounterDeltas::default(),
            effects: RefCell::default(),
            sink: sink.filter(|sink| sink.is_watched()),
            singles: RefCell::default(),
        }
    }

    /// An error of `part` rolls back its changes alone. Its counters are stored at its end, so the next part reads
    /// them.
    pub fn part<T>(&self, part: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let inner = Self { singles: self.singles.clone(), ..Self::new(self.read.0, self.sink) };
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

    pub(in crate::store) fn run(&self, sql: &str, parameters: impl ToRow) -> Result<()> {
        self.change(sql, parameters).map(drop)
    }

    pub(in crate::store) fn change(&self, sql: &str, parameters: impl ToRow) -> Result<usize> {
        Ok(columns::run(self, sql, parameters)?)
    }

    pub(in crate::store) fn changes(&self, sql: &str, parameters: impl ToRow) -> Result<bool> {
        Ok(self.change(sql, parameters)? > 0)
    }

    /// Returns the key of the new row. `columns`: those of `row`, with commas between them.
    pub(in crate::store) fn insert(
        &self,
        table: &str,
        columns: &str,
        row: impl ToRow,
    ) -> Result<i64> {
        self.run(&insert_sql(table, columns), row)?;
        Ok(self.last_insert_rowid())
    }

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

    pub fn is_watched(&self) -> bool {
        self.sink.is_some()
    }

    /// Emits an event after the commit. `build` runs only if the user follows events and gets this one singly. Its
    /// error is logged: whether a user watches must not change the result of a write.
    pub fn emit(
        &self,
        user_key: UserKey,
        event_type: EventType,
        build: impl FnOnce() -> Result<Option<Event>>,
    ) {
        if !self.sink.is_some_and(|sink| sink.is_watched_by(user_key)) {
            return;
        }
        let is_counted = {
            let mut singles = self.singles.borrow_mut();
            let singles = singles.entry(user_key).or_default();
            *singles += 1;
            *singles > MAX_SINGLE_PER_COMMIT
        };
        let emitted = if is_counted {
            Ok(Some(PendingEvent::Counted { user_key, event_type }))
        } else {
            build().map(|event| event.map(PendingEvent::Event))
        };
        match emitted {
            Ok(emitted) => self.effects.borrow_mut().emitted.extend(emitted),
            Err(error) => self.on_commit(move || {
                tracing::error!(event_type = event_type.as_str(), %error, "an event cannot be built");
            }),
        }
    }

    /// Moves the log into the file after the commit, before the caller gets the result: what a lost log must not take.
    pub(in crate::store) fn checkpoint(&self) {
        self.effects.borrow_mut().checkpoint = true;
    }

    /// After the commit, before the caller gets the result; not if the write fails. For log lines. Runs on the writer's
    /// thread, so other writes wait for it.
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

/// What follows the commit of a write.
#[derive(Default)]
pub(in crate::store::db) struct Effects {
    pub wake: WakeSet,
    pub checkpoint: bool,
    pub events: EventCounts,
    pub on_commit: Vec<CommitHook>,
    pub emitted: Vec<PendingEvent>,
}

impl Effects {
    pub fn append(&mut self, mut later: Self) {
        self.wake = self.wake.merge(later.wake);
        self.checkpoint |= later.checkpoint;
        self.events.add_all(&later.events);
        self.on_commit.append(&mut later.on_commit);
        self.emitted.append(&mut later.emitted);
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct WakeSet {
    /// Something falls due at this instant, which may be earlier than the scheduler's next pass.
    pub schedule: Option<Timestamp>,
    pub send: bool,
    pub claim: bool,
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

#[must_use = "a write is known to be on the disk only once its result has arrived"]
pub struct Pending<T>(oneshot::Receiver<Result<T>>);

impl<T> Pending<T> {
    pub(in crate::store) fn new(receiver: oneshot::Receiver<Result<T>>) -> Self {
        Self(receiver)
    }

    pub(in crate::store) fn ready(result: Result<T>) -> Self {
        let (sender, receiver) = oneshot::channel();
        // It fails only without a receiver.
        drop(sender.send(result));
        Self(receiver)
    }

    /// Not for an async task. Errors: that of the job, or [`Error::Storage`] if the commit failed or the store is
    /// closed.
    pub fn wait(self) -> Result<T> {
        self.0.blocking_recv().unwrap_or_else(|_| Err(store_closed()))
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = Pin::new(&mut self.0).poll(context);
        result.map(|result| result.unwrap_or_else(|_| Err(store_closed())))
    }
}

/// Set once the file was found corrupt. Never cleared: only the next start checks the file again.
#[derive(Debug, Clone, Default)]
pub struct CorruptionFlag(Arc<AtomicBool>);

impl CorruptionFlag {
    pub fn observe<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| {
            self.record(error);
            if matches!(error, Error::Storage(_)) {
                tracing::error!(%error, "the database cannot be read");
            }
        })
    }

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

pub trait ReadFn<T>: FnOnce(&ReadTx<'_>) -> Result<T> + Send + 'static {}

impl<T, F: FnOnce(&ReadTx<'_>) -> Result<T> + Send + 'static> ReadFn<T> for F {}

pub struct ReaderThreads {
    jobs: Option<Sender<ReadJob>>,
    threads: Vec<JoinHandle<()>>,
    corruption: CorruptionFlag,
}

impl ReaderThreads {
    pub fn start(
        pool: &ConnectionPool,
        count: usize,
        corruption: &CorruptionFlag,
    ) -> std::io::Result<Self> {
        let (jobs, waiting) = channel::<ReadJob>();
        let waiting = Arc::new(Mutex::new(waiting));
        let threads = (0..count)
            .map(|_| {
                let (pool, waiting) = (pool.clone(), Arc::clone(&waiting));
                std::thread::Builder::new()
                    .name("reader".to_owned())
                    .spawn(move || run(&pool, &waiting))
            })
            .collect::<std::io::Result<Vec<_>>>()?;
        Ok(Self { jobs: Some(jobs), threads, corruption: corruption.clone() })
    }

    pub fn submit<T: Send + 'static>(&self, job: impl ReadFn<T>) -> Pending<T> {
        let (sender, pending) = oneshot::channel();
        let corruption = self.corruption.clone();
        let job = move |pool: &ConnectionPool| {
            drop(
                sender
                    .send(corruption.observe(panics::catch("a read", || read(&*pool.get()?, job)))),
            );
        };
        // Sending fails only after the readers have ended; `Pending` then returns an error.
        drop(self.jobs.as_ref().map(|jobs| jobs.send(Box::new(job))));
        Pending::new(pending)
    }
}

impl Drop for ReaderThreads {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            join(thread);
        }
    }
}

/// Waits for a thread of the store and returns its result. A job on it may be the last owner of the store, and a thread
/// cannot join itself.
pub(in crate::store::db) fn join<T>(thread: JoinHandle<T>) -> Option<T> {
    if thread.thread().id() == std::thread::current().id() {
        return None;
    }
    let name = thread.thread().name().unwrap_or_default().to_owned();
    let joined = thread.join();
    if joined.is_err() {
        tracing::error!("{name} thread panicked");
    }
    joined.ok()
}

fn run(pool: &ConnectionPool, waiting: &Mutex<Receiver<ReadJob>>) {
    loop {
        let next = waiting.lock().recv();
        let Ok(job) = next else { return };
        job(pool);
    }
}

/// BEGIN and ROLLBACK are prepared once and cached: they run as often as the queries between them.
pub(in crate::store) fn read<T>(
    connection: &Connection,
    job: impl FnOnce(&ReadTx<'_>) -> Result<T>,
) -> Result<T> {
    let snapshot = Snapshot::begin(connection)?;
    job(&ReadTx::new(snapshot.0))
}

/// Ends when dropped, also by a panic. Not a part of [`read`]: the program contains a copy of that function for each job.
struct Snapshot<'a>(&'a Connection);

impl<'a> Snapshot<'a> {
    #[inline(never)]
    fn begin(connection: &'a Connection) -> Result<Self> {
        begin(connection, "BEGIN DEFERRED")?;
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

/// An earlier rollback may have failed. The transaction it left open would make every later BEGIN fail.
pub(in crate::store::db) fn begin(connection: &Connection, sql: &str) -> Result<()> {
    if !connection.is_autocommit() {
        execute(connection, "ROLLBACK")?;
    }
    execute(connection, sql)
}

pub(in crate::store) fn execute(connection: &Connection, sql: &str) -> Result<()> {
    Ok(columns::run(connection, sql, ()).map(drop)?)
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
