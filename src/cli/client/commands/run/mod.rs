//! `cued run`: the runs of cues, which the API calls executions.

pub mod attempts;
pub mod cells;
pub mod changes;
pub mod list;
pub mod replay;
pub mod replay_parts;
pub mod replay_result;
pub mod request;
pub mod show;
pub mod verify;
pub mod wait;

use clap::Subcommand;

use crate::cli::client::command::ClientAction;
use crate::cli::client::commands::run::attempts::ShowAttempts;
use crate::cli::client::commands::run::list::ListRuns;
use crate::cli::client::commands::run::replay::Replay;
use crate::cli::client::commands::run::request::ShowRequest;
use crate::cli::client::commands::run::verify::Verify;
use crate::cli::client::commands::run::wait::Wait;
use crate::cli::client::context::Context;
use crate::cli::error::CliError;

const LIST_EXAMPLE: &str = "Example:\n  cued run list --cue nightly-backup --failed --since 1d";

const REPLAY_EXAMPLES: &str = "Examples:
  cued run replay 0198c0de-7a10
  cued run replay --failed --since 1h --cue nightly-backup";

#[derive(Debug, Subcommand)]
pub enum RunAction {
    /// List runs, newest first
    #[command(after_long_help = LIST_EXAMPLE)]
    List(ListRuns),
    /// Show a run: its state, why, its result
    Show {
        /// Id of the run, or at least 8 characters of its beginning
        run: String,
    },
    /// Show the attempts of a run, oldest first
    Attempts(ShowAttempts),
    /// Show the request that an attempt has sent
    ///
    /// The server does not store requests: it builds this one again, and says what may differ.
    Request(ShowRequest),
    /// Run again what has ended, with the same payload
    ///
    /// Each replay is a new run and counts against the quota. Runs that were cancelled are replayed by id only.
    #[command(after_long_help = REPLAY_EXAMPLES)]
    Replay(Replay),
    /// Send a waiting run now instead of later
    ///
    /// Its attempts and the rest of its retry policy stay. A run that has ended is replayed instead: cued run replay.
    Retry {
        /// Id of the run, or at least 8 characters of its beginning
        run: String,
    },
    /// End a waiting run without sending it
    ///
    /// It becomes failed, but nobody is notified.
    Cancel {
        /// Id of the run, or at least 8 characters of its beginning
        run: String,
    },
    /// Accept or reject the outcome that a run reported
    Verify(Verify),
    /// Wait for the end of a run
    ///
    /// Exits with 0 if it succeeds, with 8 if it fails or is cancelled, and with 1 if the time is over before.
    ///
    /// Example: cued run wait 018cc251-f400-7abc-8000-000000000000 --timeout 5m
    Wait(Wait),
}

impl ClientAction for RunAction {
    fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::List(list) => list.run(context),
            Self::Show { run } => show::show(context, &run),
            Self::Attempts(attempts) => attempts.run(context),
            Self::Request(request) => request.run(context),
            Self::Replay(replay) => replay.run(context),
            Self::Retry { run } => changes::retry(context, &run),
            Self::Cancel { run } => changes::cancel(context, &run),
            Self::Verify(verify) => verify.run(context),
            Self::Wait(wait) => wait.run(context),
        }
    }
}
