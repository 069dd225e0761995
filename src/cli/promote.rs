//! `cued promote`: a restored copy becomes the one that fires, whether a server runs on it or not.

use clap::Args;

use crate::cli::CliError;
use crate::cli::common::{DatabaseArgs, print_line};
use crate::clock::Clock;
use crate::store::db::hold;
use crate::store::db::hold::OverdueCounts;

/// Flags of `cued promote`.
#[derive(Debug, Args)]
pub struct PromoteCommand {
    #[command(flatten)]
    database: DatabaseArgs,
}

impl PromoteCommand {
    /// Lets the file go and says what follows.
    ///
    /// # Errors
    /// Says what stands in the way.
    pub fn run(self) -> Result<(), CliError> {
        let now = Clock::system().now();
        let write = self.database.open()?.write(move |tx| Ok((hold::promote(tx)?, hold::overdue(tx, now)?)));
        let db = self.database.path().display();
        let (held_since, overdue) = write.wait()?;
        match held_since {
            None => print_line(&format!("{db} is not held: there is nothing to promote")),
            Some(since) => {
                print_line(&format!("{db} is promoted; it was held since {since}"))?;
                print_line(&what_follows(overdue))
            }
        }
    }
}

fn what_follows(OverdueCounts { cues, executions }: OverdueCounts) -> String {
    format!(
        "A server that runs on it begins within 5 seconds, the next one when it starts: {cues} cues are overdue and \
         catch up as their `catch_up` says, {executions} executions are due and are sent, or handed out to workers"
    )
}
