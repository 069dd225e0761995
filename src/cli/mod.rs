//! The command line. The commands of the server, those on a database file and those that are a client of a server have a
//! folder each.

pub mod client;
pub mod database;
pub mod error;
mod help;
pub mod input;
mod manual;
pub mod output;
pub mod printable;
mod progress;
pub mod server;

use std::io;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use tracing::Level;

use crate::cli::client::command::{CommandGroup, SingleCommand};
use crate::cli::client::commands::account::AccountAction;
use crate::cli::client::commands::api::{Api, EXAMPLES};
use crate::cli::client::commands::cue::CueAction;
use crate::cli::client::commands::health::Health;
use crate::cli::client::commands::health::Info;
use crate::cli::client::commands::lists::AlertAction;
use crate::cli::client::commands::lists::WorkerAction;
use crate::cli::client::commands::run::RunAction;
use crate::cli::client::commands::schedule::Preview;
use crate::cli::client::commands::sign_in::login::Login;
use crate::cli::client::commands::sign_in::logout::Logout;
use crate::cli::client::commands::sign_in::logout::Whoami;
use crate::cli::client::commands::sign_in::open::Open;
use crate::cli::client::commands::sink::Sink;
use crate::cli::client::commands::tail::Tail;
use crate::cli::client::commands::work::Work;
use crate::cli::database::{OnDatabase, accounts, billing, copies, holds};
use crate::cli::error::CliError;
use crate::cli::input::variables;
use crate::cli::server::{bench, serve};
use crate::logging;
use crate::logging::LogFormat;

const LOGIN_EXAMPLES: &str = "\
Examples:
  cued login
  cued login cue.example.com --profile work
  cued login --key - < key.txt";

/// The exit code of wrong usage.
const USAGE: i32 = 2;

