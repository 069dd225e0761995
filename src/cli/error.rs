//! A failed command: its message, and its exit code.

use std::fmt::Display;

use serde_json::{Value, json};
use thiserror::Error as ThisError;

use crate::cli::printable::print_error;
use crate::client::request::ClientError;
use crate::error::Error;
use crate::server::ServeError;

#[derive(Debug, ThisError)]
pub enum CliError {
    /// Invalid command line: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// The command failed: exit code 1.
    #[error("{0}")]
    Failed(String),
    /// Nothing has the given name or id: exit code 3.
    #[error("{0}")]
    NotFound(String),
    /// The server's state does not permit the command: exit code 5.
    #[error("{0}")]
    Refused(String),
    /// The run that was waited for has failed, and was printed: exit code 8.
    #[error("{0}")]
    WaitedFailed(String),
    /// The user ended the command: exit code 130.
    #[error("{0}")]
    Interrupted(String),
    /// A request failed, and its exit code depends on why.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The request was shown, not made: success.
    #[error("the request was only shown")]
    OnlyShown,
    /// As the error inside, for a program that reads JSON.
    #[error(transparent)]
    Json(Box<Self>),
}

impl CliError {
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::OnlyShown => 0,
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::NotFound(_) => 3,
            Self::Refused(_) => 5,
            Self::WaitedFailed(_) => 8,
            Self::Interrupted(_) => 130,
            Self::Client(error) => error.exit_code(),
            Self::Json(error) => error.exit_code(),
        }
    }

    pub fn into_json(self) -> Self {
        Self::Json(Box::new(self))
    }

    pub fn print(&self) {
        let text = match self {
            Self::OnlyShown => return,
            Self::Json(error) if matches!(**error, Self::OnlyShown) => return,
            Self::Json(error) => error.to_json().to_string(),
            _ => format!("cued: {self}"),
        };
        // Without standard error the message is lost; the exit code remains.
        drop(print_error(&format!("{text}\n")));
    }

    fn to_json(&self) -> Value {
        let code = match self {
            Self::Client(error) => return error.to_json(),
            Self::Usage(_) => "usage",
            Self::NotFound(_) => "not_found",
            Self::Refused(_) => "refused",
            Self::WaitedFailed(_) => "failed_run",
            Self::Interrupted(_) => "interrupted",
            Self::Failed(_) | Self::OnlyShown | Self::Json(_) => "failed",
        };
        json!({"error": {"code": code, "message": self.to_string(), "status": null}})
    }
}

pub fn usage(message: impl Into<String>) -> CliError {
    CliError::Usage(message.into())
}

pub fn failed(message: impl Into<String>) -> CliError {
    CliError::Failed(message.into())
}

pub fn not_found(message: impl Into<String>) -> CliError {
    CliError::NotFound(message.into())
}

pub fn refused(message: impl Into<String>) -> CliError {
    CliError::Refused(message.into())
}

/// The failure of a step: `cannot ask: …`.
pub fn cannot(step: &str, error: impl Display) -> CliError {
    failed(format!("cannot {step}: {error}"))
}

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(refusal) => Self::Failed(refusal.message.into_owned()),
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<ServeError> for CliError {
    fn from(error: ServeError) -> Self {
        Self::Failed(error.to_string())
    }
}
