//! Cleaning of untrusted text for places that have one line for it.

pub mod escaped;
pub mod hex;
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
}
