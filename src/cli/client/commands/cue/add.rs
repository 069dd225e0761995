//! `cued cue add`.

use std::str::FromStr as _;

use clap::{Arg, ArgAction};
use jiff::SignedDuration;
use serde_json::{Number, Value, json};

use crate::cli::client::command::{Call, Part, flag, number, own, server_flag, switch, tag_flag, words};
use crate::cli::client::commands::cue;
use crate::cli::client::commands::cue::change::{document, edit_until_accepted, is_empty, read};
use crate::cli::client::commands::schedule::with_caret;
use crate::cli::client::context::Context;
use crate::cli::error::{CliError, usage};
use crate::cli::input;
use crate::cli::output::Format;
use crate::cli::output::table::{parse_duration, text_of};
use crate::cli::printable::printable;
use crate::client::request::{ApiRequest, ApiResponse, segment};
use crate::domain::execution::policies::Overlap;

pub fn arguments() -> [(Arg, Part); 29] {
    let description = "Text for people about the purpose of the cue";
    let cron = "Run by a cron expression: minute, hour, day of month, month, day of week";
    let at = "Run once at an instant; without an offset in the time zone of the schedule";
    let every = "Run at intervals of elapsed time, such as 90s, 5m, 1h30m or 2d";
    let start = "No run before this instant; intervals are counted from it";
    let end = "No run at or after this instant";
    let jitter = "Run later by up to so many seconds, always by the same number";
    let timeout = "Time for one attempt as a whole, 1 to 300 [default: 30]";
    let tz = "Time zone of the schedule, such as Europe/Berlin [default: UTC]";
    let catch_up = "Runs that follow after the server was down";
    let header =
        "Header field of the call, more than once for several; a value of @FILE is the content of a file";
    let payload = "Payload, a JSON or YAML object; @FILE and - read a file and standard input";
    let retries = "Attempts in all, and the pause before each further one: 4:30s,5m,15m, or minutes";
    let actions =
        "Actions after a failed run: email, pause, a URL to call, several of them with commas, or none";
    let minutes = flag("claim-within", "MINUTES", "Minutes that a worker has to claim a run");
    let overlap = "A run that falls due while an earlier one has not finished is skipped, or one waits";
    let max_age = "Give up a run that has not succeeded so long after its time, such as 10m";
    let deadline = "Deadline for the report of a call's result, such as 1h";
    let parallelism = "Calls at once of all cues of its flow";
    let per_minute = "Calls in a minute of all cues of its flow";
    let flow_key = "Name of the flow, whose cues share these limits [default: host and port of the URL]";
    [
        flag("name", "NAME", "Name of the cue").required_unless_present("edit"),
        flag("description", "TEXT", description),
        tag_flag("Tag of the cue, more than once for several"),
        flag("cron", "CRON", cron).group("schedule"),
        flag("at", "TIME", at).group("schedule"),
        flag("every", "TIME", every).group("schedule"),
        flag("start", "TIME", start),
        flag("end", "TIME", end),
        flag("jitter", "SECONDS", jitter).value_parser(clap::value_parser!(u32)),
        flag("tz", "ZONE", tz),
        words("catch-up", "WHICH", &["latest", "all", "none"], catch_up),
        flag("url", "URL", "Call this URL").group("target"),
        server_flag(),
        switch("worker", "Wait for a worker instead of calling a URL").group("target"),
        flag("task", "TASK", "Task of the worker: the key `task` of the payload").requires("worker"),
        flag("timeout", "SECONDS", timeout).conflicts_with("worker").value_parser(clap::value_parser!(u32)),
        flag("method", "METHOD", "Method of the call").conflicts_with("worker"),
        flag("header", "NAME: VALUE", header).conflicts_with("worker").action(ArgAction::Append),
        flag("payload", "JSON|@FILE|-", payload).allow_hyphen_values(true),
        flag("retry", "N:PAUSES", retries).value_parser(retry),
        flag("on-failure", "ACTIONS", actions).value_parser(on_failure),
        minutes.requires("worker").value_parser(clap::value_parser!(u32)),
        words("overlap", "WHICH", &Overlap::WORDS, overlap),
        flag("max-age", "SPAN", max_age).value_parser(parse_duration),
        flag("outcome-deadline", "SPAN", deadline).conflicts_with("worker").value_parser(parse_duration),
        number("parallelism", 64, parallelism).conflicts_with("worker"),
        number("per-minute", 6_000, per_minute).conflicts_with("worker"),
        flag("flow-key", "KEY", flow_key).conflicts_with("worker"),
        switch("edit", "Edit the cue as YAML in an editor before it is added"),
    ]
    .map(own)
}

