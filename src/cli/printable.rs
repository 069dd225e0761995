//! Texts of users and servers, made harmless for a terminal.

use std::io::{self, IsTerminal as _, Write as _};

use crate::cli::width::folded;
use crate::domain::text::{escaped, is_order_mark};

/// Prints a message, a question or a note, folded in the width of a terminal. In a pipe or a log each line stays one.
pub fn print_error(text: &str) -> io::Result<()> {
    let text = escaped(text, &[]);
    if !io::stderr().is_terminal() {
        return io::stderr().write_all(text.as_bytes());
    }
    io::stderr().write_all(folded(&text, width_of_stderr()).as_bytes())
}

/// Columns of standard error. A window may change its size.
pub fn width_of_stderr() -> usize {
    terminal_size::terminal_size_of(io::stderr()).map_or(80, |(width, _)| width.0.into())
}

/// Replaces control characters, which a terminal would execute, and characters that change the order of a text.
pub fn printable(text: &str) -> String {
    let is_unsafe = |char: char| char.is_control() || is_order_mark(char);
    text.chars()
        .map(|char| if is_unsafe(char) { char::REPLACEMENT_CHARACTER } else { char })
        .collect()
}

/// The lines of a text of others, each without control characters.
pub fn printable_lines(text: &str) -> impl Iterator<Item = String> {
    text.lines().map(|line| printable(&line.replace('\t', "    ")))
}

/// The same as a text, each line with its end.
pub fn printable_text(text: &str) -> String {
    printable_lines(text).map(|line| line + "\n").collect()
}
