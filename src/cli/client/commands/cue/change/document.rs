//! A cue as a text for an editor, and the change between two texts.

use serde_json::{Map, Value, json};

use crate::api::cue::{FIELDS, REMOVABLE_FIELDS};
use crate::cli::error::CliError;
use crate::cli::output::yaml;

/// The parts of fields, in the order of the text.
const PARTS: [&str; 12] = [
    "cron",
    "at",
    "timezone",
    "catch_up",
    "url",
    "method",
    "headers",
    "max_attempts",
    "backoff_minutes",
    "email",
    "webhook",
    "pause",
];

/// The text of an object: `note`, then the given fields.
/// Errors: if the object cannot be written as YAML.
pub fn document(object: &Value, fields: &[&str], note: &str) -> Result<String, CliError> {
    let mut text = note.to_owned();
    for field in fields {
        match object.get(*field) {
            // A payload has no order of its own.
            Some(Value::Object(parts)) if !parts.is_empty() && *field != "payload" => {
                text.push_str(&format!("{field}:\n"));
                let mut parts: Vec<(&String, &Value)> = parts.iter().collect();
                parts.sort_by_key(|(name, _)| {
                    PARTS.iter().position(|part| part == name).unwrap_or(PARTS.len())
                });
                for (name, value) in parts {
                    let entry = yaml::document(&json!({ name: value }).to_string())?;
                    text.extend(entry.lines().map(|line| format!("  {line}\n")));
                }
            }
            Some(value) => text.push_str(&yaml::document(&json!({ *field: value }).to_string())?),
            None => {}
        }
    }
    Ok(text)
}

/// The text of a cue of the API.
pub fn of_cue(cue: &Value, note: &str) -> Result<String, CliError> {
    document(&editable(cue), &FIELDS, note)
}

/// The fields of a cue that can be changed. A field that cannot be set for the transport is left out.
pub fn editable(cue: &Value) -> Value {
    let other = if cue["transport"] == "worker" { "callback" } else { "claim_within_minutes" };
    let mut fields: Map<String, Value> = FIELDS
        .iter()
        .filter(|field| ![other, "transport"].contains(field))
        .map(|field| ((*field).to_owned(), cue[*field].clone()))
        .collect();
    if let Some(Value::Object(schedule)) = fields.get_mut("schedule") {
        // The type follows from `cron` or `at`, of which the other one is null.
        schedule.retain(|name, value| name != "type" && !value.is_null());
    }
    Value::Object(fields)
}

/// The body of the PATCH that makes `old` to `new`: what differs, object by object. Removed fields become null where the
/// API permits it, and stay elsewhere.
pub fn difference(old: &Value, new: &Value) -> Value {
    let mut patch = Map::new();
    for (name, value) in new.as_object().into_iter().flatten().filter(|(name, value)| old[*name] != **value) {
        let change = match (&old[name], value) {
            // A payload is replaced as a whole.
            (Value::Object(old), Value::Object(new)) if name != "payload" => parts(old, new),
            _ => value.clone(),
        };
        if change != json!({}) || !old[name].is_object() || !value.is_object() || name == "payload" {
            patch.insert(name.clone(), change);
        }
    }
    for name in REMOVABLE_FIELDS {
        if new.get(name).is_none() && !old[name].is_null() {
            patch.insert(name.to_owned(), Value::Null);
        }
    }
    Value::Object(patch)
}

fn parts(old: &Map<String, Value>, new: &Map<String, Value>) -> Value {
    let changed = new.iter().filter(|(name, value)| old.get(*name) != Some(*value));
    let mut parts: Map<String, Value> = changed.map(|(name, value)| (name.clone(), value.clone())).collect();
    for (name, empty) in [("webhook", Value::Null), ("headers", json!({}))] {
        let is_removed = !new.contains_key(name) && old.get(name).is_some_and(|old| *old != empty);
        if is_removed {
            parts.insert(name.to_owned(), empty);
        }
    }
    Value::Object(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cue() -> Value {
        json!({
            "id": "cue_1", "name": "n", "description": "d", "status": "active", "transport": "webhook",
            "schedule": {"type": "recurring", "cron": "0 9 * * *", "at": null, "timezone": "UTC", "catch_up": "latest"},
            "callback": {"url": "http://x", "method": "POST", "headers": {"A": "1"}, "outcome_from_response": false},
            "payload": {"a": 1}, "retry": {"max_attempts": 4, "backoff_minutes": [1]},
            "on_failure": {"email": true, "webhook": "http://y", "pause": false},
            "verification": {"mode": "none"}, "claim_within_minutes": null,
        })
    }

    #[test]
    fn the_text_has_the_fields_in_order() {
        let text = of_cue(&cue(), "# note\n").unwrap();
        assert!(
            text.starts_with(
                "# note\nname: \"n\"\ndescription: d\nschedule:\n  cron: \"0 9 * * *\"\n  timezone: UTC\n"
            ),
            "{text}"
        );
        assert_eq!(crate::cli::input::yaml::read(&text).unwrap().get().to_value(), editable(&cue()));
        assert!(
            !text.contains("type:") && !text.contains("claim_within") && !text.contains("status"),
            "{text}"
        );
    }

    #[test]
    fn the_difference_has_only_what_changed() {
        let old = editable(&cue());
        let change = |edit: fn(&mut Value)| {
            let mut new = old.clone();
            edit(&mut new);
            difference(&old, &new)
        };
        assert_eq!(change(|_| ()), json!({}));
        assert_eq!(
            change(|new| new["schedule"]["cron"] = "1 9 * * *".into()),
            json!({"schedule": {"cron": "1 9 * * *"}})
        );
        assert_eq!(change(|new| new["schedule"] = json!({"at": "t"})), json!({"schedule": {"at": "t"}}));
        assert_eq!(change(|new| new["payload"] = json!({"b": {}})), json!({"payload": {"b": {}}}));
        assert_eq!(change(|new| new["payload"] = json!({})), json!({"payload": {}}));
        assert_eq!(
            change(|new| drop(new.as_object_mut().unwrap().remove("description"))),
            json!({"description": null})
        );
        assert_eq!(change(|new| drop(new.as_object_mut().unwrap().remove("name"))), json!({}));
        assert_eq!(
            change(|new| new["on_failure"] = json!({"email": true})),
            json!({"on_failure": {"webhook": null}})
        );
        assert_eq!(
            change(|new| new["callback"] = json!({"url": "z"})),
            json!({"callback": {"url": "z", "headers": {}}})
        );
        assert_eq!(change(|new| new["retry"] = 3.into()), json!({"retry": 3}));
        assert_eq!(change(|new| new["other"] = 1.into()), json!({"other": 1}));
    }
}
