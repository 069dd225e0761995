//! The help of the program with its commands in three groups, `cued help` and `cued man`, made from the same definition
//! of the command line.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgGroup, ArgMatches, Args, Command, Error, Subcommand as _};
use clap_mangen::Man;

use crate::cli::client::ClientCommand;
use crate::cli::client::command::{common_options, with_short_help};
use crate::cli::error::{Result, cannot, in_quotes, usage};
use crate::cli::examples::with_examples;
use crate::cli::nearest::nearest;
use crate::cli::output::{print, print_note};
use crate::domain::text::shell_word;

/// Commands by group. Those that are in none are clients of a server.
const SERVER: [&str; 1] = ["serve"];
const DATABASE_FILE: [&str; 8] =
    ["user", "key", "billing", "backup", "check", "restore", "promote", "clock"];

/// Columns of the help in a wide terminal.
pub const MAX_WIDTH: usize = 100;

/// The flags of `cued serve` in its short help.
const SERVE: &str = "db listen public-url limits dev";

pub fn grouped(command: Command) -> Command {
    let command =
        with_examples(command).mut_subcommand("serve", |serve| with_short_help(serve, SERVE));
    let group = |name: &str| match name {
        _ if SERVER.contains(&name) => "Server",
        _ if DATABASE_FILE.contains(&name) => "Database file",
        _ => "Client of a server",
    };
    let (header, literal) = (command.get_styles().get_header(), command.get_styles().get_literal());
    let width = command.get_subcommands().map(|it| it.get_name().len()).max().unwrap_or(0);
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for title in ["Server", "Database file", "Client of a server"] {
        text += &format!("\n{header}{title}:{header:#}\n");
        let shown = command
            .get_subcommands()
            .filter(|it| group(it.get_name()) == title && !it.is_hide_set());
        for command in shown {
            let (name, about) =
                (command.get_name(), command.get_about().cloned().unwrap_or_default());
            text += &format!("  {literal}{name:width$}{literal:#}  {about}\n");
        }
    }
    text += &format!("\n{header}Options:{header:#}\n{{options}}\n\n");
    text += "`cued COMMAND -h`: short help, `--help`: with examples, `cued man COMMAND`.\n\
             Options of every client command: `cued help options`";
    command.help_template(text)
}

#[derive(Debug, Args)]
pub struct ManualPage {
    /// Command whose page is printed, such as `cue add`; the program's own page without it
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,

    /// Write the pages of all commands into this folder instead
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    dir: Option<PathBuf>,
}

/// The error with other advice: `cued cue list` for `cued list`, and none that a flag should be a value.
pub fn with_advice(program: &Command, mut error: Error) -> Error {
    if error.kind() == ErrorKind::UnknownArgument {
        error.remove(ContextKind::Suggested);
        let surplus = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(text)) if !text.starts_with('-') => Some(text.clone()),
            _ => None,
        };
        if let Some(advice) =
            surplus.and_then(|text| on_surplus(&std::env::args().collect::<Vec<_>>(), &text))
        {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice.into()]));
        }
    }
    suggest_commands(program, &mut error);
    error
}

/// The nearest commands in place of those that clap finds: it has hidden ones, and an alias beside its command. A command of
/// `cued cue` may be meant: `list` by `cued list`, and by `cued lst`, which no other command resembles.
fn suggest_commands(program: &Command, error: &mut Error) {
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else {
        return;
    };
    let words: Vec<String> = std::env::args().skip(1).take_while(|word| word != name).collect();
    let group =
        words.iter().fold(program, |group, word| group.find_subcommand(word).unwrap_or(group));
    let near = near_commands(group, name);
    let cue = program.find_subcommand("cue").filter(|_| words.is_empty());
    let of_cues = cue.and_then(|cue| match cue.find_subcommand(name) {
        Some(_) => Some(name.clone()),
        None if near.is_empty() => near_commands(cue, name).into_iter().next(),
        None => None,
    });
    error.remove(ContextKind::SuggestedSubcommand);
    if let Some(name) = of_cues {
        let advice = format!("did you mean `cued cue {name}`?");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice.into()]));
    } else if !near.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(near));
    }
}

