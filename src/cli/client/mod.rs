//! The commands that are a client of a server.

pub mod arguments;
pub mod command;
pub mod commands;
pub mod context;
pub mod forms;
pub mod live_output;
pub mod refusals;
mod words;

use clap::{Arg, ArgMatches, Command, FromArgMatches, Subcommand};

use crate::cli::client::command::{Entry, View, action, common_options, group, row, run_one};
use crate::cli::client::commands::sign_in::open::Open;
use crate::cli::client::commands::sign_in::{Login, Logout, print_account};
use crate::cli::client::commands::{
    account, api, apply, channel, cue, health, mcp, run, schedule, sink, tail, work,
};
use crate::cli::client::context::ClientArgs;
use crate::cli::error::{Result, usage};
use crate::logging::LogFormat;

#[derive(Debug)]
pub struct ClientCommand(ArgMatches);

impl ClientCommand {
    pub fn run(&self) -> Result {
        let before =
            ClientArgs::from_arg_matches(&self.0).map_err(|error| usage(error.to_string()))?;
        run_one(entries(), "", &self.0, before)
    }

    /// The format of the log; only `cued work` has a flag for it.
    pub fn log_format(&self) -> LogFormat {
        let format =
            self.0.subcommand().and_then(|(_, matches)| matches.try_get_one("log_format").ok()?);
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
        // In front of the command they count too, but not for commands that use no server.
        let before = common_options().map(|arg| arg.global(false).hide(true));
        command.args(before).subcommands(entries().into_iter().map(Entry::into_command))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        entries().iter().any(|entry| entry.name() == name)
    }
}

fn entries() -> Vec<Entry> {
    let mut entries = vec![
        action::<Login>("login"),
        action::<Logout>("logout"),
        row("whoami", "Show the account of your key")
            .request("GET /v1/auth/me", View::Code(print_account)),
        action::<Open>("open"),
        group("cue", "List, add, change and fire cues", cue::entries(), ""),
        group("run", "List, show, replay, retry, cancel and verify runs", run::entries(), ""),
        action::<schedule::Preview>("preview").finish(|command| {
            let visible = |tz: Arg| tz.hide_short_help(false).hide_long_help(false);
            command.mut_arg("tz", |tz| visible(tz).help(schedule::ZONE))
        }),
        action::<tail::Tail>("tail"),
        action::<work::Work>("work"),
        group("worker", "List and remove workers", account::worker_entries(), ""),
        group(
            "flow",
            "List rate limits that cues share, and the runs that wait",
            account::flow_entries(),
            "",
        ),
        group("alert", "List alerts", account::alert_entries(), ""),
        group(
            "channel",
            "Choose where failures, recoveries and alerts are sent",
            channel::entries(),
            "",
        ),
        group(
            "account",
            "Show usage, API keys, sessions and secrets of your account",
            account::entries(),
            "",
        ),
        action::<api::Api>("api"),
        action::<health::Health>("health"),
        row("info", "Show the version and public settings of the server").code(health::info),
        action::<sink::Sink>("sink"),
        action::<mcp::Mcp>("mcp"),
    ];
    // After the commands of one cue or channel, before those of the account.
    let place = entries.iter().position(|entry| entry.name() == "account").unwrap_or(entries.len());
    entries.splice(place..place, apply::entries());
    entries
}
