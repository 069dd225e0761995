//! The database file itself: what may be opened, pragmas, schema and its version.

pub mod error;
pub(in crate::store) mod paths;
pub(in crate::store) mod schema;
pub(in crate::store) mod server_lock;

pub use crate::store::db::open::schema::SCHEMA_VERSION;

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::{Connection, OpenFlags};

use crate::store::db::open::error::OpenError;
use crate::store::db::open::paths::{beside, resolved};
use crate::store::db::open::schema::SCHEMA;
use crate::store::db::readers::ConnectionPool;

/// The size of a page. At 4,096 a lone delivery writes twice as much, at 512 rows no longer fit.
const PAGE_BYTES: i64 = 1_024;

/// The write-ahead log is put back into the file when it has grown to this.
const CHECKPOINT_BYTES: i64 = 4 << 20;

/// `PRAGMA application_id`: marks the file as ours ("cued").
const APPLICATION_ID: i64 = 0x6375_6564;

/// How long a write waits for another process (an administration command) to end its own.
pub(in crate::store) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a new file is waited for, while other processes open it too, before it counts as unusable.
const WAL_TURNS: u32 = 100;

/// Makes sure that `path` is a file of ours, or a new and empty one that only its owner may read; answers its schema
/// version, 0 for a new one. A file of two names is refused: each would have a log and a lock of its own.
///
/// # Errors
/// See [`OpenError`]; a file that is refused stays untouched.
pub fn check(path: &Path) -> Result<i64, OpenError> {
    refuse_orphaned_log(path)?;
    create_if_absent(path)?;
    let writable = OpenOptions::new().write(true).open(path);
    if let Err(error) = writable {
        return Err(OpenError::unusable(path, error));
    }
    let failed = |error: std::io::Error| OpenError::unusable(path, error);
    let there = std::fs::metadata(path).map_err(failed)?;
    if there.is_file() && there.nlink() > 1 {
        return Err(OpenError::HardLinked { path: path.to_owned() });
    }
    let version = match open_to_look(path).and_then(|file| version(path, &file)) {
        Err(OpenError::Unusable { .. }) if has_rollback_journal(path) => version_after_rollback(path)?,
        version => version?,
    };
    // A file that was empty when it was found may be anybody's to read, and so would be the log beside it.
    if version == 0 && there.is_file() && there.mode() & 0o077 != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    }
    Ok(version)
}

/// Opens a file of ours to read all of it, beside a server that may be running; leaves it, and the folder, as they are.
/// The folder may be one that nobody can write.
///
/// # Errors
/// See [`OpenError`]; an empty file is none of ours.
pub fn open_to_read(path: &Path) -> Result<Connection, OpenError> {
    if let Err(error) = std::fs::metadata(path) {
        return Err(match error.kind() {
            std::io::ErrorKind::NotFound => OpenError::Missing { path: path.to_owned() },
            _ => OpenError::unusable(path, error),
        });
    }
    let log = beside(&resolved(path), "-wal");
    // A connection that may write clears up behind itself. Where a write-ahead log was left behind, clearing up is to put
    // it into the file: that is not for a reader to do.
    let was_cut_short = std::fs::metadata(&log).is_ok_and(|log| log.len() > 0);
    let access =
        if was_cut_short { OpenFlags::SQLITE_OPEN_READ_ONLY } else { OpenFlags::SQLITE_OPEN_READ_WRITE };
    match open_ours(path, path, access) {
        // SQLite reads a file with a log by means of two files beside it, even where the log is empty. Where they are not
        // there and cannot be made, nobody is writing, and the file is all there is.
        Err(OpenError::Unusable { .. }) if !was_cut_short && !beside(&resolved(path), "-shm").exists() => {
            open_ours(path, &unchanging(path), OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI)
        }
        opened => opened,
    }
}

/// Whether a database of ours has a rollback journal beside it. A restored file has one while it is first written.
fn has_rollback_journal(path: &Path) -> bool {
    let mut header = [0; 72];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    read.is_ok()
        && header[68..] == APPLICATION_ID.to_be_bytes()[4..]
        && beside(&resolved(path), "-journal").exists()
}

/// The version of a file whose last writer was killed: only a connection that may write can apply the journal.
fn version_after_rollback(path: &Path) -> Result<i64, OpenError> {
    let access = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection =
        Connection::open_with_flags(path, access).map_err(|error| OpenError::from_sqlite(path, error))?;
    version(path, &connection)
}

