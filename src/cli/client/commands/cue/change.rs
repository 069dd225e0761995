//! `cued cue edit` and `cued cue set`: changes of the fields of a cue, in the editor of the user or by assignments such as
//! `schedule.cron=0 9 * * *`.

use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::Command;

use serde_json::{Map, Value, json};

use crate::api::cue::{FIELDS, REMOVABLE_FIELDS};
use crate::cli::client::arguments::{FoundCue, find, label_of};
use crate::cli::client::command::Call;
use crate::cli::client::commands::cue::next_run;
use crate::cli::client::commands::schedule::with_caret;
use crate::cli::client::context::{Context, environment};
use crate::cli::error::{CliError, cannot, failed, refused, usage};
use crate::cli::input;
use crate::cli::input::yaml;
use crate::cli::output::yaml::document_of;
use crate::cli::printable::{print_error, printable};
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
            let reason = format!("{} was changed meanwhile; nothing was sent", label_of(&cue));
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
    Ok(context.look_up(&request)?.value()?)
}

/// The fields of a cue that can be changed. A field that cannot be set for the transport is left out.
fn editable(cue: &Value) -> Value {
    let other = if cue["transport"] == "worker" { "callback" } else { "claim_within_minutes" };
    let fields = FIELDS.into_iter().filter(|field| ![other, "transport"].contains(field));
    let mut fields: Map<String, Value> = fields.map(|field| (field.to_owned(), cue[field].clone())).collect();
    if let Some(Value::Object(schedule)) = fields.get_mut("schedule") {
        // The type follows from `cron` or `at`; the other of the two is null.
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

/// Fields of text: a value such as `123` is text there, and not a number.
const TEXTS: &str = "name description status schedule.type schedule.cron schedule.at schedule.timezone \
    schedule.catch_up callback.url callback.method on_failure.webhook verification.mode";

pub fn set(call: &Call<'_>) -> Result<(), CliError> {
    let texts = call.texts("fields");
    let assignments: Vec<Assignment> = texts.into_iter().map(Assignment::parse).collect::<Result<_, _>>()?;
    let found = find(call.context, call.text("cue").unwrap_or_default())?;
    let needs_cue = assignments.iter().any(|assignment| assignment.whole.is_some());
    let cue = if needs_cue { fetch(call.context, &found)? } else { Value::Null };
    send(call.context, &found, &patch(&cue, assignments)?)
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
            return Err(usage(format!("{text:?} has no value; an example is name=nightly")));
        };
        let is_header = field.starts_with("callback.headers.");
        // The name of a header field may have dots.
        let path: Vec<String> =
            field.splitn(if is_header { 3 } else { usize::MAX }, '.').map(str::to_owned).collect();
        if path.iter().any(String::is_empty) {
            return Err(usage(format!(
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
        if let (true, Some(place)) = (value.is_object(), entry_at(&mut patch, whole)) {
            *place = value.clone();
        }
    }
    for Assignment { path, whole, value } in assignments {
        let conflict = || usage(format!("{} is given twice, or beside a field around it", path.join(".")));
        let (name, around) = path.split_last().ok_or_else(conflict)?;
        let Some(Value::Object(object)) = entry_at(&mut patch, around) else { return Err(conflict()) };
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

/// The value at a path; creates missing objects on the way. `None` if there is something else on the way.
fn entry_at<'a>(value: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |value, name| {
        let object = value.as_object_mut()?;
        Some(object.entry(name.as_str()).or_insert_with(|| Value::Object(Map::new())))
    })
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
    let is_text = TEXTS.split(' ').any(|text| text == field) || field.starts_with("callback.headers.");
    Ok(match serde_json::from_str::<Value>(&read) {
        Ok(value) if !is_text || value.is_null() || value.is_string() => value,
        _ => Value::String(read),
    })
}

/// The parts of fields, in the order of the text.
const PARTS: &str =
    "cron at timezone catch_up url method headers max_attempts backoff_minutes email webhook pause";

/// The text of an object: `note`, then the fields of a cue that it has.
pub fn document(object: &Value, note: &str) -> String {
    let mut text = note.to_owned();
    for field in FIELDS {
        match object.get(field) {
            // A payload has no order of its own.
            Some(Value::Object(parts)) if !parts.is_empty() && field != "payload" => {
                text += &format!("{field}:\n");
                let mut parts: Vec<(&String, &Value)> = parts.iter().collect();
                parts.sort_by_key(|(name, _)| PARTS.split(' ').position(|part| part == *name).unwrap_or(99));
                for (name, value) in parts {
                    let entry = document_of(&json!({ name: value }));
                    text.extend(entry.lines().map(|line| format!("  {line}\n")));
                }
            }
            Some(value) => text += &document_of(&json!({ field: value })),
            None => {}
        }
    }
    text
}

/// The text has nothing but comments.
pub fn is_empty(text: &str) -> bool {
    text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}

/// The fields in an edited text.
pub fn read(text: &str) -> Result<Value, CliError> {
    let fault = match yaml::read(text) {
        Ok(value) if value.is_object() => return Ok(value),
        Ok(_) => "it is no object of fields".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(usage(format!("the text cannot be read: {fault}")))
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

/// Opens the editor and returns the text afterwards.
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
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return false;
    }
    let mut answer = String::new();
    let mut ask = || {
        print_error(&format!("cued: {error}\nEdit again? [Y/n] "))?;
        io::stdin().read_line(&mut answer)
    };
    // The end of the input, or an input that cannot be read, is a no.
    matches!(ask(), Ok(1..)) && matches!(answer.trim(), "" | "y" | "Y" | "yes")
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
