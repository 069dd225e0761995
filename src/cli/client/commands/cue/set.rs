//! `cued cue set`: changes of the fields of a cue by the flags of `cued cue add`, and by assignments such as
//! `schedule.cron=0 9 * * *`.

use clap::Arg;
use serde_json::{Value, json};

use crate::api::cue_names::is_text_field;
use crate::cli::client::command::{Call, Entry, Part, Work, cue, entry, own, place};
use crate::cli::client::commands::cue::change::{fetch, send};
use crate::cli::client::commands::cue::flags;
use crate::cli::error::{CliError, in_quotes, usage};
use crate::cli::input;

const ASSIGNMENT: &str = "Field and value: name=x, schedule.cron='0 3 * * *', tags=a,b, payload=@payload.json, retry.max_attempts=3";

/// The flags of `cue add` without `--worker`: a cue does not change its transport.
fn settable() -> impl Iterator<Item = Arg> {
    let flags = flags::flags().into_iter().filter(|arg| arg.get_id() != "worker");
    flags.map(|arg| if arg.get_id() == "tz" { arg.help(ZONE) } else { arg })
}

const ZONE: &str =
    "Time zone of the schedule, such as Europe/Berlin or Berlin [default: that of the cue]";

pub fn cue_set() -> Entry {
    entry(
        "set",
        "Change fields of a cue\n\nThe flags are those of `cued cue add`; --tag replaces all tags and --payload the payload. FIELD=VALUE sets \
         any field, with a dot before a field inside another. The value is JSON if it can be read as JSON, else text; \
         @FILE reads a file and - standard input (but not for the cron expression and the name), null removes what may be \
         removed. Headers, keys of the payload and parts of the flow change one by one.",
        arguments(),
        Work::Code(set),
    )
    .short(flags::SHORT_FLAGS)
}

fn arguments() -> Vec<(Arg, Part)> {
    let fields = place("fields", "FIELD=VALUE", ASSIGNMENT).required(false).num_args(1..);
    let arguments = [own(fields)].into_iter().chain(settable().map(own));
    [cue()].into_iter().chain(arguments).collect()
}

fn set(call: &Call<'_>) -> Result<(), CliError> {
    let (texts, Some(found)) = (call.texts("fields"), &call.cue) else { return Ok(()) };
    let is_part = ["header", "task", "flow-key", "parallelism", "per-minute"]
        .iter()
        .any(|flag| call.is_given(flag));
    let needs_cue =
        is_part || texts.iter().any(|text| WHOLE.iter().any(|(field, _)| text.starts_with(field)));
    let cue = if needs_cue { fetch(call.context, found)? } else { Value::Null };
    let flags =
        merged(flags::body(call)?, &cue, call.text("task").filter(|_| !call.is_given("payload")));
    let patch = patch(&cue, flags, &texts).map_err(|error| {
        let unquoted: Vec<&str> =
            texts.iter().copied().filter(|text| !text.contains('=')).collect();
        let flag = ["cron", "at", "every"].into_iter().find(|flag| call.is_given(flag));
        flag.filter(|_| !unquoted.is_empty()).map_or(error, |flag| {
            usage(in_quotes(
                flag,
                &[&[call.text(flag).unwrap_or_default()][..], &unquoted].concat(),
            ))
        })
    })?;
    if patch == json!({}) {
        return Err(usage("nothing to change: add a flag such as --cron, or FIELD=VALUE"));
    }
    send(call.context, found, &patch)
}

/// The fields that flags set, as a change of a cue. Of a field that the API replaces as a whole the other entries stay:
/// header fields, limits of the flow, and with `task`, given without a payload, its keys.
pub fn merged(mut fields: Value, cue: &Value, task: Option<&str>) -> Value {
    if fields["schedule"] == json!({}) {
        fields.as_object_mut().map(|fields| fields.remove("schedule"));
    }
    if let Some(Value::Object(callback)) = fields.get_mut("callback") {
        for name in ["headers", "flow"] {
            let stored = cue["callback"][name].as_object().into_iter().flatten();
            if let Some(Value::Object(given)) = callback.get_mut(name) {
                for (entry, value) in stored {
                    if !given.keys().any(|known| known.eq_ignore_ascii_case(entry)) {
                        given.insert(entry.clone(), value.clone());
                    }
                }
            }
        }
    }
    if let (Some(task), Value::Object(payload)) = (task, &cue["payload"]) {
        fields["payload"] = Value::Object(payload.clone());
        fields["payload"]["task"] = task.into();
    }
    fields
}

/// Fields that the API replaces as a whole, with the number of their names. Their entries change one by one, so the
/// other ones are sent with them.
const WHOLE: [(&str, usize); 3] =
    [("payload.", 1), ("callback.headers.", 2), ("callback.flow.", 2)];

/// Adds assignments to the change that flags make.
fn patch(cue: &Value, flags: Value, assignments: &[&str]) -> Result<Value, CliError> {
    let mut patch = flags;
    for text in assignments {
        let no_value = || usage(format!("{text:?} has no value; an example is name=nightly"));
        let (field, value) = text.split_once('=').ok_or_else(no_value)?;
        let whole =
            WHOLE.iter().find(|(whole, _)| field.starts_with(whole)).map_or(0, |(_, names)| *names);
        // The name of a header field may have dots.
        let path: Vec<&str> = field.splitn(if whole == 2 { 3 } else { usize::MAX }, '.').collect();
        let [around @ .., name] = path.as_slice() else { return Err(no_value()) };
        if path.contains(&"") {
            let example = "an example is schedule.cron='0 9 * * *'";
            return Err(usage(format!("{text:?} has an empty field; {example}")));
        }
        let conflict = || usage(format!("{field} is given twice, or beside a field around it"));
        let (mut place, mut stored) = (&mut patch, cue);
        for (depth, part) in around.iter().enumerate() {
            stored = &stored[part];
            let is_kept = depth + 1 == whole && stored.is_object();
            let object = place.as_object_mut().ok_or_else(conflict)?;
            place = object.entry(*part).or_insert(if is_kept { stored.clone() } else { json!({}) });
        }
        let object = place.as_object_mut().ok_or_else(conflict)?;
        if whole == 2 {
            // Names of header fields are the same in upper and lower case.
            object.retain(|known, _| !known.eq_ignore_ascii_case(name));
        }
        let value = value_of(field, value)?;
        if whole > 0 && value.is_null() {
            object.remove(*name);
        } else if object.insert((*name).to_owned(), value).is_some() && whole == 0 {
            return Err(conflict());
        }
    }
    Ok(patch)
}

