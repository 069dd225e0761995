//! Texts in the width of a terminal.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// A text that is shortened or folded keeps so much.
pub const MIN_WIDTH: usize = 8;

/// The beginning of a text, with an ellipsis, if it is wider than `width`.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    format!("{}…", &text[..fitting(text, width.saturating_sub(1))])
}

/// The bytes of the longest beginning of a text that is not wider than `width`.
fn fitting(text: &str, width: usize) -> usize {
    let mut used = 0;
    let mut wider = text.char_indices().skip_while(|(_, char)| {
        used += char.width().unwrap_or(0);
        used <= width
    });
    wider.next().map_or(text.len(), |(end, _)| end)
}

/// The lines that a line takes at `width`: broken at blanks, and inside of a word that is wider.
pub fn fold(line: &str, width: usize) -> Vec<String> {
    let width = width.max(MIN_WIDTH);
    let (mut lines, mut rest) = (Vec::new(), line);
    while rest.width() > width {
        let end = fitting(rest, width);
        let indent = rest.len() - rest.trim_start().len();
        let blank = if rest[end..].starts_with(' ') { Some(end) } else { rest[..end].rfind(' ') };
        match blank.filter(|blank| *blank > indent) {
            Some(blank) => {
                lines.push(rest[..blank].trim_end().to_owned());
                rest = rest[blank..].trim_start();
            }
            None => {
                lines.push(rest[..end].to_owned());
                rest = &rest[end..];
            }
        }
    }
    if lines.is_empty() || !rest.is_empty() {
        lines.push(rest.to_owned());
    }
    lines
}

/// The lines of a message, each folded at blanks; what continues a line is indented. A longer word, such as a link, stays
/// whole: it is copied.
pub fn folded(message: &str, width: usize) -> String {
    message.split('\n').map(|line| paragraph(line, width)).collect::<Vec<_>>().join("\n")
}

fn paragraph(line: &str, width: usize) -> String {
    let text = line.trim_start_matches(' ');
    let indent = line.len() - text.len();
    fill(text.split(' '), " ".repeat(indent), indent + 2, width)
}

/// The words on lines of the width: the first line begins with `first`, each further one with so many blanks. A longer
/// word stays whole.
pub fn fill<'a>(
    words: impl IntoIterator<Item = &'a str>,
    first: String,
    indent: usize,
    width: usize,
) -> String {
    let (mut text, mut used) = (first.clone(), first.width());
    for (index, word) in words.into_iter().enumerate() {
        if index > 0 && used + 1 + word.width() > width {
            text += &format!("\n{:indent$}", "");
            used = indent;
        } else if index > 0 {
            text.push(' ');
            used += 1;
        }
        text += word;
        used += word.width();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_folded_at_blanks_and_in_long_words() {
        for (line, lines) in [
            ("", &[""][..]),
            ("ten bytes.", &["ten bytes."]),
            ("two words fit", &["two words", "fit"]),
            ("exactly 10 and more", &["exactly 10", "and more"]),
            ("abcdefghijklm", &["abcdefghij", "klm"]),
            ("  \"key\": \"value\"", &["  \"key\":", "\"value\""]),
            ("日本日本日本", &["日本日本日", "本"]),
        ] {
            assert_eq!(fold(line, 10), lines, "{line}");
        }
    }

    #[test]
    fn a_message_is_folded_at_blanks_and_its_links_stay_whole() {
        for (message, lines) in [
            ("", ""),
            ("ten bytes.\nand more", "ten bytes.\nand more"),
            ("cued: two words more", "cued: two\n  words\n  more"),
            ("  in a list of", "  in a\n    list\n    of"),
            ("see http://127.0.0.1:8000/ now", "see\n  http://127.0.0.1:8000/\n  now"),
            ("go? [y/N] ", "go? [y/N] "),
        ] {
            assert_eq!(folded(message, 10), lines, "{message}");
        }
    }
}
