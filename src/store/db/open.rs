//! Opening the database file: the checks before it is opened, the locks against a second server, pragmas and schema.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{FlockOperation, fcntl_lock};
use thiserror::Error;

use crate::store::db::functions;
use crate::store::db::transactions::ConnectionPool;

pub(in crate::store) const SCHEMA: &str = include_str!("../../../schema.sql");

/// The schema version that this program writes, stored as `PRAGMA user_version`.
pub const SCHEMA_VERSION: i64 = 1;

/// With pages of 4,096 bytes a single delivery writes twice as much; with 512 bytes a row no longer fits into a page.
pub(in crate::store::db) const PAGE_BYTES: i64 = 1_024;

/// Size of the write-ahead log at which SQLite itself moves it into the file, where no thread does: in a migration.
const CHECKPOINT_BYTES: i64 = 4 << 20;

/// `PRAGMA application_id` of a cued database: "Cued" in ASCII.
const APPLICATION_ID: i64 = 0x4375_6564;

/// That of the files of development versions, before the first release: "cued". Their schemas had versions of their
/// own.
const DEVELOPMENT_ID: i64 = 0x6375_6564;

/// Limit on the wait for another process, such as a command, which takes milliseconds: an error, not a request that
/// hangs.
pub(in crate::store) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Busy timeout of the last checkpoint: readers of other processes delay it. A stop beside Litestream took 5 s with
/// [`BUSY_TIMEOUT`].
const LAST_CHECKPOINT_WAIT: Duration = Duration::from_millis(200);

/// After a failed switch to WAL the next attempt waits for the others, so one or two are enough.
const MAX_WAL_ATTEMPTS: u32 = 100;

pub(in crate::store) fn sibling_path(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// `path` with symbolic links resolved, so that two names of one file lead to the same lock and log.
pub(in crate::store) fn resolved(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// The name for SQLite, which takes it for a file and nothing else: `file:a.db` would be a URI, `:memory:` no file.
pub(in crate::store) fn sqlite_name(path: &Path) -> PathBuf {
    Path::new(".").join(path)
}

/// Creates an absent file for its owner only. Returns the schema version, 0 for an empty file. Two hard links are
/// refused: each name would have its own log and lock. A refused file is unchanged.
pub fn check(path: &Path) -> Result<i64, OpenError> {
    // Before the version: another process that creates the file writes the log after the tables.
    let log = refuse_orphaned_log(path)?;
    create_if_absent(path)?;
    let failed = |error: std::io::Error| OpenError::unusable(path, error);
    OpenOptions::new().write(true).open(path).map_err(failed)?;
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if metadata.is_file() && metadata.nlink() > 1 {
        return Err(OpenError::HardLinked { path: path.to_owned() });
    }
    let version = match open_read_only(path).and_then(|file| version(path, &file)) {
        Err(OpenError::Unusable { .. }) if has_rollback_journal(path) => {
            let connection =
                open_existing(path).map_err(|error| OpenError::from_sqlite(path, error))?;
            version(path, &connection)?
        }
        version => version?,
    };
    if let (0, Some(log)) = (version, log) {
        return Err(OpenError::OrphanedWal { path: path.to_owned(), log });
    }
    // An existing empty file may be readable by others. The log, which gets the same mode, would be as well.
    if version == 0 && metadata.is_file() && metadata.mode() & 0o077 != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    }
    Ok(version)
}

/// For `cued serve --held`: a new database would hide that the replica tool has restored none. Errors:
/// [`OpenError::NothingToHold`], or [`OpenError::OrphanedWal`]. Creates no file.
pub fn require_database(path: &Path) -> Result<(), OpenError> {
    refuse_orphaned_log(path)?;
    match std::fs::metadata(path) {
        Ok(file) if file.len() > 0 => Ok(()),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(OpenError::unusable(path, error))
        }
        _ => Err(OpenError::NothingToHold { path: path.to_owned() }),
    }
}

