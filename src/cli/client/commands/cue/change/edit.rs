//! `cued cue edit`.

use clap::Args;
use serde_json::{Map, Value, json};

use crate::api::cue::{FIELDS, REMOVABLE_FIELDS};
use crate::cli::client::arguments::{FoundCue, find, label_of};
use crate::cli::client::commands::cue::change::editor::{document, edit_until_accepted, is_empty, read};
use crate::cli::client::commands::schedule::with_caret;
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::table::text_of;
use crate::cli::printable::printable;
use crate::client::request::ApiRequest;

#[derive(Debug, Args)]
pub struct Edit {
    /// Id or name of the cue
    #[arg(value_name = "CUE")]
    cue: String,
}

impl Edit {
    pub fn run(self, context: &Context) -> Result<(), CliError> {
        let found = find(context, &self.cue)?;
        let cue = fetch(context, &found)?;
        let old = editable(&cue);
        let note = format!(
            "# {}. Changes are sent when you save and leave the editor.\n\
             # A removed description, payload or limit is removed; other removed fields stay as they are.\n",
            label_of(&cue)
        );
        edit_until_accepted(&document(&old, &note), |edited| {
            if is_empty(edited) {
                return context.output.note("the text is empty; nothing was changed");
            }
            let new = read(edited)?;
            let patch = difference(&old, &new);
            if patch == json!({}) {
                return context.output.note("nothing was changed");
            }
            // Runs change `updated_at` too, so the fields themselves are compared.
            if editable(&fetch(context, &found)?) != old {
                let reason = format!("{} was changed meanwhile; nothing was sent", label_of(&cue));
                return Err(CliError::Refused(reason));
            }
            send(context, &found, &patch)
        })
    }
}

/// Sends a change and prints what it changed.
pub fn send(context: &Context, cue: &FoundCue, patch: &Value) -> Result<(), CliError> {
    let request = ApiRequest::patch(cue.path()).json(patch);
    let answer =
        context.send(&request).map_err(|error| with_caret(error, patch["schedule"]["cron"].as_str()))?;
    context.output.done(&answer, "id", |cue| {
        let names: Vec<String> =
            patch.as_object().into_iter().flatten().map(|(name, _)| printable(name)).collect();
        let next = context.output.times.instant(&text_of(cue, "next_run"));
        let next = if next.is_empty() { next } else { format!("; next run {next}") };
        format!("changed {}: {}{next}", label_of(cue), names.join(", "))
    })
}

pub fn fetch(context: &Context, cue: &FoundCue) -> Result<Value, CliError> {
    let request = ApiRequest::get(cue.path()).query("execution_limit", "1");
    Ok(context.look_up(&request)?.value()?)
}

/// The fields of a cue that can be changed. A field that cannot be set for the transport is left out.
fn editable(cue: &Value) -> Value {
    let other = if cue["transport"] == "worker" { "callback" } else { "claim_within_minutes" };
    let fields = FIELDS.into_iter().filter(|field| ![other, "transport"].contains(field));
    let mut fields: Map<String, Value> = fields.map(|field| (field.to_owned(), cue[field].clone())).collect();
    if let Some(Value::Object(schedule)) = fields.get_mut("schedule") {
        // The type follows from `cron` or `at`, of which the other one is null.
        schedule.retain(|name, value| name != "type" && !value.is_null());
    }
    Value::Object(fields)
}

/// The body of the PATCH that makes `old` to `new`: what differs, object by object. A removed field becomes empty where the
/// API permits it (contract §4.9), and stays elsewhere.
fn difference(old: &Value, new: &Value) -> Value {
    let mut patch = Map::new();
    for (name, value) in new.as_object().into_iter().flatten().filter(|(name, value)| old[*name] != **value) {
        let change = match (&old[name], value) {
            // A payload is replaced as a whole.
            (Value::Object(old), Value::Object(new)) if name != "payload" => {
                let changed = new.iter().filter(|(name, value)| old.get(*name) != Some(*value));
                let mut parts: Map<String, Value> =
                    changed.map(|(name, value)| (name.clone(), value.clone())).collect();
                add_removed(&mut parts, old, new, &[("webhook", Value::Null), ("headers", json!({}))]);
                if parts.is_empty() {
                    continue;
                }
                Value::Object(parts)
            }
            _ => value.clone(),
        };
        patch.insert(name.clone(), change);
    }
    if let (Value::Object(old), Value::Object(new)) = (old, new) {
        let removable = REMOVABLE_FIELDS.map(|name| (name, Value::Null));
        add_removed(&mut patch, old, new, &removable);
    }
    Value::Object(patch)
}

/// Adds the removed fields that have an empty value.
fn add_removed(
    patch: &mut Map<String, Value>,
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    empty: &[(&str, Value)],
) {
    for (name, empty) in empty {
        if !new.contains_key(*name) && old.get(*name).is_some_and(|old| old != empty) {
            patch.insert((*name).to_owned(), empty.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_has_only_what_changed() {
        let cue = json!({
            "id": "cue_1", "name": "n", "description": "d", "status": "active", "transport": "webhook",
            "schedule": {"type": "recurring", "cron": "0 9 * * *", "at": null, "timezone": "UTC", "catch_up": "latest"},
            "callback": {"url": "http://x", "method": "POST", "headers": {"A": "1"}, "outcome_from_response": false},
            "payload": {"a": 1}, "retry": {"max_attempts": 4, "backoff_minutes": [1]},
            "on_failure": {"email": true, "webhook": "http://y", "pause": false},
            "verification": {"mode": "none"}, "claim_within_minutes": null,
        });
        let old = editable(&cue);
        for (field, value, expected) in [
            ("name", json!("n"), json!({})),
            ("schedule", json!({"cron": "1 9 * * *"}), json!({"schedule": {"cron": "1 9 * * *"}})),
            ("schedule", json!({"at": "t"}), json!({"schedule": {"at": "t"}})),
            ("schedule", json!({"timezone": "UTC"}), json!({})),
            ("payload", json!({"b": {}}), json!({"payload": {"b": {}}})),
            ("payload", json!({}), json!({"payload": {}})),
            ("on_failure", json!({"email": true}), json!({"on_failure": {"webhook": null}})),
            ("callback", json!({"url": "z"}), json!({"callback": {"url": "z", "headers": {}}})),
            ("retry", json!(3), json!({"retry": 3})),
            ("other", json!(1), json!({"other": 1})),
        ] {
            let mut new = old.clone();
            new[field] = value;
            assert_eq!(difference(&old, &new), expected, "{field}");
        }
        for (field, expected) in [("description", json!({"description": null})), ("name", json!({}))] {
            let mut new = old.clone();
            new.as_object_mut().unwrap().remove(field);
            assert_eq!(difference(&old, &new), expected, "{field}");
        }
    }
}
