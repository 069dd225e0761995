//! `cued promote`: ends the hold on a restored copy, whether or not a server is running on it.

use clap::Args;

use crate::cli::database::database_args::DatabaseArgs;
use crate::cli::error::CliError;
use crate::cli::output::print::{count, print_line};
use crate::clock::Clock;
use crate::store::db::hold;
use crate::store::db::hold::OverdueCounts;

#[derive(Debug, Args)]
pub struct PromoteCommand {
    #[command(flatten)]
    database: DatabaseArgs,
}

impl PromoteCommand {
    /// Ends the hold and prints what is overdue.
    /// Errors: if the file is not a cued database or cannot be written.
    pub fn run(self) -> Result<(), CliError> {
        let now = Clock::system().now();
        let write = self.database.open()?.write(move |tx| Ok((hold::promote(tx)?, hold::overdue(tx, now)?)));
        let db = self.database.path().display();
        let (held_since, overdue) = write.wait()?;
        match held_since {
            None => print_line(&format!("{db} is not on hold: nothing to promote")),
            Some(since) => {
                print_line(&format!("promoted {db} (on hold since {since})"))?;
                print_line(&overdue_line(overdue))
            }
        }
    }
}

fn overdue_line(OverdueCounts { cues, executions }: OverdueCounts) -> String {
    format!(
        "overdue: {}, to catch up according to `catch_up`; {}, to send or hand to workers\n\
         a running server begins within 5 seconds, otherwise the next start does",
        count(cues, "cue"),
        count(executions, "execution")
    )
}