/// Changes neither the file nor its folder, which may be read-only, also while a server uses it. An empty file is
/// refused.
pub fn open_for_reading(path: &Path) -> Result<Connection, OpenError> {
    if let Err(error) = std::fs::metadata(path) {
        return Err(match error.kind() {
            std::io::ErrorKind::NotFound => OpenError::Missing { path: path.to_owned() },
            _ => OpenError::unusable(path, error),
        });
    }
    // Closing a connection with write access would move a log left by a crash into the file, which a read must not
    // change.
    let has_log = find_log(path).is_some();
    let access =
        if has_log { OpenFlags::SQLITE_OPEN_READ_ONLY } else { OpenFlags::SQLITE_OPEN_READ_WRITE };
    match open_with_version(path, &sqlite_name(path), access) {
        // In WAL mode SQLite needs a log and an index even to read. If they do not exist and cannot be created, no
        // process has the database open, and the file alone is complete.
        Err(OpenError::Unusable { .. })
            if !has_log && !sibling_path(&resolved(path), "-shm").exists() =>
        {
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

fn open_with_version(path: &Path, name: &Path, access: OpenFlags) -> Result<Connection, OpenError> {
    let failed = |error: rusqlite::Error| OpenError::from_sqlite(path, error);
    let connection = Connection::open_with_flags(name, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(failed)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    match version(path, &connection)? {
        0 => Err(OpenError::NotOurDatabase { path: path.to_owned() }),
        _ => Ok(connection),
    }
}

/// The URI that makes SQLite read a file without locks and without a log.
fn immutable_uri(path: &Path) -> PathBuf {
    const SPECIAL: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.');
    let path = resolved(path);
    let path = percent_encode(path.as_os_str().as_bytes(), SPECIAL);
    PathBuf::from(format!("file:{path}?immutable=1"))
}

pub fn open_writer(path: &Path) -> Result<Connection, OpenError> {
    open_existing(path)
        .and_then(|connection| prepare_writer(&connection).map(|()| connection))
        .map_err(|error| OpenError::from_sqlite(path, error))
}

pub(in crate::store) fn open_existing(path: &Path) -> rusqlite::Result<Connection> {
    let access = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(sqlite_name(path), access)
}

pub fn open_readers(path: &Path, count: usize) -> Result<ConnectionPool, OpenError> {
    let manager = SqliteConnectionManager::file(sqlite_name(path))
        .with_flags(OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .with_init(|connection| {
            connection.busy_timeout(BUSY_TIMEOUT)?;
            connection.set_prepared_statement_cache_capacity(128);
            functions::define(connection)
        });
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    r2d2::Pool::builder()
        .max_size(count)
        .test_on_check_out(false)
        .connection_timeout(BUSY_TIMEOUT)
        .build(manager)
        .map_err(|error| OpenError::unusable(path, error))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    pub file: Option<u64>,
    pub wal: Option<u64>,
}

pub fn sizes(path: &Path) -> Sizes {
    let size = |path: &Path| std::fs::metadata(path).map(|it| it.len()).ok();
    Sizes { file: size(path), wal: size(&sibling_path(&resolved(path), "-wal")) }
}

pub fn free_bytes(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    disk.f_bavail.checked_mul(disk.f_frsize)
}

/// A stopped server leaves a single file, unless another process uses the log: a replica tool has it open all the time.
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

/// Copies all of the log, and waits for reads that began before its last commit, for [`BUSY_TIMEOUT`] at most.
pub(in crate::store::db) fn checkpoint_full(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(FULL)", [], |_| Ok(()))
}

/// Blocks no other connection. Returns the copied frames of the log: 0 if another connection is doing the same.
pub(in crate::store::db) fn checkpoint_passive(connection: &Connection) -> rusqlite::Result<u32> {
    let copied = |row: &rusqlite::Row<'_>| row.get::<_, i64>(2);
    let copied = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], copied)?;
    Ok(u32::try_from(copied).unwrap_or(0))
}

/// Shrinks the file by its released pages. Parts of the log in use stay until the next checkpoint.
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

/// SQLite would delete the log with all acknowledged writes in it. The log is checked before the database: another
/// process may create both at the same time, and writes the tables before the log has content. Returns the log.
fn refuse_orphaned_log(path: &Path) -> Result<Option<PathBuf>, OpenError> {
    match find_log(path) {
        Some(log) if !has_bytes(path) => Err(OpenError::OrphanedWal { path: path.to_owned(), log }),
        log => Ok(log),
    }
}

/// The write-ahead log of `path`, if it has content.
fn find_log(path: &Path) -> Option<PathBuf> {
    Some(sibling_path(&resolved(path), "-wal")).filter(|log| has_bytes(log))
}

fn has_bytes(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.len() > 0)
}

/// Creates an empty file with access for its owner only: it will contain secrets.
fn create_if_absent(path: &Path) -> Result<(), OpenError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(OpenError::unusable(path, error)),
    }
}

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
    Connection::open_with_flags(sqlite_name(path), access)
        .map_err(|error| OpenError::from_sqlite(path, error))
}

/// Application id, schema version and number of tables, from one snapshot: another process may be creating the schema.
fn read_identity(connection: &Connection) -> rusqlite::Result<(i64, i64, i64)> {
    let snapshot = connection.unchecked_transaction()?;
    let query = |sql: &str| snapshot.query_row(sql, [], |row| row.get(0));
    // Only a read of a table opens the snapshot. The pragmas, which read the header, do not.
    let tables = query("SELECT count(*) FROM sqlite_schema")?;
    Ok((query("PRAGMA application_id")?, query("PRAGMA user_version")?, tables))
}

