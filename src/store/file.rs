//! The database file itself: what may be opened, the lock against a second server, pragmas, schema and its version.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::{Connection, OpenFlags};

use super::lanes::Pool;

const SCHEMA: &str = include_str!("../../schema.sql");

/// The size of a page. At 4,096 a lone delivery writes twice as much, at 512 rows no longer fit.
const PAGE_BYTES: i64 = 1_024;

/// The write-ahead log is put back into the file when it has grown to this.
const CHECKPOINT_BYTES: i64 = 4 << 20;

/// `PRAGMA user_version` of a file that this program writes.
pub const SCHEMA_VERSION: i64 = 1;

/// `PRAGMA application_id`: marks the file as ours ("cued").
const APPLICATION_ID: i64 = 0x6375_6564;

/// How long a write waits for another process (an administration command) to end its own.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a new file is waited for, while other processes open it too, before it counts as unusable.
const WAL_TURNS: u32 = 100;

/// Why a file was not opened. The file is as it was.
#[derive(Debug)]
pub enum OpenError {
    /// Another server has the file.
    InUse {
        /// The file.
        path: PathBuf,
        /// The process that has it, where it could be read.
        process: Option<u32>,
    },
    /// The file was written by a newer version of this program.
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema version.
        version: i64,
    },
    /// The file is a database of some other program, or none at all.
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file, or its folder, cannot be read or written.
    Unusable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// A thread could not be started.
    Machine(std::io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { path, process: Some(process) } => {
                write!(
                    f,
                    "{} is in use by another cued, process {process}: stop it first, or give another --db",
                    path.display()
                )
            }
            Self::InUse { path, process: None } => {
                write!(f, "{} is in use by another cued: stop it first, or give another --db", path.display())
            }
            Self::Newer { path, version } => write!(
                f,
                "{} has schema version {version}, written by a newer cued; this one knows up to {SCHEMA_VERSION}: \
                 upgrade this program, or give another --db",
                path.display()
            ),
            Self::Foreign { path } => {
                write!(
                    f,
                    "{} is not a cued database: give the path of one, or of a file that does not exist yet",
                    path.display()
                )
            }
            Self::Unusable { path, reason } => {
                write!(
                    f,
                    "{} cannot be used: {reason}. The file and its folder must be readable and writable",
                    path.display()
                )
            }
            Self::Machine(error) => write!(f, "a thread could not be started: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<std::io::Error> for OpenError {
    fn from(error: std::io::Error) -> Self {
        Self::Machine(error)
    }
}

/// The lock that one server holds on a database file: a file beside it that names the process.
#[derive(Debug)]
pub struct ServerLock {
    // The lock lives as long as the open file; the operating system lets it go with the process, however it ends.
    _file: File,
    path: PathBuf,
}

impl ServerLock {
    /// Takes the lock of the database at `path`, or says which process has it.
    ///
    /// # Errors
    /// [`OpenError::InUse`], or [`OpenError::Unusable`] when the lock file cannot be made.
    pub fn take(path: &Path) -> Result<Self, OpenError> {
        let lock_path = beside(&resolved(path), ".lock");
        let failed = |error: std::io::Error| unusable(path, &error.to_string());
        loop {
            let mut file = open_lock(&lock_path).map_err(failed)?;
            match file.try_lock() {
                Ok(()) if is_the_file_at(&file, &lock_path) => {
                    file.set_len(0).map_err(failed)?;
                    writeln!(file, "{}", std::process::id()).map_err(failed)?;
                    return Ok(Self { _file: file, path: lock_path });
                }
                // Its holder removed it between our opening and our locking it: there is a new one to take.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let mut text = String::new();
                    file.read_to_string(&mut text).map_err(failed)?;
                    return Err(OpenError::InUse {
                        path: path.to_owned(),
                        process: text.trim().parse().ok(),
                    });
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
    }
}

fn open_lock(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn is_the_file_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

impl Drop for ServerLock {
    fn drop(&mut self) {
        // A lock file that stays behind is harmless: what counts is the lock, not the file.
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!("{} could not be removed: {error}", self.path.display());
        }
    }
}

/// Makes sure that `path` is a file of ours, or a new and empty one that only its owner may read.
///
/// # Errors
/// See [`OpenError`]; a file that is refused stays untouched.
pub fn check(path: &Path) -> Result<(), OpenError> {
    create_if_absent(path)?;
    inspect(path)
}

/// Opens the connection that writes, and makes the schema in a new file.
///
/// # Errors
/// See [`OpenError`].
pub fn open_writer(path: &Path) -> Result<Connection, OpenError> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
    .map_err(|error| refused(path, &error))?;
    prepare_writer(&connection).map_err(|error| refused(path, &error))?;
    Ok(connection)
}

/// A pool of `count` read-only connections.
///
/// # Errors
/// See [`OpenError`].
pub fn open_readers(path: &Path, count: usize) -> Result<Pool, OpenError> {
    let manager = SqliteConnectionManager::file(path)
        .with_flags(OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .with_init(|connection| {
            connection.busy_timeout(BUSY_TIMEOUT)?;
            connection.set_prepared_statement_cache_capacity(128);
            Ok(())
        });
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    r2d2::Pool::builder()
        .max_size(count)
        .test_on_check_out(false)
        .connection_timeout(BUSY_TIMEOUT)
        .build(manager)
        .map_err(|error| unusable(path, &error.to_string()))
}

/// Puts the write-ahead log back into the file, so that a stopped server leaves a single file.
pub fn checkpoint(connection: Connection) {
    if let Err(error) = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())) {
        tracing::warn!(
            "the write-ahead log could not be put back into the file; the next start does it: {error}"
        );
    }
    if let Err((_, error)) = connection.close() {
        tracing::warn!("the database file was not closed cleanly: {error}");
    }
}

/// Makes an empty file that only its owner may read: it will hold secrets.
fn create_if_absent(path: &Path) -> Result<(), OpenError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(unusable(path, &error.to_string())),
    }
}

