//! Somebody else's text, cut and cleaned for a place that has one line for it.

/// The text in one line of at most `most` characters: control characters and line breaks become blanks, runs of
/// blanks one, and where something was cut off it ends in `…`.
#[must_use]
pub fn one_line(text: &str, most: usize) -> String {
    let is_blank = |char: char| char.is_whitespace() || char.is_control();
    // No more is looked at than could be shown: a text may be long.
    let begin: String = text.chars().take(most.saturating_mul(2)).collect();
    let line = begin.split(is_blank).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    let cut = begin.len() < text.len() || line.chars().count() > most;
    if !cut {
        return line;
    }
    let mut line: String = line.chars().take(most.saturating_sub(1)).collect();
    line.push('…');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_becomes_one_line_with_a_truncation_mark() {
        for (text, most, line) in [
            ("", 5, ""),
            ("plain", 5, "plain"),
            ("longer", 5, "long…"),
            (" a\r\nBcc: x\t\u{1b}[0m\u{2028}b ", 40, "a Bcc: x [0m b"),
            ("äöüß", 4, "äöüß"),
            ("äöüßé", 4, "äöü…"),
            ("\n\n\n\n\n\n\n\n\nlate", 4, "…"),
        ] {
            assert_eq!(one_line(text, most), line, "{text:?}");
        }
    }
}
