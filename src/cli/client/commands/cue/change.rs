//! `cued cue edit` and `cued cue set`: changes of the fields of a cue, in the editor of the user or by assignments such
//! as `schedule.cron=0 9 * * *`.

use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::Command;

use serde_json::{Map, Value, json};

use crate::api::cue::{FIELDS, REMOVABLE_FIELDS, TEXT_FIELDS};
use crate::cli::client::arguments::{FoundCue, label_of};
use crate::cli::client::command::Call;
use crate::cli::client::commands::cue::next_run;
use crate::cli::client::commands::schedule::with_caret;
use crate::cli::client::context::{Context, ask, environment};
use crate::cli::error::{CliError, cannot, failed, refused, usage};
use crate::cli::input;
use crate::cli::input::yaml;
use crate::cli::output::yaml::ordered;
use crate::cli::printable::printable;
use crate::client::request::{ApiRequest, ClientError};

pub fn edit(call: &Call<'_>) -> Result<(), CliError> {
    let (context, Some(found)) = (call.context, &call.cue) else { return Ok(()) };
    let cue = fetch(context, found)?;
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
        if editable(&fetch(context, found)?) != old {
            let reason = format!("{} was changed in the meantime; nothing was sent", label_of(&cue));
            return Err(refused(reason));
        }
        send(context, found, &patch)
    })
}

/// Sends a change and prints what it changed.
pub fn send(context: &Context, cue: &FoundCue, patch: &Value) -> Result<(), CliError> {
    let request = ApiRequest::patch(cue.path()).json(patch);
    let answer =
        context.send(&request).map_err(|error| with_caret(error, patch["schedule"]["cron"].as_str()))?;
    context.output.done(&answer, "id", |cue| {
        let names: Vec<String> =
            patch.as_object().into_iter().flatten().map(|(name, _)| printable(name)).collect();
        format!("changed {}: {}{}", label_of(cue), names.join(", "), next_run(context, cue))
    })
}

pub fn fetch(context: &Context, cue: &FoundCue) -> Result<Value, CliError> {
    let request = ApiRequest::get(cue.path()).query("execution_limit", "1");
    Ok(context.fetch(&request)?.value()?)
}

/// The fields of a cue that can be changed. A field that cannot be set for the transport is left out.
fn editable(cue: &Value) -> Value {
    let others: &[&str] = match cue["transport"] == "worker" {
        true => &["transport", "callback", "outcome_deadline_seconds"],
        false => &["transport", "claim_within_minutes"],
    };
    let fields = FIELDS.into_iter().filter(|field| !others.contains(field));
    let mut fields: Map<String, Value> = fields.map(|field| (field.to_owned(), cue[field].clone())).collect();
    if let Some(Value::Object(schedule)) = fields.get_mut("schedule") {
        // The type follows from `cron` or `at`; the other of the two is null.
        schedule.retain(|name, value| name != "type" && !value.is_null());
    }
    Value::Object(fields)
}

/// The body of the PATCH that makes `old` to `new`: what differs, object by object. A removed field becomes empty where
/// the API permits it (contract §4.9), and stays elsewhere.
fn difference(old: &Value, new: &Value) -> Value {
    let mut new = new.clone();
    if let Some(fields) = new.as_object_mut() {
        for name in REMOVABLE_FIELDS {
            fields.entry(name).or_insert(Value::Null);
        }
    }
    for (field, part, empty) in [
        ("callback", "headers", json!({})),
        ("callback", "flow", Value::Null),
        ("on_failure", "webhook", Value::Null),
    ] {
        if let Some(Value::Object(parts)) = new.get_mut(field) {
            parts.entry(part).or_insert(empty);
        }
    }
    let mut patch = differing(old, &new);
    for (name, change) in &mut patch {
        // A payload is replaced as a whole.
        if name != "payload" && old[name].is_object() && change.is_object() {
            *change = Value::Object(differing(&old[name], change));
        }
    }
    patch.retain(|name, change| name == "payload" || *change != json!({}));
    Value::Object(patch)
}

/// The entries of `new` that `old` has not.
fn differing(old: &Value, new: &Value) -> Map<String, Value> {
    let entries = new.as_object().into_iter().flatten().filter(|(name, value)| old[*name] != **value);
    entries.map(|(name, value)| (name.clone(), value.clone())).collect()
}

