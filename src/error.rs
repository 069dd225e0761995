//! The error type of the actions, the engine and the store.
//!
//! Two kinds: a **client error** ([`Error::Refused`]: the caller can correct the request) and an **internal error**
//! (all other variants: the operator may be able to fix it, the caller is not). Client errors reach the caller with
//! their code and message. Internal errors are logged in full; the caller gets a bare 500, or 503 for
//! [`Error::Storage`].
//!
//! `Display` of an internal error is its message followed by its causes, separated by `: `, because every place that
//! prints one is a log line or an operator's terminal: `error = %error` is complete. `source` returns the cause as a
//! value. For other error types, [`chain`] prints the same form.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use rusqlite::ErrorCode as SqliteCode;

use crate::domain::api_error::{ErrorCode, Refusal};

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Client error: the request cannot be carried out, for the reason that the refusal names.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Internal error: a bug, or a resource that the operating system refuses.
    #[error(transparent)]
    Fault(Fault),
    /// Internal error: the database file is corrupt. Health and metrics report it, so that the operator restores a
    /// backup.
    #[error(transparent)]
    Corrupt(Fault),
    /// Internal error, temporary: the file cannot be written (full or failing disk), or the store is shutting down.
    #[error(transparent)]
    Storage(Fault),
}

/// The message of an internal error and the error that caused it, if there is one.
///
/// Cloning is cheap: a failed commit fails every write of its batch with the same cause.
#[derive(Debug, Clone)]
pub struct Fault {
    message: Cow<'static, str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Fault {
    fn from_source(
        message: impl Into<Cow<'static, str>>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self { message: message.into(), source: Some(Arc::from(source.into())) }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&with_causes(&self.message, self.source()))
    }
}

// By hand, because the derive would return the `Arc` as the source, which cannot be downcast to the error in it.
impl StdError for Fault {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl Error {
    pub fn refused(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self::Refused(Refusal::new(code, message))
    }

    pub fn fault(message: impl Into<Cow<'static, str>>) -> Self {
        Self::Fault(Fault { message: message.into(), source: None })
    }

    /// A fault caused by `source`; `message` says what failed, without repeating the cause.
    pub fn fault_from(
        message: impl Into<Cow<'static, str>>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self::Fault(Fault::from_source(message, source))
    }

    pub fn storage(message: impl Into<Cow<'static, str>>) -> Self {
        Self::Storage(Fault { message: message.into(), source: None })
    }

    pub fn storage_from(
        message: impl Into<Cow<'static, str>>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self::Storage(Fault::from_source(message, source))
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(
                SqliteCode::DiskFull
                | SqliteCode::SystemIoFailure
                | SqliteCode::ReadOnly
                | SqliteCode::DatabaseBusy
                | SqliteCode::DatabaseLocked
                | SqliteCode::CannotOpen,
            ) => Self::storage_from("the database file cannot be used now", error),
            Some(SqliteCode::DatabaseCorrupt | SqliteCode::NotADatabase) => {
                let message =
                    "the database file is corrupt; replace it with a backup (`cued restore`)";
                Self::Corrupt(Fault::from_source(message, error))
            }
            _ => Self::fault_from("SQLite", error),
        }
    }
}

impl From<r2d2::Error> for Error {
    fn from(error: r2d2::Error) -> Self {
        Self::storage_from("no connection to the database file", error)
    }
}

/// The error and its causes in one line, separated by `: `. A cause with the same text as its effect is left out: some
/// errors print their cause themselves, and rusqlite's source is its own text after an error code.
pub fn chain(error: &dyn StdError) -> String {
    with_causes(&error.to_string(), error.source())
}

fn with_causes(message: &str, cause: Option<&(dyn StdError + 'static)>) -> String {
    match cause.map(chain) {
        Some(causes) if !message.ends_with(&causes) && !causes.ends_with(message) => {
            format!("{message}: {causes}")
        }
        _ => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::io::Error);

    fn denied() -> std::io::Error {
        std::io::Error::other("permission denied")
    }

    #[test]
    fn an_internal_error_prints_its_causes_and_returns_the_first_as_source() {
        let error = Error::fault_from("the thread cannot start", Outer(denied()));
        assert_eq!(error.to_string(), "the thread cannot start: outer: permission denied");
        assert_eq!(chain(&error), error.to_string(), "every cause once");
        assert!(error.source().unwrap().is::<Outer>());
        assert!(Error::fault("no cause").source().is_none());
    }

    #[test]
    fn a_full_disk_is_named_once() {
        let full = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL);
        let error =
            rusqlite::Error::SqliteFailure(full, Some("database or disk is full".to_owned()));
        let text = "the database file cannot be used now: database or disk is full";
        assert_eq!(Error::from(error).to_string(), text);
    }
}
