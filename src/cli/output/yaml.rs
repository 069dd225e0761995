//! JSON as YAML, in the order of the text. Strings are quoted as in JSON where YAML would read something else.

use crate::cli::error::CliError;
use crate::domain::json::{self, JsonObject, JsonStr};
use crate::domain::text::escaped::is_order_mark;

/// The document of a JSON text.
/// Errors: if the text is no JSON.
pub fn document(text: &str) -> Result<String, CliError> {
    let json = json::read(text.as_bytes())
        .map_err(|error| CliError::Failed(format!("the answer of the server is no JSON: {error}")))?;
    let mut yaml = String::new();
    append(&mut yaml, json.get(), 0, false);
    Ok(yaml)
}

/// Appends a value. `in_line` means that the line has begun with a key or a dash.
fn append(yaml: &mut String, value: JsonStr<'_>, depth: usize, in_line: bool) {
    if let Some(object) = JsonObject::of(value).filter(|object| !object.is_empty()) {
        append_object(yaml, &object, depth, in_line);
    } else if let Some(items) = value.items().filter(|_| value.as_str() != "[]") {
        if in_line {
            yaml.push('\n');
        }
        for item in items {
            yaml.push_str(&"  ".repeat(depth));
            yaml.push('-');
            // The first key of an object stands beside the dash.
            let is_object = JsonObject::of(item).is_some_and(|object| !object.is_empty());
            if is_object {
                yaml.push(' ');
            }
            append(yaml, item, depth + 1, !is_object);
        }
    } else {
        if in_line {
            yaml.push(' ');
        }
        yaml.push_str(&scalar(value));
        yaml.push('\n');
    }
}

fn append_object(yaml: &mut String, object: &JsonObject<'_>, depth: usize, in_line: bool) {
    let beside_dash = !in_line && yaml.ends_with("- ");
    if in_line {
        yaml.push('\n');
    }
    for (index, (name, value)) in object.text().entries().into_iter().flatten().enumerate() {
        if index > 0 || !beside_dash {
            yaml.push_str(&"  ".repeat(depth));
        }
        yaml.push_str(&plain_or_quoted(&json::unescaped(name)));
        yaml.push(':');
        append(yaml, value, depth + 1, true);
    }
}

fn scalar(value: JsonStr<'_>) -> String {
    match value.as_text() {
        Some(text) => plain_or_quoted(&text),
        None => value.as_str().to_owned(),
    }
}

/// A word that every reader of YAML takes as text stays as it is.
fn plain_or_quoted(text: &str) -> String {
    const WORDS: [&str; 10] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan"];
    let is_plain = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte))
        && !WORDS.contains(&text.to_ascii_lowercase().as_str());
    if is_plain { text.to_owned() } else { quoted(text) }
}

/// A string in double quotes. It escapes more than JSON does: what YAML does not permit as it is, and what a terminal
/// would execute or use to change the order of the text.
fn quoted(text: &str) -> String {
    let json = serde_json::Value::from(text).to_string();
    let mut yaml = String::with_capacity(json.len());
    for char in json.chars() {
        match char {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                yaml.push_str(&escaped(char));
            }
            _ if is_order_mark(char) => yaml.push_str(&escaped(char)),
            _ => yaml.push(char),
        }
    }
    yaml
}

/// An escape of four digits; the characters that need one have no more.
fn escaped(char: char) -> String {
    format!("\\u{:04x}", u32::from(char))
}
