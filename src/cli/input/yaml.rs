//! YAML as JSON: the core schema of YAML 1.2, without what JSON cannot express. JSON is YAML.
//!
//! Anchors, aliases, tags, repeated keys and numbers that JSON writes in another way are errors: what a person sees in
//! the text is what is sent.

use std::collections::BTreeSet;
use std::fmt;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};
use serde_json::{Number, Value};

use crate::cli::input::placed::{Entry, Node, Place, Placed};
use crate::cli::input::yaml_fault::explained;
use crate::domain::json::{self, MAX_DEPTH};

/// Levels of a text. In a file of cues a payload is deeper by two than in the request that may have it.
const MAX_OPEN: usize = MAX_DEPTH + 2;

/// A text that cannot be read: `2:5: YAML tags (!x) are not read`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlFault {
    pub place: Place,
    pub reason: String,
}

impl fmt::Display for YamlFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

/// Reads a text of YAML or JSON. Numbers keep their digits.
/// Errors: with the line and the character in it, from 1: `2:5: YAML tags (!x) are not read`.
pub fn read(text: &str) -> Result<Value, String> {
    read_with_places(text).map(Placed::into_value).map_err(|fault| fault.to_string())
}

/// As [`read`], with the place of every key and every value.
pub fn read_with_places(text: &str) -> Result<Placed, YamlFault> {
    // Editors of other systems begin a file with this mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let fault = match parse(text) {
        Ok(document) => return Ok(document),
        Err(Fault::Refused(fault)) => return Err(fault),
        Err(Fault::NotYaml(fault)) => fault,
    };
    // JSON has a few forms that YAML has not: tabs before a key, escaped halves of a character.
    let Ok(json) = json::read(text.as_bytes()) else {
        // In a text of braces, tabs are no mistake.
        let is_in_braces = text.trim_start().starts_with(['{', '[']);
        return match parse(&text.replace('\t', " ")) {
            Err(Fault::NotYaml(other)) if is_in_braces => Err(other),
            _ => Err(fault),
        };
    };
    // Strings of JSON have no tabs, so these are between values, and each is a character of its line like a blank.
    let without_places = |_| Placed::of_value(Place::START, json.get().to_value());
    Ok(parse(&text.replace('\t', " ")).unwrap_or_else(without_places))
}

enum Fault {
    NotYaml(YamlFault),
    /// It is YAML that JSON cannot express, or that hides what is sent.
    Refused(YamlFault),
}

fn parse(text: &str) -> Result<Placed, Fault> {
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let (place, reason) = explained(text, place(error.marker()), error.info());
            Fault::NotYaml(YamlFault { place, reason })
        })?;
        let begin = place(&span.start);
        builder
            .add(event, span)
            .map_err(|reason| Fault::Refused(YamlFault { place: begin, reason }))?;
    }
    let empty = || YamlFault { place: Place::START, reason: "it is empty".to_owned() };
    builder.document.ok_or_else(|| Fault::Refused(empty()))
}

fn place(at: &Marker) -> Place {
    Place { line: at.line().max(1), column: at.col() + 1 }
}

/// Builds a value from the events of the parser. It has no recursion, so that no text exhausts the stack.
#[derive(Default)]
struct Builder {
    /// Lists and objects that have begun.
    open: Vec<Open>,
    document: Option<Placed>,
}

struct Open {
    value: Placed,
    /// The key whose value follows.
    key: Option<(String, Place)>,
    /// Those of an object so far.
    keys: BTreeSet<String>,
}

impl Builder {
    fn add(&mut self, event: Event<'_>, span: Span) -> Result<(), String> {
        let (anchor, has_tag) = match &event {
            Event::Scalar(_, _, anchor, tag)
            | Event::SequenceStart(anchor, tag)
            | Event::MappingStart(anchor, tag) => (*anchor, tag.is_some()),
            Event::Alias(_) => (1, false),
            _ => (0, false),
        };
        let is_open = matches!(event, Event::SequenceStart(..) | Event::MappingStart(..));
        let expects_key =
            self.open.last().is_some_and(|open| open.value.is_object() && open.key.is_none());
        let fault = match &event {
            _ if anchor > 0 => "anchors and aliases are not read; repeat the value".to_owned(),
            _ if has_tag => {
                "YAML tags (!x) are not read; write the value in quotes if it is text".to_owned()
            }
            _ if is_open && expects_key => "a key is a text, not a list or an object".to_owned(),
            _ if is_open && self.open.len() == MAX_OPEN => {
                format!("it is nested deeper than {MAX_OPEN} levels")
            }
            Event::DocumentStart(_) if self.document.is_some() => {
                "a second document begins here; only one is read".to_owned()
            }
            _ => String::new(),
        };
        if !fault.is_empty() {
            return Err(fault);
        }
        let begin = place(&span.start);
        match event {
            Event::SequenceStart(..) => self.begin(Placed::new(begin, Node::List(Vec::new()))),
            Event::MappingStart(..) => self.begin(Placed::object(begin)),
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(open) = self.open.pop() {
                    self.push(open.value);
                }
            }
            Event::Scalar(text, style, ..) => match self.open.last_mut().filter(|_| expects_key) {
                Some(open) if open.keys.contains(&*text) => {
                    return Err(format!("the key {text:?} is repeated"));
                }
                Some(open) => {
                    open.keys.insert((*text).to_owned());
                    open.key = Some((text.into_owned(), begin));
                }
                None => {
                    let is_plain = style == ScalarStyle::Plain;
                    let value = if is_plain { resolved(&text)? } else { (*text).into() };
                    self.push(Placed::scalar(begin, value));
                }
            },
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, value: Placed) {
        self.open.push(Open { value, key: None, keys: BTreeSet::new() });
    }

