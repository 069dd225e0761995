//! What the administration commands share: the file that they work on, and tables on standard output.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::CliError;
use crate::store::Store;

/// The database that a command works on.
#[derive(Debug, Args)]
pub struct DatabaseArgs {
    /// The database file
    #[arg(long, env = "CUED_DB", value_name = "FILE", default_value = "cued.db", global = true)]
    db: PathBuf,
}

impl DatabaseArgs {
    /// Opens a file that exists, beside a server that may be running.
    ///
    /// # Errors
    /// When there is none, or it is not ours, or there is nothing in it yet.
    pub fn open(&self) -> Result<Store, CliError> {
        let path = self.existing()?;
        if path.metadata().is_ok_and(|file| file.len() == 0) {
            return Err(CliError::Failed(format!("{} is empty: there is no database in it", path.display())));
        }
        self.open_or_make()
    }

    /// The path of a file that exists.
    ///
    /// # Errors
    /// When there is none.
    pub fn existing(&self) -> Result<&Path, CliError> {
        if self.db.exists() {
            return Ok(&self.db);
        }
        Err(CliError::Failed(format!(
            "{} does not exist: give the server's file with --db, or make one with `cued user add`",
            self.db.display()
        )))
    }

    /// The path, whether or not there is a file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.db
    }

    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// When it is not ours or cannot be used.
    pub fn open_or_make(&self) -> Result<Store, CliError> {
        Store::open_shared(&self.db).map_err(|error| CliError::Failed(error.to_string()))
    }
}

/// Prints rows with their columns aligned. A reader that has seen enough (`| head`) is no failure.
///
/// # Errors
/// When standard output cannot be written.
pub fn table<const N: usize>(rows: &[[String; N]]) -> Result<(), CliError> {
    let rows: Vec<[String; N]> = rows.iter().map(|row| row.each_ref().map(|cell| printable(cell))).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    match write(&text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(unwritable("", &error)),
        _ => Ok(()),
    }
}

/// Prints lines of a name and a value, one of them a new key.
///
/// # Errors
/// When standard output cannot be written: nobody has seen the key then.
pub fn print_fields(lines: &[(&str, &str)]) -> Result<(), CliError> {
    let text: String =
        lines.iter().map(|(name, value)| format!("{name:7}  {}\n", printable(value))).collect();
    let lost = "; the new key is lost: revoke it and make another with `cued key add`";
    write(&text).map_err(|error| unwritable(lost, &error))
}

/// Prints a sentence.
///
/// # Errors
/// When standard output cannot be written.
pub fn print_line(sentence: &str) -> Result<(), CliError> {
    write(&format!("{sentence}\n")).map_err(|error| unwritable("; it is done all the same", &error))
}

/// A text of some user as a terminal may see it: its control characters would be commands there.
fn printable(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char }).collect()
}

// Not `println!`, which panics where the other end is gone.
fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn unwritable(so: &str, error: &io::Error) -> CliError {
    CliError::Failed(format!("standard output cannot be written: {error}{so}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("a\u{1b}[2J\r\n\u{9b}b é"), "a\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}b é");
    }
}