/// Looks at an existing file through a read-only connection, so that a file that is refused stays untouched.
fn inspect(path: &Path) -> Result<(), OpenError> {
    let writable = OpenOptions::new().write(true).open(path);
    if let Err(error) = writable {
        return Err(unusable(path, &error.to_string()));
    }
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .map_err(|error| refused(path, &error))?;
    match marks(&connection).map_err(|error| refused(path, &error))? {
        (0, 0, 0) => Ok(()),
        (APPLICATION_ID, SCHEMA_VERSION, _) => Ok(()),
        (APPLICATION_ID, version, _) => Err(OpenError::Newer { path: path.to_owned(), version }),
        _ => Err(OpenError::Foreign { path: path.to_owned() }),
    }
}

/// Application, schema version and number of tables: of one moment, for another process may be making the schema.
fn marks(connection: &Connection) -> rusqlite::Result<(i64, i64, i64)> {
    let snapshot = connection.unchecked_transaction()?;
    let figure = |sql: &str| snapshot.query_row(sql, [], |row| row.get(0));
    // A read of a table opens the snapshot; the header's figures alone would not.
    let tables = figure("SELECT count(*) FROM sqlite_schema")?;
    Ok((figure("PRAGMA application_id")?, figure("PRAGMA user_version")?, tables))
}

/// Puts the file into WAL mode. SQLite lets that switch fail where any other write would wait for its turn.
fn enter_wal(connection: &Connection) -> rusqlite::Result<()> {
    let switch = || connection.pragma_update(None, "journal_mode", "WAL");
    for _ in 0..WAL_TURNS {
        match switch() {
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => {
                connection.execute_batch("BEGIN EXCLUSIVE; COMMIT")?;
            }
            switched => return switched,
        }
    }
    switch()
}

fn prepare_writer(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(256);
    // Of a new file only. A lone delivery touches a page or two of each of ten indexes, and the log takes whole pages.
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    enter_wal(connection)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_BYTES / PAGE_BYTES)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", "ON")?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // A herd may stretch the write-ahead log; afterwards the space is given back.
    connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
    // In one transaction: a crash in the midst of the first start leaves an empty file, not half a schema.
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version == 0 {
        connection.execute_batch(SCHEMA)?;
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
        connection.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    }
    connection.execute_batch("COMMIT")
}

fn refused(path: &Path, error: &rusqlite::Error) -> OpenError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => OpenError::Foreign { path: path.to_owned() },
        _ => unusable(path, &error.to_string()),
    }
}

fn unusable(path: &Path, reason: &str) -> OpenError {
    OpenError::Unusable { path: path.to_owned(), reason: reason.to_owned() }
}

/// The path with links followed, so that two names of one file meet at one lock.
fn resolved(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
