//! `cued cue edit`: changes of the fields of a cue in the editor of the user.

use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::Command;

use serde_json::{Map, Value, json};

use crate::api::cue_names::{FIELDS, field_paths, removable_fields, unfit_fields};
use crate::cli::client::command::Call;
use crate::cli::client::commands::cue::next_run;
use crate::cli::client::commands::schedule::{note, send_fields, understand_fields};
use crate::cli::client::context::{Context, ask, environment};
use crate::cli::client::cues::{FoundCue, label_of, schedule};
use crate::cli::client::refusals::reworded;
use crate::cli::error::{CliError, cannot, failed, refused, usage};
use crate::cli::input::yaml;
use crate::cli::output::Format;
use crate::cli::output::table::text_of;
use crate::cli::output::yaml::ordered;
use crate::cli::printable::printable;
use crate::client::request::{ApiRequest, ApiResponse, ClientError, segment};
use crate::domain::cue_fields::Transport;

pub fn edit(call: &Call<'_>) -> Result<(), CliError> {
    let (context, Some(found)) = (call.context, &call.cue) else { return Ok(()) };
    let cue = fetch(context, found)?;
    let old = editable(&cue);
    let note = format!(
        "# {}\n# Changes are sent when you save and leave the editor.\n\
             # A removed description, payload or limit is removed; other fields stay as they are.\n",
        label_of(&cue)
    );
    edit_until_accepted(context, &document(&old, &note), |edited| {
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
            let reason =
                format!("{} was changed in the meantime; nothing was sent", label_of(&cue));
            return Err(refused(reason));
        }
        send(context, found, &patch)
    })
}

/// Sends a change and prints what it changed. A schedule may be in words.
pub fn send(context: &Context, cue: &FoundCue, patch: &Value) -> Result<(), CliError> {
    let mut patch = patch.clone();
    let understood = match patch.get_mut("schedule") {
        Some(schedule) => understand_fields(context, schedule, || zone_of(context, cue))?,
        None => None,
    };
    let answer = send_fields(context, ApiRequest::patch(cue.path()), &patch)?;
    context.output.done(&answer, "id", |cue| {
        let names: Vec<String> =
            patch.as_object().into_iter().flatten().map(|(name, _)| printable(name)).collect();
        format!("changed {}: {}{}", label_of(cue), names.join(", "), next_run(context, cue))
    })?;
    understood.map_or(Ok(()), |understood| note(context, &understood))
}

/// Prints a cue that is there as wanted now. `result` may be empty.
pub fn print_added(context: &Context, answer: &ApiResponse, result: &str) -> Result<(), CliError> {
    let output = &context.output;
    let (words, change) = match output.format {
        Format::Table | Format::Wide => in_words(context, answer)?,
        _ => Default::default(),
    };
    output.object(answer, "id", |cue| {
        vec![
            ("result", result.into()),
            ("id", text_of(cue, "id").into()),
            ("name", text_of(cue, "name").into()),
            ("schedule", words.into()),
            (
                "next run",
                format!("{}{change}", output.times.instant(&text_of(cue, "next_run"))).into(),
            ),
        ]
    })
}

/// The schedule in words, and what a change of the clocks does to the next run. A failure of the request does not fail the
/// command: the cue exists already.
fn in_words(context: &Context, answer: &ApiResponse) -> Result<(String, String), CliError> {
    let added = answer.value()?;
    let path = format!("/v1/cues/{}/upcoming", segment(&text_of(&added, "id")));
    let request = ApiRequest::get(path).query("limit", "1").query("detail", "true");
    let Ok(described) = context.fetch(&request).and_then(|answer| Ok(answer.value()?)) else {
        return Ok((schedule(context, &added), String::new()));
    };
    let (words, cron) = (text_of(&described, "description"), text_of(&added, "schedule.cron"));
    let words = if cron.is_empty() { words } else { format!("{words}: {cron}") };
    let change = described["occurrences"][0]["note"].as_str();
    Ok((words, change.map(|change| format!(" ({change})")).unwrap_or_default()))
}

/// The time zone of the schedule of a cue.
pub fn zone_of(context: &Context, cue: &FoundCue) -> Result<String, CliError> {
    Ok(text_of(&fetch(context, cue)?, "schedule.timezone"))
}