/// The switch fails at once while another connection has a lock; an empty exclusive transaction waits in its place.
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
    functions::define(connection)?;
    // On a new file only. A delivery changes one or two pages in each of ten indexes, and the log stores whole pages.
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    create_schema(connection)?;
    enter_wal(connection)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_BYTES / PAGE_BYTES)?;
    connection.pragma_update(None, "foreign_keys", "ON")?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // The log may grow while many cues are due at once. The next checkpoint truncates it to this size.
    connection.pragma_update(None, "journal_size_limit", 64 << 20)
}

/// In one transaction: a crash during the first start leaves an empty file, not half a schema. Before the switch to WAL
/// mode: a file without tables beside a log has then lost them, and is refused.
fn create_schema(connection: &Connection) -> rusqlite::Result<()> {
    let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
    // This can be set only while the file is empty, and writes its first page.
    let new = "BEGIN; PRAGMA auto_vacuum = INCREMENTAL";
    connection.execute_batch(if pages == 0 { new } else { "BEGIN IMMEDIATE" })?;
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version == 0 {
        connection.execute_batch(SCHEMA)?;
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
        connection.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    }
    connection.execute_batch("COMMIT")
}

pub type Cause = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Error)]
pub enum OpenError {
    /// Another server uses the file; `process` is known if its lock file could be read.
    #[error("{path} is in use by another cued{}: stop it first, or use another --db", process_id(*process))]
    InUse { path: PathBuf, process: Option<u32> },
    #[error(
        "{path} has schema version {version}, written by a newer cued; this one supports up to {SCHEMA_VERSION}: use that \
         newer cued again, or go back to the copy that its upgrade left: `cued restore {path}.v{SCHEMA_VERSION} --db \
         {path} --replace`, without what came later"
    )]
    Newer { path: PathBuf, version: i64 },
    #[error(
        "{path} was written by a development version of cued, from before the first release: use the cued that was built \
         from the commit that wrote it, or start with a new file (another --db)"
    )]
    Development { path: PathBuf },
    /// Writing the process id into it would overwrite another file.
    #[error(
        "{lock} is a symbolic link, has several hard links, or is no plain file, so it is not the lock file of a cued: \
         remove it"
    )]
    LinkedLock { lock: PathBuf },
    #[error(
        "{path} has schema version {version}, written by an earlier cued; this one writes {SCHEMA_VERSION}: start \
         `cued serve` on it once to upgrade it"
    )]
    Older { path: PathBuf, version: i64 },
    #[error(
        "{path} has schema version {version} and could not be upgraded to {SCHEMA_VERSION}: {reason}. The file is \
         unchanged; the version of cued that wrote it can still open it"
    )]
    MigrationFailed { path: PathBuf, version: i64, reason: String },
    #[error(
        "{path} does not have the tables of schema version {SCHEMA_VERSION}, which it claims to have: {difference}. It was \
         created by another build of cued: use that one, or another --db; `cued check` lists all differences"
    )]
    SchemaMismatch { path: PathBuf, difference: String },
    #[error(
        "{path} has more than one hard link; two servers could open it under different names and corrupt it. Remove the \
         other link (`find / -xdev -samefile {path}`) or copy the file. Symbolic links are fine"
    )]
    HardLinked { path: PathBuf },
    #[error(
        "{log} contains writes of a database that is no longer at {path}: put that database back, or move the log away to \
         start without them"
    )]
    OrphanedWal { path: PathBuf, log: PathBuf },
    #[error("{path} does not exist")]
    Missing { path: PathBuf },
    #[error("{path} is damaged: {source}. Replace it with a backup (`cued restore`)")]
    Corrupt { path: PathBuf, source: Cause },
    #[error(
        "{path} cannot be used now: {source}. Its disk is full or failing: free some space, or see the system log"
    )]
    Disk { path: PathBuf, source: rusqlite::Error },
    #[error(
        "{path} is not a cued database: use the path of one, or of a file that does not exist yet"
    )]
    NotOurDatabase { path: PathBuf },
    #[error("{path} cannot be used: {source}. {}", remedy(source))]
    Unusable { path: PathBuf, source: Cause },
    #[error(
        "{path} does not exist or is empty: --held (CUED_HELD) is for a database that a replica tool has restored there. \
         Restore it first, or start without --held for a new database"
    )]
    NothingToHold { path: PathBuf },
    #[error(
        "{path} cannot be put on hold: {source}. Free space on its disk, or see the system log, and start again"
    )]
    NotHeld { path: PathBuf, source: Cause },
    #[error("a thread could not be started: {0}")]
    ThreadSpawn(#[from] std::io::Error),
}