/// The fields of the API that flags set as they are.
const TEXTS: [(&str, &str); 10] = [
    ("name", "name"),
    ("description", "description"),
    ("cron", "schedule.cron"),
    ("every", "schedule.every"),
    ("start", "schedule.start"),
    ("end", "schedule.end"),
    ("at", "schedule.at"),
    ("tz", "schedule.timezone"),
    ("catch-up", "schedule.catch_up"),
    ("url", "callback.url"),
];

pub fn add(call: &Call<'_>) -> Result<(), CliError> {
    let is_edited = call.is_set("edit");
    let mut body = body(call)?;
    for (flags, reason) in [
        (["cron", "at", "every"], "the cue has no schedule: add --cron, --at or --every (or --edit)"),
        (["url", "worker", "edit"], "the cue has no target: add --url URL or --worker (or --edit)"),
    ] {
        if !is_edited && !flags.iter().any(|flag| call.is_given(flag)) {
            return Err(usage(reason));
        }
    }
    if !is_edited {
        complete(&mut body);
        return submit(call.context, &body);
    }
    let text = document(&with_defaults(body), NEW_NOTE);
    edit_until_accepted(&text, |edited| {
        if is_empty(edited) {
            return Err(usage("the text is empty; no cue was added"));
        }
        let mut body = read(edited)?;
        complete(&mut body);
        submit(call.context, &body)
    })
}

fn body(call: &Call<'_>) -> Result<Value, CliError> {
    let mut body = json!({ "schedule": {} });
    for (flag, path) in TEXTS {
        if let Some(text) = call.text(flag) {
            *path.split('.').fold(&mut body, |value, name| &mut value[name]) = text.into();
        }
    }
    let others = [
        ("payload", payload(call)?),
        ("retry", call.get("retry").cloned()),
        ("on_failure", call.get("on-failure").cloned()),
        ("claim_within_minutes", call.get::<u32>("claim-within").map(|minutes| (*minutes).into())),
        ("transport", call.is_set("worker").then(|| "worker".into())),
        ("overlap", call.text("overlap").map(Value::from)),
        ("max_age_seconds", seconds(call, "max-age")),
        ("outcome_deadline_seconds", seconds(call, "outcome-deadline")),
    ];
    for (field, value) in others.into_iter().filter_map(|(field, value)| Some((field, value?))) {
        body[field] = value;
    }
    if let Some(jitter) = call.get::<u32>("jitter") {
        body["schedule"]["jitter_seconds"] = (*jitter).into();
    }
    if let Some(timeout) = call.get::<u32>("timeout") {
        body["callback"]["timeout_seconds"] = (*timeout).into();
    }
    if let Some(method) = call.text("method") {
        body["callback"]["method"] = method.to_ascii_uppercase().into();
    }
    let tags = call.texts("tag");
    if !tags.is_empty() {
        body["tags"] = json!(tags);
    }
    for text in call.texts("header") {
        let (name, value) = header(text)?;
        body["callback"]["headers"][name] = value.into();
    }
    if let Some(flow) = flow(call)? {
        body["callback"]["flow"] = flow;
    }
    Ok(body)
}

