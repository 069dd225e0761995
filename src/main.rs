//! The program: parses the command line, runs the command and returns its exit code.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    cued::cli::Cli::parse().run()
}
