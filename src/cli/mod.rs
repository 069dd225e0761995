//! The command line, a folder for each kind of command: of the server, on a database file, of a client.

pub mod client;
pub mod database;
pub mod error;
mod help;
pub mod input;
pub mod output;
pub mod printable;
mod progress;
pub mod server;

use std::io;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use tracing::Level;

use crate::cli::client::ClientCommand;
use crate::cli::database::{OnDatabase, accounts, copies};
use crate::cli::error::{CliError, usage};
use crate::cli::input::variables;
use crate::cli::server::{bench, serve};
use crate::logging;
use crate::logging::LogFormat;

const USAGE: i32 = 2;

/// Scheduled callbacks from one binary on one SQLite file
#[derive(Parser)]
#[command(version, arg_required_else_help = true, max_term_width = 100)]
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
    /// Benchmark this machine using temporary files (less than a minute)
    Bench(bench::BenchCommand),
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
    /// End the hold on a restored copy, so that it fires and delivers
    Promote(copies::PromoteCommand),
    /// Continue after a clock that was ahead
    Clock(OnDatabase<copies::ClockAction>),
    #[command(flatten)]
    Client(ClientCommand),
    /// Print a script that completes commands in a shell
    ///
    /// For bash: cued completions bash > ~/.local/share/bash-completion/completions/cued
    Completions(help::Completions),
    /// Print a manual page, or write them all into a folder
    Man(help::ManualPage),
}

impl Cli {
    /// Reads the command line of the process. Ends the process with exit code 2 and a message if it is invalid.
    pub fn read() -> Self {
        let mut command = help::grouped(Self::command());
        let read = command.try_get_matches_from_mut(std::env::args_os());
        let read = read
            .and_then(|matches| Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command)));
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
    let source = variable.map(|name| format!("\nThe value is that of the environment variable {name}.\n"));
    let is_json = ["--json", "-ojson", "-ojsonl", "--output=json", "--output=jsonl"];
    if error.use_stderr() && std::env::args().any(|argument| is_json.contains(&argument.as_str())) {
        let text = error.to_string();
        let text = text.trim_start_matches("error: ").trim_end();
        usage(format!("{text}{}", source.unwrap_or_default().trim_end())).into_json().print();
        std::process::exit(USAGE);
    }
    // Without the standard streams the message is lost; the exit code remains.
    drop(error.print().and_then(|()| io::stderr().write_all(source.unwrap_or_default().as_bytes())));
    std::process::exit(error.exit_code())
}

impl Command {
    fn run(self) -> Result<(), CliError> {
        match self {
            Self::Serve(serve) => {
                variables::warn_of_unknown(&Cli::command());
                serve.run()
            }
            Self::Bench(bench) => bench.run(),
            Self::User(user) => user.action.run(&user.database),
            Self::Key(key) => key.action.run(&key.database),
            Self::Billing(billing) => billing.action.run(&billing.database),
            Self::Backup(backup) => backup.run(),
            Self::Check(check) => check.run(),
            Self::Restore(restore) => restore.run(),
            Self::Promote(promote) => promote.run(),
            Self::Clock(clock) => clock.action.run(&clock.database),
            Self::Client(client) => client.run(),
            Self::Completions(completions) => completions.run(help::grouped(Cli::command())),
            Self::Man(page) => page.run(help::grouped(Cli::command())),
        }
    }
}
