//! JSON of callers, as text. The strict reader checks it and writes the compact form (`reader`); values, entries and
//! items are slices of that form (`text`). A tree of small values takes up to 90 times the memory of its text, so only
//! small values become a `serde_json::Value`.
//!
//! The canonical form of sent bodies is in `webhook/canonical_json`. serde_json's own parser is not usable: with
//! `arbitrary_precision` it reads an object with the key `$serde_json::private::Number` as a number.

mod reader;
mod text;

pub use crate::domain::json::reader::read;
pub use crate::domain::json::text::{JsonObject, JsonStr, JsonText, merged, unescaped};

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

impl From<JsonError> for Refusal {
    fn from(error: JsonError) -> Self {
        Self::new(ErrorCode::InvalidJson, error.to_string())
    }
}
