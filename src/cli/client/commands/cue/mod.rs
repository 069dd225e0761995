//! `cued cue …`: the cues of the account.

mod add;
pub mod caret;
mod change;
mod fire;
mod list;
mod missed;
mod next;
pub mod occurrences;
mod rm;
mod show;
mod status;

use clap::Subcommand;

use crate::cli::client::client_args::ClientArgs;
use crate::cli::client::command::ClientAction;
use crate::cli::client::commands::cue::add::Add;
use crate::cli::client::commands::cue::change::edit::Edit;
use crate::cli::client::commands::cue::change::set::Set;
use crate::cli::client::commands::cue::fire::Fire;
use crate::cli::client::commands::cue::list::CueList;
use crate::cli::client::commands::cue::missed::Missed;
use crate::cli::client::commands::cue::next::Next;
use crate::cli::client::commands::cue::rm::Rm;
use crate::cli::client::commands::cue::show::Show;
use crate::cli::client::commands::cue::status::{Pause, Resume};
use crate::cli::client::context::{Context, target};
use crate::cli::error::CliError;
use crate::client::credentials::Target;

#[derive(Debug, Subcommand)]
pub enum CueAction {
    /// List cues, newest first
    List(CueList),
    /// Show a cue and its latest runs
    Show(Show),
    /// Add a cue
    #[command(
        after_long_help = "Example: cued cue add --name nightly --cron '0 2 * * *' --tz Europe/Berlin --url https://example.com/hook"
    )]
    Add(Box<Add>),
    /// Edit a cue as YAML in an editor
    ///
    /// The editor is that of VISUAL or EDITOR. Only changed fields are sent. If somebody else changes the cue meanwhile,
    /// nothing is sent and the text is kept in a file. A text that cannot be read is kept as well.
    Edit(Edit),
    /// Change fields of a cue
    ///
    /// A field inside another follows a dot. A value is JSON if it can be read as JSON, else text; @FILE is the content of
    /// a file and - standard input (not for the cron expression and the name), null removes what may be removed. Header
    /// fields and keys of the payload change one by one.
    ///
    /// Example: cued cue set nightly schedule.cron='0 3 * * *' retry.max_attempts=3 payload.full=true
    Set(Set),
    /// Pause cues: they have no runs until they are resumed
    Pause(Pause),
    /// Resume paused cues from now on
    Resume(Resume),
    /// Delete cues and their executions
    Rm(Rm),
    /// Run a cue now or at an instant
    ///
    /// Example: cued cue fire nightly --payload '{"full": true}'
    Fire(Fire),
    /// Show the next runs of a cue
    Next(Next),
    /// List the runs that a cue missed, by gaps
    Missed(Missed),
}

impl ClientAction for CueAction {
    fn target(&self, args: &ClientArgs) -> Result<Target, CliError> {
        match self {
            Self::Add(add) => add.target(args),
            _ => target(args),
        }
    }

    fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::List(list) => list.run(context),
            Self::Show(show) => show.run(context),
            Self::Add(add) => add.run(context),
            Self::Edit(edit) => edit.run(context),
            Self::Set(set) => set.run(context),
            Self::Pause(pause) => pause.run(context),
            Self::Resume(resume) => resume.run(context),
            Self::Rm(rm) => rm.run(context),
            Self::Fire(fire) => fire.run(context),
            Self::Next(next) => next.run(context),
            Self::Missed(missed) => missed.run(context),
        }
    }
}
