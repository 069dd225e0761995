//! Opening the database file: the checks before it is opened, pragmas, schema and schema version.

pub mod error;
pub(in crate::store) mod server_lock;

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
use crate::store::db::readers::ConnectionPool;

/// The statements that create every table, index and trigger.
pub(in crate::store) const SCHEMA: &str = include_str!("../../../../schema.sql");

/// The schema version that this program writes, stored as `PRAGMA user_version`.
pub const SCHEMA_VERSION: i64 = 1;

/// With pages of 4,096 bytes a single delivery writes twice as much; with 512 bytes a row no longer fits into a page.
pub(in crate::store::db) const PAGE_BYTES: i64 = 1_024;

/// Size of the write-ahead log at which SQLite itself moves it into the file, where no thread does: in a migration.
const CHECKPOINT_BYTES: i64 = 4 << 20;

/// `PRAGMA application_id` of a cued database: "Cued" in ASCII.
const APPLICATION_ID: i64 = 0x4375_6564;

/// That of the files of development versions, before the first release: "cued". Their schemas had versions of their own.
const DEVELOPMENT_ID: i64 = 0x6375_6564;

/// Limit on the wait of a write for that of another process, such as an administration command. Those take
/// milliseconds; after 5 s the caller gets an error instead of a request that hangs.
pub(in crate::store) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Limit on the wait of the last checkpoint for readers of other processes. With [`BUSY_TIMEOUT`] each stop of a server
/// beside Litestream, whose read transaction has no end, took 5 s longer.
const LAST_CHECKPOINT_WAIT: Duration = Duration::from_millis(200);

/// Attempts to switch a new file to WAL mode while other processes do the same. After a failed attempt the next one
/// waits for the others to finish, so one or two are enough; the limit only prevents an endless loop.
const MAX_WAL_ATTEMPTS: u32 = 100;