pub fn set(call: &Call<'_>) -> Result<(), CliError> {
    let (texts, Some(found)) = (call.texts("fields"), &call.cue) else { return Ok(()) };
    let needs_cue = texts.iter().any(|text| WHOLE.iter().any(|(field, _)| text.starts_with(field)));
    let cue = if needs_cue { fetch(call.context, found)? } else { Value::Null };
    send(call.context, found, &patch(&cue, &texts)?)
}

/// Fields that the API replaces as a whole, with the number of their names. Their entries change one by one, so the
/// other ones are sent with them.
const WHOLE: [(&str, usize); 3] = [("payload.", 1), ("callback.headers.", 2), ("callback.flow.", 2)];

fn patch(cue: &Value, assignments: &[&str]) -> Result<Value, CliError> {
    let mut patch = json!({});
    for text in assignments {
        let no_value = || usage(format!("{text:?} has no value; an example is name=nightly"));
        let (field, value) = text.split_once('=').ok_or_else(no_value)?;
        let whole = WHOLE.iter().find(|(whole, _)| field.starts_with(whole)).map_or(0, |(_, names)| *names);
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
    let read = if read.len() == text.len() { read } else { read.trim_end_matches(['\n', '\r']).to_owned() };
    let is_text = TEXT_FIELDS.split(' ').any(|text| text == field) || field.starts_with("callback.headers.");
    let is_list = field == "tags";
    Ok(match serde_json::from_str::<Value>(&read) {
        Ok(value) if is_list && (value.is_array() || value.is_null()) => value,
        // As people write a list of words.
        _ if is_list => read.split(',').map(str::trim).filter(|tag| !tag.is_empty()).collect(),
        Ok(value) if !is_text || value.is_null() || value.is_string() => value,
        _ => Value::String(read),
    })
}

/// The parts of fields, in the order of the text.
const PARTS: &str = "cron every at timezone catch_up start end jitter_seconds url method headers timeout_seconds \
     flow key parallelism per_minute max_attempts backoff_minutes backoff_seconds email webhook pause";

pub fn document(fields: &Value, note: &str) -> String {
    let order: Vec<&str> = FIELDS.into_iter().chain(PARTS.split(' ')).collect();
    format!("{note}{}", ordered(fields, &order))
}

pub fn is_empty(text: &str) -> bool {
    text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}

pub fn read(text: &str) -> Result<Value, CliError> {
    let fields = yaml::read(text).and_then(|value| match value {
        Value::Object(_) => Ok(value),
        _ => Err("it is no object of fields".to_owned()),
    });
    fields.map_err(|fault| usage(format!("the text cannot be read: {fault}")))
}

/// Lets the user edit `text`, and passes it to `accept`. An error names the file that has the text.
pub fn edit_until_accepted(
    text: &str,
    mut accept: impl FnMut(&str) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let editor = match environment("VISUAL").or_else(|| environment("EDITOR")) {
        Some(editor) => editor,
        None if io::stdin().is_terminal() => "vi".to_owned(),
        None => {
            let message = "there is no terminal for an editor: set VISUAL or EDITOR";
            return Err(usage(message));
        }
    };
    let failed = |error: io::Error| cannot("keep the text for the editor", error);
    let mut file = tempfile::Builder::new().prefix("cued-").suffix(".yaml").tempfile().map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    loop {
        let error = match accept(&run_editor(&editor, file.path())?) {
            Ok(()) => return Ok(()),
            Err(CliError::OnlyShown) => return Err(CliError::OnlyShown),
            Err(error) => error,
        };
        // Another text may be accepted; a conflict, or a server that cannot be reached, stays.
        let can_be_mended = match &error {
            CliError::Usage(_) => true,
            CliError::Client(ClientError::Refused(refused)) => matches!(refused.status, 400 | 422),
            _ => false,
        };
        if !can_be_mended || !wants_again(&error) {
            let (_, path) = file.keep().map_err(|error| failed(error.error))?;
            return Err(with_note(error, &format!("the text is kept in {}", path.display())));
        }
    }
}

fn run_editor(editor: &str, path: &Path) -> Result<String, CliError> {
    // By the shell, because the variable may have arguments: `code --wait`.
    let script = format!("{editor} \"$1\"");
    let status = Command::new("sh").arg("-c").arg(script).arg("sh").arg(path).status();
    let status = status.map_err(|error| cannot("run the editor", error))?;
    if !status.success() {
        return Err(failed(format!("the editor {editor:?} failed; nothing was changed")));
    }
    // Many editors replace the file, so it is opened by its name.
    fs::read_to_string(path).map_err(|error| cannot("read the edited text", error))
}

/// Asks at a terminal whether to open the editor again, with yes as the usual answer.
fn wants_again(error: &CliError) -> bool {
    let answer = ask(&format!("cued: {error}\nEdit again? [Y/n] "));
    matches!(answer.ok().flatten().as_deref(), Some("" | "y" | "Y" | "yes"))
}

/// The same error with a sentence more, also in its JSON.
fn with_note(error: CliError, note: &str) -> CliError {
    match error {
        CliError::Usage(text) => usage(format!("{text}; {note}")),
        CliError::Refused(text) => refused(format!("{text}; {note}")),
        CliError::Client(ClientError::Refused(mut refused)) => {
            refused.message += &format!("\n{note}");
            refused.body["error"]["message"] = refused.message.as_str().into();
            CliError::Client(ClientError::Refused(refused))
        }
        other => failed(format!("{other}; {note}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_has_only_what_changed() {
        let cue = json!({
            "id": "cue_1", "name": "n", "description": "d", "transport": "webhook", "payload": {"a": 1},
            "schedule": {"type": "recurring", "cron": "0 9 * * *", "at": null, "timezone": "UTC"},
            "callback": {"url": "http://x", "headers": {"A": "1"}, "flow": {"key": "x:80", "per_minute": 5}},
            "retry": {"max_attempts": 4}, "on_failure": {"email": true, "webhook": "http://y"},
        });
        let old = editable(&cue);
        for (field, value, expected) in [
            ("name", json!("n"), json!({})),
            ("schedule", json!({"cron": "1 9 * * *"}), json!({"schedule": {"cron": "1 9 * * *"}})),
            ("schedule", json!({"timezone": "UTC"}), json!({})),
            ("payload", json!({"b": {}}), json!({"payload": {"b": {}}})),
            ("payload", json!({}), json!({"payload": {}})),
            ("on_failure", json!({"email": true}), json!({"on_failure": {"webhook": null}})),
            ("callback", json!({"url": "z"}), json!({"callback": {"url": "z", "headers": {}, "flow": null}})),
            (
                "callback",
                json!({"url": "http://x", "headers": {"A": "1"}, "flow": {"key": "x:80", "per_minute": 9}}),
                json!({"callback": {"flow": {"key": "x:80", "per_minute": 9}}}),
            ),
            ("retry", json!(3), json!({"retry": 3})),
            ("other", json!(1), json!({"other": 1})),
        ] {
            let mut new = old.clone();
            new[field] = value;
            assert_eq!(difference(&old, &new), expected, "{field}");
        }
        let mut new = old.clone();
        new.as_object_mut().unwrap().retain(|name, _| !["name", "description"].contains(&name.as_str()));
        assert_eq!(difference(&old, &new), json!({"description": null}));
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
            (&["payload={a: 12345678901234567890123}"], r#"{"payload":{"a":12345678901234567890123}}"#),
            (&["payload.a.d=x", "payload.c=null"], r#"{"payload":{"a":{"b":1,"d":"x"}}}"#),
            (
                &["callback.headers.x-a=9", "callback.headers.X-B=null"],
                r#"{"callback":{"headers":{"x-a":"9"}}}"#,
            ),
            (
                &["callback.flow.per_minute=9", "callback.flow.key=80"],
                r#"{"callback":{"flow":{"key":"80","parallelism":2,"per_minute":9}}}"#,
            ),
            (&["callback.flow=null", "overlap=skip"], r#"{"callback":{"flow":null},"overlap":"skip"}"#),
        ] {
            assert_eq!(patch(&cue, texts).unwrap().to_string(), expected, "{texts:?}");
        }
        assert_eq!(patch(&json!({}), &["payload.a=1"]).unwrap(), json!({"payload": {"a": 1}}));
        for bad in
            [&["name=a", "name=b"][..], &["schedule=1", "schedule.cron=x"], &["name"], &[".x=1"], &["=1"]]
        {
            assert!(patch(&Value::Null, bad).is_err(), "{bad:?}");
        }
    }
}
