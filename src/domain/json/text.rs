//! Values in compact form, as texts: an owned one, a slice of one, and access to entries and items without a tree.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::str::Chars;

use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Number, Value};

/// A JSON value in the form that `read` writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonText(String);

/// A slice of a [`JsonText`] that is a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonStr<'a>(&'a str);

/// The entries of an object in compact form, found by name.
#[derive(Debug, Clone)]
pub struct JsonObject<'a> {
    text: JsonStr<'a>,
    /// The places in the text at which the entries begin, in the order of their keys. Only their offsets, because a body may have
    /// hundreds of thousands of entries.
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

    /// The text of a number.
    pub fn as_number(self) -> Option<&'a str> {
        self.0.starts_with(|first: char| first == '-' || first.is_ascii_digit()).then_some(self.0)
    }

    /// The characters of a string.
    pub fn as_text(self) -> Option<Cow<'a, str>> {
        self.0.strip_prefix('"')?.strip_suffix('"').map(unescaped)
    }

    /// The items of an array.
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
                entries.map(|(key, value)| (unescaped(key).into_owned(), value.to_value())).collect(),
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
    /// `None` if the value is not an object.
    pub fn of(text: JsonStr<'a>) -> Option<Self> {
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

    /// The keys, with their escapes resolved.
    pub fn keys(&self) -> impl Iterator<Item = Cow<'a, str>> {
        self.starts.iter().map(|start| unescaped(key_at(self.text.0, *start)))
    }

    fn entry(&self, start: usize) -> Option<(&'a str, JsonStr<'a>)> {
        Parts { text: self.text.0, at: start }.next().and_then(split_entry)
    }
}

/// Merges the entries of `over` into the object `own`. `over` alone unless both are objects.
pub fn merged(own: JsonStr<'_>, over: JsonStr<'_>) -> JsonText {
    let (Some(own_entries), Some(over_entries)) = (own.entries(), over.entries()) else {
        return over.into();
    };
    let (mut own_entries, mut over_entries) = (own_entries.peekable(), over_entries.peekable());
    let mut out = String::with_capacity(own.0.len() + over.0.len());
    out.push('{');
    loop {
        let order = match (own_entries.peek(), over_entries.peek()) {
            (Some((own, _)), Some((over, _))) => compare_keys(own, over),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => break,
        };
        let kept = if order.is_le() { own_entries.next() } else { None };
        let entry = if order.is_ge() { over_entries.next() } else { kept };
        if let Some((key, value)) = entry {
            out.push_str(if out.len() == 1 { "\"" } else { ",\"" });
            out.extend([key, "\":", value.0]);
        }
    }
    out.push('}');
    JsonText(out)
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
pub fn end_of_string(text: &str, start: usize) -> usize {
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

/// The order of two escaped keys: that of their characters' code points.
pub fn compare_keys(one: &str, other: &str) -> Ordering {
    // Only quotes, backslashes and control characters are escaped, and the order of UTF-8 bytes is that of code points.
    if one.contains('\\') || other.contains('\\') {
        Unescaped(one.chars()).cmp(Unescaped(other.chars()))
    } else {
        one.cmp(other)
    }
}

/// The characters of a string in compact form, one by one: a comparison that copied both strings would make sorting
/// many keys slow.
struct Unescaped<'a>(Chars<'a>);

impl Iterator for Unescaped<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        let first = self.0.next()?;
        if first != '\\' {
            return Some(first);
        }
        Some(match self.0.next()? {
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let digits = self.0.by_ref().take(4);
                let code =
                    digits.filter_map(|digit| digit.to_digit(16)).fold(0, |code, digit| code << 4 | digit);
                char::from_u32(code)?
            }
            other => other,
        })
    }
}

/// The characters of a string in compact form, without its quotes.
pub fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut parts = text.split('\\');
    out.push_str(parts.next().unwrap_or_default());
    while let Some(part) = parts.next() {
        let mut chars = part.chars();
        match chars.next() {
            // An escaped backslash: the split leaves an empty part before the rest.
            None => {
                out.push('\\');
                out.push_str(parts.next().unwrap_or_default());
                continue;
            }
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('u') => {
                let code = part.get(1..5).and_then(|digits| u32::from_str_radix(digits, 16).ok());
                out.extend(code.and_then(char::from_u32));
                chars = part.get(5..).unwrap_or_default().chars();
            }
            Some(other) => out.push(other),
        }
        out.push_str(chars.as_str());
    }
    Cow::Owned(out)
}

/// Writes a character of a string in compact form.
pub fn push_escaped(out: &mut String, char: char) {
    match char {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\0'..='\u{1f}' => {
            out.push_str("\\u00");
            out.extend(
                [4, 0]
                    .map(|shift| char::from_digit(u32::from(char) >> shift & 0xF, 16))
                    .into_iter()
                    .flatten(),
            );
        }
        _ => out.push(char),
    }
}