/// Scheduled callbacks from one binary on one SQLite file
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server
    ///
    /// Runs until SIGTERM or SIGINT. Every flag can be set by its environment variable instead; there is no configuration
    /// file.
    Serve(Box<serve::Serve>),
    /// Benchmark this machine using temporary files (less than a minute)
    Bench(bench::BenchCommand),
    /// Add, list, disable and enable users, and set their plans
    User(OnDatabase<accounts::UserAction>),
    /// Add, list and revoke API keys
    Key(OnDatabase<accounts::KeyAction>),
    /// List, approve and decline requests for a plan (manual billing)
    Billing(OnDatabase<billing::BillingAction>),
    /// Back up the database to a new file, also while a server runs
    Backup(copies::BackupCommand),
    /// Check a database or backup; exits with 1 on problems
    ///
    /// Reads the whole file and summarizes its contents.
    Check(copies::CheckCommand),
    /// Restore a backup; it fires nothing until it is promoted
    Restore(copies::RestoreCommand),
    /// End the hold on a restored copy, so that it fires and delivers
    Promote(holds::PromoteCommand),
    /// Continue after a clock that was ahead
    Clock(OnDatabase<holds::ClockAction>),
    /// Sign in to a server and store a key for it
    ///
    /// The server mails a link to you, or prints it in its log if it sends no mail; confirm there that it is you. On a
    /// server without mail that admits new users, a new address has an account at once.
    ///
    /// The key is stored in ~/.config/cued/credentials.json (CUED_CONFIG), which only you can read. A second server gets
    /// a profile of its own.
    #[command(after_long_help = LOGIN_EXAMPLES)]
    Login(Box<SingleCommand<Login>>),
    /// Sign out: revoke the stored key and remove its profile
    Logout(Box<SingleCommand<Logout>>),
    /// Show the account of your key
    Whoami(Box<SingleCommand<Whoami>>),
    /// Open the page of the server in a browser, signed in
    ///
    /// Prints an address that signs in once, within five minutes, and opens it if there is a browser and the output is a
    /// terminal. The session in the browser ends when your key is revoked.
    Open(Box<SingleCommand<Open>>),
    /// List, add, change and fire cues
    Cue(Box<CommandGroup<CueAction>>),
    /// List, show, replay, retry, cancel and verify runs
    Run(Box<CommandGroup<RunAction>>),
    /// Show the next runs of a schedule without storing it
    #[command(mut_arg("tz", |tz| tz.help("Time zone of the schedule, such as Europe/Berlin [default: UTC]")))]
    Preview(Box<SingleCommand<Preview>>),
    /// Show what happens in the account, line by line, until Ctrl-C
    ///
    /// A line of a run has the id of the run. Times are those of the server. The command goes on after a lost
    /// connection without a gap. Events that the server no longer has, such as those before its restart, are missing: a line
    /// `gap: …` says so. Without --types it shows the results of attempts, missed runs, alerts, quotas, and the
    /// state of the server.
    ///
    /// With --json each line is an object with the `id` and the type of the `event`, and its `data`; the event of a gap is
    /// `reset`. What --since reads from the lists of runs and alerts has no id.
    ///
    /// Example: cued tail --failed --since 1h --body
    Tail(Box<SingleCommand<Tail>>),
    /// Run a command for each execution of a task
    ///
    /// Claims the executions of worker cues whose payload has this task, runs the command for each, and reports its
    /// outcome. Needs no open port.
    ///
    /// The command gets the payload as JSON on standard input, and CUED_EXECUTION_ID, CUED_CUE_ID, CUED_CUE_NAME, CUED_TASK,
    /// CUED_SCHEDULED_FOR, CUED_ATTEMPT, CUED_WORKER_ID, CUED_URL, CUED_PAYLOAD (up to 32 KiB) and CUED_OUTCOME_FILE in its
    /// environment; the same with CUEAPI_ in front. Exit code 0 is a success with the last 4 KiB of standard output as the
    /// result, another one a failure with the last 4 KiB of standard error. The command may write a JSON object with success,
    /// result, error, summary, external_id, result_url, result_ref, result_type, artifacts or metadata to the outcome file.
    ///
    /// SIGTERM or SIGINT: nothing more is claimed, and running commands have the grace time to end. A second signal ends
    /// them at once, a third one kills them.
    ///
    /// `kill -9` of the worker leaves running commands behind; under systemd they end with it (examples/cued-work.service).
    ///
    /// Example: cued work --task report --jobs 2 -- ./report.sh weekly
    Work(Box<SingleCommand<Work>>),
    /// List and remove workers
    Worker(Box<CommandGroup<WorkerAction>>),
    /// List alerts
    Alert(Box<CommandGroup<AlertAction>>),
    /// Show usage, API keys, sessions and secrets of your account
    Account(Box<CommandGroup<AccountAction>>),
    /// Make a request to the API and print the answer
    ///
    /// The answer is printed unchanged, whatever its status; the exit code is that of other commands. `/v1` may be left out
    /// of the path; health, status and openapi.json are outside of it. The key goes to the server of the profile or --url,
    /// and to no other.
    #[command(after_long_help = EXAMPLES)]
    Api(Box<SingleCommand<Api>>),
    /// Show the state of the server; exits with 1 if it is not healthy
    ///
    /// A health check of a container, in which there is neither a shell nor curl, is `cued health --local`: it prints
    /// `healthy`, or one sentence that says what is wrong.
    Health(Box<SingleCommand<Health>>),
    /// Show the version and public settings of the server
    Info(Box<SingleCommand<Info>>),
    /// Receive deliveries for trying things, and print them
    ///
    /// Prints each delivery, verifies its signatures with the secret of your account (or CUED_WEBHOOK_SECRET), and answers
    /// by a script. Of 500,timeout,429:5,200 the first attempt fails, the second times out, the third is asked to wait for
    /// five seconds, and all others succeed:
    ///
    /// cued sink --script 500,timeout,429:5,200
    ///
    /// With --json each delivery is one line of JSON. Ctrl-C ends it.
    Sink(Box<SingleCommand<Sink>>),
    /// Print a script that completes commands in a shell
    ///
    /// For bash: cued completions bash > ~/.local/share/bash-completion/completions/cued
    Completions(manual::Completions),
    /// Print a manual page, or write them all into a folder
    Man(manual::ManualPage),
}

impl Cli {
    /// Reads the command line of the process. Ends the process with exit code 2 and a message if it is invalid.
    pub fn read() -> Self {
        let mut command = help::grouped(Self::command());
        let read = command.try_get_matches_from_mut(std::env::args_os());
        let read = read
            .and_then(|matches| Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command)));
        read.unwrap_or_else(|error| exit_with(&error, variables::source_of(&error, &command)))
    }

    /// Runs the command, prints its error, and returns its exit code.
    pub fn run(self) -> ExitCode {
        let (level, format) = match &self.command {
            Command::Serve(serve) => serve.log_options(),
            Command::Work(work) => (Level::INFO, work.action().log_format()),
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
        CliError::Usage(format!("{text}{}", source.unwrap_or_default().trim_end())).into_json().print();
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
            Self::Login(login) => login.run(),
            Self::Logout(logout) => logout.run(),
            Self::Whoami(whoami) => whoami.run(),
            Self::Open(open) => open.run(),
            Self::Cue(cue) => cue.run(),
            Self::Run(run) => run.run(),
            Self::Preview(preview) => preview.run(),
            Self::Tail(tail) => tail.run(),
            Self::Work(work) => work.run(),
            Self::Worker(worker) => worker.run(),
            Self::Alert(alert) => alert.run(),
            Self::Account(account) => account.run(),
            Self::Api(api) => api.run(),
            Self::Health(health) => health.run(),
            Self::Info(info) => info.run(),
            Self::Sink(sink) => sink.run(),
            Self::Completions(completions) => completions.run(help::grouped(Cli::command())),
            Self::Man(page) => page.run(help::grouped(Cli::command())),
        }
    }
}
