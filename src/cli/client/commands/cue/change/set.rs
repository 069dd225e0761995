//! `cued cue set`: assignments such as `schedule.cron=0 9 * * *`, a field inside others and its value.

use clap::Args;
use serde_json::{Map, Value, json};

use crate::cli::client::arguments::find;
use crate::cli::client::commands::cue::change::edit;
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::input::values;

/// Fields of text: a value such as `123` is text there, and not a number.
const TEXTS: &str = "name description status schedule.type schedule.cron schedule.at schedule.timezone \
    schedule.catch_up callback.url callback.method on_failure.webhook verification.mode";

#[derive(Debug, Args)]
pub struct Set {
    /// Id or name of the cue
    #[arg(value_name = "CUE")]
    cue: String,

    /// Field and value: name=x, schedule.cron='0 3 * * *', payload=@payload.json, retry.max_attempts=3
    #[arg(value_name = "FIELD=VALUE", required = true)]
    fields: Vec<String>,
}

impl Set {
    pub fn run(self, context: &Context) -> Result<(), CliError> {
        let assignments: Vec<Assignment> =
            self.fields.iter().map(|text| Assignment::parse(text)).collect::<Result<_, _>>()?;
        let found = find(context, &self.cue)?;
        let needs_cue = assignments.iter().any(|assignment| assignment.whole.is_some());
        let cue = if needs_cue { edit::fetch(context, &found)? } else { Value::Null };
        edit::send(context, &found, &patch(&cue, assignments)?)
    }
}

struct Assignment {
    path: Vec<String>,
    /// The number of names of the field around it that the API replaces as a whole: the payload, the header fields.
    whole: Option<usize>,
    value: Value,
}

impl Assignment {
    fn parse(text: &str) -> Result<Self, CliError> {
        let Some((field, value)) = text.split_once('=') else {
            return Err(CliError::Usage(format!("{text:?} has no value; an example is name=nightly")));
        };
        let is_header = field.starts_with("callback.headers.");
        // The name of a header field may have dots.
        let path: Vec<String> =
            field.splitn(if is_header { 3 } else { usize::MAX }, '.').map(str::to_owned).collect();
        if path.iter().any(String::is_empty) {
            return Err(CliError::Usage(format!(
                "{text:?} has an empty field; an example is schedule.cron='0 9 * * *'"
            )));
        }
        let whole = if is_header { Some(2) } else { field.starts_with("payload.").then_some(1) };
        Ok(Self { path, whole, value: value_of(field, value)? })
    }
}

/// The body of the PATCH. `cue` has the values of fields that are replaced as a whole.
fn patch(cue: &Value, assignments: Vec<Assignment>) -> Result<Value, CliError> {
    let mut patch = json!({});
    for Assignment { path, whole, .. } in &assignments {
        let Some(whole) = whole.map(|length| &path[..length]) else { continue };
        let value = whole.iter().fold(cue, |value, name| &value[name]);
        if let (true, Some(place)) = (value.is_object(), place(&mut patch, whole)) {
            *place = value.clone();
        }
    }
    for Assignment { path, whole, value } in assignments {
        let conflict =
            || CliError::Usage(format!("{} is given twice, or beside a field around it", path.join(".")));
        let (name, around) = path.split_last().ok_or_else(conflict)?;
        let Some(Value::Object(object)) = place(&mut patch, around) else { return Err(conflict()) };
        if whole == Some(2) {
            // Names of header fields are the same in upper and lower case.
            object.retain(|known, _| !known.eq_ignore_ascii_case(name));
        }
        if whole.is_some() && value.is_null() {
            object.remove(name);
        } else if object.insert(name.clone(), value).is_some() && whole.is_none() {
            return Err(conflict());
        }
    }
    Ok(patch)
}

/// The value at a path; objects on the way are made. `None` if there is something else on the way.
fn place<'a>(value: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |value, name| {
        let object = value.as_object_mut()?;
        Some(object.entry(name.as_str()).or_insert_with(|| Value::Object(Map::new())))
    })
}

fn value_of(field: &str, text: &str) -> Result<Value, CliError> {
    if field == "payload" && text != "null" {
        return values::structured(field, text);
    }
    // `@daily` is a cron expression, and the others are as short as the name of a file.
    let is_short = ["schedule.cron", "name", "status"].contains(&field);
    let read = if is_short { text.to_owned() } else { values::text(field, text)? };
    // The end of the line of a file is no part of a value.
    let read = if read.len() == text.len() { read } else { read.trim_end_matches(['\n', '\r']).to_owned() };
    let is_text = TEXTS.split(' ').any(|text| text == field) || field.starts_with("callback.headers.");
    Ok(match serde_json::from_str::<Value>(&read) {
        Ok(value) if !is_text || value.is_null() || value.is_string() => value,
        _ => Value::String(read),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch_of(cue: &Value, texts: &[&str]) -> Result<Value, String> {
        let read = texts.iter().map(|text| Assignment::parse(text)).collect::<Result<Vec<_>, _>>();
        read.and_then(|read| patch(cue, read)).map_err(|error| error.to_string())
    }

    #[test]
    fn assignments_are_a_patch() {
        let cue = json!({"payload": {"a": {"b": 1}, "c": 2}, "callback": {"url": "u", "headers": {"X-A": "1", "X-B": "2"}}});
        for (texts, expected) in [
            (&["name=123", "description=null"][..], json!({"name": "123", "description": null})),
            (&["schedule.cron=0 9 * * *"], json!({"schedule": {"cron": "0 9 * * *"}})),
            (
                &["retry.max_attempts=3", "retry.backoff_minutes=[1,5]"],
                json!({"retry": {"max_attempts": 3, "backoff_minutes": [1, 5]}}),
            ),
            (
                &["callback.outcome_from_response=true", "callback.url=http://x/?a=b"],
                json!({"callback": {"outcome_from_response": true, "url": "http://x/?a=b"}}),
            ),
            (
                &["payload={a: 12345678901234567890123}"],
                serde_json::from_str(r#"{"payload":{"a":12345678901234567890123}}"#).unwrap(),
            ),
            (&["payload.a.d=x", "payload.c=null"], json!({"payload": {"a": {"b": 1, "d": "x"}}})),
            (
                &["callback.headers.x-a=9", "callback.headers.X-B=null"],
                json!({"callback": {"headers": {"x-a": "9"}}}),
            ),
        ] {
            assert_eq!(patch_of(&cue, texts), Ok(expected), "{texts:?}");
        }
        assert_eq!(patch_of(&json!({"payload": null}), &["payload.a=1"]), Ok(json!({"payload": {"a": 1}})));
    }

    #[test]
    fn contradictory_assignments_are_refused() {
        for texts in
            [&["name=a", "name=b"][..], &["schedule=1", "schedule.cron=x"], &["name"], &[".x=1"], &["=1"]]
        {
            assert!(patch_of(&Value::Null, texts).is_err(), "{texts:?}");
        }
        assert!(patch_of(&Value::Null, &["payload=[1,"]).unwrap_err().starts_with("payload: "));
    }
}
