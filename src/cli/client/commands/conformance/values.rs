//! The values of scenarios: what `{…}` stands for in a request, and whether a response is as it must be.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value};

/// The values that steps keep for later ones, by name.
#[derive(Debug)]
pub struct Values {
    kept: BTreeMap<String, Value>,
    /// The time of the server, by its last response, or of this machine if that has none.
    pub now: Timestamp,
}

impl Values {
    pub fn new(now: Timestamp) -> Self {
        Self { kept: BTreeMap::new(), now }
    }

    pub fn keep(&mut self, name: &str, value: Value) {
        self.kept.insert(name.to_owned(), value);
    }

    /// A value whose texts have the kept values in the place of `{name}`. The other fields of an object with `"..."` are
    /// put on those of the kept objects that it names. Errors: the name that has no value yet.
    pub fn fill(&self, value: &Value) -> Result<Value, String> {
        Ok(match value {
            Value::String(text) => self.fill_text(text)?,
            Value::Array(items) => {
                Value::Array(items.iter().map(|item| self.fill(item)).collect::<Result<_, _>>()?)
            }
            Value::Object(fields) => {
                let mut object = Value::Object(Map::new());
                let bases = fields.get("...").and_then(Value::as_str);
                for name in bases.into_iter().flat_map(|names| names.split(' ')) {
                    put(&mut object, self.kept.get(name).ok_or(name)?.clone(), true);
                }
                let mut own = Map::new();
                for (name, field) in fields.iter().filter(|(name, _)| *name != "...") {
                    own.insert(text(&self.fill_text(name)?), self.fill(field)?);
                }
                put(&mut object, Value::Object(own), bases.is_some());
                object
            }
            other => other.clone(),
        })
    }

    /// The text, or the value itself where the text is nothing but its name.
    fn fill_text(&self, text_in: &str) -> Result<Value, String> {
        let (mut filled, mut rest) = (String::new(), text_in);
        while let Some((before, (name, after))) =
            rest.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
        {
            filled += before;
            match self.find(name)? {
                Some(value) if before.is_empty() && after.is_empty() && filled.is_empty() => {
                    return Ok(value);
                }
                Some(value) => {
                    filled += &text(&value);
                    rest = after;
                }
                None => {
                    filled.push('{');
                    rest = &rest[before.len() + 1..];
                }
            }
        }
        Ok(Value::String(filled + rest))
    }

    /// `255*x` is a text that repeats, and `now+60` an instant. Whatever else is no name stays as it is.
    fn find(&self, name: &str) -> Result<Option<Value>, String> {
        if let Some((count, what)) = name.split_once('*')
            && let Ok(count) = count.parse()
        {
            return Ok(Some(Value::String(what.repeat(count))));
        }
        if let Some(Ok(seconds)) = name.strip_prefix("now").map(str::parse) {
            let second = self.now.as_second().saturating_add(seconds);
            let instant = Timestamp::from_second(second).unwrap_or(self.now);
            return Ok(Some(Value::String(instant.to_string())));
        }
        let is_name =
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        match self.kept.get(name) {
            None if is_name && !KINDS.contains(&name) => Err(name.to_owned()),
            value => Ok(value.cloned()),
        }
    }
}

/// Sets a value; of an object on top of another one only its fields.
fn put(place: &mut Value, value: Value, merges: bool) {
    match (place, value) {
        (Value::Object(place), Value::Object(fields)) if merges => {
            for (name, field) in fields {
                put(place.entry(name).or_insert(Value::Null), field, true);
            }
            place.retain(|_, field| *field != "{absent}");
        }
        (place, value) => *place = value,
    }
}

pub fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Words in braces that stand for every value of a kind in what is expected; `{any}` is also any part of a text.
const KINDS: [&str; 9] =
    ["absent", "all", "any", "has", "instant", "integer", "one_of", "some", "string"];

