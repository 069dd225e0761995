//! Commands on a database file. They need no server, and work beside a running one.

pub mod accounts;
pub mod copies;
mod tz_diff;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use crate::cli::error::{Result, failed};
use crate::cli::server::flag_values::{OnOff, plans_from};
use crate::domain::account::plan::Plans;
use crate::store::Store;

const CHOOSE_OR_CREATE: &str =
    "give the server's database with --db, or create a new one with `cued user add`";

#[derive(Debug, Args)]
pub struct OnDatabase<A: Subcommand> {
    #[command(flatten)]
    pub database: DatabaseArgs,
    #[command(subcommand)]
    pub action: A,
}

#[derive(Debug, Args)]
pub struct DatabaseArgs {
    /// Database file
    #[arg(long, env = "CUED_DB", value_name = "FILE", default_value = "cued.db", global = true)]
    db: PathBuf,
}

/// The plans and limits of the server, for a command that changes the plan of a user.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// JSON file with the plans, the same as for `cued serve`
    #[arg(long, env = "CUED_PLANS", value_name = "FILE")]
    plans: Option<PathBuf>,
    /// Enforce the limits of the plans, the same as for `cued serve`; with off no cue is paused
    #[arg(long, env = "CUED_LIMITS", value_name = "ON|OFF", default_value = "on")]
    limits: OnOff,
}

impl PlanArgs {
    pub fn plans(&self) -> Result<Plans> {
        Ok(plans_from(self.plans.as_deref())?.limited(self.limits == OnOff::On))
    }
}

impl DatabaseArgs {
    /// Opens an existing database, also while a server runs on it.
    pub fn open(&self) -> Result<Store> {
        let path = self.existing()?;
        if path.metadata().is_ok_and(|file| file.len() == 0) {
            return Err(failed(format!("{} is empty: {CHOOSE_OR_CREATE}", path.display())));
        }
        self.open_or_create()
    }

    pub fn existing(&self) -> Result<&Path> {
        if self.db.exists() {
            return Ok(&self.db);
        }
        Err(failed(format!("{} does not exist: {CHOOSE_OR_CREATE}", self.db.display())))
    }

    pub fn path(&self) -> &Path {
        &self.db
    }

    /// Opens the database and creates it if necessary.
    pub fn open_or_create(&self) -> Result<Store> {
        Store::open_shared(&self.db).map_err(|error| failed(error.to_string()))
    }
}