fn process_id(process: Option<u32>) -> String {
    process.map(|process| format!(", process {process}")).unwrap_or_default()
}

fn remedy(source: &Cause) -> String {
    let user = rustix::process::geteuid().as_raw();
    match source.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(ErrorKind::NotFound) => {
            "Its folder does not exist: create it, or use another --db".to_owned()
        }
        Some(ErrorKind::IsADirectory) => "Give --db the path of a file in it".to_owned(),
        Some(ErrorKind::ReadOnlyFilesystem) => {
            "Its file system is read-only: mount it for writing, or use another --db".to_owned()
        }
        Some(ErrorKind::PermissionDenied) => format!(
            "The file and its folder must be readable and writable for user {user}, as which cued runs: `chown -R \
             {user}` the folder, or use another --db"
        ),
        _ => "The file and its folder must be readable and writable".to_owned(),
    }
}

impl OpenError {
    pub(in crate::store) fn from_sqlite(path: &Path, error: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotOurDatabase { path },
            Some(ErrorCode::DatabaseCorrupt) => Self::Corrupt { path, source: error.into() },
            Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure) => {
                Self::Disk { path, source: error }
            }
            _ => Self::Unusable { path, source: error.into() },
        }
    }

    pub(in crate::store) fn unusable(path: &Path, error: impl Into<Cause>) -> Self {
        Self::Unusable { path: path.to_owned(), source: error.into() }
    }
}

/// A lock file with the process id, and a lock on the database in case the file is deleted.
#[derive(Debug)]
pub struct ServerLock {
    // A lock lasts as long as its open file. The operating system releases it however the process ends.
    database: Option<File>,
    _file: File,
    path: PathBuf,
}

impl ServerLock {
    /// No connection of this process may be open to the database. Errors: [`OpenError::InUse`],
    /// [`OpenError::LinkedLock`], or [`OpenError::Unusable`].
    pub fn acquire(path: &Path) -> Result<Self, OpenError> {
        let lock_path = sibling_path(&resolved(path), ".lock");
        let failed = |error: std::io::Error| OpenError::unusable(path, error);
        loop {
            let mut file = open_lock(&lock_path).map_err(|error| match error.raw_os_error() {
                Some(libc::ELOOP) => OpenError::LinkedLock { lock: lock_path.clone() },
                _ => failed(error),
            })?;
            let metadata = file.metadata().map_err(failed)?;
            if !metadata.is_file() || metadata.nlink() > 1 {
                return Err(OpenError::LinkedLock { lock: lock_path });
            }
            match file.try_lock() {
                Ok(()) if is_same_file(&file, &lock_path) => {
                    file.set_len(0).map_err(failed)?;
                    writeln!(file, "{}", std::process::id()).map_err(failed)?;
                    let mut lock = Self { database: None, _file: file, path: lock_path };
                    lock.database = lock_database(path)?;
                    return Ok(lock);
                }
                // The previous holder removed the file between the open and the lock: try again with a new file.
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

/// Follows no symbolic link: in a shared folder it could make the server overwrite any of its user's files.
fn open_lock(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}

/// flock(2) belongs to the file, so it holds between containers too, and on a disk of Linux does not conflict with
/// SQLite's fcntl(2). NFS, SMB and 9p make one of the other, so that SQLite could lock nothing: `None` there. A process
/// loses its fcntl locks when it closes any descriptor of the file: open this before the first connection, close it
/// after the last.
fn lock_database(path: &Path) -> Result<Option<File>, OpenError> {
    let file = match OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(OpenError::unusable(path, error)),
    };
    let probe = |operation| fcntl_lock(&file, operation).map_err(std::io::Error::from);
    let locked = match file.try_lock() {
        Ok(()) => probe(FlockOperation::NonBlockingLockShared)
            .and_then(|()| probe(FlockOperation::Unlock)),
        Err(TryLockError::WouldBlock) => {
            return Err(OpenError::InUse { path: path.to_owned(), process: None });
        }
        Err(TryLockError::Error(error)) => Err(error),
    };
    if let Err(error) = locked {
        let path = path.display();
        tracing::warn!(%path, %error, "database file not locked: do not delete its .lock file while a server runs");
        return Ok(None);
    }
    Ok(Some(file))
}

fn is_same_file(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(file), Ok(at_path)) => (file.dev(), file.ino()) == (at_path.dev(), at_path.ino()),
        _ => false,
    }
}

impl Drop for ServerLock {
    fn drop(&mut self) {
        // Before the lock file goes: a server that starts then finds both free.
        self.database = None;
        // A lock file that remains is harmless: without the lock on it, the next server can acquire it.
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), error = %error, "lock file not removed");
        }
    }
}
