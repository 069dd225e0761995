//! `cued completions`, and the hidden `cued complete`, which its scripts ask how a command line goes on: with commands,
//! flags and values, all from the definition of the command line, and the names of cues, channels and profiles.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use clap::{Arg, Args, Command, FromArgMatches as _, ValueEnum};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, complete};
use serde_json::Value;

use crate::cli::client::context::{ClientArgs, Context, SERVER_URL, credentials_path, target};
use crate::cli::docs::topics;
use crate::cli::error::{CliError, Result};
use crate::cli::output::print;
use crate::cli::output::table::text_of;
use crate::cli::printable::printable;
use crate::client::credentials::Credentials;
use crate::client::request::ApiRequest;

/// For the names of a server: a person waits for the next letter.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(300);

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Fish,
    Zsh,
}

#[derive(Debug, Args)]
pub struct Completions {
    /// Shell that reads the script
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    pub fn run(self) -> Result {
        print(match self.shell {
            Shell::Bash => include_str!("completion/cued.bash"),
            Shell::Fish => include_str!("completion/cued.fish"),
            Shell::Zsh => include_str!("completion/cued.zsh"),
        })
    }
}

#[derive(Debug, Args)]
pub struct Complete {
    /// Words of the command line after the program, up to the one that is completed
    #[arg(value_name = "WORD", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

impl Complete {
    /// Prints a candidate on each line, and after a tab what it is.
    pub fn run(self, program: Command) -> Result {
        let line = |candidate: CompletionCandidate| {
            let word = candidate.get_value().to_string_lossy();
            let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
            let help = help.lines().next().map(|first| format!("\t{first}"));
            format!("{word}{}\n", help.unwrap_or_default())
        };
        print(&candidates(program, &self.words).into_iter().map(line).collect::<String>())
    }
}

fn candidates(program: Command, words: &[String]) -> Vec<CompletionCandidate> {
    let (current, before) =
        words.split_last().map_or(("", words), |(last, before)| (last.as_str(), before));
    // bash separates `--output=json` at the equals sign; the words of other shells are whole.
    let before = before.iter().map(String::as_str).filter(|word| *word != "=");
    let mut line: Vec<OsString> = ["cued"].into_iter().chain(before).map(Into::into).collect();
    let connection = connection(&program, &line).unwrap_or_default();
    // The backslashes of a shell are no part of a name.
    let current = if current == "=" { String::new() } else { current.replace('\\', "") };
    let place = line.len();
    line.push(current.as_str().into());
    let mut program = with_names(program, &connection);
    // Without a folder there are no names of files, which the shells complete themselves.
    let mut found = complete(&mut program, line, place, None).unwrap_or_default();
    // Flags are many, and shown after a dash.
    found.retain(|it| !current.is_empty() || !it.get_value().as_encoded_bytes().starts_with(b"-"));
    found
}

/// The options of a line that say which server is meant.
fn connection(program: &Command, line: &[OsString]) -> Option<ClientArgs> {
    let matches = program.clone().ignore_errors(true).try_get_matches_from(line).ok()?;
    let (before, mut matches) = (ClientArgs::from_arg_matches(&matches).ok()?, &matches);
    while let Some((_, below)) = matches.subcommand() {
        matches = below;
    }
    // A command that is no client has no such options.
    matches.try_contains_id(SERVER_URL).ok()?;
    Some(ClientArgs::from_arg_matches(matches).ok()?.or(before))
}

/// The command whose arguments know the names of things, which its definition has not.
fn with_names(command: Command, connection: &ClientArgs) -> Command {
    let named = |arg: Arg| {
        let (id, connection) = (arg.get_id().to_string(), connection.clone());
        arg.add(ArgValueCompleter::new(move |current: &OsStr| {
            let current = current.to_string_lossy();
            let mut names = names(&id, &connection, &current);
            names.retain(|(name, _)| name.starts_with(&*current));
            let candidate = |(name, text): Name| {
                CompletionCandidate::new(name).help((!text.is_empty()).then(|| text.into()))
            };
            names.into_iter().map(candidate).collect()
        }))
    };
    let has_names =
        |arg: &Arg| ["cue", "cues", "channel", "profile", "topic"].contains(&arg.get_id().as_str());
    command
        .mut_args(|arg| if has_names(&arg) { named(arg) } else { arg })
        .mut_subcommands(|command| with_names(command, connection))
}

/// A name, and what has it.
type Name = (String, String);

/// The names that the argument may have.
fn names(argument: &str, connection: &ClientArgs, current: &str) -> Vec<Name> {
    match argument {
        "profile" => profiles(),
        "topic" => topics().map(|(topic, about)| (topic.to_owned(), about.to_owned())).collect(),
        "channel" => names_of_server(connection, ApiRequest::get("/v1/channels"), "channels"),
        _ => {
            let all = ApiRequest::get("/v1/cues").query("limit", "100");
            let search = Some(current).filter(|search| !search.is_empty());
            names_of_server(connection, all.maybe_query("q", search), "cues")
        }
    }
}

/// The names of a list of the server. Without a server, or one that is slow, there are none.
fn names_of_server(connection: &ClientArgs, request: ApiRequest, key: &str) -> Vec<Name> {
    let request = request.timeout(LOOKUP_TIMEOUT);
    let found = || {
        let context = Context::new(connection, target(connection)?)?;
        Ok::<Value, CliError>(context.client.send_once(&request)?.value()?[key].take())
    };
    let Ok(Value::Array(items)) = found() else { return Vec::new() };
    let mut names: Vec<Name> = Vec::new();
    for item in &items {
        let (name, status) = (text_of(item, "name"), text_of(item, "status"));
        match names.iter_mut().find(|(known, _)| *known == name) {
            // The command answers with a choice of their ids.
            Some((_, text)) => "several have this name".clone_into(text),
            None => names.push((name, status)),
        }
    }
    // A shell would not insert what a terminal must not show.
    names.retain(|(word, text)| printable(word) == *word && printable(text) == *text);
    names
}

fn profiles() -> Vec<Name> {
    let stored =
        credentials_path().ok().and_then(|path| Credentials::read(&path).ok()).unwrap_or_default();
    stored.profiles.into_iter().map(|(name, profile)| (name, profile.url)).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use crate::cli::Cli;

    use super::*;

    /// The candidates after a line, whose last word is completed.
    fn complete(line: &str) -> Vec<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let found = candidates(Cli::command(), &words);
        found.iter().map(|it| it.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn commands_flags_and_values_are_completed() {
        for (line, expected) in [
            ("who", &["whoami"][..]),
            ("cue sh", &["show"]),
            ("-o json cue sh", &["show"]),
            ("--url http://127.0.0.1:1 cue sh", &["show"]),
            ("whoami --js", &["--json"]),
            ("cue list --output js", &["json", "jsonl"]),
            ("cue list --output=js", &["--output=json", "--output=jsonl"]),
            ("cue list --output =", &["table", "wide", "json", "jsonl", "yaml", "id"]),
            ("cue list --output = js", &["json", "jsonl"]),
            ("cue list -qo y", &["yaml"]),
            ("cue list --status pa", &["paused"]),
            ("cue add --overlap s", &["skip"]),
            ("channel add ntf", &["ntfy"]),
            ("completions z", &["zsh"]),
            ("serve --dev=", &[]),
            ("nonsense", &[]),
            ("compl", &["completions"]),
            ("docs sched", &["schedule", "schedules"]),
        ] {
            assert_eq!(complete(line), expected, "{line}");
        }
        assert!(complete("").contains(&"serve".to_owned()));
    }
}
