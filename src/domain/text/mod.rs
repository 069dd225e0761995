//! Cleaning of untrusted text: for places that have one line for it, and for terminals, which would execute some characters.

pub mod hex;

use std::borrow::Cow;

pub(crate) mod word_enum;

/// The text as one line of at most `max_chars` characters: control characters and white space become single spaces,
/// and truncated text ends in `…`.
pub fn one_line(text: &str, max_chars: usize) -> String {
    let is_blank = |char: char| char.is_whitespace() || char.is_control();
    // Reads only as much as can be shown, because the text may be long.
    let start: String = text.chars().take(max_chars.saturating_mul(2)).collect();
    let line = start.split(is_blank).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    let cut = start.len() < text.len() || line.chars().count() > max_chars;
    if !cut {
        return line;
    }
    let mut line: String = line.chars().take(max_chars.saturating_sub(1)).collect();
    line.push('…');
    line
}

/// The sequences of the program's own colours.
pub const STYLES: [&str; 6] =
    ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[32m", "\u{1b}[33m"];

/// Replaces control characters, and those that change the order of a text, by escapes as in JSON: `\u001b`. JSON and YAML
/// keep their meaning, since only strings have such characters. Ends of lines and tabs stay, and the texts of `kept`.
pub fn escaped<'a>(text: &'a str, kept: &[&str]) -> Cow<'a, str> {
    let is_unsafe = |char: char| is_order_mark(char) || char.is_control() && !matches!(char, '\n' | '\t');
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for (at, char) in text.char_indices() {
        let rest = &text[at..];
        if !is_unsafe(char) || rest.starts_with("\r\n") || kept.iter().any(|own| rest.starts_with(own)) {
            safe.push(char);
        } else if char == '\r' {
            // Also white space between the values of JSON, where an escape would be an error.
            safe.push(' ');
        } else {
            // None of these characters has more than four digits.
            safe.push_str(&format!("\\u{:04x}", u32::from(char)));
        }
    }
    Cow::Owned(safe)
}

/// A control of the order of left-to-right and right-to-left text: with it, a text can show as another.
pub fn is_order_mark(char: char) -> bool {
    matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_becomes_one_line_and_shows_truncation() {
        for (text, max_chars, line) in [
            ("", 5, ""),
            ("plain", 5, "plain"),
            ("longer", 5, "long…"),
            (" a\r\nBcc: x\t\u{1b}[0m\u{2028}b ", 40, "a Bcc: x [0m b"),
            ("äöüß", 4, "äöüß"),
            ("äöüßé", 4, "äöü…"),
            ("\n\n\n\n\n\n\n\n\nlate", 4, "…"),
        ] {
            assert_eq!(one_line(text, max_chars), line, "{text:?}");
        }
    }

    #[test]
    fn only_lines_tabs_and_own_colours_stay() {
        assert_eq!(escaped("a\r\n\tb\rc é", &[]), "a\r\n\tb c é");
        assert_eq!(
            escaped("\u{1b}]0;x\u{7}\u{9b}\u{7f}\u{202e}", &STYLES),
            "\\u001b]0;x\\u0007\\u009b\\u007f\\u202e"
        );
        let painted = "\u{1b}[31mx\u{1b}[0m";
        assert_eq!(escaped(painted, &STYLES), painted);
        assert_eq!(escaped(painted, &[]), "\\u001b[31mx\\u001b[0m");
    }
}
