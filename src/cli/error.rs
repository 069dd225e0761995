//! A failed command: its message, and its exit code.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::path::Path;

use serde_json::{Value, json};
use thiserror::Error as ThisError;

use crate::cli::printable::print_error;
use crate::client::credentials::CredentialsError;
use crate::client::request::{ClientError, RefusedRequest};
use crate::domain::account::credentials::EmailError;
use crate::domain::text::{escaped, shell_word};
use crate::error::Error;
use crate::server::ServeError;

/// The result of a command, or of a step of one.
pub type Result<T = (), E = CliError> = std::result::Result<T, E>;

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
    /// The run that was waited for, or a test call, has failed, and was printed: exit code 8.
    #[error("{0}")]
    WaitedFailed(String),
    /// What was compared differs, and was printed: exit code 8.
    #[error("{0}")]
    Differs(String),
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
            Self::Client(error) => error.exit_code(),
            other => other.kind().0,
        }
    }

    /// The exit code, and the code in JSON.
    fn kind(&self) -> (u8, &'static str) {
        match self {
            Self::OnlyShown => (0, "failed"),
            Self::Failed(_) | Self::Client(_) => (1, "failed"),
            Self::Usage(_) => (2, "usage"),
            Self::NotFound(_) => (3, "not_found"),
            Self::Refused(_) => (5, "refused"),
            Self::WaitedFailed(_) => (8, "failed_run"),
            Self::Differs(_) => (8, "differences"),
            Self::Interrupted(_) => (130, "interrupted"),
            Self::Json(error) => (error.exit_code(), "failed"),
        }
    }

    /// The refusal of a request.
    pub fn refused(&mut self) -> Option<&mut RefusedRequest> {
        match self {
            Self::Client(ClientError::Refused(refused)) => Some(refused),
            _ => None,
        }
    }

    /// The status and the code of a request that has failed.
    pub fn status(&self) -> Option<u16> {
        if let Self::Client(error) = self { error.status() } else { None }
    }

    pub fn code(&self) -> &str {
        if let Self::Client(error) = self { error.code() } else { "" }
    }

    /// A refusal in these words, in place of those of the server.
    pub fn saying(mut self, text: impl Into<String>) -> Self {
        if let Some(refused) = self.refused() {
            refused.say(text.into());
        }
        self
    }

    pub fn into_json(self) -> Self {
        Self::Json(Box::new(self))
    }

    pub fn print(&self) {
        // Without standard error the message is lost; the exit code remains.
        drop(match self {
            Self::OnlyShown => return,
            Self::Json(error) if matches!(**error, Self::OnlyShown) => return,
            Self::Json(error) => {
                io::stderr().write_all(escaped(&format!("{}\n", error.to_json()), &[]).as_bytes())
            }
            _ => print_error(&format!("cued: {self}\n")),
        });
    }

    fn to_json(&self) -> Value {
        if let Self::Client(error) = self {
            return error.to_json();
        }
        let (_, code) = self.kind();
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

/// A text that is no email address, and why.
pub fn bad_email(text: &str, error: EmailError) -> CliError {
    usage(format!("{text:?}: {error}"))
}

/// What to do about a schedule that the shell has split into `words`. `flag` may be empty.
pub fn in_quotes(flag: &str, words: &[&str]) -> String {
    let name = if flag.is_empty() { "cued preview".to_owned() } else { format!("--{flag}") };
    // In place of `*` the shell has put the names of files.
    let is_file = |word: &&str| word.contains('.') || Path::new(word).exists();
    let is_cron = |word: &&str| word.chars().all(|char| "0123456789*/,-".contains(char));
    let schedule = match words {
        [_, _, ..] if !words.iter().take(2).all(is_cron) && !words.iter().any(is_file) => {
            words.join(" ")
        }
        _ if flag == "at" => "tomorrow 9:00".to_owned(),
        _ if flag == "every" => "5 min".to_owned(),
        _ => "0 9 * * *".to_owned(),
    };
    format!("put the schedule in quotes: {name} {}", shell_word(&schedule))
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

impl From<CredentialsError> for CliError {
    fn from(error: CredentialsError) -> Self {
        Self::Client(error.into())
    }
}

impl From<ServeError> for CliError {
    fn from(error: ServeError) -> Self {
        Self::Failed(error.to_string())
    }
}
