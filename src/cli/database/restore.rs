//! `cued restore`: puts a copy of a backup in place of a database. The copy is on hold until `cued promote`.

use std::path::PathBuf;

use clap::Args;

use crate::cli::database::check;
use crate::cli::database::database_args::DatabaseArgs;
use crate::cli::error::CliError;
use crate::cli::output::print::print_line;
use crate::cli::progress;
use crate::clock::Clock;
use crate::store::maintenance::backup;
use crate::store::maintenance::backup::CopyError;

#[derive(Debug, Args)]
pub struct RestoreCommand {
    /// Backup to restore; it is not modified
    #[arg(value_name = "FILE")]
    backup: PathBuf,
    #[command(flatten)]
    database: DatabaseArgs,
    /// Replace an existing database; the old one is kept next to it under a name ending in .replaced
    #[arg(long)]
    replace: bool,
}

impl RestoreCommand {
    /// Checks the backup, puts a copy of it in place and prints the next step.
    /// Errors: if the backup fails the check or cannot be copied; an existing database is then unchanged.
    pub fn run(self) -> Result<(), CliError> {
        let (backup, db) = (self.backup, self.database.path());
        let now = Clock::system().now();
        check::verify(&backup, now)?;
        let restored = backup::restore(&backup, db, now, self.replace, progress::of_copy("restore"));
        let kept = restored.map_err(|error| match error {
            CopyError::Exists(_) => {
                CliError::Failed(format!("{error}: choose another --db, or add --replace to move it aside"))
            }
            other => CliError::Failed(other.to_string()),
        })?;
        let has_file = kept.iter().any(|(was, _)| was == db);
        for (was, is) in kept {
            let note = if has_file { "" } else { ": it belongs to a database that no longer exists" };
            print_line(&format!("kept {} as {}{note}", was.display(), is.display()))?;
        }
        print_line(&format!(
            "restored {db} from {backup}, on hold: `cued serve --db {db}` shows its contents but fires and delivers \
             nothing until `cued promote --db {db}`",
            db = db.display(),
            backup = backup.display()
        ))
    }
}
