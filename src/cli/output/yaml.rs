//! JSON as YAML. Strings are quoted as in JSON where YAML would read something else.

use serde_json::Value;

use crate::cli::error::{Result, failed};
use crate::domain::json;
use crate::domain::text::is_order_mark;

/// Bytes of a key that may stand before its colon: readers of YAML look 1,024 characters ahead for that.
const MAX_KEY: usize = 1_000;

/// Words that readers of YAML take for something other than text.
const WORDS: [&str; 10] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan"];

pub fn document(text: &str) -> Result<String> {
    let json = json::read(text.as_bytes())
        .map_err(|error| failed(format!("the answer of the server is no JSON: {error}")))?;
    Ok(ordered(&json.get().to_value(), &[]))
}

/// The document of a value. The keys in `order` come first in each object.
pub fn ordered(value: &Value, order: &[&str]) -> String {
    let mut yaml = String::new();
    append(&mut yaml, value, order, 0, false);
    // Each part of a value begins with the character that separates it from what is before it.
    yaml.remove(0);
    yaml.push('\n');
    yaml
}

fn append(yaml: &mut String, value: &Value, order: &[&str], depth: usize, is_item: bool) {
    let line = format!("\n{}", "  ".repeat(depth));
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            let mut entries: Vec<(&String, &Value)> = entries.iter().collect();
            entries.sort_by_key(|(name, _)| {
                order.iter().position(|it| it == name).unwrap_or(order.len())
            });
            for (index, (name, value)) in entries.into_iter().enumerate() {
                // The first key of an object stands beside the dash.
                *yaml += if index == 0 && is_item { " " } else { &line };
                let key = plain_or_quoted(name);
                let is_short = key.len() <= MAX_KEY;
                *yaml += &if is_short { format!("{key}:") } else { format!("? {key}{line}:") };
                append(yaml, value, order, depth + 1, false);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                *yaml += &format!("{line}-");
                append(yaml, item, order, depth + 1, true);
            }
        }
        Value::String(text) => *yaml += &format!(" {}", plain_or_quoted(text)),
        other => *yaml += &format!(" {other}"),
    }
}

/// A word that every reader of YAML takes as text stays as it is. Another text is in double quotes, and escapes more
/// than JSON does: what YAML does not permit, and what a terminal would execute or use to change the order of the text.
fn plain_or_quoted(text: &str) -> String {
    let is_plain = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte))
        && !WORDS.contains(&text.to_ascii_lowercase().as_str());
    if is_plain {
        return text.to_owned();
    }
    escaped(&Value::from(text).to_string())
}

/// The text without characters that YAML does not permit, not even in a comment.
pub fn escaped(text: &str) -> String {
    let mut yaml = String::new();
    for char in text.chars() {
        match char {
            '\u{7f}'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                yaml += &format!("\\u{:04x}", u32::from(char));
            }
            _ if is_order_mark(char) => yaml += &format!("\\u{:04x}", u32::from(char)),
            _ => yaml.push(char),
        }
    }
    yaml
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::input::yaml;

    #[test]
    fn texts_that_yaml_would_read_as_something_else_are_quoted() {
        for json in [
            r#"{"a":[],"b":{},"c":[[1,[2]],[{"x":1,"y":[{}]}]],"d":"","null":null,"~":"~"}"#,
            r##"["yes","no","1","1.5","- a","a: b","#c","é","\u0007","\u0085\u2028","\ufeff","a\nb","'","\"","\\"]"##,
            r#"[-0.5,1e-7,true,false,"0x1F",".inf","2030-01-01","<<","=","%a","@a","`a`","!a","&a","*a","|",">"]"#,
            "3",
            "\"\u{10ffff}\u{7f}\u{80}\u{9b}\u{202e}\u{fffe}\"",
        ] {
            let expected = json::read(json.as_bytes()).unwrap().get().to_value();
            let written = document(json).unwrap();
            assert_eq!(yaml::read(&written), Ok(expected), "{written}");
        }
        assert_eq!(
            document(r#"{"b":[{"x":1,"z":[2]},[3]],"a":{}}"#).unwrap(),
            "a: {}\nb:\n  - x: 1\n    z:\n      - 2\n  -\n    - 3\n"
        );
    }
}
