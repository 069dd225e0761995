//! JSON of callers, as text. [`read`] checks it and writes the compact form; values, entries and items are slices of
//! that form. A tree of small values takes up to 90 times the memory of its text, so only small values become a
//! `serde_json::Value`. The canonical form of sent bodies is in `webhook/canonical_json`.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::str::Bytes;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Number, Value};

use crate::domain::api_error::{ErrorCode, Refusal};

pub const MAX_DEPTH: usize = 64;

/// The key of the only entry of the object as which serde_json passes a number, as text.
const NUMBER_KEY: &str = "\"$serde_json::private::Number\"";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("The JSON cannot be read: {problem} (line {line}, column {column})")]
pub struct JsonError {
    pub problem: String,
    pub line: usize,
    pub column: usize,
}

impl JsonError {
    fn new(error: &serde_json::Error, bytes: &[u8]) -> Self {
        let (line, column) = (error.line().max(1), error.column().max(1));
        let place = format!(" at line {} column {}", error.line(), error.column());
        let text = error.to_string();
        let bytes = bytes.split(|byte| *byte == b'\n').nth(line - 1).unwrap_or_default();
        let is_first_of_char = |byte: &&u8| (**byte & 0xC0) != 0x80;
        let before = bytes.iter().take(column - 1).filter(is_first_of_char).count();
        Self {
            problem: text.strip_suffix(&place).unwrap_or(&text).to_owned(),
            line,
            column: before + 1,
        }
    }
}

impl From<JsonError> for Refusal {
    fn from(error: JsonError) -> Self {
        Self::new(ErrorCode::InvalidJson, error.to_string())
    }
}

/// Reads one JSON value as its compact form: UTF-8 without white space, the keys of each object sorted. Of equal keys
/// the last one counts.
/// Integers keep their digits (`-0` becomes `0`). Other numbers become the text of their double, so that equal
/// numbers have equal texts. Beside the text it takes 16 bytes for each entry of the largest object and a copy of
/// an object whose keys are not in order.
pub fn read(bytes: &[u8]) -> Result<JsonText, JsonError> {
    let mut writer =
        CompactWriter { out: String::with_capacity(bytes.len()), depth: 0, entries: Vec::new() };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let read = (&mut writer).deserialize(&mut deserializer).and_then(|_| deserializer.end());
    read.map_err(|error| JsonError::new(&error, bytes))?;
    Ok(JsonText(writer.out))
}

struct CompactWriter {
    out: String,
    depth: usize,
    /// Start and end in `out` of the entries of all open objects.
    entries: Vec<(usize, usize)>,
}

impl CompactWriter {
    fn write(&mut self, value: impl fmt::Display) -> Option<String> {
        // Writing to a String cannot fail.
        let _ = fmt::Write::write_fmt(&mut self.out, format_args!("{value}"));
        None
    }

    fn write_number<E: de::Error>(&mut self, digits: &str) -> Result<Option<String>, E> {
        if !digits.contains(['.', 'e', 'E']) {
            return Ok(self.write(if digits == "-0" { "0" } else { digits }));
        }
        let double = digits.parse().ok().and_then(Number::from_f64);
        Ok(self.write(double.ok_or_else(|| E::custom("a number is too large for a double"))?))
    }

    /// Sorts the entries of the innermost object by key, from number `first` on, and drops all but the last of each
    /// key.
    fn sort_entries(&mut self, first: usize) {
        let mut entries = self.entries.split_off(first);
        let Some(&(begin, _)) = entries.first() else { return };
        let key = |entry: &(usize, usize)| key_at(&self.out, entry.0);
        entries.sort_unstable_by(|a, b| compare_keys(key(a), key(b)).then(a.0.cmp(&b.0)));
        let mut sorted = String::with_capacity(self.out.len() - begin);
        for (index, entry) in entries.iter().enumerate() {
            let next = entries.get(index + 1);
            if next.is_none_or(|next| compare_keys(key(entry), key(next)).is_ne()) {
                sorted.push_str(if sorted.is_empty() { "" } else { "," });
                sorted.push_str(&self.out[entry.0..entry.1]);
            }
        }
        self.out.truncate(begin);
        self.out.push_str(&sorted);
    }
}

