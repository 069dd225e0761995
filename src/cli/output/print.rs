//! Prints to standard output. Nothing that a terminal would execute passes, whoever wrote it.

use std::io::{self, Write as _};

use crate::cli::error::CliError;
use crate::cli::output::style::Styles;
use crate::cli::output::table::{Cell, Column, Table};
use crate::cli::printable::printable;
use crate::domain::text::escaped::{STYLES, escaped};

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

/// Prints rows under their titles.
pub fn print_table<const N: usize>(
    titles: [&'static str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> Result<(), CliError> {
    let columns = titles.map(Column::new).to_vec();
    let rows = rows.into_iter().map(|row| row.map(Cell::from).to_vec()).collect();
    print(&Table { columns, rows }.render(true, &Styles { has_colour: false, width: None }))
}

/// Prints lines of a name and a value, one of them a new API key.
/// Errors: if standard output cannot be written, or its reader has closed the pipe: the key is then lost.
pub fn print_fields(lines: &[(&str, &str)]) -> Result<(), CliError> {
    let text: String =
        lines.iter().map(|(name, value)| format!("{name:7}  {}\n", printable(value))).collect();
    let consequence = ". The new API key is lost: revoke it and create another with `cued key add`";
    write(escaped(&text, &[]).as_bytes()).map_err(|error| write_failed(consequence, &error))
}

/// As [`print()`], with a newline.
pub fn print_line(line: &str) -> Result<(), CliError> {
    let line = format!("{}\n", escaped(line, &[]));
    is_read(write(line.as_bytes()), ". The command itself succeeded").map(drop)
}

/// Prints a part of an output without an end, which may have colours. Returns false if its reader has closed the pipe.
pub fn print_part(text: &str) -> Result<bool, CliError> {
    is_read(write(escaped(text, &STYLES).as_bytes()), "")
}

/// Prints a text that ends with a newline. A closed pipe is not an error: `| head` reads only what it needs.
pub fn print(text: &str) -> Result<(), CliError> {
    print_part(text).map(drop)
}

/// Prints bytes as they are, which must not go to a terminal: the answer to a request of the user's own.
pub fn print_bytes(bytes: &[u8]) -> Result<(), CliError> {
    is_read(write(bytes), "").map(drop)
}

// Not `println!`, which panics when the pipe is closed.
fn write(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// False if the reader has closed the pipe.
fn is_read(written: io::Result<()>, consequence: &str) -> Result<bool, CliError> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true).map_err(|error| write_failed(consequence, &error)),
    }
}

fn write_failed(consequence: &str, error: &io::Error) -> CliError {
    CliError::Failed(format!("cannot write to standard output: {error}{consequence}"))
}