/// `path` with `suffix` appended to the file name.
pub(in crate::store) fn sibling_path(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// `path` with symbolic links resolved, so that two names of one file lead to the same lock and log.
pub(in crate::store) fn resolved(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Checks that `path` is a cued database, or creates an empty file with access for its owner only. Returns the schema
/// version, 0 for an empty file. A file with two hard links is refused: each name would have its own log and lock.
/// Errors: see [`OpenError`]. A refused file is unchanged.
pub fn check(path: &Path) -> Result<i64, OpenError> {
    refuse_orphaned_log(path)?;
    create_if_absent(path)?;
    let failed = |error: std::io::Error| OpenError::unusable(path, error);
    OpenOptions::new().write(true).open(path).map_err(failed)?;
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if metadata.is_file() && metadata.nlink() > 1 {
        return Err(OpenError::HardLinked { path: path.to_owned() });
    }
    let version = match open_read_only(path).and_then(|file| version(path, &file)) {
        Err(OpenError::Unusable { .. }) if has_rollback_journal(path) => version_after_rollback(path)?,
        version => version?,
    };
    // An existing empty file may be readable by others. The log, which gets the same mode, would be as well.
    if version == 0 && metadata.is_file() && metadata.mode() & 0o077 != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    }
    Ok(version)
}

/// Refuses a path without a database, for a start that holds one (`cued serve --held`): a new database in the place of one
/// that a replica tool was to restore would hide that it is missing.
/// Errors: [`OpenError::NothingToHold`], or [`OpenError::OrphanedWal`]. Creates no file.
pub fn require_database(path: &Path) -> Result<(), OpenError> {
    refuse_orphaned_log(path)?;
    match std::fs::metadata(path) {
        Ok(file) if file.len() > 0 => Ok(()),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(OpenError::unusable(path, error)),
        _ => Err(OpenError::NothingToHold { path: path.to_owned() }),
    }
}

/// Opens a cued database to read all of it, possibly while a server is using it. Changes neither the file nor its
/// folder, which may be read-only. Errors: see [`OpenError`]. An empty file is not a cued database.
pub fn open_for_reading(path: &Path) -> Result<Connection, OpenError> {
    if let Err(error) = std::fs::metadata(path) {
        return Err(match error.kind() {
            std::io::ErrorKind::NotFound => OpenError::Missing { path: path.to_owned() },
            _ => OpenError::unusable(path, error),
        });
    }
    let log = sibling_path(&resolved(path), "-wal");
    // A connection with write access removes the log and its index when it is closed. If a crash left a log with
    // content, it would first move that into the file, which a read must not change.
    let has_log = std::fs::metadata(&log).is_ok_and(|log| log.len() > 0);
    let access = if has_log { OpenFlags::SQLITE_OPEN_READ_ONLY } else { OpenFlags::SQLITE_OPEN_READ_WRITE };
    match open_with_version(path, path, access) {
        // In WAL mode SQLite needs a log and an index file next to the database even to read it. If they do not exist
        // and cannot be created, no other process has the database open, and the file alone is complete.
        Err(OpenError::Unusable { .. }) if !has_log && !sibling_path(&resolved(path), "-shm").exists() => {
            let access = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
            open_with_version(path, &immutable_uri(path), access)
        }
        opened => opened,
    }
}

/// True if `path` is a cued database with a rollback journal. A restored file has one during its first write.
fn has_rollback_journal(path: &Path) -> bool {
    let mut header = [0; 72];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    read.is_ok()
        && header[68..] == APPLICATION_ID.to_be_bytes()[4..]
        && sibling_path(&resolved(path), "-journal").exists()
}

/// The version of a file whose last writer was killed. Only a connection with write access can apply the journal.
fn version_after_rollback(path: &Path) -> Result<i64, OpenError> {
    let connection = open_existing(path).map_err(|error| OpenError::from_sqlite(path, error))?;
    version(path, &connection)
}

/// Opens the file by `name`, which may be a URI, and checks that it has a known schema version.
fn open_with_version(path: &Path, name: &Path, access: OpenFlags) -> Result<Connection, OpenError> {
    let failed = |error: rusqlite::Error| OpenError::from_sqlite(path, error);
    let connection =
        Connection::open_with_flags(name, access | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(failed)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    match version(path, &connection)? {
        0 => Err(OpenError::NotOurDatabase { path: path.to_owned() }),
        _ => Ok(connection),
    }
}

/// The URI that makes SQLite read a file without locks and without a log.
fn immutable_uri(path: &Path) -> PathBuf {
    const SPECIAL: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.');
    let path = resolved(path);
    let path = percent_encode(path.as_os_str().as_bytes(), SPECIAL);
    PathBuf::from(format!("file:{path}?immutable=1"))
}

/// Opens the connection for writes, and creates the schema in a new file.
pub fn open_writer(path: &Path) -> Result<Connection, OpenError> {
    open_existing(path)
        .and_then(|connection| prepare_writer(&connection).map(|()| connection))
        .map_err(|error| OpenError::from_sqlite(path, error))
}

/// Opens a file that exists for reading and writing.
pub(in crate::store) fn open_existing(path: &Path) -> rusqlite::Result<Connection> {
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)
}

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

/// The disk usage of a database in bytes; `None` for a file that does not exist or is not accessible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    pub file: Option<u64>,
    /// The write-ahead log.
    pub wal: Option<u64>,
}

pub fn sizes(path: &Path) -> Sizes {
    let size = |path: &Path| std::fs::metadata(path).map(|it| it.len()).ok();
    Sizes { file: size(path), wal: size(&sibling_path(&resolved(path), "-wal")) }
}

/// The bytes that the program may still write on the disk of the database.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    disk.f_bavail.checked_mul(disk.f_frsize)
}

/// Moves the write-ahead log into the file and closes the connection, so that a stopped server leaves a single file. The
/// log stays where another process uses it: a replica tool has it open all the time.
pub fn checkpoint(connection: Connection) {
    if let Err(error) = connection.busy_timeout(LAST_CHECKPOINT_WAIT) {
        tracing::debug!(error = %error, "busy timeout not set");
    }
    if let Err(error) = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())) {
        tracing::warn!(error = %error, "write-ahead log not moved into the database file; the next start does it");
    }
    if let Err((_, error)) = connection.close() {
        tracing::warn!(error = %error, "database file not closed cleanly");
    }
}

/// Copies the write-ahead log into the file, as far as no reader needs the page that is there. Blocks no other
/// connection, and returns the frames of the log that are copied: 0 if another connection is doing the same.
pub(in crate::store::db) fn checkpoint_passive(connection: &Connection) -> rusqlite::Result<u32> {
    let copied = |row: &rusqlite::Row<'_>| row.get::<_, i64>(2);
    let copied = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], copied)?;
    Ok(u32::try_from(copied).unwrap_or(0))
}

