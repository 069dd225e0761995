//! YAML as JSON: the core schema of YAML 1.2, without what JSON has no word for. JSON is YAML.
//!
//! Refused are anchors, aliases, tags, repeated keys and numbers that JSON writes in another way: what a person sees in
//! the text is what is sent.

use std::collections::BTreeSet;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};
use serde_json::Value;
use thiserror::Error as ThisError;

use crate::domain::json::{self, JsonText, MAX_DEPTH};

/// The reason why a text is refused.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum YamlErrorKind {
    #[error("{0}")]
    Syntax(String),
    #[error("it is empty")]
    Empty,
    #[error("a second document begins here; only one is read")]
    SecondDocument,
    #[error("anchors and aliases are not read; repeat the value")]
    Anchor,
    #[error("tags are not read; write the value in quotes if it is text")]
    Tag,
    #[error("the key {0:?} is repeated")]
    RepeatedKey(String),
    #[error("a key is a text, not a list or an object")]
    ComplexKey,
    #[error("{0} is no number of JSON; write it as JSON does, or in quotes if it is text")]
    OtherNumber(String),
    #[error("{0} is too large for a double")]
    NumberTooLarge(String),
    #[error("it is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

/// An error and its place.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[error("{line}:{column}: {kind}")]
pub struct YamlError {
    /// From 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
    pub kind: YamlErrorKind,
}

impl YamlError {
    fn new(at: &Marker, kind: YamlErrorKind) -> Self {
        Self { line: at.line().max(1), column: at.col() + 1, kind }
    }
}

/// Reads a text of YAML or JSON as JSON in compact form.
/// Errors: if the text is neither, or has something that is refused.
pub fn read(text: &str) -> Result<JsonText, YamlError> {
    let start = Marker::new(0, 1, 0);
    match to_json(text) {
        Ok(json) => json::read(json.as_bytes())
            .map_err(|error| YamlError::new(&start, YamlErrorKind::Syntax(error.problem))),
        // JSON has a few forms that YAML has not: tabs before a key, escaped halves of a character.
        Err(YamlError { kind: YamlErrorKind::Syntax(reason), line, column }) => json::read(text.as_bytes())
            .map_err(|_| YamlError { line, column, kind: YamlErrorKind::Syntax(reason) }),
        Err(error) => Err(error),
    }
}

/// The JSON text of a YAML text: keys in their order, numbers digit for digit.
pub fn to_json(text: &str) -> Result<String, YamlError> {
    let mut writer = JsonWriter::default();
    for event in Parser::new_from_str(text) {
        match event {
            Ok((event, span)) => {
                writer.add(event).map_err(|kind| YamlError::new(&span.start, kind))?;
            }
            Err(error) => {
                return Err(YamlError::new(error.marker(), YamlErrorKind::Syntax(error.info().to_owned())));
            }
        }
    }
    if writer.documents == 0 {
        return Err(YamlError::new(&Marker::new(0, 1, 0), YamlErrorKind::Empty));
    }
    Ok(writer.json)
}

/// A list or an object that has begun.
enum Open {
    List { is_empty: bool },
    Object { keys: BTreeSet<String>, expects_value: bool },
}

/// Writes JSON from the events of the parser. It has no recursion, so that no text exhausts the stack.
#[derive(Default)]
struct JsonWriter {
    json: String,
    open: Vec<Open>,
    documents: usize,
}

