//! Assignments such as `schedule.cron=0 9 * * *`: a field inside others, and its value.

use serde_json::{Map, Value};

use crate::cli::error::CliError;
use crate::cli::input::values;
use crate::domain::json;

/// Fields whose value is never read from a file.
const SHORT: [&str; 3] = ["schedule.cron", "name", "status"];

/// Fields of text: a value such as `123` is text there, and not a number.
const TEXTS: [&str; 12] = [
    "name",
    "description",
    "status",
    "schedule.type",
    "schedule.cron",
    "schedule.at",
    "schedule.timezone",
    "schedule.catch_up",
    "callback.url",
    "callback.method",
    "on_failure.webhook",
    "verification.mode",
];

const HEADERS: [&str; 2] = ["callback", "headers"];

#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    path: Vec<String>,
    value: Value,
}

impl Assignment {
    /// Errors: if the text has no `=` or an empty field, or its file cannot be read.
    pub fn parse(text: &str) -> Result<Self, CliError> {
        let Some((field, value)) = text.split_once('=') else {
            return Err(CliError::Usage(format!("{text:?} has no value; an example is name=nightly")));
        };
        // The name of a header field may have dots.
        let parts = if field.starts_with("callback.headers.") { 3 } else { usize::MAX };
        let path: Vec<String> = field.splitn(parts, '.').map(str::to_owned).collect();
        if path.iter().any(String::is_empty) {
            return Err(CliError::Usage(format!(
                "{text:?} has an empty field; an example is schedule.cron='0 9 * * *'"
            )));
        }
        let value = value_of(field, value)?;
        Ok(Self { path, value })
    }

    /// A key of the payload, or one header field.
    pub fn is_part_of_whole(&self) -> bool {
        self.whole().len() < self.path.len()
    }

    /// The field that the API replaces as a whole.
    fn whole(&self) -> &[String] {
        match self.path.as_slice() {
            [first, ..] if first == "payload" => &self.path[..1],
            [first, second, ..] if [first, second] == HEADERS => &self.path[..2],
            path => path,
        }
    }

    /// Copies the whole field, of which this changes a part, from the cue to the change.
    pub fn copy_whole(&self, cue: &Value, patch: &mut Value) {
        let whole = self.whole();
        let value = whole.iter().fold(cue, |value, name| &value[name]);
        if let Value::Object(entries) = value
            && let Some(place) = place(patch, whole)
        {
            *place = Value::Object(entries.clone());
        }
    }

    /// Errors: if another assignment has set this field or one around it.
    pub fn apply(self, patch: &mut Value) -> Result<(), CliError> {
        let field = self.path.join(".");
        let is_part = self.is_part_of_whole();
        let is_header = self.path.len() == 3 && self.whole() == HEADERS;
        let conflict = || CliError::Usage(format!("{field} is given twice, or beside a field around it"));
        let Some((name, around)) = self.path.split_last() else { return Err(conflict()) };
        let Some(Value::Object(object)) = place(patch, around) else { return Err(conflict()) };
        if is_header {
            // Names of header fields are the same in upper and lower case.
            object.retain(|known, _| !known.eq_ignore_ascii_case(name));
        }
        if is_part && self.value.is_null() {
            object.remove(name);
        } else if object.insert(name.clone(), self.value).is_some() && !is_part {
            return Err(conflict());
        }
        Ok(())
    }
}

/// The value at a path; objects on the way are made. `None` if there is something else on the way.
fn place<'a>(value: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |value, name| match value {
        Value::Object(object) => {
            Some(object.entry(name.as_str()).or_insert_with(|| Value::Object(Map::new())))
        }
        _ => None,
    })
}

fn value_of(field: &str, text: &str) -> Result<Value, CliError> {
    if field == "payload" && text != "null" {
        return values::structured(field, text);
    }
    let is_text = TEXTS.contains(&field) || field.starts_with("callback.headers.");
    // `@daily` is a cron expression, and the others are as short as the name of a file.
    let read = if SHORT.contains(&field) { text.to_owned() } else { values::text(field, text)? };
    // The end of the line of a file is no part of a value.
    let read = if read.len() == text.len() { read } else { read.trim_end_matches(['\n', '\r']).to_owned() };
    let json = json::read(read.as_bytes()).map(|json| json.get().to_value());
    Ok(match json {
        Ok(value) if !is_text || value.is_null() || value.is_string() => value,
        _ => Value::String(read),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patch(cue: &Value, texts: &[&str]) -> Result<Value, String> {
        let mut patch = json!({});
        let read = texts.iter().map(|text| Assignment::parse(text));
        let read: Vec<Assignment> = read.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        read.iter().filter(|it| it.is_part_of_whole()).for_each(|it| it.copy_whole(cue, &mut patch));
        read.into_iter().try_for_each(|it| it.apply(&mut patch)).map_err(|error| error.to_string())?;
        Ok(patch)
    }

    #[test]
    fn fields_of_text_are_text_and_others_are_json_where_they_can_be() {
        let texts = [
            "name=123",
            "description=null",
            "schedule.cron=0 9 * * *",
            "retry.max_attempts=3",
            "retry.backoff_minutes=[1,5]",
            "callback.outcome_from_response=true",
            "callback.url=http://x/?a=b",
            "payload={a: 1.50}",
        ];
        let expected = json!({
            "name": "123", "description": null, "schedule": {"cron": "0 9 * * *"},
            "retry": {"max_attempts": 3, "backoff_minutes": [1, 5]},
            "callback": {"outcome_from_response": true, "url": "http://x/?a=b"},
        });
        let mut patch = patch(&Value::Null, &texts).unwrap();
        assert_eq!(patch["payload"].to_string(), r#"{"a":1.5}"#);
        patch.as_object_mut().unwrap().remove("payload");
        assert_eq!(patch, expected);
    }

    #[test]
    fn a_part_of_the_payload_or_one_header_field_keeps_the_rest() {
        let cue = json!({"payload": {"a": {"b": 1}, "c": 2}, "callback": {"url": "u", "headers": {"X-A": "1", "X-B": "2"}}});
        let texts =
            ["payload.a.d=x", "payload.c=null", "callback.headers.x-a=9", "callback.headers.X-B=null"];
        let expected = json!({"payload": {"a": {"b": 1, "d": "x"}}, "callback": {"headers": {"x-a": "9"}}});
        assert_eq!(patch(&cue, &texts).unwrap(), expected);
        assert_eq!(patch(&json!({"payload": null}), &["payload.a=1"]).unwrap(), json!({"payload": {"a": 1}}));
    }

    #[test]
    fn contradictory_assignments_are_refused() {
        for texts in
            [&["name=a", "name=b"][..], &["schedule=1", "schedule.cron=x"], &["name"], &[".x=1"], &["=1"]]
        {
            assert!(patch(&Value::Null, texts).is_err(), "{texts:?}");
        }
        assert!(patch(&Value::Null, &["payload=[1,"]).unwrap_err().starts_with("payload: "));
    }
}
