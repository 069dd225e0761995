//! The program: parses the command line, runs the command and returns its exit code.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    match cued::cli::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cued: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
