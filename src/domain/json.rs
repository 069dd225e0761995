//! JSON from outside: the one strict reader of request bodies and stored payloads, and the compact form.
//!
//! Not here: the form that is sent and signed (`canonical`). The text is read by hand because serde_json's own
//! reader takes an object with the key `$serde_json::private::Number` for a number (`arbitrary_precision`).

use std::fmt;

use serde_json::{Map, Number, Value};

use crate::domain::api_error::{ErrorCode, Refusal};

/// Arrays and objects inside each other, at most (contract §2).
pub const MAX_DEPTH: usize = 64;

/// Why a text is not the JSON that is taken here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonErrorKind {
    /// Nothing but white space.
    Empty,
    /// Bytes that are not UTF-8.
    NotUtf8,
    /// A byte order mark in front.
    ByteOrderMark,
    /// The text ends inside a value.
    UnexpectedEnd,
    /// Something else than what must come here, which is named.
    Expected(&'static str),
    /// Text after the value.
    TrailingText,
    /// A number with a zero in front, such as `01`.
    LeadingZero,
    /// A number that no double holds, such as `1e400`.
    NumberTooLarge,
    /// A control character inside a string, not escaped.
    ControlCharacter,
    /// A `\` escape that JSON does not know.
    UnknownEscape,
    /// Half of a UTF-16 pair, such as `\ud800`, without the other half.
    LoneSurrogate,
    /// More than [`MAX_DEPTH`] arrays and objects inside each other.
    TooDeep,
}

/// A text that was refused, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonError {
    /// What is wrong.
    pub fault: JsonErrorKind,
    /// The line of the fault, from 1.
    pub line: usize,
    /// The character in that line, from 1.
    pub column: usize,
}

/// Reads one JSON value; of a key that comes twice the last wins.
///
/// Integers keep their digits (`-0` is `0`), other numbers become the text of their double, so that equal numbers
/// are equal values.
///
/// # Errors
/// The first [`JsonErrorKind`] of the text and its place.
pub fn read(bytes: &[u8]) -> Result<Value, JsonError> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => return Err(locate(bytes, error.valid_up_to(), JsonErrorKind::NotUtf8)),
    };
    let mut reader = Reader { text, at: 0, depth: 0 };
    reader.document().map_err(|fault| locate(bytes, reader.at, fault))
}

/// The value without blanks as UTF-8: how payloads are stored, answered and measured (contract §4 and §5).
#[must_use]
pub fn compact(value: &Value) -> String {
    value.to_string()
}

/// Line and column of a place in a text that is UTF-8 up to there.
fn locate(bytes: &[u8], at: usize, fault: JsonErrorKind) -> JsonError {
    let before = &bytes[..at.min(bytes.len())];
    let line_start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
    let is_first_of_char = |byte: &&u8| (**byte & 0xC0) != 0x80;
    let column = 1 + before[line_start..].iter().filter(is_first_of_char).count();
    JsonError { fault, line, column }
}

/// Where the reading stands. After a fault `at` is the place of it.
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

    /// The number in the `\uXXXX` at a place. Digit by digit: `from_str_radix` would take a sign.
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

/// An integer of any length with its digits as they stand; an integer has one zero.
fn integer(text: &str) -> Option<Number> {
    if text == "-0" { Some(Number::from(0)) } else { text.parse().ok() }
}

/// The double nearest to a decimal text, or nothing when the nearest is infinite.
fn double(text: &str) -> Option<Number> {
    Number::from_f64(text.parse().ok()?)
}

impl fmt::Display for JsonErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it is empty"),
            Self::NotUtf8 => f.write_str("it is not UTF-8"),
            Self::ByteOrderMark => f.write_str("it begins with a byte order mark"),
            Self::UnexpectedEnd => f.write_str("it ends inside a value"),
            Self::Expected(what) => write!(f, "expected {what}"),
            Self::TrailingText => f.write_str("there is more text after the value"),
            Self::LeadingZero => f.write_str("a number begins with a superfluous zero"),
            Self::NumberTooLarge => f.write_str("a number is too large for a double"),
            Self::ControlCharacter => f.write_str("a control character in a string is not escaped"),
            Self::UnknownEscape => f.write_str("an escape in a string is not one of JSON's"),
            Self::LoneSurrogate => f.write_str("a string holds half of a surrogate pair"),
            Self::TooDeep => write!(f, "it is nested deeper than {MAX_DEPTH} levels"),
        }
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fault, line, column } = self;
        write!(f, "The JSON cannot be read: {fault} (line {line}, column {column})")
    }
}

impl std::error::Error for JsonError {}

impl From<JsonError> for Refusal {
    fn from(error: JsonError) -> Self {
        Self::new(ErrorCode::InvalidJson, error.to_string())
    }
}