/// The commands of a group with a name or an alias like `name`, the nearest first.
fn near_commands(group: &Command, name: &str) -> Vec<String> {
    let shown = || group.get_subcommands().filter(|command| !command.is_hide_set());
    let names = shown().flat_map(Command::get_name_and_visible_aliases);
    let names = names.chain(shown().flat_map(Command::get_all_aliases));
    let mut found = Vec::new();
    for near in nearest(name, names) {
        let command = group.find_subcommand(near).map_or(near, Command::get_name).to_owned();
        if !found.contains(&command) {
            found.push(command);
        }
    }
    found
}

/// Advice for an argument too many: it is a part of a schedule, or the name of a new cue.
fn on_surplus(line: &[String], text: &str) -> Option<String> {
    let before = |distance: usize| {
        let index = line.iter().position(|word| word == text)?.checked_sub(distance)?;
        line.get(index)?.strip_prefix("--")
    };
    let is = |index: usize, names: &[&str]| {
        line.get(index).is_some_and(|word| names.contains(&word.as_str()))
    };
    match before(2) {
        Some(flag @ ("cron" | "at" | "every")) => {
            let flag_at = line.iter().position(|word| word.strip_prefix("--") == Some(flag))?;
            Some(in_quotes(flag, &until_flag(line, flag_at + 1)))
        }
        _ if is(1, &["preview"]) => Some(in_quotes("", &until_flag(line, 2))),
        _ if is(1, &["apply", "diff"]) => {
            Some(format!("a file is a flag: -f {}", shell_word(text)))
        }
        _ if is(1, &["cue"]) && is(2, &["add", "create", "new"]) => {
            Some(format!("the name of a cue is a flag: --name {}", shell_word(text)))
        }
        _ => None,
    }
}

/// The words of a command line from `start` up to the next flag.
fn until_flag(line: &[String], start: usize) -> Vec<&str> {
    let is_flag = |word: &&str| word.starts_with('-') && word.len() > 1;
    line.iter().skip(start).map(String::as_str).take_while(|word| !is_flag(word)).collect()
}

/// The fault of an option of clients in front of a command that is none.
pub fn unfit_option(program: &Command, matches: &ArgMatches) -> Option<Error> {
    let (name, _) = matches.subcommand()?;
    if ClientCommand::has_subcommand(name) {
        return None;
    }
    let is_given =
        |arg: &Arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
    let flag = common_options().find(is_given)?.get_long().map(str::to_owned)?;
    let fault =
        format!("--{flag} is an option of commands that use a server; `cued {name}` is none\n");
    Some(Error::raw(ErrorKind::ArgumentConflict, fault).with_cmd(program))
}

#[derive(Debug, Args)]
pub struct Help {
    /// Command to explain, such as `cue add`, or `options`: the server and output options of all clients
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

impl Help {
    pub fn run(self, mut program: Command) -> Result {
        program.build();
        let mut options = options();
        let command = match self.command.as_slice() {
            [word] if word == "options" => &mut options,
            words => find(&mut program, words)?,
        };
        // A reader that has seen enough is no failure.
        drop(command.print_long_help());
        Ok(())
    }
}

/// The options that are in the help of no command.
fn options() -> Command {
    let options = Command::new("options").about(
        "Options of all commands that use a server, before or after the command\n\nWhere a command has its own \
         --url or --tz, use --server for the server, and --utc or TZ for the zone of the output.",
    );
    let options =
        options.args(common_options().map(|arg| arg.global(false))).disable_help_flag(true);
    options.max_term_width(MAX_WIDTH).help_template("{about-with-newline}\n{all-args}\n")
}

/// The command of these names.
fn find<'a>(program: &'a mut Command, names: &[String]) -> Result<&'a mut Command> {
    let mut command = program;
    for name in names {
        let unknown = || usage(format!("there is no command `cued {}`", names.join(" ")));
        command = command.find_subcommand_mut(name).ok_or_else(unknown)?;
    }
    Ok(command)
}