pub fn fetch(context: &Context, cue: &FoundCue) -> Result<Value, CliError> {
    let request = ApiRequest::get(cue.path()).query("execution_limit", "1");
    Ok(context.fetch(&request)?.value()?)
}

/// The fields of a cue that can be changed. A field that cannot be set for the transport is left out.
pub fn editable(cue: &Value) -> Value {
    let is_worker = cue["transport"] == "worker";
    let transport = if is_worker { Transport::Worker } else { Transport::Webhook };
    let others: Vec<&str> = unfit_fields(transport).chain(["transport"]).collect();
    let fields = FIELDS.into_iter().filter(|field| !others.contains(field));
    let mut fields: Map<String, Value> =
        fields.map(|field| (field.to_owned(), cue[field].clone())).collect();
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
        for name in removable_fields() {
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
    changed(old, &new)
}

/// The fields of `new` that `old` has not; of an object only the parts.
pub fn changed(old: &Value, new: &Value) -> Value {
    let mut patch = differing(old, new);
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
    let entries =
        new.as_object().into_iter().flatten().filter(|(name, value)| old[*name] != **value);
    entries.map(|(name, value)| (name.clone(), value.clone())).collect()
}

pub fn document(fields: &Value, note: &str) -> String {
    let names = field_paths().map(|path| path.rsplit('.').next().unwrap_or(path));
    format!("{note}{}", ordered(fields, &names.collect::<Vec<_>>()))
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
    context: &Context,
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
    let mut file =
        tempfile::Builder::new().prefix("cued-").suffix(".yaml").tempfile().map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    loop {
        let error = match accept(&run_editor(&editor, file.path())?) {
            Ok(()) => return Ok(()),
            Err(CliError::OnlyShown) => return Err(CliError::OnlyShown),
            // In the words that the person reads, which name the fields of the text.
            Err(error) => reworded(error, &context.target, &|_| None),
        };
        // Another text may be accepted; a conflict, or a server that cannot be reached, stays.
        let can_be_mended = match &error {
            CliError::Usage(_) => true,
            CliError::Client(ClientError::Refused(refused)) => matches!(refused.status, 400 | 422),
            _ => false,
        };
        let answer = if can_be_mended { wants_again(&error) } else { None };
        if answer != Some(true) {
            let (_, path) = file.keep().map_err(|error| failed(error.error))?;
            let note = format!("the text is kept in {}", path.display());
            // The question has the error already.
            let error =
                if answer.is_some() { with_text(error, "nothing was changed") } else { error };
            return Err(with_note(error, &note));
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

/// Asks at a terminal whether to open the editor again, with yes as the usual answer. `None` if nobody can be asked.
fn wants_again(error: &CliError) -> Option<bool> {
    let answer = ask(&format!("cued: {error}\nEdit again? [Y/n] ")).ok().flatten()?;
    Some(matches!(answer.as_str(), "" | "y" | "Y" | "yes"))
}

/// An error of the same kind.
fn with_text(error: CliError, text: &str) -> CliError {
    match error {
        CliError::Client(ClientError::Refused(mut refused)) => {
            refused.say(text.to_owned());
            CliError::Client(ClientError::Refused(refused))
        }
        _ => usage(text),
    }
}

/// The same error with a sentence more, also in its JSON.
fn with_note(error: CliError, note: &str) -> CliError {
    match error {
        CliError::Usage(text) => usage(format!("{text}; {note}")),
        CliError::Refused(text) => refused(format!("{text}; {note}")),
        CliError::Client(ClientError::Refused(mut refused)) => {
            let text = refused.to_string();
            let text = format!("{text}{}{note}", if text.contains('\n') { "\n" } else { "; " });
            refused.body["error"]["message"] = text.as_str().into();
            refused.say(text);
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
            (
                "callback",
                json!({"url": "z"}),
                json!({"callback": {"url": "z", "headers": {}, "flow": null}}),
            ),
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
        new.as_object_mut()
            .unwrap()
            .retain(|name, _| !["name", "description"].contains(&name.as_str()));
        assert_eq!(difference(&old, &new), json!({"description": null}));
    }
}
