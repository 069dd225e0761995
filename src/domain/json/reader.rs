//! The strict reader: checks a JSON text and writes its compact form in one pass, without a tree.

use serde_json::Number;

use crate::domain::json::text::{JsonText, compare_keys, end_of_string, push_escaped};
use crate::domain::json::{JsonError, JsonErrorKind, MAX_DEPTH};

/// Reads one JSON value as its compact form: UTF-8 without white space, the keys of each object sorted. Of equal keys
/// the last one counts.
///
/// Integers keep their digits (`-0` becomes `0`). Other numbers become the text of their double, so that equal
/// numbers have equal texts. Beside the text it takes 16 bytes for each entry of the largest object and a copy of
/// an object whose keys are not in order.
pub fn read(bytes: &[u8]) -> Result<JsonText, JsonError> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => return Err(locate(bytes, error.valid_up_to(), JsonErrorKind::NotUtf8)),
    };
    let out = String::with_capacity(text.len());
    let mut reader = Reader { text, at: 0, depth: 0, out, entries: Vec::new() };
    match reader.document() {
        Ok(()) => Ok(JsonText::stored(reader.out)),
        Err(kind) => Err(locate(bytes, reader.at, kind)),
    }
}

/// The line and column of a byte offset; the text is valid UTF-8 up to there.
fn locate(bytes: &[u8], at: usize, kind: JsonErrorKind) -> JsonError {
    let before = &bytes[..at.min(bytes.len())];
    let line_start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
    let is_first_of_char = |byte: &&u8| (**byte & 0xC0) != 0x80;
    let column = 1 + before[line_start..].iter().filter(is_first_of_char).count();
    JsonError { kind, line, column }
}

/// The parser's state. After an error, `at` is its position.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    /// The compact form of what was read.
    out: String,
    /// Start and end in `out` of the entries of all open objects.
    entries: Vec<(usize, usize)>,
}

