//! Texts of users and servers, made harmless for a terminal.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("a\u{202e}b\u{2069}"), "a\u{fffd}b\u{fffd}");
        assert_eq!(printable("a\u{1b}[2J\r\n\u{9b}b é"), "a\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}b é");
    }
}
