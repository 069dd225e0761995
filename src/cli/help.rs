//! The help of the program with its commands in three groups; `cued completions` and `cued man`, made from the same
//! definition of the command line.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::error::{CliError, cannot, usage};
use crate::cli::output::print;

/// Commands by group. Those that are in none are clients of a server.
const SERVER: [&str; 2] = ["serve", "bench"];
const DATABASE_FILE: [&str; 8] = ["user", "key", "billing", "backup", "check", "restore", "promote", "clock"];

/// The same command with its subcommands in groups.
pub fn grouped(command: Command) -> Command {
    let group = |name: &str| match name {
        _ if SERVER.contains(&name) => 0,
        _ if DATABASE_FILE.contains(&name) => 1,
        _ => 2,
    };
    let header = command.get_styles().get_header();
    let literal = command.get_styles().get_literal();
    let name_width = command.get_subcommands().map(|it| it.get_name().len()).max().unwrap_or(0);
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (index, title) in ["Server", "Database file", "Client of a server"].into_iter().enumerate() {
        add(&mut text, format_args!("\n{header}{title}:{header:#}\n"));
        for command in
            command.get_subcommands().filter(|it| group(it.get_name()) == index && !it.is_hide_set())
        {
            let (name, about) = (command.get_name(), command.get_about().cloned().unwrap_or_default());
            add(&mut text, format_args!("  {literal}{name:name_width$}{literal:#}  {about}\n"));
        }
    }
    add(&mut text, format_args!("\n{header}Options:{header:#}\n{{options}}\n\n"));
    text.push_str("`cued COMMAND --help` explains a command; `cued man COMMAND` is its manual page.");
    command.help_template(text)
}

fn add(text: &mut String, part: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    text.write_fmt(part).unwrap_or_default();
}

#[derive(Debug, Args)]
pub struct Completions {
    /// Shell that reads the script
    #[arg(value_name = "SHELL")]
    shell: Shell,
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

impl Completions {
    pub fn run(self, mut program: Command) -> Result<(), CliError> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut program, "cued", &mut script);
        print(&String::from_utf8_lossy(&script))
    }
}

impl ManualPage {
    pub fn run(self, mut program: Command) -> Result<(), CliError> {
        let failed = |error: io::Error| cannot("write the manual pages", error);
        if let Some(dir) = self.dir {
            std::fs::create_dir_all(&dir).map_err(failed)?;
            return clap_mangen::generate_to(program, dir).map_err(failed);
        }
        program.build();
        let mut command = &program;
        for name in &self.command {
            let unknown = || usage(format!("there is no command `cued {}`", self.command.join(" ")));
            command = command.find_subcommand(name).ok_or_else(unknown)?;
        }
        let mut page = Vec::new();
        Man::new(command.clone()).render(&mut page).map_err(failed)?;
        print(&String::from_utf8_lossy(&page))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use crate::cli::Cli;

    use super::*;

    #[test]
    fn each_command_is_in_one_group_of_the_help() {
        let help = grouped(Cli::command()).render_help().to_string();
        for command in Cli::command().get_subcommands() {
            let line = format!("\n  {} ", command.get_name());
            assert_eq!(help.matches(&line).count(), 1, "{help}");
        }
        let at = |text: &str| help.find(text).unwrap_or_else(|| panic!("{text} is missing in {help}"));
        assert!(at("Server:") < at("\n  serve "));
        assert!(at("\n  bench ") < at("Database file:"));
        assert!(at("\n  promote ") < at("Client of a server:"));
        assert!(at("Client of a server:") < at("\n  whoami "));
    }

    #[test]
    fn the_help_fits_a_terminal_of_80_columns() {
        let help = grouped(Cli::command()).render_help().to_string();
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }

    #[test]
    fn the_definition_of_the_command_line_has_no_conflict() {
        grouped(Cli::command()).debug_assert();
    }
}
