//! The strict JSON parser for request bodies and stored payloads, and the compact form.
//!
//! The canonical form of sent bodies is in `webhook/canonical_json`. serde_json's own parser is not usable: with
//! `arbitrary_precision` it reads an object with the key `$serde_json::private::Number` as a number.

use serde_json::{Map, Number, Value};

use crate::domain::api_error::{ErrorCode, Refusal};

/// Maximum nesting of arrays and objects (contract §2).
pub const MAX_DEPTH: usize = 64;

/// The reason why a text is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonErrorKind {
    #[error("it is empty")]
    Empty,
    #[error("it is not UTF-8")]
    NotUtf8,
    /// A byte order mark at the start.
    #[error("it begins with a byte order mark")]
    ByteOrderMark,
    /// The text ends inside a value.
    #[error("it ends inside a value")]
    UnexpectedEnd,
    /// The next token is not the named one.
    #[error("expected {0}")]
    Expected(&'static str),
    #[error("there is more text after the value")]
    TrailingText,
    /// A number with a leading zero, such as `01`.
    #[error("a number has a leading zero")]
    LeadingZero,
    /// A number beyond the range of a double, such as `1e400`.
    #[error("a number is too large for a double")]
    NumberTooLarge,
    /// An unescaped control character in a string.
    #[error("a control character in a string is not escaped")]
    ControlCharacter,
    #[error("a string has an invalid escape")]
    UnknownEscape,
    /// One half of a UTF-16 surrogate pair, such as `\ud800`.
    #[error("a string contains half of a surrogate pair")]
    LoneSurrogate,
    #[error("it is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

/// A syntax error and its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("The JSON cannot be read: {kind} (line {line}, column {column})")]
pub struct JsonError {
    pub kind: JsonErrorKind,
    /// From 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
}

/// Parses one JSON value. Of duplicate keys the last one wins.
///
/// Integers keep their digits (`-0` becomes `0`). Other numbers become the text of their double, so that equal
/// numbers are equal values.
pub fn read(bytes: &[u8]) -> Result<Value, JsonError> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => return Err(locate(bytes, error.valid_up_to(), JsonErrorKind::NotUtf8)),
    };
    let mut reader = Reader { text, at: 0, depth: 0 };
    reader.document().map_err(|kind| locate(bytes, reader.at, kind))
}

/// The value as UTF-8 without white space: the form in which payloads are stored, returned and measured (contract §4,
/// §5).
#[must_use]
pub fn compact(value: &Value) -> String {
    value.to_string()
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
}

impl Reader<'_> {
    fn document(&mut self) -> Result<Value, JsonErrorKind> {
        if self.text.starts_with('\u{feff}') {
            return Err(JsonErrorKind::ByteOrderMark);
        }
        self.skip_blanks();
        if self.peek().is_none() {
            return Err(JsonErrorKind::Empty);
        }
        let value = self.value()?;
        self.skip_blanks();
        match self.peek() {
            None => Ok(value),
            Some(_) => Err(JsonErrorKind::TrailingText),
        }
    }

    fn value(&mut self) -> Result<Value, JsonErrorKind> {
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number().map(Value::Number),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            Some(_) => Err(JsonErrorKind::Expected("a value")),
            None => Err(JsonErrorKind::UnexpectedEnd),
        }
    }

    fn nested(
        &mut self,
        read: fn(&mut Self) -> Result<Value, JsonErrorKind>,
    ) -> Result<Value, JsonErrorKind> {
        if self.depth == MAX_DEPTH {
            return Err(JsonErrorKind::TooDeep);
        }
        self.depth += 1;
        self.at += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn object(&mut self) -> Result<Value, JsonErrorKind> {
        let mut fields = Map::new();
        self.skip_blanks();
        if self.take(b'}') {
            return Ok(Value::Object(fields));
        }
        loop {
            self.skip_blanks();
            if self.peek() != Some(b'"') {
                return Err(self.expected("a key in double quotes"));
            }
            let key = self.string()?;
            self.skip_blanks();
            if !self.take(b':') {
                return Err(self.expected("`:`"));
            }
            self.skip_blanks();
            let value = self.value()?;
            fields.insert(key, value);
            self.skip_blanks();
            if self.take(b'}') {
                return Ok(Value::Object(fields));
            }
            if !self.take(b',') {
                return Err(self.expected("`,` or `}`"));
            }
        }
    }

    fn array(&mut self) -> Result<Value, JsonErrorKind> {
        let mut items = Vec::new();
        self.skip_blanks();
        if self.take(b']') {
            return Ok(Value::Array(items));
        }
        loop {
            self.skip_blanks();
            items.push(self.value()?);
            self.skip_blanks();
            if self.take(b']') {
                return Ok(Value::Array(items));
            }
            if !self.take(b',') {
                return Err(self.expected("`,` or `]`"));
            }
        }
    }

    fn word(&mut self, word: &'static str, value: Value) -> Result<Value, JsonErrorKind> {
        if !self.text[self.at..].starts_with(word) {
            return Err(JsonErrorKind::Expected("a value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn string(&mut self) -> Result<String, JsonErrorKind> {
        self.at += 1;
        let mut string = String::new();
        loop {
            let plain = |byte: &u8| !matches!(byte, b'"' | b'\\' | 0..=0x1F);
            let run = self.text.as_bytes()[self.at..].iter().take_while(|byte| plain(byte)).count();
            string.push_str(&self.text[self.at..self.at + run]);
            self.at += run;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(string);
                }
                Some(b'\\') => string.push(self.escape()?),
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

    fn number(&mut self) -> Result<Number, JsonErrorKind> {
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
        let number = if self.at == whole_end { integer(text) } else { double(text) };
        if number.is_none() {
            self.at = start;
        }
        number.ok_or(JsonErrorKind::NumberTooLarge)
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
fn integer(text: &str) -> Option<Number> {
    if text == "-0" { Some(Number::from(0)) } else { text.parse().ok() }
}

/// The double nearest to a decimal text; `None` if that is infinite.
fn double(text: &str) -> Option<Number> {
    Number::from_f64(text.parse().ok()?)
}

impl From<JsonError> for Refusal {
    fn from(error: JsonError) -> Self {
        Self::new(ErrorCode::InvalidJson, error.to_string())
    }
}
