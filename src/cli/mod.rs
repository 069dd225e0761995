//! The command line: one file per command.

pub mod backup;
pub mod bench;
pub mod billing;
pub mod check;
mod common;
pub mod key;
mod progress;
pub mod promote;
pub mod restore;
pub mod serve;
pub mod stripe;
pub mod user;

use std::path::Path;

use clap::{Parser, Subcommand, ValueEnum};
use thiserror::Error as ThisError;
use tracing::Level;

use crate::domain::account::plan::Plans;
use crate::error::Error;
use crate::logging;
use crate::logging::LogFormat;
use crate::server::ServeError;

/// The cue daemon: scheduled callbacks from one binary on one SQLite file
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server
    Serve(Box<serve::Serve>),
    /// Add, list and disable users, and set their plans
    User(user::UserCommand),
    /// Add, list and revoke API keys
    Key(key::KeyCommand),
    /// List, approve and decline requests for a plan
    Billing(billing::BillingCommand),
    /// Measure what this machine carries, on temporary files; takes about two minutes
    Bench(bench::BenchCommand),
    /// Copy the database into a new file, beside the server that writes it
    Backup(backup::BackupCommand),
    /// Say what is in a database and whether it is sound; exit code 1 if not
    Check(check::CheckCommand),
    /// Put a backup in place; it is held, and fires nothing, until it is promoted
    Restore(restore::RestoreCommand),
    /// Let a restored copy fire from now on
    Promote(promote::PromoteCommand),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnOff {
    On,
    Off,
}

/// Why a command did not do what it was asked for: a sentence for standard error, and the exit code.
#[derive(Debug, ThisError)]
pub enum CliError {
    /// The command line asks for something that cannot be: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// Something stood in the way: exit code 1.
    #[error("{0}")]
    Failed(String),
}

impl CliError {
    /// The process's exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Failed(_) => 1,
        }
    }
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

impl Cli {
    /// Does what the command line says.
    ///
    /// # Errors
    /// Says why it was not done.
    pub fn run(self) -> Result<(), CliError> {
        let (level, format) = match &self.command {
            Command::Serve(serve) => serve.log(),
            _ => (Level::INFO, LogFormat::Text),
        };
        logging::start(level, format);
        match self.command {
            Command::Serve(serve) => serve.run(),
            Command::User(user) => user.run(),
            Command::Key(key) => key.run(),
            Command::Billing(billing) => billing.run(),
            Command::Bench(bench) => bench.run(),
            Command::Backup(backup) => backup.run(),
            Command::Check(check) => check.run(),
            Command::Restore(restore) => restore.run(),
            Command::Promote(promote) => promote.run(),
        }
    }
}

/// The plans in a file, or the built-in ones.
fn plans_from(path: Option<&Path>) -> Result<Plans, CliError> {
    let Some(path) = path else { return Ok(Plans::default()) };
    Plans::from_json(&String::from_utf8_lossy(&read(path)?))
        .map_err(|error| CliError::Failed(format!("{}: {error}", path.display())))
}

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    std::fs::read(path)
        .map_err(|error| CliError::Failed(format!("{} cannot be read: {error}", path.display())))
}
