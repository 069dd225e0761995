//! The values of `--plans` and `--limits`, which commands of the server and of the database file take.

use std::path::Path;

use clap::ValueEnum;

use crate::cli::error::CliError;
use crate::domain::account::plan::Plans;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnOff {
    On,
    Off,
}

/// Reads the plans from a file; without one, returns the built-in plans.
pub fn plans_from(path: Option<&Path>) -> Result<Plans, CliError> {
    let Some(path) = path else { return Ok(Plans::default()) };
    Plans::from_json(&String::from_utf8_lossy(&read(path)?))
        .map_err(|error| CliError::Failed(format!("{}: {error}", path.display())))
}

pub fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    std::fs::read(path).map_err(|error| CliError::Failed(format!("cannot read {}: {error}", path.display())))
}