impl Reader<'_> {
    fn document(&mut self) -> Result<(), JsonErrorKind> {
        if self.text.starts_with('\u{feff}') {
            return Err(JsonErrorKind::ByteOrderMark);
        }
        self.skip_blanks();
        if self.peek().is_none() {
            return Err(JsonErrorKind::Empty);
        }
        self.value()?;
        self.skip_blanks();
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(JsonErrorKind::TrailingText),
        }
    }

    fn value(&mut self) -> Result<(), JsonErrorKind> {
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            Some(_) => Err(JsonErrorKind::Expected("a value")),
            None => Err(JsonErrorKind::UnexpectedEnd),
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<(), JsonErrorKind>) -> Result<(), JsonErrorKind> {
        if self.depth == MAX_DEPTH {
            return Err(JsonErrorKind::TooDeep);
        }
        self.depth += 1;
        self.at += 1;
        read(self)?;
        self.depth -= 1;
        Ok(())
    }

    fn object(&mut self) -> Result<(), JsonErrorKind> {
        self.out.push('{');
        let (first, mut is_sorted) = (self.entries.len(), true);
        self.skip_blanks();
        if self.take(b'}') {
            self.out.push('}');
            return Ok(());
        }
        loop {
            self.skip_blanks();
            if self.peek() != Some(b'"') {
                return Err(self.expected("a key in double quotes"));
            }
            let start = self.out.len();
            self.string()?;
            if let Some((previous, _)) = self.entries[first..].last() {
                is_sorted &= compare_keys(self.key_at(*previous), self.key_at(start)).is_lt();
            }
            self.skip_blanks();
            if !self.take(b':') {
                return Err(self.expected("`:`"));
            }
            self.out.push(':');
            self.skip_blanks();
            self.value()?;
            self.entries.push((start, self.out.len()));
            self.skip_blanks();
            if self.take(b'}') {
                break;
            }
            if !self.take(b',') {
                return Err(self.expected("`,` or `}`"));
            }
            self.out.push(',');
        }
        if !is_sorted {
            self.sort_entries(first);
        }
        self.entries.truncate(first);
        self.out.push('}');
        Ok(())
    }

    /// Sorts the entries of the innermost object by key, from number `first` on, and drops all but the last of each
    /// key.
    fn sort_entries(&mut self, first: usize) {
        let mut entries = self.entries.split_off(first);
        let Some(&(begin, _)) = entries.first() else { return };
        entries.sort_unstable_by(|a, b| {
            compare_keys(self.key_at(a.0), self.key_at(b.0)).then_with(|| a.0.cmp(&b.0))
        });
        let mut sorted = String::with_capacity(self.out.len() - begin);
        for (index, &(start, end)) in entries.iter().enumerate() {
            let is_replaced = entries
                .get(index + 1)
                .is_some_and(|next| compare_keys(self.key_at(start), self.key_at(next.0)).is_eq());
            if !is_replaced {
                sorted.push_str(if sorted.is_empty() { "" } else { "," });
                sorted.push_str(&self.out[start..end]);
            }
        }
        self.out.truncate(begin);
        self.out.push_str(&sorted);
    }

    /// The key that was written at `start`, without its quotes.
    fn key_at(&self, start: usize) -> &str {
        &self.out[start + 1..end_of_string(&self.out, start) - 1]
    }

    fn array(&mut self) -> Result<(), JsonErrorKind> {
        self.out.push('[');
        self.skip_blanks();
        if self.take(b']') {
            self.out.push(']');
            return Ok(());
        }
        loop {
            self.skip_blanks();
            self.value()?;
            self.skip_blanks();
            if self.take(b']') {
                self.out.push(']');
                return Ok(());
            }
            if !self.take(b',') {
                return Err(self.expected("`,` or `]`"));
            }
            self.out.push(',');
        }
    }

    fn word(&mut self, word: &'static str) -> Result<(), JsonErrorKind> {
        if !self.text[self.at..].starts_with(word) {
            return Err(JsonErrorKind::Expected("a value"));
        }
        self.at += word.len();
        self.out.push_str(word);
        Ok(())
    }

    fn string(&mut self) -> Result<(), JsonErrorKind> {
        self.at += 1;
        self.out.push('"');
        loop {
            let plain = |byte: &u8| !matches!(byte, b'"' | b'\\' | 0..=0x1F);
            let run = self.text.as_bytes()[self.at..].iter().take_while(|byte| plain(byte)).count();
            self.out.push_str(&self.text[self.at..self.at + run]);
            self.at += run;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    self.out.push('"');
                    return Ok(());
                }
                Some(b'\\') => {
                    let char = self.escape()?;
                    push_escaped(&mut self.out, char);
                }
                Some(_) => return Err(JsonErrorKind::ControlCharacter),
                None => return Err(JsonErrorKind::UnexpectedEnd),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonErrorKind> {
        let char = match self.text.as_bytes().get(self.at + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.escaped_char(),
            Some(_) => return Err(JsonErrorKind::UnknownEscape),
            None => return Err(JsonErrorKind::UnexpectedEnd),
        };
        self.at += 2;
        Ok(char)
    }

    fn escaped_char(&mut self) -> Result<char, JsonErrorKind> {
        let first = self.code_unit(self.at)?;
        let pair_follows =
            (0xD800..0xDC00).contains(&first) && self.text.as_bytes()[self.at + 6..].starts_with(b"\\u");
        let second = if pair_follows { Some(self.code_unit(self.at + 6)?) } else { None };
        let mut chars = char::decode_utf16([first].into_iter().chain(second));
        match (chars.next(), chars.next()) {
            (Some(Ok(char)), None) => {
                self.at += if pair_follows { 12 } else { 6 };
                Ok(char)
            }
            _ => Err(JsonErrorKind::LoneSurrogate),
        }
    }

    /// The code unit of the `\uXXXX` at `at`. Digit by digit, because `from_str_radix` would accept a sign.
    fn code_unit(&self, at: usize) -> Result<u16, JsonErrorKind> {
        let mut unit = 0;
        for index in at + 2..at + 6 {
            let byte = *self.text.as_bytes().get(index).ok_or(JsonErrorKind::UnexpectedEnd)?;
            let digit = match byte {
                b'0'..=b'9' => byte - b'0',
                b'a'..=b'f' => byte - b'a' + 10,
                b'A'..=b'F' => byte - b'A' + 10,
                _ => return Err(JsonErrorKind::UnknownEscape),
            };
            unit = unit << 4 | u16::from(digit);
        }
        Ok(unit)
    }

    fn number(&mut self) -> Result<(), JsonErrorKind> {
        let start = self.at;
        self.take(b'-');
        if self.take(b'0') {
            if matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(JsonErrorKind::LeadingZero);
            }
        } else {
            self.digits()?;
        }
        let whole_end = self.at;
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            if !self.take(b'+') {
                self.take(b'-');
            }
            self.digits()?;
        }
        let text = &self.text[start..self.at];
        if self.at == whole_end {
            write_integer(&mut self.out, text);
        } else if !write_double(&mut self.out, text) {
            self.at = start;
            return Err(JsonErrorKind::NumberTooLarge);
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonErrorKind> {
        let run = self.text.as_bytes()[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if run == 0 {
            return Err(self.expected("a digit"));
        }
        self.at += run;
        Ok(())
    }

    fn expected(&self, what: &'static str) -> JsonErrorKind {
        if self.peek().is_none() { JsonErrorKind::UnexpectedEnd } else { JsonErrorKind::Expected(what) }
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }
}

/// An integer of any length with its digits unchanged; zero has no sign.
fn write_integer(out: &mut String, text: &str) {
    out.push_str(if text == "-0" { "0" } else { text });
}

/// The double nearest to a decimal text. Returns `false` if that is infinite.
fn write_double(out: &mut String, text: &str) -> bool {
    let number = text.parse().ok().and_then(Number::from_f64);
    out.push_str(number.as_ref().map_or("", |number| number.as_str()));
    number.is_some()
}
