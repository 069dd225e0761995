//! The least that a durable store of rows needs, for the baseline of `cued bench`: one table with two indexes, a writer
//! thread that commits all waiting rows at once, and reads on the calling thread.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::locks::Mutex;
use crate::metrics::Stopwatch;

/// The durability and the sizes of the service's own file.
const PRAGMAS: &str = "PRAGMA page_size = 1024; PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 4096;
    PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 67108864;";

const TABLE: &str = "CREATE TABLE rows (key INTEGER PRIMARY KEY, id TEXT NOT NULL, user_key INTEGER NOT NULL,
                                        body TEXT NOT NULL) STRICT;
    CREATE UNIQUE INDEX rows_by_id ON rows (id);
    CREATE INDEX rows_by_user ON rows (user_key, key);";
const INSERT: &str = "INSERT INTO rows (id, user_key, body) VALUES (?1, ?2, ?3)";
const GET: &str = "SELECT body FROM rows WHERE key = ?1";
const LIST: &str = "SELECT body FROM rows WHERE user_key = ?1 ORDER BY key DESC LIMIT ?2 + 0";

/// The rows of all inserts have one user.
const USER_KEY: i64 = 1;

/// As that of the writer of the store.
const LINGER: Duration = Duration::from_micros(200);
const MAX_BATCH: usize = 512;

/// A file of its own with the same pragmas as the database of the service. Its writer ends when it is dropped.
pub struct BareFile {
    inserts: Sender<Insert>,
    /// Free connections for reads; as many as there are threads that read.
    readers: Mutex<Vec<Connection>>,
}

struct Insert {
    id: String,
    body: String,
    done: oneshot::Sender<Result<()>>,
}

impl BareFile {
    /// Creates the file, and `readers` connections to read it.
    pub fn create(path: &Path, readers: usize) -> Result<Self> {
        let connection = Connection::open(path).map_err(unusable)?;
        connection.execute_batch(PRAGMAS).and_then(|()| connection.execute_batch(TABLE)).map_err(unusable)?;
        let access = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let reader = |_| Connection::open_with_flags(path, access);
        let readers = (0..readers).map(reader).collect::<rusqlite::Result<Vec<_>>>().map_err(unusable)?;
        let (inserts, waiting) = channel();
        let run = move || while commit_next(&connection, &waiting).is_some() {};
        std::thread::Builder::new()
            .name("bare-writer".to_owned())
            .spawn(run)
            .map_err(|error| Error::fault(format!("the writer of the baseline cannot start: {error}")))?;
        Ok(Self { inserts, readers: Mutex::new(readers) })
    }

    /// Inserts a row. The answer comes after its commit.
    pub fn insert(&self, id: String, body: String) -> oneshot::Receiver<Result<()>> {
        let (done, answer) = oneshot::channel();
        // Without a writer the answer is that its sender is gone.
        drop(self.inserts.send(Insert { id, body, done }));
        answer
    }

    /// The body of a row, read on the calling thread.
    pub fn get(&self, key: i64) -> Result<String> {
        self.read(|connection| connection.prepare_cached(GET)?.query_row([key], |row| row.get(0)))
    }

    /// The newest rows, read on the calling thread.
    pub fn list(&self, limit: u32) -> Result<Vec<String>> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(LIST)?;
            statement.query_map([USER_KEY, i64::from(limit)], |row| row.get(0))?.collect()
        })
    }

    fn read<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let reader = self.readers.lock().pop();
        let reader = reader.ok_or_else(|| Error::fault("more threads read the baseline than planned"))?;
        let done = read(&reader);
        self.readers.lock().push(reader);
        done.map_err(unusable)
    }
}

fn unusable(error: rusqlite::Error) -> Error {
    Error::storage_from("the file of the baseline cannot be used", error)
}

/// Commits the rows that wait, at least one. Returns `None` when nobody can insert any more.
fn commit_next(connection: &Connection, waiting: &Receiver<Insert>) -> Option<()> {
    let mut next = Some(receive(waiting)?);
    let (mut answers, mut failed) = (Vec::new(), connection.execute_batch("BEGIN IMMEDIATE").err());
    while let Some(insert) = next {
        let row = (&insert.id, USER_KEY, &insert.body);
        let done = connection.prepare_cached(INSERT).and_then(|mut statement| statement.execute(row));
        failed = failed.or(done.err());
        answers.push(insert.done);
        next = if answers.len() < MAX_BATCH { waiting.try_recv().ok() } else { None };
    }
    failed = failed.or_else(|| connection.execute_batch("COMMIT").err());
    if failed.is_some() && !connection.is_autocommit() {
        drop(connection.execute_batch("ROLLBACK"));
    }
    let failed = failed.map(unusable);
    for answer in answers {
        let done = failed.as_ref().map_or(Ok(()), |error| Err(Error::storage(error.to_string())));
        drop(answer.send(done));
    }
    Some(())
}

fn receive(waiting: &Receiver<Insert>) -> Option<Insert> {
    let stopwatch = Stopwatch::start();
    while stopwatch.elapsed() < LINGER {
        match waiting.try_recv() {
            Ok(insert) => return Some(insert),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => std::thread::yield_now(),
        }
    }
    waiting.recv().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_answered_after_their_commit_and_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = BareFile::create(&folder.path().join("bare.db"), 1).unwrap();
        let answers: Vec<_> = ["a", "b", "c"].map(|id| file.insert(id.to_owned(), format!("of {id}"))).into();
        answers.into_iter().for_each(|answer| answer.blocking_recv().unwrap().unwrap());
        assert_eq!(file.get(2).unwrap(), "of b");
        assert_eq!(file.list(2).unwrap(), ["of c", "of b"]);
        let twice = file.insert("a".to_owned(), String::new()).blocking_recv().unwrap();
        assert!(twice.is_err(), "an id is unique");
        assert!(file.insert("d".to_owned(), String::new()).blocking_recv().unwrap().is_ok());
    }
}
