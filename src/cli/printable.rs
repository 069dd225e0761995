//! Texts of users and servers, made harmless for a terminal.

use std::io::{self, Write as _};

use crate::domain::text::{escaped, is_order_mark};

pub fn print_error(text: &str) -> io::Result<()> {
    io::stderr().write_all(escaped(text, &[]).as_bytes())
}

/// Replaces control characters, which a terminal would execute, and characters that change the order of a text.
pub fn printable(text: &str) -> String {
    let is_unsafe = |char: char| char.is_control() || is_order_mark(char);
    text.chars().map(|char| if is_unsafe(char) { char::REPLACEMENT_CHARACTER } else { char }).collect()
}

/// The lines of a text of others, each without control characters.
pub fn printable_lines(text: &str) -> impl Iterator<Item = String> {
    text.lines().map(|line| printable(&line.replace('\t', "    ")))
}
