//! `cued cue edit` and `cued cue set`: changes of the fields of a cue, in the editor of the user, by the flags of
//! `cued cue add`, and by assignments such as `schedule.cron=0 9 * * *`.

use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::Command;

use clap::Arg;
use serde_json::{Map, Value, json};

use crate::api::cue_names::{FIELDS, field_paths, is_text_field, removable_fields, unfit_fields};
use crate::cli::client::arguments::{FoundCue, label_of, schedule};
use crate::cli::client::command::{Call, Entry, Part, cue, own, place, row};
use crate::cli::client::commands::apply::export::differing;
use crate::cli::client::commands::cue::{NEXT_RUN, flags};
use crate::cli::client::commands::schedule::{
    change_of_clocks, described, note, send_fields, understand_fields,
};
use crate::cli::client::context::{Context, ask, environment};
use crate::cli::client::forms::filled;
use crate::cli::client::refusals::reworded;
use crate::cli::error::{CliError, Result, cannot, failed, in_quotes, refused, usage};
use crate::cli::input::{self, yaml};
use crate::cli::output::table::text_of;
use crate::cli::output::yaml::ordered;
use crate::cli::output::{Format, print_note};
use crate::client::request::{ApiRequest, ApiResponse, ClientError, segment};
use crate::domain::cue_fields::Transport;

pub fn edit(call: &Call<'_>) -> Result {
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
            return print_note("the text is empty; nothing was changed");
        }
        let new = read(edited)?;
        let patch = difference(&old, &new);
        if patch == json!({}) {
            return print_note("nothing was changed");
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
pub fn send(context: &Context, cue: &FoundCue, patch: &Value) -> Result {
    let mut patch = patch.clone();
    let understood = match patch.get_mut("schedule") {
        Some(schedule) => understand_fields(context, schedule, || zone_of(context, cue))?,
        None => None,
    };
    let answer = send_fields(context, ApiRequest::patch(cue.path()), &patch)?;
    context.output.done(&answer, "id", |cue| {
        let names: Vec<&str> =
            patch.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        format!("changed {}: {}{}", label_of(cue), names.join(", "), filled(NEXT_RUN, context, cue))
    })?;
    understood.map_or(Ok(()), |understood| note(context, &understood))
}

/// Prints a cue that is there as wanted now. `result` may be empty.
pub fn print_added(context: &Context, answer: &ApiResponse, result: &str) -> Result {
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
fn in_words(context: &Context, answer: &ApiResponse) -> Result<(String, String)> {
    let added = answer.value()?;
    let path = format!("/v1/cues/{}/upcoming", segment(&text_of(&added, "id")));
    let request = ApiRequest::get(path).query("limit", "1").query("detail", "true");
    let Ok(mut next) = context.fetch(&request).and_then(|answer| Ok(answer.value()?)) else {
        return Ok((schedule(context, &added), String::new()));
    };
    next["schedule"] = added["schedule"].clone();
    Ok((described(&next), change_of_clocks(&next)))
}

/// The time zone of the schedule of a cue.
pub fn zone_of(context: &Context, cue: &FoundCue) -> Result<String> {
    Ok(text_of(&fetch(context, cue)?, "schedule.timezone"))
}

pub fn fetch(context: &Context, cue: &FoundCue) -> Result<Value> {
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
    let mut patch = differing(new, old);
    for (name, change) in &mut patch {
        // A payload is replaced as a whole.
        if name != "payload" && old[name].is_object() && change.is_object() {
            *change = Value::Object(differing(change, &old[name]));
        }
    }
    patch.retain(|name, change| name == "payload" || *change != json!({}));
    Value::Object(patch)
}

pub fn document(fields: &Value, note: &str) -> String {
    let names = field_paths().map(|path| path.rsplit('.').next().unwrap_or(path));
    format!("{note}{}", ordered(fields, &names.collect::<Vec<_>>()))
}

pub fn is_empty(text: &str) -> bool {
    text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}

pub fn read(text: &str) -> Result<Value> {
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
    mut accept: impl FnMut(&str) -> Result,
) -> Result {
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
        let can_be_mended =
            matches!(error, CliError::Usage(_)) || matches!(error.status(), Some(400 | 422));
        let answer = if can_be_mended { wants_again(&error) } else { None };
        if answer != Some(true) {
            let (_, path) = file.keep().map_err(|error| failed(error.error))?;
            let note = format!("the text is kept in {}", path.display());
            return Err(match (answer, error) {
                (None, error) => with_note(error, &note),
                // The question has the error already.
                (_, CliError::Usage(_)) => with_note(usage("nothing was changed"), &note),
                (_, error) => with_note(error.saying("nothing was changed"), &note),
            });
        }
    }
}

fn run_editor(editor: &str, path: &Path) -> Result<String> {
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

/// The same error with a sentence more, also in its JSON.
fn with_note(mut error: CliError, note: &str) -> CliError {
    let text = error.to_string();
    let text = format!("{text}{}{note}", if text.contains('\n') { "\n" } else { "; " });
    match &mut error {
        CliError::Usage(own) | CliError::Refused(own) => *own = text,
        CliError::Client(ClientError::Refused(refused)) => {
            refused.body["error"]["message"] = text.as_str().into();
            refused.say(text);
        }
        _ => return failed(text),
    }
    error
}

const ASSIGNMENT: &str = "Field and value: name=x, schedule.cron='0 3 * * *', tags=a,b, payload=@payload.json, retry.max_attempts=3";

const ZONE: &str =
    "Time zone of the schedule, such as Europe/Berlin or Berlin [default: that of the cue]";

pub fn set_entry() -> Entry {
    row(
        "set",
        "Change fields of a cue\n\nThe flags are those of `cued cue add`; --tag replaces all tags and --payload the payload. FIELD=VALUE sets \
         any field, with a dot before a field inside another. The value is JSON if it can be read as JSON, else text; \
         @FILE reads a file and - standard input (but not for the cron expression and the name), null removes what may be \
         removed. Headers, keys of the payload and parts of the flow change one by one.",
    )
    .args(arguments())
    .code(set)
    .short(flags::SHORT_FLAGS)
}

/// The flags of `cue add` without `--worker`: a cue does not change its transport.
fn arguments() -> impl Iterator<Item = (Arg, Part)> {
    let fields = place("fields", "FIELD=VALUE", ASSIGNMENT).required(false).num_args(1..);
    let flags = flags::flags().filter(|(arg, _)| arg.get_id() != "worker");
    let with_zone = |arg: Arg| if arg.get_id() == "tz" { arg.help(ZONE) } else { arg };
    let flags = flags.map(move |(arg, part)| (with_zone(arg), part));
    [cue(), own(fields)].into_iter().chain(flags)
}

fn set(call: &Call<'_>) -> Result {
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
fn patch(cue: &Value, flags: Value, assignments: &[&str]) -> Result<Value> {
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

fn value_of(field: &str, text: &str) -> Result<Value> {
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
            (json!({"name": "x"}), None, json!({"name": "x"})),
            (
                json!({"schedule": {"every": "5m"}, "callback": {"headers": {"x-a": "2", "B": "3"}}}),
                None,
                json!({"schedule": {"every": "5m"}, "callback": {"headers": {"x-a": "2", "B": "3"}}}),
            ),
            (
                json!({"callback": {"headers": {"B": "3"}, "flow": {"per_minute": 9}}}),
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
