//! `cued restore`: a backup in the place of a database. It is held until `cued promote`.

use std::path::PathBuf;

use clap::Args;

use crate::cli::CliError;
use crate::cli::check;
use crate::cli::common::{DatabaseArgs, print_line};
use crate::cli::progress;
use crate::clock::Clock;
use crate::store::maintenance::backup;
use crate::store::maintenance::backup::CopyError;

/// Flags of `cued restore`.
#[derive(Debug, Args)]
pub struct RestoreCommand {
    /// The backup; it is only read
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    #[command(flatten)]
    database: DatabaseArgs,
    /// Take the place of a database that is there; it is kept beside, under a name that ends in .replaced
    #[arg(long)]
    replace: bool,
}

impl RestoreCommand {
    /// Checks the backup, puts a copy of it in place and says what comes next.
    ///
    /// # Errors
    /// Says what stands in the way; what was there is then as it was.
    pub fn run(self) -> Result<(), CliError> {
        let (backup, db) = (self.backup, self.database.path());
        let now = Clock::system().now();
        check::sound(&backup, now)?;
        let restored = backup::restore(&backup, db, now, self.replace, progress::bar("restore"));
        progress::end();
        let kept = restored.map_err(|error| match error {
            CopyError::Exists(_) => CliError::Failed(format!(
                "{error}: give another --db, or --replace to put it aside and the backup in its place"
            )),
            other => CliError::Failed(other.to_string()),
        })?;
        let has_file = kept.iter().any(|(was, _)| was == db);
        for (was, is) in kept {
            let whose = if has_file { "" } else { ": it belongs to a database that is not here any more" };
            print_line(&format!("{} is kept as {}{whose}", was.display(), is.display()))?;
        }
        print_line(&format!(
            "{db} is restored from {backup} and held: `cued serve --db {db}` shows all of it and fires, sends and hands \
             out nothing until `cued promote --db {db}`",
            db = db.display(),
            backup = backup.display()
        ))
    }
}
