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

use clap::{Args, Parser, Subcommand, ValueEnum};
use thiserror::Error as ThisError;
use tracing::Level;

use crate::cli::common::DatabaseArgs;
use crate::domain::account::plan::Plans;
use crate::error::Error;
use crate::logging;
use crate::logging::LogFormat;
use crate::server::ServeError;

/// Scheduled callbacks from one binary on one SQLite file
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server
    ///
    /// Runs until SIGTERM or SIGINT. Every flag can be set by its environment variable instead; there is no configuration
    /// file.
    Serve(Box<serve::Serve>),
    /// Add, list, disable and enable users, and set their plans
    User(OnDatabase<user::UserAction>),
    /// Add, list and revoke API keys
    Key(OnDatabase<key::KeyAction>),
    /// List, approve and decline requests for a plan (manual billing)
    Billing(OnDatabase<billing::BillingAction>),
    /// Benchmark this machine using temporary files (about two minutes)
    Bench(bench::BenchCommand),
    /// Back up the database to a new file, also while a server runs
    Backup(backup::BackupCommand),
    /// Check a database or backup and summarize its contents; exits with 1 on problems
    Check(check::CheckCommand),
    /// Restore a backup; the copy is on hold and fires nothing until it is promoted
    Restore(restore::RestoreCommand),
    /// End the hold on a restored copy, so that it fires and delivers
    Promote(promote::PromoteCommand),
}

/// An action on a database file, whether or not a server is running on it.
#[derive(Debug, Args)]
struct OnDatabase<A: Subcommand> {
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(subcommand)]
    action: A,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnOff {
    On,
    Off,
}

/// A failed command: a message for standard error and the exit code.
#[derive(Debug, ThisError)]
pub enum CliError {
    /// Invalid command line: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// The command failed: exit code 1.
    #[error("{0}")]
    Failed(String),
}

impl CliError {
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
    /// Runs the command.
    ///
    /// # Errors
    /// If the command line is invalid or the command fails.
    pub fn run(self) -> Result<(), CliError> {
        let (level, format) = match &self.command {
            Command::Serve(serve) => serve.log_options(),
            _ => (Level::INFO, LogFormat::Text),
        };
        logging::start(level, format);
        match self.command {
            Command::Serve(serve) => serve.run(),
            Command::User(user) => user.action.run(&user.database),
            Command::Key(key) => key.action.run(&key.database),
            Command::Billing(billing) => billing.action.run(&billing.database),
            Command::Bench(bench) => bench.run(),
            Command::Backup(backup) => backup.run(),
            Command::Check(check) => check.run(),
            Command::Restore(restore) => restore.run(),
            Command::Promote(promote) => promote.run(),
        }
    }
}

/// Reads the plans from a file; without one, returns the built-in plans.
fn plans_from(path: Option<&Path>) -> Result<Plans, CliError> {
    let Some(path) = path else { return Ok(Plans::default()) };
    Plans::from_json(&String::from_utf8_lossy(&read(path)?))
        .map_err(|error| CliError::Failed(format!("{}: {error}", path.display())))
}

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    std::fs::read(path).map_err(|error| CliError::Failed(format!("cannot read {}: {error}", path.display())))
}