fn open_ours(path: &Path, name: &Path, access: OpenFlags) -> Result<Connection, OpenError> {
    let failed = |error: rusqlite::Error| OpenError::from_sqlite(path, error);
    let connection =
        Connection::open_with_flags(name, access | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(failed)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    match version(path, &connection)? {
        0 => Err(OpenError::NotOurDatabase { path: path.to_owned() }),
        _ => Ok(connection),
    }
}

/// The URI by which SQLite takes a file for one that nobody changes.
fn unchanging(path: &Path) -> PathBuf {
    const SPECIAL: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.');
    let path = resolved(path);
    let path = percent_encode(path.as_os_str().as_bytes(), SPECIAL);
    PathBuf::from(format!("file:{path}?immutable=1"))
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
    .map_err(|error| OpenError::from_sqlite(path, error))?;
    prepare_writer(&connection).map_err(|error| OpenError::from_sqlite(path, error))?;
    Ok(connection)
}

/// A pool of `count` read-only connections.
///
/// # Errors
/// See [`OpenError`].
pub fn open_readers(path: &Path, count: usize) -> Result<ConnectionPool, OpenError> {
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
        .map_err(|error| OpenError::unusable(path, error))
}

/// How large the database is, in bytes; nothing where it cannot be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// The file.
    pub file: Option<u64>,
    /// The write-ahead log beside it.
    pub wal: Option<u64>,
}

/// How large the database at `path` is.
#[must_use]
pub fn sizes(path: &Path) -> Sizes {
    let size = |path: &Path| std::fs::metadata(path).map(|it| it.len()).ok();
    Sizes { file: size(path), wal: size(&beside(&resolved(path), "-wal")) }
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

/// Puts the write-ahead log back into the file while others use both, so that pages that were given back leave the disk.
/// What somebody is reading or writing just now stays for the next time.
///
/// # Errors
/// When the file cannot be written.
pub fn checkpoint_beside(path: &Path) -> rusqlite::Result<()> {
    let access = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, access)?;
    connection.busy_timeout(Duration::ZERO)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // The first keeps nobody waiting, so that the second has next to nothing left to do.
    for how in ["PASSIVE", "TRUNCATE"] {
        connection.query_row(&format!("PRAGMA wal_checkpoint({how})"), [], |_| Ok(()))?;
    }
    connection.close().map_err(|(_, error)| error)
}

/// SQLite throws away a log whose database is gone or empty, with every write in it that was acknowledged. A new
/// database has its first page in the file before it has a log.
fn refuse_orphaned_log(path: &Path) -> Result<(), OpenError> {
    let has_bytes = |path: &Path| std::fs::metadata(path).is_ok_and(|file| file.len() > 0);
    let log = beside(&resolved(path), "-wal");
    if !has_bytes(path) && has_bytes(&log) {
        return Err(OpenError::OrphanedWal { path: path.to_owned(), log });
    }
    Ok(())
}

/// Makes an empty file that only its owner may read: it will hold secrets.
fn create_if_absent(path: &Path) -> Result<(), OpenError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(OpenError::unusable(path, error)),
    }
}

/// The schema version of a file that we know, 0 for an empty one.
fn version(path: &Path, connection: &Connection) -> Result<i64, OpenError> {
    match marks(connection).map_err(|error| OpenError::from_sqlite(path, error))? {
        (0, 0, 0) => Ok(0),
        (APPLICATION_ID, version @ 1..=SCHEMA_VERSION, _) => Ok(version),
        (APPLICATION_ID, version, _) if version > SCHEMA_VERSION => {
            Err(OpenError::Newer { path: path.to_owned(), version })
        }
        _ => Err(OpenError::NotOurDatabase { path: path.to_owned() }),
    }
}

/// Opens a file of whatever kind to look at it: one that is refused then stays untouched.
pub(in crate::store) fn open_to_look(path: &Path) -> Result<Connection, OpenError> {
    let look = OpenFlags::SQLITE_OPEN_READ_ONLY;
    Connection::open_with_flags(path, look).map_err(|error| OpenError::from_sqlite(path, error))
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
pub(in crate::store) fn enter_wal(connection: &Connection) -> rusqlite::Result<()> {
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
    // Only a file that has nothing in it yet can learn to give pages back; the switch to WAL writes the first page.
    let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
    if pages == 0 {
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
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
