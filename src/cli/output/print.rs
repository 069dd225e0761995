//! Prints to standard output.

use std::io::{self, Write as _};

use crate::cli::error::CliError;

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

/// Replaces control characters, which a terminal would execute as commands, and those that change the order of a text;
/// the text comes from users.
pub fn printable(text: &str) -> String {
    let is_unsafe = |char: char| char.is_control() || is_order_mark(char);
    text.chars().map(|char| if is_unsafe(char) { char::REPLACEMENT_CHARACTER } else { char }).collect()
}

/// A control of the order of left-to-right and right-to-left text: with it, a text can show as another.
pub fn is_order_mark(char: char) -> bool {
    matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Prints a part of an output without an end. Returns false if its reader has closed the pipe.
pub fn print_part(text: &str) -> Result<bool, CliError> {
    match write(text) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true).map_err(|error| write_failed("", &error)),
    }
}

/// Prints a text that ends with a newline.
pub fn print(text: &str) -> Result<(), CliError> {
    write(text).map_err(|error| write_failed("", &error))
}

/// Prints bytes as they are: the answer to a request of the user's own.
///
/// # Errors
/// If standard output cannot be written.
pub fn print_bytes(bytes: &[u8]) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| write_failed("", &error))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("a\u{202e}b\u{2069}"), "a\u{fffd}b\u{fffd}");
        assert_eq!(printable("a\u{1b}[2J\r\n\u{9b}b é"), "a\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}b é");
    }
}