/// Where a response is not as expected, what is expected there, and what came. Of an object only the expected fields are
/// compared, of a list that begins with `{has}` only whether it has the others, with `{all}` in any order.
pub fn difference(
    expected: &Value,
    came: Option<&Value>,
    at: &str,
) -> Option<(String, String, String)> {
    let differs = || {
        let came = came.map_or_else(|| "nothing".to_owned(), Value::to_string);
        // Without the quotation marks, which would make a text of the kind.
        let of_kind = |text: String, kind: &&str| {
            text.replace(&format!("\"{{{kind}}}\""), &format!("<{kind}>"))
        };
        Some((at.to_owned(), KINDS.iter().fold(expected.to_string(), of_kind), came))
    };
    match (expected, came) {
        (Value::Object(fields), _) if fields.contains_key("{one_of}") => {
            let known = fields["{one_of}"].as_array().into_iter().flatten();
            if known.into_iter().any(|known| difference(known, came, at).is_none()) {
                None
            } else {
                differs()
            }
        }
        (Value::Object(fields), Some(Value::Object(found))) => fields
            .iter()
            .find_map(|(name, field)| difference(field, found.get(name), &format!("{at}/{name}"))),
        (Value::Array(items), Some(Value::Array(found)))
            if items.first().is_some_and(|it| it == "{has}" || it == "{all}") =>
        {
            let is_found =
                |item: &Value| found.iter().any(|it| difference(item, Some(it), at).is_none());
            let is_whole = items[0] == "{has}" || items.len() == found.len() + 1;
            if is_whole && items[1..].iter().all(is_found) { None } else { differs() }
        }
        (Value::Array(items), Some(Value::Array(found))) if items.len() == found.len() => {
            let mut pairs = items.iter().zip(found).enumerate();
            pairs.find_map(|(index, (item, it))| {
                difference(item, Some(it), &format!("{at}/{index}"))
            })
        }
        (Value::String(pattern), _) if is_of_kind(pattern, came) => None,
        (_, Some(came)) if expected == came => None,
        _ => differs(),
    }
}

fn is_of_kind(pattern: &str, came: Option<&Value>) -> bool {
    let Some(came) = came else { return pattern == "{absent}" };
    match pattern {
        "{any}" => true,
        "{some}" => !came.is_null(),
        "{integer}" => came.is_i64() || came.is_u64(),
        "{string}" => came.is_string(),
        "{instant}" => came.as_str().is_some_and(|it| it.parse::<Timestamp>().is_ok()),
        _ => came.as_str().is_some_and(|it| is_like(pattern, it)),
    }
}

/// Compares a text with a pattern: `{any}` matches any characters.
pub fn is_like(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split("{any}");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_stand_for_kept_values_and_other_braces_for_themselves() {
        let mut values = Values::new(Timestamp::UNIX_EPOCH);
        values.keep("id", json!(7));
        values.keep("cue", json!({"name": "a", "schedule": {"type": "once", "at": "x"}}));
        let filled = |value: Value| values.fill(&value).unwrap();
        assert_eq!(
            filled(json!(["{id}", "/{id}/{3*ab}", "{", "{}", r#"{"a": 1}"#, "{name: 1}{id}"])),
            json!([7, "/7/ababab", "{", "{}", r#"{"a": 1}"#, "{name: 1}7",])
        );
        let merged = json!({"...": "cue", "name": "{absent}", "schedule": {"at": null}});
        assert_eq!(filled(merged), json!({"schedule": {"type": "once", "at": null}}));
        assert_eq!(filled(json!("{now+60}")), "1970-01-01T00:01:00Z");
        assert_eq!(values.fill(&json!("/{nope}/{any}")), Err("nope".to_owned()));
    }

    #[test]
    fn a_difference_has_its_place() {
        let came = json!({"a": [{"b": "cue_1x"}, 2], "c": null, "t": "2026-01-01T00:00:00Z"});
        let at = |expected: Value| difference(&expected, Some(&came), "").map(|(at, ..)| at);
        for holds in [
            json!({"a": [{"b": "cue_{any}x"}, "{integer}"], "c": "{any}", "d": "{absent}", "t": "{instant}"}),
            json!({"a": ["{all}", 2, {}]}),
            json!({"a": ["{has}", 2], "c": {"{one_of}": [1, null]}}),
        ] {
            assert_eq!(at(holds), None);
        }
        for (differs, place) in [
            (json!({"a": [{"b": "cue_{any}y"}, 2]}), "/a/0/b"),
            (json!({"a": ["{has}", 3]}), "/a"),
            (json!({"a": [2]}), "/a"),
            (json!({"a": ["{all}", 2]}), "/a"),
            (json!({"c": "{some}"}), "/c"),
            (json!({"c": "{absent}"}), "/c"),
            (json!({"d": "{any}"}), "/d"),
            (json!({"c": {"{one_of}": [1]}}), "/c"),
        ] {
            assert_eq!(at(differs), Some(place.to_owned()));
        }
        assert!(
            is_like("a{any}b{any}c", "a1b2c") && !is_like("a{any}b", "ab1") && is_like("{any}", "")
        );
    }
}
