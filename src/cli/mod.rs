//! The command line, a folder for each kind of command: of the server, on a database file, of a client.

pub mod client;
mod completion;
pub mod database;
mod docs;
pub mod error;
pub mod examples;
mod help;
mod import;
pub mod input;
pub mod nearest;
pub mod output;
pub mod printable;
mod progress;
pub mod server;
pub mod width;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use tracing::Level;

use crate::cli::client::ClientCommand;
use crate::cli::database::{OnDatabase, accounts, copies};
use crate::cli::error::{Result, usage};
use crate::cli::import::ImportAction;
use crate::cli::input::variables;
use crate::cli::printable::print_error;
use crate::cli::server::serve;
use crate::logging::{self, LogFormat};

/// Scheduled callbacks from one binary on one SQLite file
#[derive(Parser)]
#[command(version, arg_required_else_help = true, max_term_width = help::MAX_WIDTH, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server
    ///
    /// Runs until SIGTERM or SIGINT. Every flag can be set by its environment variable instead; there is no
    /// configuration file.
    Serve(Box<serve::Serve>),
    /// Add, list, disable and enable users, and set their plans
    User(OnDatabase<accounts::UserAction>),
    /// Add, list and revoke API keys
    Key(OnDatabase<accounts::KeyAction>),
    /// List, approve and decline requests for a plan (manual billing)
    Billing(OnDatabase<accounts::BillingAction>),
    /// Back up the database to a new file, also while a server runs
    Backup(copies::BackupCommand),
    /// Check a database or backup; exits with 1 on problems
    ///
    /// Reads the whole file and summarizes its contents.
    Check(copies::CheckCommand),
    /// Restore a backup; it fires nothing until it is promoted
    Restore(copies::RestoreCommand),
    /// Take a restored copy off hold, so that its cues fire
    Promote(copies::PromoteCommand),
    /// Recover after the system clock ran ahead
    Clock(OnDatabase<copies::ClockAction>),
    #[command(flatten)]
    Client(ClientCommand),
    /// Convert a crontab into cues and worker tasks
    #[command(subcommand)]
    Import(ImportAction),
    /// Print the documentation of this version
    Docs(docs::Docs),
    /// Print a script that completes commands in a shell
    Completions(completion::Completions),
    #[command(hide = true)]
    Complete(completion::Complete),
    /// Print a manual page, or write them all into a folder
    Man(help::ManualPage),
    /// Explain a command, or the options of all clients: `cued help options`
    #[command(hide = true)]
    Help(help::Help),
}

impl Cli {
    /// Reads the command line of the process. Ends the process with exit code 2 and a message if it is invalid.
    pub fn read() -> Self {
        let mut command = help::grouped(Self::command());
        let read = command.try_get_matches_from_mut(std::env::args_os());
        let read = read.map_err(|error| help::with_advice(&command, error)).and_then(|matches| {
            let unfit = help::unfit_option(&command, &matches);
            unfit
                .map_or_else(|| Self::from_arg_matches(&matches), Err)
                .map_err(|error| error.format(&mut command))
        });
        read.unwrap_or_else(|error| exit_with(&error, variables::source_of(&error)))
    }

    pub fn run(self) -> ExitCode {
        let (level, format) = match &self.command {
            Command::Serve(serve) => serve.log_options(),
            Command::Client(client) => (Level::INFO, client.log_format()),
            _ => (Level::INFO, LogFormat::Text),
        };
        logging::start(level, format);
        match self.command.run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                error.print();
                ExitCode::from(error.exit_code())
            }
        }
    }
}

/// Prints a message of clap: help, or what is wrong with the command line, as JSON if it asks for JSON.
/// `variable` is the one of the environment that the wrong value comes from.
fn exit_with(error: &clap::Error, variable: Option<String>) -> ! {
    let source = variable
        .map(|name| format!("\n\nThe value is that of the environment variable {name}."))
        .unwrap_or_default();
    let json = ["--json", "-ojson", "-ojsonl", "--output=json", "--output=jsonl"];
    let is_json = std::env::args().any(|argument| json.contains(&argument.as_str()));
    let text = in_plain_words(error);
    // In the voice of all other errors, unless it is a help.
    let fault = text.strip_prefix("error: ").or(is_json.then_some(text.as_str()));
    // Without the standard streams the message is lost; the exit code remains.
    match fault.map(|fault| usage(format!("{}{source}", fault.trim_end()))) {
        _ if !error.use_stderr() => drop(error.print()),
        Some(fault) if is_json => fault.into_json().print(),
        Some(fault) => fault.print(),
        None => drop(print_error(&text)),
    }
    std::process::exit(error.exit_code());
}

fn in_plain_words(error: &clap::Error) -> String {
    let text =
        error.to_string().replace("invalid digit found in string", "a whole number is expected");
    text.replace(&format!("is not in 1..{}", u64::MAX), "is not 1 or more")
}

impl Command {
    fn run(self) -> Result {
        match self {
            Self::Serve(serve) => {
                variables::warn_of_unknown(&Cli::command());
                serve.run()
            }
            Self::User(user) => user.action.run(&user.database),
            Self::Key(key) => key.action.run(&key.database),
            Self::Billing(billing) => billing.action.run(&billing.database),
            Self::Backup(backup) => backup.run(),
            Self::Check(check) => check.run(),
            Self::Restore(restore) => restore.run(),
            Self::Promote(promote) => promote.run(),
            Self::Clock(clock) => clock.action.run(&clock.database),
            Self::Client(client) => client.run(),
            Self::Import(import) => import.run(),
            Self::Docs(docs) => docs.run(),
            Self::Completions(completions) => completions.run(),
            Self::Complete(complete) => complete.run(Cli::command()),
            Self::Man(page) => page.run(help::grouped(Cli::command())),
            Self::Help(help) => help.run(help::grouped(Cli::command())),
        }
    }
}
