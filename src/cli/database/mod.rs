//! Commands on a database file. They need no server, and work beside a running one.

pub mod backup;
pub mod billing;
pub mod check;
pub mod clock;
mod database_args;
pub mod key;
pub mod promote;
pub mod restore;
pub mod user;

use clap::{Args, Subcommand};

use crate::cli::database::database_args::DatabaseArgs;

/// An action on a database file.
#[derive(Debug, Args)]
pub struct OnDatabase<A: Subcommand> {
    #[command(flatten)]
    pub database: DatabaseArgs,
    #[command(subcommand)]
    pub action: A,
}
