//! YAML as JSON: the core schema of YAML 1.2, without what JSON cannot express. JSON is YAML.
//!
//! Anchors, aliases, tags, repeated keys and numbers that JSON writes in another way are errors: what a person sees in
//! the text is what is sent.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};
use serde_json::{Map, Number, Value};

use crate::domain::json::{self, MAX_DEPTH};

/// Reads a text of YAML or JSON. Numbers keep their digits.
/// Errors: with the line and the character in it, from 1: `2:5: tags are not read`.
pub fn read(text: &str) -> Result<Value, String> {
    let error_at = |at: &Marker, reason: &str| format!("{}:{}: {reason}", at.line().max(1), at.col() + 1);
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        match event {
            Ok((event, span)) => builder.add(event).map_err(|reason| error_at(&span.start, &reason))?,
            // JSON has a few forms that YAML has not: tabs before a key, escaped halves of a character.
            Err(error) => {
                let json = json::read(text.as_bytes()).map(|json| json.get().to_value());
                return json.map_err(|_| error_at(error.marker(), error.info()));
            }
        }
    }
    builder.document.ok_or_else(|| "1:1: it is empty".to_owned())
}

/// Builds a value from the events of the parser. It has no recursion, so that no text exhausts the stack.
#[derive(Default)]
struct Builder {
    /// Lists and objects that have begun, an object with the key whose value follows.
    open: Vec<(Value, Option<String>)>,
    document: Option<Value>,
}

impl Builder {
    fn add(&mut self, event: Event<'_>) -> Result<(), String> {
        let (anchor, has_tag) = match &event {
            Event::Scalar(_, _, anchor, tag)
            | Event::SequenceStart(anchor, tag)
            | Event::MappingStart(anchor, tag) => (*anchor, tag.is_some()),
            Event::Alias(_) => (1, false),
            _ => (0, false),
        };
        let is_open = matches!(event, Event::SequenceStart(..) | Event::MappingStart(..));
        let fault = match &event {
            _ if anchor > 0 => "anchors and aliases are not read; repeat the value".to_owned(),
            _ if has_tag => "tags are not read; write the value in quotes if it is text".to_owned(),
            _ if is_open && matches!(self.open.last(), Some((Value::Object(_), None))) => {
                "a key is a text, not a list or an object".to_owned()
            }
            _ if is_open && self.open.len() == MAX_DEPTH => {
                format!("it is nested deeper than {MAX_DEPTH} levels")
            }
            Event::DocumentStart(_) if self.document.is_some() => {
                "a second document begins here; only one is read".to_owned()
            }
            _ => String::new(),
        };
        if !fault.is_empty() {
            return Err(fault);
        }
        match event {
            Event::SequenceStart(..) => self.open.push((Value::Array(Vec::new()), None)),
            Event::MappingStart(..) => self.open.push((Value::Object(Map::new()), None)),
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some((value, _)) = self.open.pop() {
                    self.push(value);
                }
            }
            Event::Scalar(text, style, ..) => match self.open.last_mut() {
                Some((Value::Object(entries), None)) if entries.contains_key(&*text) => {
                    return Err(format!("the key {text:?} is repeated"));
                }
                Some((Value::Object(_), key @ None)) => *key = Some(text.into_owned()),
                _ => self.push(if style == ScalarStyle::Plain { resolved(&text)? } else { (*text).into() }),
            },
            _ => {}
        }
        Ok(())
    }

    fn push(&mut self, value: Value) {
        match self.open.last_mut() {
            Some((Value::Array(items), _)) => items.push(value),
            Some((Value::Object(entries), key)) => {
                drop(entries.insert(key.take().unwrap_or_default(), value))
            }
            _ => self.document = Some(value),
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
    use super::*;

    #[test]
    fn yaml_becomes_json_with_numbers_digit_for_digit() {
        for (text, json) in [
            ("b: x\na: {cron: 0 2 * * *} # a comment", r#"{"a":{"cron":"0 2 * * *"},"b":"x"}"#),
            ("[5.50, 1e3, 123456789012345678901234567890]", "[5.50,1e+3,123456789012345678901234567890]"),
            ("a:\nb: on\nc: 2030-01-01\nd: 12:30", r#"{"a":null,"b":"on","c":"2030-01-01","d":"12:30"}"#),
            ("a: |\n  x\n  y\n", r#"{"a":"x\ny\n"}"#),
            (
                "{\n\t\"a\": [1, {\"b\": null}],\n\t\"c\": \"\\ud83d\\ude00\"\n}",
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
            ("a:\n  - !!str 1", "2:5: tags are not read"),
            ("? [a]\n: 1", "1:3: a key is a text"),
            ("a\n---\nb", "2:1: a second document begins here"),
            ("", "1:1: it is empty"),
            ("a: 1e400", "1:4: 1e400 is too large for a double"),
            ("name: x\nschedule: {cron: '0 9 * * *'\n", "3:1: "),
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
    fn deep_nesting_is_refused() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(read(&nested(MAX_DEPTH)).is_ok());
        for text in [nested(MAX_DEPTH + 1), "[".repeat(100_000), "- ".repeat(100_000)] {
            assert!(read(&text).is_err());
        }
    }
}
