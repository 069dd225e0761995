//! `cued promote` ends the hold on a restored copy, `cued clock` the wait after a clock that was ahead; whether or not a server is
//! running.

use clap::{Args, Subcommand};

use crate::cli::database::DatabaseArgs;
use crate::cli::error::CliError;
use crate::cli::output::{count, print_line};
use crate::clock::Clock;
use crate::domain::time::{EARLIEST_CLOCK, rfc3339};
use crate::store::db::hold;
use crate::store::maintenance::clock_accept;

#[derive(Debug, Args)]
pub struct PromoteCommand {
    #[command(flatten)]
    database: DatabaseArgs,
}

impl PromoteCommand {
    /// Ends the hold and prints what is overdue.
    pub fn run(self) -> Result<(), CliError> {
        let now = Clock::system().now();
        let write = self.database.open()?.write(move |tx| Ok((hold::promote(tx)?, hold::overdue(tx, now)?)));
        let db = self.database.path().display();
        let (held_since, overdue) = write.wait()?;
        match held_since {
            None => print_line(&format!("{db} is not on hold: nothing to promote")),
            Some(since) => {
                print_line(&format!("promoted {db} (on hold since {since})"))?;
                print_line(&format!(
                    "overdue: {}, to catch up according to `catch_up`; {}, to send or hand to workers\n\
                     a running server begins within 5 seconds, otherwise the next start does",
                    count(overdue.cues, "cue"),
                    count(overdue.executions, "execution")
                ))
            }
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum ClockAction {
    /// Take the clock of this machine for right: cues fire again, none of their runs twice
    ///
    /// After the clock was ahead, nothing fires by schedule until it has caught up with the newest instant that the
    /// database has seen. This computes the next runs from now on, and cuts the missed runs to those up to now. A run
    /// that has fired ahead of its time does not fire again.
    ///
    /// A clock that has jumped ahead and is not believed yet is believed at once.
    Accept,
}

impl ClockAction {
    /// Runs the action and prints its result.
    pub fn run(self, database: &DatabaseArgs) -> Result<(), CliError> {
        let Self::Accept = self;
        let (store, now) = (database.open()?, Clock::system().now());
        if now < EARLIEST_CLOCK {
            let message = format!("the clock of this machine shows {}: set it first", rfc3339(now));
            return Err(CliError::Failed(message));
        }
        let accepted = clock_accept::accept(&store, now)?;
        let (db, to) = (database.path().display(), rfc3339(now));
        match accepted.newest {
            None => print_line(&format!("{db} has seen nothing later than {to}: nothing to set back")),
            Some(newest) => print_line(&format!(
                "set {db} back from {} to {to}: {} recomputed, {} of missed runs cut",
                rfc3339(newest),
                count(i64::try_from(accepted.cues).unwrap_or(i64::MAX), "cue"),
                count(i64::try_from(accepted.missed).unwrap_or(i64::MAX), "interval")
            )),
        }?;
        print_line("a running server goes on from its clock within 5 seconds")
    }
}
