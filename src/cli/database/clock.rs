//! `cued clock`: ends the wait after a clock that was ahead, whether or not a server is running.

use clap::Subcommand;

use crate::cli::database::database_args::DatabaseArgs;
use crate::cli::error::CliError;
use crate::cli::output::print::{count, print_line};
use crate::clock::Clock;
use crate::domain::time::{EARLIEST_CLOCK, rfc3339};
use crate::store::maintenance::clock_accept;

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