fn too_deep<E: de::Error>() -> E {
    E::custom(format_args!("it is nested deeper than {MAX_DEPTH} levels"))
}

impl<'de> DeserializeSeed<'de> for &mut CompactWriter {
    /// The digits of a number, in the object as which serde_json passes it; `None` for a value that is written.
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut CompactWriter {
    type Value = Option<String>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(self.write("null"))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(self.write(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(self.write(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(self.write(value))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        if text.bytes().any(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1F)) {
            self.out.push_str(&serde_json::to_string(text).map_err(E::custom)?);
        } else {
            self.out.extend(["\"", text, "\""]);
        }
        Ok(None)
    }

    /// serde_json passes the texts of a document borrowed, and only the digits of a number owned.
    fn visit_string<E>(self, digits: String) -> Result<Self::Value, E> {
        Ok(Some(digits))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        if self.depth == MAX_DEPTH {
            return Err(too_deep());
        }
        self.depth += 1;
        self.out.push('[');
        let begin = self.out.len();
        while items.next_element_seed(&mut *self)?.is_some() {
            self.out.push(',');
        }
        if self.out.len() > begin {
            self.out.pop();
        }
        self.out.push(']');
        self.depth -= 1;
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let (begin, first, mut is_sorted) = (self.out.len(), self.entries.len(), true);
        let is_too_deep = self.depth == MAX_DEPTH;
        self.depth += 1;
        self.out.push('{');
        let mut start = begin + 1;
        while object.next_key_seed(&mut *self)?.is_some() {
            if is_too_deep && self.out[start..] != *NUMBER_KEY {
                return Err(too_deep());
            }
            if let Some((previous, _)) = self.entries[first..].last() {
                is_sorted &=
                    compare_keys(key_at(&self.out, *previous), key_at(&self.out, start)).is_lt();
            }
            self.out.push(':');
            if let Some(digits) = object.next_value_seed(&mut *self)? {
                self.out.truncate(begin);
                self.depth -= 1;
                return self.write_number(&digits);
            }
            self.entries.push((start, self.out.len()));
            self.out.push(',');
            start = self.out.len();
        }
        if is_too_deep {
            return Err(too_deep());
        }
        if start > begin + 1 {
            self.out.pop();
        }
        if !is_sorted {
            self.sort_entries(first);
        }
        self.entries.truncate(first);
        self.out.push('}');
        self.depth -= 1;
        Ok(None)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonText(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonStr<'a>(&'a str);

/// The entries of an object in compact form, found by name.
#[derive(Debug, Clone)]
pub struct JsonObject<'a> {
    text: JsonStr<'a>,
    /// The offsets of the entries, in the order of their keys. A body may have hundreds of thousands.
    starts: Vec<usize>,
}

impl JsonText {
    /// A text that `read` wrote before. Anything else is refused when it is serialized.
    pub fn stored(text: String) -> Self {
        Self(text)
    }

    /// An object. Its keys need no escapes and are all different.
    pub fn object(mut entries: Vec<(&str, JsonStr<'_>)>) -> Self {
        entries.sort_unstable_by_key(|(key, _)| *key);
        let mut text = "{".to_owned();
        for (key, value) in entries {
            text.push_str(if text.len() == 1 { "\"" } else { ",\"" });
            text.extend([key, "\":", value.0]);
        }
        text.push('}');
        Self(text)
    }

    pub fn get(&self) -> JsonStr<'_> {
        JsonStr(&self.0)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

impl From<&Value> for JsonText {
    /// The compact form of a value that the program built.
    fn from(value: &Value) -> Self {
        // serde_json's map is sorted, unless a dependency enables its feature `preserve_order` for the whole program:
        // a test compares the forms.
        Self(value.to_string())
    }
}

impl From<JsonStr<'_>> for JsonText {
    fn from(json: JsonStr<'_>) -> Self {
        Self(json.0.to_owned())
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.get().serialize(serializer)
    }
}

impl Serialize for JsonStr<'_> {
    /// Writes the text as it is, after one look through it.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::from_str::<&RawValue>(self.0).map_err(S::Error::custom)?.serialize(serializer)
    }
}

impl<'a> JsonStr<'a> {
    pub const NULL: JsonStr<'static> = JsonStr("null");
    pub const EMPTY_OBJECT: JsonStr<'static> = JsonStr("{}");

    /// A text that [`read`] wrote before, or another JSON text that is only serialized.
    pub fn stored(text: &'a str) -> Self {
        Self(text)
    }

    pub fn as_str(self) -> &'a str {
        self.0
    }

    pub fn is_null(self) -> bool {
        self.0 == "null"
    }

    pub fn as_bool(self) -> Option<bool> {
        match self.0 {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    pub fn as_number(self) -> Option<&'a str> {
        self.0.starts_with(|first: char| first == '-' || first.is_ascii_digit()).then_some(self.0)
    }

    pub fn as_text(self) -> Option<Cow<'a, str>> {
        self.0.strip_prefix('"')?.strip_suffix('"').map(unescaped)
    }

    pub fn items(self) -> Option<impl Iterator<Item = JsonStr<'a>>> {
        self.0.starts_with('[').then(|| Parts { text: self.0, at: 1 }.map(JsonStr))
    }

    /// The entries of an object in the order of their keys: the key without its quotes, escaped, and the value.
    pub fn entries(self) -> Option<impl Iterator<Item = (&'a str, JsonStr<'a>)>> {
        self.0.starts_with('{').then(|| Parts { text: self.0, at: 1 }.filter_map(split_entry))
    }

    /// The value as a tree, which takes up to 90 times the memory of the text.
    pub fn to_value(self) -> Value {
        if let Some(entries) = self.entries() {
            return Value::Object(
                entries
                    .map(|(key, value)| (unescaped(key).into_owned(), value.to_value()))
                    .collect(),
            );
        }
        if let Some(items) = self.items() {
            return items.map(JsonStr::to_value).collect();
        }
        match (self.as_text(), self.as_bool()) {
            (Some(text), _) => text.into(),
            (None, Some(truth)) => truth.into(),
            (None, None) => self.0.parse::<Number>().map_or(Value::Null, Value::Number),
        }
    }
}

impl<'a> JsonObject<'a> {
    pub fn from_text(text: JsonStr<'a>) -> Option<Self> {
        text.0.starts_with('{').then(|| {
            let mut parts = Parts { text: text.0, at: 1 };
            // Counted first, so that the list does not grow to twice its size.
            let mut starts = Vec::with_capacity(Parts { text: text.0, at: 1 }.count());
            while parts.has_next() {
                starts.push(parts.at);
                parts.next();
            }
            Self { text, starts }
        })
    }

