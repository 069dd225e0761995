//! Why a database file was not opened.

use std::fmt;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use crate::store::db::open::schema::SCHEMA_VERSION;

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
    /// The file was written by an earlier version of this program, and only a server brings it up to date.
    Older {
        /// The file.
        path: PathBuf,
        /// Its schema version.
        version: i64,
    },
    /// The file could not be brought up to date. It is as it was.
    MigrationFailed {
        /// The file.
        path: PathBuf,
        /// Its schema version.
        version: i64,
        /// What stood in the way.
        reason: String,
    },
    /// The file says that it has the present schema, and has another.
    SchemaMismatch {
        /// The file.
        path: PathBuf,
        /// The first difference.
        difference: String,
    },
    /// The file has more than one name.
    HardLinked {
        /// The file.
        path: PathBuf,
    },
    /// The file is not there, or is empty, and the log of one is beside it.
    OrphanedWal {
        /// Where the file should be.
        path: PathBuf,
        /// The log.
        log: PathBuf,
    },
    /// There is no file.
    Missing {
        /// Where it should be.
        path: PathBuf,
    },
    /// The file is one of ours and is damaged.
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        reason: String,
    },
    /// The disk of the file is full or fails.
    Disk {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        reason: String,
    },
    /// The file is a database of some other program, or none at all.
    NotOurDatabase {
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
    ThreadSpawn(std::io::Error),
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
            Self::Newer { .. }
            | Self::Older { .. }
            | Self::MigrationFailed { .. }
            | Self::SchemaMismatch { .. } => self.fmt_schema(f),
            Self::HardLinked { path } => write!(
                f,
                "{path} has a second name (a hard link): under each a server could write to it, and spoil it. Remove the \
                 other name, which `find / -xdev -samefile {path}` finds, or make this one a copy; a symbolic link is no harm",
                path = path.display()
            ),
            Self::Missing { path } => write!(f, "{} does not exist", path.display()),
            Self::Damaged { path, reason } => write!(
                f,
                "{} is damaged: {reason}. A sound backup can take its place, see `cued restore`",
                path.display()
            ),
            Self::Disk { path, reason } => write!(
                f,
                "{} cannot be used now: {reason}. Its disk is full or fails: make space, or look into the system's log",
                path.display()
            ),
            Self::NotOurDatabase { path } => {
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
            Self::OrphanedWal { path, log } => write!(
                f,
                "{} holds writes of a database that is no longer at {}: put that database back, or move the log away",
                log.display(),
                path.display()
            ),
            Self::ThreadSpawn(error) => write!(f, "a thread could not be started: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl OpenError {
    /// Of a file with another schema.
    fn fmt_schema(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer { path, version } => write!(
                f,
                "{} has schema version {version}, written by a newer cued; this one knows up to {SCHEMA_VERSION}: \
                 upgrade this program, or give another --db",
                path.display()
            ),
            Self::Older { path, version } => write!(
                f,
                "{} has schema version {version}, written by an earlier cued; this one writes {SCHEMA_VERSION}: start \
                 `cued serve` on it once, which brings it up to date",
                path.display()
            ),
            Self::MigrationFailed { path, version, reason } => write!(
                f,
                "{} has schema version {version} and could not be brought to {SCHEMA_VERSION}: {reason}. It is as it \
                 was: the cued that wrote it can go on with it",
                path.display()
            ),
            Self::SchemaMismatch { path, difference } => write!(
                f,
                "{} does not have the tables of schema version {SCHEMA_VERSION}, though it says so: {difference}. It was made \
                 by some other build of cued: go on with that one, or give another --db; `cued check` tells all of it",
                path.display()
            ),
            _ => Ok(()),
        }
    }

    /// What SQLite's refusal says of the file.
    pub(in crate::store) fn from_sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        let path = path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotOurDatabase { path },
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged { path, reason: error.to_string() },
            Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure) => {
                Self::Disk { path, reason: error.to_string() }
            }
            _ => Self::Unusable { path, reason: error.to_string() },
        }
    }

    /// The file, or one beside it, that the system does not let us use.
    pub(in crate::store) fn unusable(path: &Path, error: &std::io::Error) -> Self {
        Self::Unusable { path: path.to_owned(), reason: error.to_string() }
    }
}

impl From<std::io::Error> for OpenError {
    fn from(error: std::io::Error) -> Self {
        Self::ThreadSpawn(error)
    }
}