fn seconds(call: &Call<'_>, flag: &str) -> Option<Value> {
    call.get::<SignedDuration>(flag).map(|span| span.as_secs().into())
}

fn flow(call: &Call<'_>) -> Result<Option<Value>, CliError> {
    let number = |flag: &str| call.get::<u32>(flag).map(|number| Value::from(*number));
    let limits = [("parallelism", number("parallelism")), ("per_minute", number("per-minute"))];
    let key = ("key", call.text("flow-key").map(Value::from));
    match (limits.iter().any(|(_, limit)| limit.is_some()), &key.1) {
        (false, Some(_)) => Err(usage("--flow-key needs a limit: add --parallelism, --per-minute, or both")),
        (false, None) => Ok(None),
        (true, _) => {
            let parts = [key].into_iter().chain(limits);
            Ok(Some(parts.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()))
        }
    }
}

fn payload(call: &Call<'_>) -> Result<Option<Value>, CliError> {
    let payload = call.text("payload").map(|text| input::structured("--payload", text)).transpose()?;
    let Some(task) = call.text("task") else { return Ok(payload) };
    let mut payload = payload.unwrap_or_else(|| json!({}));
    if !payload.is_object() {
        return Err(usage("--task needs a payload that is an object"));
    }
    payload["task"] = task.into();
    Ok(Some(payload))
}

const NEW_NOTE: &str = "\
# A new cue. It is added when you save and leave the editor; an empty text adds nothing.
# Delete the callback and set `transport: worker` for a cue of workers; set `at` in place of `cron` for one run.
";

/// The fields of a new cue that flags have not set, so that the editor shows them.
fn with_defaults(mut body: Value) -> Value {
    let mut defaults = json!({
        "name": "", "description": null, "schedule": { "timezone": "UTC", "catch_up": "latest" },
        "transport": "webhook", "payload": {},
        "retry": { "max_attempts": 4, "backoff_minutes": [1, 5, 15] },
        "on_failure": { "email": true, "webhook": null, "pause": false },
    });
    if body["schedule"]["at"].is_null() && body["schedule"]["every"].is_null() {
        defaults["schedule"]["cron"] = "0 9 * * *".into();
    }
    if body["transport"] != "worker" {
        defaults["callback"] = json!({ "url": "", "method": "POST", "headers": {} });
    }
    add_missing(&mut body, defaults);
    if let Some(schedule) = body["schedule"].as_object_mut() {
        // It follows from `cron` or `at`.
        schedule.remove("type");
    }
    body
}

fn add_missing(value: &mut Value, defaults: Value) {
    if let (Value::Object(own), Value::Object(defaults)) = (value, defaults) {
        for (name, default) in defaults {
            match own.get_mut(&name) {
                Some(own) => add_missing(own, default),
                None => drop(own.insert(name, default)),
            }
        }
    }
}

/// The type of the schedule, which the API requires.
fn complete(body: &mut Value) {
    if let Some(schedule) = body.get_mut("schedule").and_then(Value::as_object_mut) {
        let is_once = schedule.get("at").is_some_and(|at| !at.is_null());
        schedule.entry("type").or_insert_with(|| if is_once { "once" } else { "recurring" }.into());
    }
}

fn submit(context: &Context, body: &Value) -> Result<(), CliError> {
    let request = ApiRequest::post("/v1/cues").json(body).idempotent();
    let answer =
        context.send(&request).map_err(|error| with_caret(error, body["schedule"]["cron"].as_str()))?;
    let output = &context.output;
    if let (Some(warning), false) = (answer.value()?["warning"].as_str(), output.format.is_json()) {
        output.note(&format!("warning: {}", printable(warning)))?;
    }
    let words = match output.format {
        Format::Table | Format::Wide => in_words(context, &answer)?,
        _ => String::new(),
    };
    output.object(&answer, "id", |cue| {
        vec![
            ("id", text_of(cue, "id").into()),
            ("name", text_of(cue, "name").into()),
            ("schedule", words.into()),
            ("next run", output.times.instant(&text_of(cue, "next_run")).into()),
        ]
    })
}