    pub fn text(&self) -> JsonStr<'a> {
        self.text
    }

    pub fn len(&self) -> usize {
        self.starts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// The value of the entry `name`, a name without characters that JSON escapes.
    pub fn get(&self, name: &str) -> Option<JsonStr<'a>> {
        let key = |start: usize| key_at(self.text.0, start);
        let index = self.starts.binary_search_by(|start| compare_keys(key(*start), name)).ok()?;
        self.entry(self.starts[index]).map(|(_, value)| value)
    }

    pub fn keys(&self) -> impl Iterator<Item = Cow<'a, str>> {
        self.starts.iter().map(|start| unescaped(key_at(self.text.0, *start)))
    }

    /// The text without the entry `name`.
    pub fn without(&self, name: &str) -> JsonText {
        let entries = (Parts { text: self.text.0, at: 1 })
            .filter(|entry| split_entry(entry).is_none_or(|(key, _)| key != name));
        JsonText(format!("{{{}}}", entries.collect::<Vec<&str>>().join(",")))
    }

    fn entry(&self, start: usize) -> Option<(&'a str, JsonStr<'a>)> {
        Parts { text: self.text.0, at: start }.next().and_then(split_entry)
    }
}

/// Merges the entries of `over` into the object `own`. `over` alone unless both are objects.
pub fn merged(own: JsonStr<'_>, over: JsonStr<'_>) -> JsonText {
    let entries =
        |json: JsonStr<'_>| json.0.strip_prefix('{')?.strip_suffix('}').map(str::to_owned);
    let (Some(mut both), Some(more)) = (entries(own), entries(over)) else { return over.into() };
    if !both.is_empty() && !more.is_empty() {
        both.push(',');
    }
    // Of equal keys the last one counts.
    read(format!("{{{both}{more}}}").as_bytes()).unwrap_or_else(|_| over.into())
}