fn value_of(field: &str, text: &str) -> Result<Value, CliError> {
    if field == "payload" && text != "null" {
        return input::structured(field, text);
    }
    // `@daily` is a cron expression, and the others are as short as the name of a file.
    let is_short = ["schedule.cron", "name", "status"].contains(&field);
    let read = if is_short { text.to_owned() } else { input::text(field, text)? };
    // The end of the line of a file is no part of a value.
    let read = if read.len() == text.len() {
        read
    } else {
        read.trim_end_matches(['\n', '\r']).to_owned()
    };
    let is_text = is_text_field(field) || field.starts_with("callback.headers.");
    let is_list = field == "tags";
    Ok(match serde_json::from_str::<Value>(&read) {
        Ok(value) if is_list && (value.is_array() || value.is_null()) => value,
        // As people write a list of words.
        _ if is_list => read.split(',').map(str::trim).filter(|tag| !tag.is_empty()).collect(),
        Ok(value) if !is_text || value.is_null() || value.is_string() => value,
        _ => Value::String(read),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_change_entries_and_leave_the_others() {
        let cue = json!({"payload": {"a": 1}, "callback": {"headers": {"X-A": "1"}, "flow": {"key": "k", "parallelism": 2}}});
        for (fields, task, expected) in [
            (json!({"schedule": {}, "name": "x"}), None, json!({"name": "x"})),
            (
                json!({"schedule": {"every": "5m"}, "callback": {"headers": {"x-a": "2", "B": "3"}}}),
                None,
                json!({"schedule": {"every": "5m"}, "callback": {"headers": {"x-a": "2", "B": "3"}}}),
            ),
            (
                json!({"schedule": {}, "callback": {"headers": {"B": "3"}, "flow": {"per_minute": 9}}}),
                None,
                json!({"callback": {"headers": {"B": "3", "X-A": "1"},
                                    "flow": {"per_minute": 9, "key": "k", "parallelism": 2}}}),
            ),
            (
                json!({"payload": {"task": "t"}}),
                Some("t"),
                json!({"payload": {"a": 1, "task": "t"}}),
            ),
        ] {
            assert_eq!(merged(fields, &cue, task), expected);
        }
    }

    #[test]
    fn assignments_are_a_patch() {
        let cue = json!({"payload": {"a": {"b": 1}, "c": 2},
            "callback": {"headers": {"X-A": "1", "X-B": "2"}, "flow": {"key": "x:80", "parallelism": 2}}});
        for (texts, expected) in [
            (&["name=123", "description=null"][..], r#"{"description":null,"name":"123"}"#),
            (
                &["retry.max_attempts=3", "retry.backoff_minutes=[1,5]"],
                r#"{"retry":{"backoff_minutes":[1,5],"max_attempts":3}}"#,
            ),
            (&["callback.url=http://x/?a=b"], r#"{"callback":{"url":"http://x/?a=b"}}"#),
            (&["tags=2026, db"], r#"{"tags":["2026","db"]}"#),
            (&["tags=[\"a\"]"], r#"{"tags":["a"]}"#),
            (&["tags="], r#"{"tags":[]}"#),
            (&["tags=null"], r#"{"tags":null}"#),
            (
                &["payload={a: 12345678901234567890123}"],
                r#"{"payload":{"a":12345678901234567890123}}"#,
            ),
            (&["payload.a.d=x", "payload.c=null"], r#"{"payload":{"a":{"b":1,"d":"x"}}}"#),
            (
                &["callback.headers.x-a=9", "callback.headers.X-B=null"],
                r#"{"callback":{"headers":{"x-a":"9"}}}"#,
            ),
            (
                &["callback.flow.per_minute=9", "callback.flow.key=80"],
                r#"{"callback":{"flow":{"key":"80","parallelism":2,"per_minute":9}}}"#,
            ),
            (
                &["callback.flow=null", "overlap=skip"],
                r#"{"callback":{"flow":null},"overlap":"skip"}"#,
            ),
        ] {
            assert_eq!(patch(&cue, json!({}), texts).unwrap().to_string(), expected, "{texts:?}");
        }
        assert_eq!(
            patch(&json!({}), json!({}), &["payload.a=1"]).unwrap(),
            json!({"payload": {"a": 1}})
        );
        let flags = json!({"name": "x", "schedule": {"cron": "1 * * * *"}});
        let with_flags = patch(&Value::Null, flags.clone(), &["schedule.timezone=UTC"]).unwrap();
        assert_eq!(with_flags["schedule"], json!({"cron": "1 * * * *", "timezone": "UTC"}));
        assert!(patch(&Value::Null, flags, &["name=y"]).is_err(), "twice");
        for bad in [
            &["name=a", "name=b"][..],
            &["schedule=1", "schedule.cron=x"],
            &["name"],
            &[".x=1"],
            &["=1"],
        ] {
            assert!(patch(&Value::Null, json!({}), bad).is_err(), "{bad:?}");
        }
    }
}