/// The schedule in words. A failure of the request does not fail the command: the cue exists already.
fn in_words(context: &Context, answer: &ApiResponse) -> Result<String, CliError> {
    let added = answer.value()?;
    let path = format!("/v1/cues/{}/upcoming", segment(&text_of(&added, "id")));
    let request = ApiRequest::get(path).query("limit", "1").query("detail", "true");
    let described = context.fetch(&request).and_then(|answer| Ok(text_of(&answer.value()?, "description")));
    Ok(described.unwrap_or_else(|_| cue::schedule(context, &added)))
}

/// `--retry 4:30s,5m`: attempts, and the pause before each further one; a number alone is of minutes.
fn retry(text: &str) -> Result<Value, String> {
    let number = |text: &str| Number::from_str(text.trim()).ok();
    let read = || match text.split_once(':') {
        None => Some(json!({ "max_attempts": number(text)? })),
        Some((attempts, pauses)) => {
            let attempts = number(attempts)?;
            let minutes: Option<Vec<Number>> = pauses.split(',').map(number).collect();
            if let Some(minutes) = minutes {
                return Some(json!({ "max_attempts": attempts, "backoff_minutes": minutes }));
            }
            let seconds = |text: &str| Some(parse_duration(text.trim()).ok()?.as_secs());
            let seconds: Option<Vec<i64>> = pauses.split(',').map(seconds).collect();
            Some(json!({ "max_attempts": attempts, "backoff_seconds": seconds? }))
        }
    };
    read().ok_or_else(|| {
        "an example is 4:30s,5m,15m, four attempts after 30 seconds, 5 and 15 minutes".to_owned()
    })
}

/// `--on-failure email,pause,URL`: exactly these actions.
fn on_failure(text: &str) -> Result<Value, String> {
    let mut actions = json!({ "email": false, "pause": false, "webhook": null });
    for word in text.split(',').map(str::trim) {
        match word {
            "none" if text.trim() == "none" => {}
            "email" | "pause" => actions[word] = true.into(),
            url if url.contains("://") && actions["webhook"].is_null() => actions["webhook"] = url.into(),
            url if url.contains("://") => return Err("there is one URL at most".to_owned()),
            other => return Err(format!("{other:?} is none of email, pause, a URL and none")),
        }
    }
    Ok(actions)
}

/// The name and the value of a header field; `@FILE` has the value in a file, so that it is not in the list of
/// processes.
fn header(text: &str) -> Result<(String, String), CliError> {
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| usage(format!("--header: {text:?} has no colon; an example is 'X-Source: cued'")))?;
    let value = match value.trim() {
        file if file.starts_with('@') => input::text("--header", file)?.trim().to_owned(),
        value => value.to_owned(),
    };
    Ok((name.trim().to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_and_on_failure_are_read_as_objects_of_the_api() {
        for (read, expected) in [
            (retry("4:1,5.5, 15"), r#"{"backoff_minutes":[1,5.5,15],"max_attempts":4}"#),
            (retry("3:30s, 2m"), r#"{"backoff_seconds":[30,120],"max_attempts":3}"#),
            (retry("1"), r#"{"max_attempts":1}"#),
            (on_failure("none"), r#"{"email":false,"pause":false,"webhook":null}"#),
            (on_failure("pause, http://x/a"), r#"{"email":false,"pause":true,"webhook":"http://x/a"}"#),
        ] {
            assert_eq!(read.unwrap().to_string(), expected);
        }
        let bad_retry = ["", "x", "4:", "4:1,,2", "4:a", ":1"];
        assert!(bad_retry.iter().all(|bad| retry(bad).is_err()));
        let bad_actions = ["mail", "http://a,http://b", "email,none"];
        assert!(bad_actions.iter().all(|bad| on_failure(bad).is_err()));
    }
}