/// The parts of a nested value between its commas: items, or entries with key and value.
struct Parts<'a> {
    text: &'a str,
    /// The place at which the next part begins.
    at: usize,
}

impl Parts<'_> {
    /// False at the end: after the last part, or in an empty value.
    fn has_next(&self) -> bool {
        !matches!(self.text.as_bytes().get(self.at), None | Some(b']' | b'}'))
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        if !self.has_next() {
            return None;
        }
        let bytes = self.text.as_bytes();
        let (start, mut end, mut depth) = (self.at, self.at, 0_usize);
        while let Some(byte) = bytes.get(end) {
            match byte {
                b'"' => end = end_of_string(self.text, end) - 1,
                b'{' | b'[' => depth += 1,
                b'}' | b']' if depth > 0 => depth -= 1,
                b',' | b'}' | b']' if depth == 0 => break,
                _ => {}
            }
            end += 1;
        }
        self.at = end + usize::from(bytes.get(end) == Some(&b','));
        self.text.get(start..end)
    }
}

fn split_entry(entry: &str) -> Option<(&str, JsonStr<'_>)> {
    let end = end_of_string(entry, 0);
    Some((entry.get(1..end - 1)?, JsonStr(entry.get(end + 1..)?)))
}

fn key_at(text: &str, start: usize) -> &str {
    text.get(start + 1..end_of_string(text, start) - 1).unwrap_or_default()
}

/// The offset after the closing quote of the string that begins at `start`; at least `start + 1`.
fn end_of_string(text: &str, start: usize) -> usize {
    let bytes = text.as_bytes();
    let mut at = start + 1;
    loop {
        match bytes.get(at) {
            Some(b'\\') => at += 2,
            Some(b'"') => return at + 1,
            Some(_) => at += 1,
            None => return at.min(bytes.len()).max(start + 1),
        }
    }
}

/// The order of two escaped keys: that of their characters' code points, which is that of their UTF-8 bytes.
pub fn compare_keys(one: &str, other: &str) -> Ordering {
    // Compared byte by byte, because a comparison that copied both keys would make sorting many keys slow.
    if one.contains('\\') || other.contains('\\') {
        EscapedBytes(one.bytes()).cmp(EscapedBytes(other.bytes()))
    } else {
        one.cmp(other)
    }
}

/// The bytes of a string in compact form, with its escapes resolved: quotes, backslashes and control characters.
struct EscapedBytes<'a>(Bytes<'a>);

impl Iterator for EscapedBytes<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        match self.0.next()? {
            b'\\' => Some(match self.0.next()? {
                b'b' => 8,
                b'f' => 12,
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'u' => {
                    let digits =
                        self.0.by_ref().take(4).filter_map(|digit| char::from(digit).to_digit(16));
                    u8::try_from(digits.fold(0, |code, digit| code << 4 | digit)).ok()?
                }
                other => other,
            }),
            byte => Some(byte),
        }
    }
}

