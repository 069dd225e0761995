//! `cued completions`, and the hidden `cued complete`, which its scripts ask how a command line goes on: with commands,
//! flags and values, all from the definition of the command line, and the names of cues, channels and profiles.

use std::time::Duration;

use clap::{Arg, ArgAction, Args, Command, ValueEnum};
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
    pub fn run(self, mut program: Command) -> Result {
        program.build();
        let lines =
            candidates(&program, &self.words).into_iter().map(|(word, text)| match text.as_str() {
                "" => format!("{word}\n"),
                text => format!("{word}\t{text}\n"),
            });
        print(&lines.collect::<String>())
    }
}

/// A word that may come next, and what it is.
type Candidate = (String, String);

/// The command that words name, and the arguments before the word that is completed.
struct Place<'a> {
    command: &'a Command,
    /// The flag whose value comes next.
    waiting: Option<&'a Arg>,
    /// Arguments without a flag.
    positions: usize,
    /// The flags that say which server is meant.
    connection: ClientArgs,
}

fn candidates(program: &Command, words: &[String]) -> Vec<Candidate> {
    let (current, before) =
        words.split_last().map_or(("", words), |(last, before)| (last.as_str(), before));
    let place = Place::after(program, before);
    // bash separates `--output=json` at the equals sign; the words of other shells are whole.
    let current = if current == "=" { "" } else { current };
    // The backslashes of a shell are no part of a name.
    let current = current.replace('\\', "");
    if let Some(arg) = place.waiting {
        return place.values(arg, &current, "");
    }
    if let Some((flag, value)) = current.strip_prefix("--").and_then(|flag| flag.split_once('=')) {
        let arg = place.flag(flag).filter(|arg| takes_value(arg));
        return arg.map(|arg| place.values(arg, value, &format!("--{flag}="))).unwrap_or_default();
    }
    if current.starts_with('-') {
        return place.flags(&current);
    }
    let commands = place.command.get_subcommands().filter(|command| !command.is_hide_set());
    let commands =
        commands.map(|command| (command.get_name().to_owned(), first_line(command.get_about())));
    let mut found: Vec<Candidate> =
        commands.filter(|(name, _)| name.starts_with(&current)).collect();
    let arguments: Vec<&Arg> = place.command.get_positionals().collect();
    // The last one may be given several times.
    if let Some(arg) = arguments.get(place.positions).or(arguments.last()) {
        found.extend(place.values(arg, &current, ""));
    }
    found
}

fn first_line(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
        && arg.get_num_args().is_none_or(|number| number.min_values() > 0)
}

impl<'a> Place<'a> {
    fn after(program: &'a Command, words: &[String]) -> Self {
        let connection = ClientArgs::default();
        let mut place = Self { command: program, waiting: None, positions: 0, connection };
        let mut has_only_positions = false;
        for word in words {
            if let Some(arg) = place.waiting {
                if word != "=" {
                    place.connect(arg, word);
                    place.waiting = None;
                }
            } else if has_only_positions {
                place.positions += 1;
            } else if word == "--" {
                has_only_positions = true;
            } else if word.starts_with('-') && word.len() > 1 {
                place.pass_flag(word);
            } else if let Some(command) = place.command.find_subcommand(word) {
                (place.command, place.positions) = (command, 0);
            } else {
                place.positions += 1;
            }
        }
        place
    }

    fn flag(&self, name: &str) -> Option<&'a Arg> {
        let has_name = |arg: &&Arg| {
            arg.get_long() == Some(name)
                || arg.get_all_aliases().is_some_and(|names| names.contains(&name))
        };
        self.command.get_arguments().find(has_name)
    }

    fn pass_flag(&mut self, word: &str) {
        let Some(name) = word.strip_prefix("--") else {
            // Of several letters the last one may have a value.
            let letter = word.chars().next_back();
            self.waiting = self
                .command
                .get_arguments()
                .find(|arg| arg.get_short() == letter)
                .filter(|arg| takes_value(arg));
            return;
        };
        let (name, value) =
            name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
        match (self.flag(name).filter(|arg| takes_value(arg)), value) {
            (Some(arg), Some(value)) => self.connect(arg, value),
            (arg, _) => self.waiting = arg,
        }
    }

    fn connect(&mut self, arg: &Arg, value: &str) {
        let field = match arg.get_id().as_str() {
            SERVER_URL => &mut self.connection.url,
            "profile" => &mut self.connection.profile,
            "ca" => return self.connection.ca = Some(value.into()),
            _ => return,
        };
        *field = Some(value.to_owned());
    }

    fn flags(&self, current: &str) -> Vec<Candidate> {
        let shown = self.command.get_arguments().filter(|arg| !arg.is_hide_set());
        let flags = shown
            .filter_map(|arg| Some((format!("--{}", arg.get_long()?), first_line(arg.get_help()))));
        flags.filter(|(flag, _)| flag.starts_with(current)).collect()
    }

    /// The values of an argument that begin with `current`, each after `flag`.
    fn values(&self, arg: &Arg, current: &str, flag: &str) -> Vec<Candidate> {
        let possible = arg.get_possible_values();
        let values = match arg.get_id().as_str() {
            _ if !takes_value(arg) && !arg.is_positional() => Vec::new(),
            _ if !possible.is_empty() => {
                let text = |value: &clap::builder::PossibleValue| first_line(value.get_help());
                possible.iter().map(|value| (value.get_name().to_owned(), text(value))).collect()
            }
            "cue" | "cues" => {
                let all = ApiRequest::get("/v1/cues").query("limit", "100");
                let search = Some(current).filter(|search| !search.is_empty());
                self.names(all.maybe_query("q", search), "cues")
            }
            "channel" => self.names(ApiRequest::get("/v1/channels"), "channels"),
            "profile" => profiles(),
            "topic" => {
                topics().map(|(topic, about)| (topic.to_owned(), about.to_owned())).collect()
            }
            _ => Vec::new(),
        };
        let values = values.into_iter().filter(|(value, _)| value.starts_with(current));
        values.map(|(value, text)| (format!("{flag}{value}"), text)).collect()
    }

    /// The names of a list of the server. Without a server, or one that is slow, there are none.
    fn names(&self, request: ApiRequest, key: &str) -> Vec<Candidate> {
        let request = request.timeout(LOOKUP_TIMEOUT);
        let found = || {
            let context = Context::new(&self.connection, target(&self.connection)?)?;
            Ok::<Value, CliError>(context.client.send_once(&request)?.value()?[key].take())
        };
        let Ok(Value::Array(items)) = found() else { return Vec::new() };
        let mut names: Vec<Candidate> = Vec::new();
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
}

fn profiles() -> Vec<Candidate> {
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
        let mut program = Cli::command();
        program.build();
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        candidates(&program, &words).into_iter().map(|(word, _)| word).collect()
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
            ("docs sched", &["schedules"]),
        ] {
            assert_eq!(complete(line), expected, "{line}");
        }
        assert!(complete("").contains(&"serve".to_owned()));
    }
}