impl JsonWriter {
    fn add(&mut self, event: Event<'_>) -> Result<(), YamlErrorKind> {
        match event {
            Event::DocumentStart(_) if self.documents > 0 => return Err(YamlErrorKind::SecondDocument),
            Event::DocumentStart(_) => self.documents += 1,
            Event::Alias(_) => return Err(YamlErrorKind::Anchor),
            Event::Scalar(text, style, anchor, tag) => {
                plain(anchor, tag.is_some())?;
                self.scalar(&text, style)?;
            }
            Event::SequenceStart(anchor, tag) => {
                plain(anchor, tag.is_some())?;
                self.begin('[', Open::List { is_empty: true })?;
            }
            Event::MappingStart(anchor, tag) => {
                plain(anchor, tag.is_some())?;
                self.begin('{', Open::Object { keys: BTreeSet::new(), expects_value: false })?;
            }
            Event::SequenceEnd => self.end(']'),
            Event::MappingEnd => self.end('}'),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn begin(&mut self, bracket: char, open: Open) -> Result<(), YamlErrorKind> {
        self.before_value()?;
        if self.open.len() == MAX_DEPTH {
            return Err(YamlErrorKind::TooDeep);
        }
        self.json.push(bracket);
        self.open.push(open);
        Ok(())
    }

    fn end(&mut self, bracket: char) {
        self.open.pop();
        self.json.push(bracket);
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle) -> Result<(), YamlErrorKind> {
        if let Some(Open::Object { keys, expects_value: expects_value @ false }) = self.open.last_mut() {
            let is_first = keys.is_empty();
            if !keys.insert(text.to_owned()) {
                return Err(YamlErrorKind::RepeatedKey(text.to_owned()));
            }
            *expects_value = true;
            self.json.push_str(if is_first { "" } else { "," });
            self.json.push_str(&quoted(text));
            self.json.push(':');
            return Ok(());
        }
        self.before_value()?;
        let value = if style == ScalarStyle::Plain { resolved(text)? } else { quoted(text) };
        self.json.push_str(&value);
        Ok(())
    }

    fn before_value(&mut self) -> Result<(), YamlErrorKind> {
        match self.open.last_mut() {
            Some(Open::Object { expects_value: false, .. }) => return Err(YamlErrorKind::ComplexKey),
            Some(Open::Object { expects_value, .. }) => *expects_value = false,
            Some(Open::List { is_empty }) if *is_empty => *is_empty = false,
            Some(Open::List { .. }) => self.json.push(','),
            None => {}
        }
        Ok(())
    }
}

/// Refuses a value with an anchor or a tag.
fn plain(anchor: usize, has_tag: bool) -> Result<(), YamlErrorKind> {
    match (anchor, has_tag) {
        (0, false) => Ok(()),
        (0, true) => Err(YamlErrorKind::Tag),
        _ => Err(YamlErrorKind::Anchor),
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// The JSON of a text without quotes, by the core schema.
fn resolved(text: &str) -> Result<String, YamlErrorKind> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok("null".to_owned()),
        "true" | "True" | "TRUE" => return Ok("true".to_owned()),
        "false" | "False" | "FALSE" => return Ok("false".to_owned()),
        _ => {}
    }
    if !is_number(text) {
        return Ok(quoted(text));
    }
    match json::read(text.as_bytes()) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) if error.problem == json::NUMBER_TOO_LARGE => {
            Err(YamlErrorKind::NumberTooLarge(text.to_owned()))
        }
        Err(_) => Err(YamlErrorKind::OtherNumber(text.to_owned())),
    }
}

