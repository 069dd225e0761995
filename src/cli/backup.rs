//! `cued backup`: a copy of the whole database, whether a server runs or not.

use std::path::PathBuf;

use clap::Args;

use crate::cli::CliError;
use crate::cli::common::{DatabaseArgs, print_line};
use crate::cli::progress::{self, size};
use crate::clock::Clock;
use crate::store::maintenance::backup;
use crate::store::maintenance::backup::CopyError;

/// Flags of `cued backup`.
#[derive(Debug, Args)]
pub struct BackupCommand {
    /// The file to write; it must not exist
    #[arg(value_name = "OUT")]
    out: PathBuf,
    #[command(flatten)]
    database: DatabaseArgs,
}

impl BackupCommand {
    /// Writes the copy and says how large it is.
    ///
    /// # Errors
    /// Says what stands in the way; no part of the copy is left then.
    pub fn run(self) -> Result<(), CliError> {
        let (db, out) = (self.database.existing()?, self.out);
        let copied = backup::copy(db, &out, Clock::system().now(), progress::bar("backup"));
        progress::end();
        let bytes = copied.map_err(|error| match error {
            CopyError::Exists(_) => CliError::Failed(format!("{error}: give the backup another name")),
            CopyError::LeftoverFiles(_) => {
                CliError::Failed(format!("{error}, or give the backup another name"))
            }
            other => CliError::Failed(other.to_string()),
        })?;
        print_line(&format!("{} holds all of {} ({})", out.display(), db.display(), size(bytes)))
    }
}
