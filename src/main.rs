//! The program: parses the command line, runs the command and returns its exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    cued::cli::Cli::read().run()
}