/// The command with the meaning of every option, which the helps of commands leave out.
fn for_manual(command: Command) -> Command {
    let shown = |arg: Arg| arg.hide_short_help(false).hide_long_help(false);
    let is_new_cue =
        command.get_name() == "add" && command.get_arguments().any(|arg| arg.get_id() == "edit");
    let command = if is_new_cue {
        // The synopsis knows groups that are required, and no "required unless".
        command.group(ArgGroup::new("named").args(["name", "edit"]).required(true).multiple(true))
    } else {
        command
    };
    command.mut_args(shown).mut_subcommands(for_manual)
}

impl ManualPage {
    pub fn run(self, program: Command) -> Result {
        let mut program = for_manual(program);
        let failed = |error: io::Error| cannot("write the manual pages", error);
        if let Some(dir) = self.dir {
            return write_pages(program, &dir).map_err(failed);
        }
        program.build();
        let command = find(&mut program, &self.command)?;
        let mut page = Vec::new();
        Man::new(command.clone()).render(&mut page).map_err(failed)?;
        print(&String::from_utf8_lossy(&page))?;
        if io::stdout().is_terminal() {
            let words = ["cued man"].into_iter().chain(self.command.iter().map(String::as_str));
            print_note(&format!("To read it: {} | man -l -", words.collect::<Vec<_>>().join(" ")))?;
        }
        Ok(())
    }
}

/// Moves each page into its place: a link of that name is replaced, its target is not written.
fn write_pages(program: Command, dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let new = tempfile::tempdir_in(dir)?;
    clap_mangen::generate_to(program, &new)?;
    for page in new.path().read_dir()? {
        let page = page?;
        std::fs::rename(page.path(), dir.join(page.file_name()))?;
    }
    new.close()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use crate::cli::Cli;

    use super::*;

    #[test]
    fn each_command_is_in_one_group_of_the_help_which_fits_80_columns() {
        let help = grouped(Cli::command()).render_help().to_string();
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let line = format!("\n  {} ", command.get_name());
            assert_eq!(help.matches(&line).count(), 1, "{help}");
        }
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
        grouped(Cli::command()).debug_assert();
    }

    /// Calls `check` with every command and its names.
    fn each(command: &mut Command, name: &str, check: &mut impl FnMut(&mut Command, &str)) {
        check(command, name);
        for command in command.get_subcommands_mut() {
            let name = format!("{name} {}", command.get_name());
            each(command, &name, check);
        }
    }

    #[test]
    fn the_short_help_of_each_command_is_a_screen_and_examples_stand_before_the_options() {
        let mut program = grouped(Cli::command()).term_width(80);
        program.build();
        let mut long = Vec::new();
        each(&mut program, "cued", &mut |command, name| {
            let short = command.render_help().to_string();
            let lines = short.lines().count();
            // The program itself has a line for each command.
            if lines > MAX_LINES && name != "cued" {
                long.push(format!("{name}: {lines}"));
            }
            assert!(!short.contains("--insecure"), "{short}");
            let help = command.render_long_help().to_string();
            if let (Some(example), Some(options)) = (help.find("Example"), help.find("\nOptions:"))
            {
                assert!(example < options, "{help}");
            }
        });
        assert!(long.is_empty(), "{long:?}");
    }

    const MAX_LINES: usize = 30;

    #[test]
    fn the_common_options_are_in_one_help_and_count_before_a_command() {
        let text = options().render_long_help().to_string();
        for flag in ["--url", "--insecure", "-o, --output", "--json", "--curl"] {
            assert!(text.contains(flag), "{flag}: {text}");
        }
        for line in [
            "cued -o json --url http://x cue list",
            "cued cue -o json list",
            "cued cue list -o json",
        ] {
            assert!(Cli::command().try_get_matches_from(line.split(' ')).is_ok(), "{line}");
        }
        let add = "cued --url http://x cue add --name n --cron x --url http://y";
        assert!(Cli::command().try_get_matches_from(add.split(' ')).is_ok());
    }
}