/// The characters of a string in compact form, given without its quotes.
pub fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    serde_json::from_str(&format!("\"{text}\"")).map_or(Cow::Borrowed(text), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIVATE_KEY: &str = "$serde_json::private::Number";

    #[test]
    fn a_text_that_is_no_json_is_refused_with_its_position() {
        #[rustfmt::skip]
        let table: &[(&[u8], usize, usize)] = &[
            (b"", 1, 1), (b" \n ", 2, 1), (b"\xEF\xBB\xBF{}", 1, 1), (b"{\"a\": \"\xFF\"}", 1, 8), (b"{} x", 1, 4),
            (b"[1,]", 1, 4), (b"NaN", 1, 1), (b"+1", 1, 1), (b"// no\n1", 1, 1), ("\u{a0}1".as_bytes(), 1, 1),
            (b"{\"a\":1,}", 1, 8), (b"{a:1}", 1, 2), (b"[1 2]", 1, 4), (b"01", 1, 2), (b"[", 1, 1), (b"\"a", 1, 2),
            (b"\"a\nb\"", 2, 1), (b"\"\\x41\"", 1, 3), (b"[1,\n \"\xC3\xA9\\ud800\"]", 2, 10), (b"{\"\\udfff\":1}", 1, 8),
            (b"1e400", 1, 5), (b"[0, -1e400]", 1, 10), (b"1.7976931348623159e308", 1, 22),
        ];
        for &(text, line, column) in table {
            let error = read(text).expect_err(&String::from_utf8_lossy(text));
            assert_eq!(
                (error.line, error.column),
                (line, column),
                "{} {error}",
                text.escape_ascii()
            );
        }
    }

    #[test]
    fn a_refused_text_is_invalid_json_for_the_client() {
        let refusal = Refusal::from(read(b"{\"a\": 1e400}").unwrap_err());
        assert_eq!(refusal.code, ErrorCode::InvalidJson);
        assert_eq!(
            refusal.message,
            "The JSON cannot be read: a number is too large for a double (line 1, column 11)"
        );
    }

    #[test]
    fn sixty_four_levels_are_read_and_one_more_is_not() {
        for (open, close) in [("[", "]"), ("{\"a\":[", "]}")] {
            let levels = open.matches(['[', '{']).count();
            let nested = |times: usize| format!("[{}1{}]", open.repeat(times), close.repeat(times));
            // Siblings do not count: the first element has the maximum depth.
            let deepest = (MAX_DEPTH - 1) / levels;
            let twice = format!("[{0},{0}]", nested(deepest - 1));
            assert!(read(nested(deepest).as_bytes()).is_ok());
            assert!(read(twice.as_bytes()).is_ok());
            let error = read(nested(deepest + 1).as_bytes()).unwrap_err();
            assert_eq!(error.problem, "it is nested deeper than 64 levels");
        }
        let hostile = "[".repeat(2_000_000);
        assert_eq!(read(hostile.as_bytes()).unwrap_err().column, 65);
        // serde_json passes these numbers as objects.
        for number in ["1.5", "99999999999999999999999"] {
            let text = format!("{}{number}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
            assert_eq!(read(text.as_bytes()).unwrap().as_str(), text);
        }
        let private = format!(
            "{}{{\"{PRIVATE_KEY}\":\"1\"}}{}",
            "[".repeat(MAX_DEPTH),
            "]".repeat(MAX_DEPTH)
        );
        assert!(read(private.as_bytes()).is_err());
    }

    #[test]
    fn the_compact_form_keeps_the_digits_of_integers_and_the_doubles_of_other_numbers() {
        let long = "9".repeat(5000);
        let table = [
            ("-0", "0"),
            ("12345678901234567890123", "12345678901234567890123"),
            ("-9223372036854775809", "-9223372036854775809"),
            (&long, &long),
            ("1.0", "1.0"),
            ("-0.0", "-0.0"),
            ("1E5", "100000.0"),
            ("1.10", "1.1"),
            ("9007199254740993.0", "9007199254740992.0"),
            ("1e-400", "0.0"),
            ("[1E5, 1.50, 15e-1]", "[100000.0,1.5,1.5]"),
            // UTF-8 without blanks, and the last value of a repeated key.
            (
                "{ \"b\" : [ 1 , \"é\\u00e9\\ud83d\\ude00\\u007f\\u001F\\/\" ] , \"a\" : null }",
                "{\"a\":null,\"b\":[1,\"éé\u{1f600}\u{7f}\\u001f/\"]}",
            ),
            ("{\"a\":1,\"\\u0061\":[2],\"a\":{\"b\":3}}", "{\"a\":{\"b\":3}}"),
        ];
        for (text, stored) in table {
            assert_eq!(compact(text), stored);
        }
    }

    #[test]
    fn an_object_with_the_private_number_key_stays_an_object() {
        let escaped = PRIVATE_KEY.replacen('$', "\\u0024", 1);
        for key in [PRIVATE_KEY, &escaped] {
            for inside in ["\"1e400\"", "\"12\"", "\"no number\"", "5", "null"] {
                for rest in ["", ",\"a\":1"] {
                    let text = read(format!("{{\"{key}\":{inside}{rest}}}").as_bytes()).unwrap();
                    assert!(text.get().to_value().is_object());
                    assert_eq!(text.as_str(), format!("{{\"{PRIVATE_KEY}\":{inside}{rest}}}"));
                    assert_eq!(serde_json::to_string(&text).unwrap(), text.as_str());
                }
            }
        }
    }

    fn compact(text: &str) -> String {
        read(text.as_bytes()).unwrap().into_string()
    }
}
