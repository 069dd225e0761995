//! `cued completions` and `cued man`: made from the definition of the command line, so that they cannot differ from it.

use std::io;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::error::CliError;
use crate::cli::output::print;

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
    /// Prints the script.
    pub fn run(self, mut program: Command) -> Result<(), CliError> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut program, "cued", &mut script);
        print(&String::from_utf8_lossy(&script))
    }
}

impl ManualPage {
    /// Prints a page, or writes all of them.
    pub fn run(self, mut program: Command) -> Result<(), CliError> {
        let failed = |error: io::Error| CliError::Failed(format!("cannot write the manual pages: {error}"));
        if let Some(dir) = self.dir {
            std::fs::create_dir_all(&dir).map_err(failed)?;
            return clap_mangen::generate_to(program, dir).map_err(failed);
        }
        program.build();
        let mut command = &program;
        for name in &self.command {
            let unknown =
                || CliError::Usage(format!("there is no command `cued {}`", self.command.join(" ")));
            command = command.find_subcommand(name).ok_or_else(unknown)?;
        }
        let mut page = Vec::new();
        Man::new(command.clone()).render(&mut page).map_err(failed)?;
        print(&String::from_utf8_lossy(&page))
    }
}