/// A number by the core schema of YAML, which has more forms than JSON: `+1`, `.5`, `007`, `0x1F`, `.inf`.
fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    let in_radix = |prefix: &str, radix: u32| {
        unsigned
            .strip_prefix(prefix)
            .is_some_and(|digits| !digits.is_empty() && digits.chars().all(|char| char.is_digit(radix)))
    };
    let begins = unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.');
    in_radix("0x", 16) || in_radix("0o", 8) || (begins && unsigned.parse::<f64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::yaml::document;

    fn error(text: &str) -> String {
        read(text).map_or_else(|error| error.to_string(), |json| format!("read as {}", json.as_str()))
    }

    #[test]
    fn yaml_becomes_json_with_keys_in_order_and_numbers_digit_for_digit() {
        let text = "name: nightly\nschedule:\n  cron: 0 2 * * *\n  catch_up: none # a comment\nretry: [1, 5.50, 1e3]\n\
                    big: 123456789012345678901234567890\nempty:\nyes: on\nwhen: 2030-01-01\nline: |\n  a\n  b\n";
        assert_eq!(
            to_json(text).unwrap(),
            r#"{"name":"nightly","schedule":{"cron":"0 2 * * *","catch_up":"none"},"retry":[1,5.50,1e3],"big":123456789012345678901234567890,"empty":null,"yes":"on","when":"2030-01-01","line":"a\nb\n"}"#
        );
    }

    #[test]
    fn json_is_read_as_it_is() {
        let json = "{\n\t\"a\": [1, {\"b\": null}],\n\t\"c\": \"\\ud83d\\ude00 \\/\"\n}";
        assert_eq!(read(json).unwrap().as_str(), "{\"a\":[1,{\"b\":null}],\"c\":\"😀 /\"}");
        assert_eq!(read("{a: 1}").unwrap().as_str(), "{\"a\":1}");
    }

    #[test]
    fn what_json_has_no_word_for_is_refused_with_its_place() {
        assert_eq!(error("a: 1\nb: 2\na: 3"), "3:1: the key \"a\" is repeated");
        assert_eq!(error("{\"a\": 1, \"a\": 2}"), "1:10: the key \"a\" is repeated");
        assert!(error("a: &x 1").ends_with("anchors and aliases are not read; repeat the value"));
        assert!(error("a: &x 1\nb: *x").starts_with("1:"), "{}", error("a: &x 1\nb: *x"));
        assert!(
            error("a:\n  - !!str 1").starts_with("2:5: tags are not read"),
            "{}",
            error("a:\n  - !!str 1")
        );
        assert!(error("? [a]\n: 1").contains("a key is a text"), "{}", error("? [a]\n: 1"));
        assert_eq!(error("a\n---\nb"), "2:1: a second document begins here; only one is read");
        for empty in ["", "# only a comment\n", "---\n"] {
            assert!(error(empty).contains("empty") || error(empty) == "read as null", "{}", error(empty));
        }
        for number in ["+1", ".5", "1.", "007", "0x1F", ".inf", "-.INF", ".nan"] {
            assert_eq!(
                error(&format!("a: {number}")).split(" is no").next().unwrap(),
                format!("1:4: {number}")
            );
        }
        assert_eq!(error("a: 1e400"), "1:4: 1e400 is too large for a double");
        assert_eq!(read("a: 12:30").unwrap().as_str(), "{\"a\":\"12:30\"}");
    }

    #[test]
    fn an_error_of_the_form_has_its_line_and_column() {
        let text = error("name: x\nschedule: {cron: '0 9 * * *'\n");
        assert!(text.starts_with("3:1: "), "{text}");
        assert!(error("a: b: c").starts_with("1:"), "{}", error("a: b: c"));
    }

    #[test]
    fn deep_nesting_is_refused() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(read(&nested(MAX_DEPTH)).is_ok());
        assert!(error(&nested(MAX_DEPTH + 1)).ends_with("it is nested deeper than 64 levels"));
        assert!(read(&"[".repeat(100_000)).is_err());
        assert!(read(&"- ".repeat(100_000)).is_err());
    }

    #[test]
    fn a_written_document_is_read_as_the_same_json() {
        for json in [
            r#"{"a":[],"b":{},"c":[[1,[2]],[{"x":1,"y":[{}]}]],"d":"","null":null,"~":"~"}"#,
            r##"["yes","no","1","1.5","- a","a: b","#c","é","\u0007","\u0085\u2028","\ufeff","a\nb","'","\"","\\"]"##,
            r#"[-0.5,1e-7,true,false,"0x1F",".inf","2030-01-01","<<","=","%a","@a","`a`","!a","&a","*a","|",">"]"#,
            "3",
            "\"\u{10ffff}\u{7f}\u{80}\u{9b}\u{202e}\u{fffe}\"",
        ] {
            let expected = json::read(json.as_bytes()).unwrap();
            let yaml = document(json).unwrap();
            assert_eq!(
                to_json(&yaml).map(|json| json::read(json.as_bytes()).unwrap()),
                Ok(expected),
                "{yaml}"
            );
        }
    }
}
