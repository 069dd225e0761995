//! Commands on a database file. They need no server, and work beside a running one.

pub mod accounts;
pub mod billing;
pub mod copies;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use crate::cli::error::{CliError, failed};
use crate::store::Store;

const CHOOSE_OR_CREATE: &str =
    "give the server's database with --db, or create a new one with `cued user add`";

/// An action on a database file.
#[derive(Debug, Args)]
pub struct OnDatabase<A: Subcommand> {
    #[command(flatten)]
    pub database: DatabaseArgs,
    #[command(subcommand)]
    pub action: A,
}

/// The database file of an administration command.
#[derive(Debug, Args)]
pub struct DatabaseArgs {
    /// Database file
    #[arg(long, env = "CUED_DB", value_name = "FILE", default_value = "cued.db", global = true)]
    db: PathBuf,
}

impl DatabaseArgs {
    /// Opens an existing database, also while a server runs on it.
    pub fn open(&self) -> Result<Store, CliError> {
        let path = self.existing()?;
        if path.metadata().is_ok_and(|file| file.len() == 0) {
            return Err(failed(format!("{} is empty: {CHOOSE_OR_CREATE}", path.display())));
        }
        self.open_or_create()
    }

    /// Returns the path, which must exist.
    pub fn existing(&self) -> Result<&Path, CliError> {
        if self.db.exists() {
            return Ok(&self.db);
        }
        Err(failed(format!("{} does not exist: {CHOOSE_OR_CREATE}", self.db.display())))
    }

    /// Returns the path, whether or not the file exists.
    pub fn path(&self) -> &Path {
        &self.db
    }

    /// Opens the database and creates it if necessary.
    pub fn open_or_create(&self) -> Result<Store, CliError> {
        Store::open_shared(&self.db).map_err(|error| failed(error.to_string()))
    }
}
