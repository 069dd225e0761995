//! The program: parse the command line, run it, end with its exit code.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    match cued::cli::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("cued: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}
