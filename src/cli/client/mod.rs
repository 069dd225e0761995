//! The commands that are a client of a server.

pub mod arguments;
pub mod command;
pub mod commands;
pub mod context;
pub mod live_output;

use clap::{ArgMatches, Command, FromArgMatches, Subcommand};

use crate::cli::client::command::{Entry, View, Work, action, entry, run_one};
use crate::cli::client::commands::sign_in::open::Open;
use crate::cli::client::commands::sign_in::{Login, Logout, print_account};
use crate::cli::client::commands::{account, api, channel, cue, health, run, schedule, sink, tail, work};
use crate::cli::error::CliError;
use crate::logging::LogFormat;

const LOGIN_EXAMPLES: &str = "\
Examples:
  cued login
  cued login cue.example.com --profile work
  cued login --key - < key.txt";

#[derive(Debug)]
pub struct ClientCommand(ArgMatches);

impl ClientCommand {
    pub fn run(&self) -> Result<(), CliError> {
        run_one(entries(), "", &self.0)
    }

    /// The format of the log; only `cued work` has a flag for it.
    pub fn log_format(&self) -> LogFormat {
        let format = self.0.subcommand().and_then(|(_, matches)| matches.try_get_one("log_format").ok()?);
        format.copied().unwrap_or_default()
    }
}

impl FromArgMatches for ClientCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(matches.clone()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0 = matches.clone();
        Ok(())
    }
}

impl Subcommand for ClientCommand {
    fn augment_subcommands(command: Command) -> Command {
        command.subcommands(entries().into_iter().map(Entry::into_command))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        entries().iter().any(|entry| entry.name() == name)
    }
}

fn entries() -> Vec<Entry> {
    let group = |name, help, entries| entry(name, help, [], Work::Group(entries, ""));
    let whoami = Work::Request("GET /v1/auth/me", View::Code(print_account));
    vec![
        action::<Login>(
            "login",
            "Sign in to a server and store a key for it\n\nThe server mails a link to you, or prints it in its log if it \
             sends no mail; confirm there that it is you. On a server without mail that admits new users, a new address \
             has an account at once.\n\nThe key is stored in ~/.config/cued/credentials.json (CUED_CONFIG), which only you \
             can read. A second server gets a profile of its own.",
        )
        .example(LOGIN_EXAMPLES),
        action::<Logout>("logout", "Sign out: revoke the stored key and remove its profile"),
        entry("whoami", "Show the account of your key", [], whoami),
        action::<Open>(
            "open",
            "Open the page of the server in a browser, signed in\n\nPrints an address that signs in once, within five \
             minutes, and opens it if there is a browser and the output is a terminal. The session in the browser ends \
             when your key is revoked.",
        ),
        group("cue", "List, add, change and fire cues", cue::entries()),
        group("run", "List, show, replay, retry, cancel and verify runs", run::entries()),
        action::<schedule::Preview>("preview", "Show the next runs of a schedule without storing it")
            .finish(|command| command.mut_arg("tz", |tz| tz.help(schedule::ZONE))),
        action::<tail::Tail>("tail", tail::HELP),
        action::<work::Work>("work", work::HELP),
        group("worker", "List and remove workers", account::worker_entries()),
        group("flow", "List the limits that cues share, and what waits for them", account::flow_entries()),
        group("alert", "List alerts", account::alert_entries()),
        group("channel", "Choose where failures, recoveries and alerts are sent", channel::entries()),
        group("account", "Show usage, API keys, sessions and secrets of your account", account::entries()),
        action::<api::Api>(
            "api",
            "Make a request to the API and print the answer\n\nThe answer is printed unchanged, whatever its status; the \
             exit code is that of other commands. `/v1` may be left out of the path; health, status and openapi.json are \
             outside of it. The key goes to the server of the profile or --url, and to no other.",
        )
        .example(api::EXAMPLES),
        action::<health::Health>(
            "health",
            "Show the state of the server; exits with 1 if it is not healthy\n\nA health check of a container without a shell and \
             curl is `cued health --local`: it prints `healthy`, or one sentence that says what is wrong.",
        ),
        entry("info", "Show the version and public settings of the server", [], Work::Code(health::info)),
        action::<sink::Sink>("sink", sink::HELP),
    ]
}
