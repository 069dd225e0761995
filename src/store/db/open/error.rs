//! The reasons why a database file cannot be opened.

use std::io;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use thiserror::Error;

use crate::store::db::open::SCHEMA_VERSION;

/// The cause of an error, whichever library returned it.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The reason for which a database file was not opened. The file is unchanged.
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
    /// The schema is of an earlier version, and only `cued serve` upgrades it.
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
    /// The file states the present schema version but has different tables; `difference` is the first one.
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
    /// The database is missing or empty, but its write-ahead log exists and has content.
    #[error(
        "{log} contains writes of a database that is no longer at {path}: put that database back, or move the log away"
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
    #[error("{path} is not a cued database: use the path of one, or of a file that does not exist yet")]
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

/// The way to make a file usable, by the error of the operating system.
fn remedy(source: &Cause) -> String {
    let user = rustix::process::geteuid().as_raw();
    match source.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(ErrorKind::NotFound) => "Its folder does not exist: create it, or use another --db".to_owned(),
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
    /// Classifies an error that SQLite returned for the file.
    pub(in crate::store) fn from_sqlite(path: &Path, error: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotOurDatabase { path },
            Some(ErrorCode::DatabaseCorrupt) => Self::Corrupt { path, source: error.into() },
            Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure) => Self::Disk { path, source: error },
            _ => Self::Unusable { path, source: error.into() },
        }
    }

    /// The error for a file, or one of its companion files, to which the operating system denies access.
    pub(in crate::store) fn unusable(path: &Path, error: impl Into<Cause>) -> Self {
        Self::Unusable { path: path.to_owned(), source: error.into() }
    }
}
