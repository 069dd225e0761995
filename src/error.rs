//! The one error type of the program: refused (the caller's to mend) or a fault (ours, or the machine's).

use std::fmt;

use crate::domain::api_error::{ErrorCode, Refusal};

/// What an action or the store can answer instead of a result.
#[derive(Debug)]
pub enum Error {
    /// The caller asked for something that it cannot have, and is told why.
    Refused(Refusal),
    /// Something is broken on our side. Logged whole, answered as a bare 500.
    Fault(String),
    /// The database file is damaged: as a fault, but one that its operator has to be told of.
    Damaged(String),
    /// The file cannot be written (full or failing disk) or the store is shutting down: try again later.
    Storage(String),
}

/// A result of this program.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A refusal in one step, for the common case without detail.
    pub fn refused(code: ErrorCode, message: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Self::Refused(Refusal::new(code, message))
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode as E;
        match error.sqlite_error_code() {
            Some(
                E::DiskFull
                | E::SystemIoFailure
                | E::ReadOnly
                | E::DatabaseBusy
                | E::DatabaseLocked
                | E::CannotOpen,
            ) => Self::Storage(error.to_string()),
            Some(E::DatabaseCorrupt | E::NotADatabase) => Self::Damaged(format!(
                "the database file is damaged ({error}): a sound backup can take its place, see `cued restore`"
            )),
            _ => Self::Fault(format!("SQLite: {error}")),
        }
    }
}

impl From<r2d2::Error> for Error {
    fn from(error: r2d2::Error) -> Self {
        Self::Storage(format!("no connection to the database file: {error}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Fault(what) | Self::Damaged(what) => f.write_str(what),
            Self::Storage(what) => write!(f, "the database file cannot be used now: {what}"),
        }
    }
}

impl std::error::Error for Error {}
