//! The help of the program with its commands in three groups; `cued completions` and `cued man`, made from the same
//! definition of the command line.

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

pub fn grouped(command: Command) -> Command {
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
        let shown = command.get_subcommands().filter(|it| group(it.get_name()) == title && !it.is_hide_set());
        for command in shown {
            let (name, about) = (command.get_name(), command.get_about().cloned().unwrap_or_default());
            text += &format!("  {literal}{name:width$}{literal:#}  {about}\n");
        }
    }
    text += &format!("\n{header}Options:{header:#}\n{{options}}\n\n");
    text += "`cued COMMAND --help` explains a command; `cued man COMMAND` is its manual page.";
    command.help_template(text)
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
    fn each_command_is_in_one_group_of_the_help_which_fits_80_columns() {
        let help = grouped(Cli::command()).render_help().to_string();
        for command in Cli::command().get_subcommands() {
            let line = format!("\n  {} ", command.get_name());
            assert_eq!(help.matches(&line).count(), 1, "{help}");
        }
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
        grouped(Cli::command()).debug_assert();
    }
}