    fn push(&mut self, value: Placed) {
        let Some(open) = self.open.last_mut() else {
            self.document = Some(value);
            return;
        };
        match (&mut open.value.node, open.key.take()) {
            (Node::List(items), _) => items.push(value),
            (Node::Object(entries), Some((key, place))) => {
                entries.push(Entry { key, place, value })
            }
            _ => {}
        }
    }
}

/// The value of a text without quotes, by the core schema.
fn resolved(text: &str) -> Result<Value, String> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "true" | "True" | "TRUE" => return Ok(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Value::Bool(false)),
        _ if !is_number(text) => return Ok(text.into()),
        _ => {}
    }
    let number: Number = text.parse().map_err(|_| {
        format!("{text} is no number of JSON; write it as JSON does, or in quotes if it is text")
    })?;
    // An integer has any length.
    match text.parse::<f64>() {
        Ok(double) if double.is_infinite() && text.contains(['.', 'e', 'E']) => {
            Err(format!("{text} is too large for a double"))
        }
        _ => Ok(Value::Number(number)),
    }
}

/// A number by the core schema of YAML, which has more forms than JSON: `+1`, `.5`, `007`, `0x1F`, `.inf`.
fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let in_radix = |prefix: &str, radix: u32| {
        let digits = unsigned.strip_prefix(prefix).filter(|digits| !digits.is_empty());
        digits.is_some_and(|digits| digits.chars().all(|char| char.is_digit(radix)))
    };
    let begins = unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.');
    matches!(unsigned, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN")
        || in_radix("0x", 16)
        || in_radix("0o", 8)
        || (begins && unsigned.parse::<f64>().is_ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_becomes_json_with_numbers_digit_for_digit() {
        for (text, json) in [
            ("b: x\na: {cron: 0 2 * * *} # a comment", r#"{"a":{"cron":"0 2 * * *"},"b":"x"}"#),
            (
                "[5.50, 1e3, 123456789012345678901234567890]",
                "[5.50,1e+3,123456789012345678901234567890]",
            ),
            (
                "a:\nb: on\nc: 2030-01-01\nd: 12:30",
                r#"{"a":null,"b":"on","c":"2030-01-01","d":"12:30"}"#,
            ),
            ("a: |\n  x\n  y\n", r#"{"a":"x\ny\n"}"#),
            (
                "\u{feff}{\n\t\"a\": [1, {\"b\": null}],\n\t\"c\": \"\\ud83d\\ude00\"\n}",
                r#"{"a":[1,{"b":null}],"c":"😀"}"#,
            ),
        ] {
            assert_eq!(read(text).map(|value| value.to_string()).as_deref(), Ok(json), "{text}");
        }
    }

    #[test]
    fn a_fault_has_its_place() {
        for (text, fault) in [
            ("a: 1\nb: 2\na: 3", "3:1: the key \"a\" is repeated"),
            ("{\"a\": 1, \"a\": 2}", "1:10: the key \"a\" is repeated"),
            ("a: &x 1", "1:4: anchors and aliases are not read; repeat the value"),
            ("a:\n  - !!str 1", "2:5: YAML tags (!x) are not read"),
            ("? [a]\n: 1", "1:3: a key is a text"),
            ("a\n---\nb", "2:1: a second document begins here"),
            ("", "1:1: it is empty"),
            ("a: 1e400", "1:4: 1e400 is too large for a double"),
            ("name: x\nschedule: {cron: '0 9 * * *'\n", "2:11: "),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(fault), "{text}: {error}");
        }
        for number in ["+1", ".5", "1.", "007", "0x1F", ".inf", "-.INF", ".nan"] {
            let error = read(&format!("a: {number}")).unwrap_err();
            assert!(error.starts_with(&format!("1:4: {number} is no number of JSON")), "{error}");
        }
    }

    #[test]
    fn every_key_and_every_value_has_its_place() {
        for (text, path, key, value) in [
            ("a: 1\nb:\n  - x\n  - {c: d}\n", json!(["b", 1, "c"]), "4:6", "4:9"),
            ("a: 1\nb:\n  - x\n", json!(["b"]), "2:1", "3:3"),
            ("a:\n  b: |\n    x\n", json!(["a", "b"]), "2:3", "3:5"),
            ("# ä\nä: \"é\"", json!(["ä"]), "2:1", "2:4"),
            ("{\n\t\"a\": [1,\t2]\n}", json!(["a", 1]), "2:11", "2:11"),
            ("a: {b: 1}", json!(["a", "missing", "c"]), "1:1", "1:1"),
            ("[\"\\ud83d\\ude00\"]", json!([0]), "1:1", "1:1"),
        ] {
            let read = read_with_places(text).unwrap();
            let path = path.as_array().unwrap();
            let found = [true, false].map(|wants_key| read.place_of(path, wants_key).to_string());
            assert_eq!(found, [key, value], "{text}");
        }
    }

    #[test]
    fn deep_nesting_is_refused() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(read(&nested(MAX_OPEN)).is_ok());
        for text in [nested(MAX_OPEN + 1), "[".repeat(100_000), "- ".repeat(100_000)] {
            assert!(read(&text).is_err());
        }
    }
}
