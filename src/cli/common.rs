//! Shared by the commands: the `--db` flag, parsers of values, and printing to standard output.

use std::io::{self, Write as _};
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::CliError;
use crate::domain::webhook::address_policy::Cidr;
use crate::domain::webhook::callback_url::CallbackTarget;
use crate::store::Store;

const CHOOSE_OR_CREATE: &str =
    "give the server's database with --db, or create a new one with `cued user add`";

/// The database file of an administration command.
#[derive(Debug, Args)]
pub struct DatabaseArgs {
    /// Database file
    #[arg(long, env = "CUED_DB", value_name = "FILE", default_value = "cued.db", global = true)]
    db: PathBuf,
}

impl DatabaseArgs {
    /// Opens an existing database, also while a server runs on it.
    ///
    /// # Errors
    /// If the file does not exist, is empty or is not a cued database.
    pub fn open(&self) -> Result<Store, CliError> {
        let path = self.existing()?;
        if path.metadata().is_ok_and(|file| file.len() == 0) {
            return Err(CliError::Failed(format!("{} is empty: {CHOOSE_OR_CREATE}", path.display())));
        }
        self.open_or_create()
    }

    /// Returns the path, which must exist.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn existing(&self) -> Result<&Path, CliError> {
        if self.db.exists() {
            return Ok(&self.db);
        }
        Err(CliError::Failed(format!("{} does not exist: {CHOOSE_OR_CREATE}", self.db.display())))
    }

    /// Returns the path, whether or not the file exists.
    pub fn path(&self) -> &Path {
        &self.db
    }

    /// Opens the database and creates it if necessary.
    ///
    /// # Errors
    /// If the file is not a cued database or cannot be used.
    pub fn open_or_create(&self) -> Result<Store, CliError> {
        Store::open_shared(&self.db).map_err(|error| CliError::Failed(error.to_string()))
    }
}

/// Formats a count with its noun: `1 cue`, `2 cues`.
pub fn count(number: i64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Reports the cues that a change of plan paused, if any.
pub fn print_paused(paused: usize) -> Result<(), CliError> {
    match paused {
        0 => Ok(()),
        1 => print_line("paused 1 active cue, the newest: the plan allows fewer"),
        _ => print_line(&format!("paused the {paused} newest active cues: the plan allows fewer")),
    }
}

/// Prints rows with aligned columns. A closed pipe is not an error: `| head` reads only what it needs.
pub fn print_table<const N: usize>(rows: &[[String; N]]) -> Result<(), CliError> {
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
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(write_failed("", &error)),
        _ => Ok(()),
    }
}

/// Prints lines of a name and a value, one of them a new API key.
///
/// # Errors
/// If standard output cannot be written: the key is then lost.
pub fn print_fields(lines: &[(&str, &str)]) -> Result<(), CliError> {
    let text: String =
        lines.iter().map(|(name, value)| format!("{name:7}  {}\n", printable(value))).collect();
    let consequence = ". The new API key is lost: revoke it and create another with `cued key add`";
    write(&text).map_err(|error| write_failed(consequence, &error))
}

pub fn print_line(line: &str) -> Result<(), CliError> {
    write(&format!("{line}\n")).map_err(|error| write_failed(". The command itself succeeded", &error))
}

/// Replaces control characters, which a terminal would execute as commands; the text comes from users.
fn printable(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char }).collect()
}

/// Prints a text that ends with a newline.
pub fn print(text: &str) -> Result<(), CliError> {
    write(text).map_err(|error| write_failed("", &error))
}

// Not `println!`, which panics when the pipe is closed.
fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn write_failed(consequence: &str, error: &io::Error) -> CliError {
    CliError::Failed(format!("cannot write to standard output: {error}{consequence}"))
}

/// Parses `--trust-proxy`.
pub fn network(text: &str) -> Result<Cidr, String> {
    text.parse().map_err(|_| "expected an address or a network, such as 127.0.0.1 or 10.0.0.0/8".to_owned())
}

/// Parses `--allow-host`: a name or an address, as in the `Host` header, without a port.
pub fn host_name(text: &str) -> Result<String, String> {
    let is_name = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
    };
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if is_name(text) || bracketed.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok()) {
        return Ok(text.to_owned());
    }
    Err("expected a host without scheme and port, such as cue.example.com, 10.0.0.5 or [fd00::5]".to_owned())
}

/// Parses `--listen`. `localhost` means 127.0.0.1; other host names are not resolved.
pub fn socket_address(text: &str) -> Result<SocketAddr, String> {
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    numeric.as_deref().unwrap_or(text).parse().map_err(|_| {
        "expected an address and a port, such as 127.0.0.1:8000, 0.0.0.0:8000 (all addresses) or [::1]:8000"
            .to_owned()
    })
}

/// Parses `--public-url`: the base of links to this server and of its echo endpoint.
pub fn web_address(text: &str) -> Result<String, String> {
    let target = CallbackTarget::parse(text).ok().filter(|_| !text.contains(['?', '#']));
    let invalid = || "expected a URL such as https://cue.example.com, with a path if needed".to_owned();
    target.map(|target| target.url).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("a\u{1b}[2J\r\n\u{9b}b é"), "a\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}b é");
    }
}
