//! `cued backup`: copies the whole database, whether or not a server is running on it.

use std::path::PathBuf;

use clap::Args;

use crate::cli::database::database_args::DatabaseArgs;
use crate::cli::error::CliError;
use crate::cli::output::print::print_line;
use crate::cli::progress::{self, size};
use crate::clock::Clock;
use crate::store::maintenance::backup;
use crate::store::maintenance::backup::CopyError;

#[derive(Debug, Args)]
pub struct BackupCommand {
    /// File to create; it must not exist
    #[arg(value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    database: DatabaseArgs,
}

impl BackupCommand {
    /// Writes the copy and prints its size.
    /// Errors: if the copy cannot be written; no part of it is left behind.
    pub fn run(self) -> Result<(), CliError> {
        let (db, out) = (self.database.existing()?, self.out);
        let copied = backup::copy(db, &out, Clock::system().now(), progress::of_copy("backup"));
        let bytes = copied.map_err(|error| match error {
            CopyError::Exists(_) => CliError::Failed(format!("{error}: give the backup another name")),
            CopyError::LeftoverFiles(_) => {
                CliError::Failed(format!("{error}, or give the backup another name"))
            }
            other => CliError::Failed(other.to_string()),
        })?;
        print_line(&format!("backed up {} to {} ({})", db.display(), out.display(), size(bytes)))
    }
}
