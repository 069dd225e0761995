//! Text: enums of words, hexadecimal digits, and the cleaning of untrusted text for places that have one line for it,
//! and for terminals, which would execute some characters.

use std::borrow::Cow;

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

/// Replaces control characters, and those that change the order of a text, by escapes as in JSON: `\u001b`. JSON and
/// YAML keep their meaning, since only strings have such characters. Ends of lines and tabs stay, and the texts of
/// `kept`.
pub fn escaped<'a>(text: &'a str, kept: &[&str]) -> Cow<'a, str> {
    let is_unsafe =
        |char: char| is_order_mark(char) || char.is_control() && !matches!(char, '\n' | '\t');
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for (at, char) in text.char_indices() {
        let rest = &text[at..];
        if !is_unsafe(char)
            || rest.starts_with("\r\n")
            || kept.iter().any(|own| rest.starts_with(own))
        {
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

/// Returns whether the text is a label of at most `max` characters: a-z, 0-9, `.`, `_` and `-`, first a letter or a digit.
pub fn is_label(text: &str, max: usize) -> bool {
    let is_alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= max
        && text.as_bytes().first().is_some_and(is_alphanumeric)
        && text.bytes().all(|byte| is_alphanumeric(&byte) || b"._-".contains(&byte))
}

pub mod hex {
    /// Two lower-case digits per byte.
    pub fn encode(bytes: &[u8]) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digits = |byte: &u8| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 0xF)]];
        bytes.iter().flat_map(digits).map(char::from).collect()
    }

    /// The bytes of digits in either case; `None` for an odd number of digits or any other character.
    pub fn decode(text: &str) -> Option<Vec<u8>> {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let byte = |pair: &[u8]| match pair {
            [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
            _ => None,
        };
        text.as_bytes().chunks(2).map(byte).collect()
    }
}

/// Declares an enum and the word of each of its variants: `pub enum State { Active = "active", Ended = "ended" }`.
/// Generates `ALL` and `WORDS` in declaration order; validation errors list the choices in the same order. Generates
/// the conversions `as_str` and `parse` too.
macro_rules! word_enum {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident {
            $($(#[$variant_attribute:meta])* $variant:ident = $word:literal),+ $(,)?
        }
    ) => {
        $(#[$attribute])*
        $visibility enum $name {
            $($(#[$variant_attribute])* $variant),+
        }

        impl $name {
            /// Every variant, in declaration order.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// The words of [`Self::ALL`], in the same order.
            pub const WORDS: [&'static str; [$($word),+].len()] = [$($word),+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }

            /// The variant of `word`, compared byte for byte; `None` for any other text.
            pub fn parse(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

pub(crate) use word_enum;

/// A text as a word of a shell, in quotes if it needs them.
pub fn shell_word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
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

    #[test]
    fn pairs_of_digits_in_either_case_are_decoded() {
        assert_eq!(hex::decode("000Af0fF"), Some(vec![0x00, 0x0A, 0xF0, 0xFF]));
        assert_eq!(hex::decode(""), Some(Vec::new()));
        for text in ["0", "000", "0g", "é", "+1", " 1"] {
            assert_eq!(hex::decode(text), None, "{text:?}");
        }
    }
}