/// Moves the write-ahead log into the file while other connections use both, so that the file shrinks by its released
/// pages. Parts of the log that are being read or written stay until the next checkpoint.
pub fn checkpoint_shared(path: &Path) -> rusqlite::Result<()> {
    let connection = open_existing(path)?;
    connection.busy_timeout(Duration::ZERO)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // PASSIVE blocks no other connection and does most of the work. TRUNCATE blocks writers, but has little left to do.
    for mode in ["PASSIVE", "TRUNCATE"] {
        connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(()))?;
    }
    connection.close().map_err(|(_, error)| error)
}

/// Refuses a missing or empty database whose write-ahead log has content: SQLite would delete the log with all
/// acknowledged writes in it. The log is checked before the database. Another process may create both at the same time,
/// and a new database has its first page in the file before its log has content; a file that has pages never becomes
/// empty again. So if the log had content, the database has too unless it was removed. In the opposite order, the
/// database could be checked before the other process creates it and the log after.
fn refuse_orphaned_log(path: &Path) -> Result<(), OpenError> {
    let has_bytes = |path: &Path| std::fs::metadata(path).is_ok_and(|file| file.len() > 0);
    let log = sibling_path(&resolved(path), "-wal");
    if has_bytes(&log) && !has_bytes(path) {
        return Err(OpenError::OrphanedWal { path: path.to_owned(), log });
    }
    Ok(())
}

/// Creates an empty file with access for its owner only: it will contain secrets.
fn create_if_absent(path: &Path) -> Result<(), OpenError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(OpenError::unusable(path, error)),
    }
}

/// The schema version of a file, 0 for an empty one. A file of another program or a newer version is refused.
fn version(path: &Path, connection: &Connection) -> Result<i64, OpenError> {
    match read_identity(connection).map_err(|error| OpenError::from_sqlite(path, error))? {
        (0, 0, 0) => Ok(0),
        (APPLICATION_ID, version @ 1..=SCHEMA_VERSION, _) => Ok(version),
        (APPLICATION_ID, version, _) if version > SCHEMA_VERSION => {
            Err(OpenError::Newer { path: path.to_owned(), version })
        }
        (DEVELOPMENT_ID, ..) => Err(OpenError::Development { path: path.to_owned() }),
        _ => Err(OpenError::NotOurDatabase { path: path.to_owned() }),
    }
}

/// Opens a file of any kind without write access, so that a file that is refused stays unchanged.
pub(in crate::store) fn open_read_only(path: &Path) -> Result<Connection, OpenError> {
    let access = OpenFlags::SQLITE_OPEN_READ_ONLY;
    Connection::open_with_flags(path, access).map_err(|error| OpenError::from_sqlite(path, error))
}

/// Application id, schema version and number of tables, from one snapshot: another process may be creating the schema.
fn read_identity(connection: &Connection) -> rusqlite::Result<(i64, i64, i64)> {
    let snapshot = connection.unchecked_transaction()?;
    let query = |sql: &str| snapshot.query_row(sql, [], |row| row.get(0));
    // Only a read of a table opens the snapshot. The pragmas, which read the header, do not.
    let tables = query("SELECT count(*) FROM sqlite_schema")?;
    Ok((query("PRAGMA application_id")?, query("PRAGMA user_version")?, tables))
}

/// Switches the file to WAL mode. This fails at once while another connection has a lock, where any other write would
/// wait; so an empty exclusive transaction waits in its place.
pub(in crate::store) fn enter_wal(connection: &Connection) -> rusqlite::Result<()> {
    let switch = || connection.pragma_update(None, "journal_mode", "WAL");
    for _ in 0..MAX_WAL_ATTEMPTS {
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
    // Has an effect on a new file only. A single delivery changes one or two pages in each of ten indexes, and the log
    // stores whole pages.
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    // Can be set only while the file is empty, and the switch to WAL mode below writes the first page.
    let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
    if pages == 0 {
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    enter_wal(connection)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_BYTES / PAGE_BYTES)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", "ON")?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // The log may grow while many cues are due at once. The next checkpoint truncates it to this size.
    connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
    // In one transaction: a crash during the first start leaves an empty file, not half a schema.
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version == 0 {
        connection.execute_batch(SCHEMA)?;
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
        connection.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    }
    connection.execute_batch("COMMIT")
}
