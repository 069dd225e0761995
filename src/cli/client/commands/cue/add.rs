//! `cued cue add`.

use std::str::FromStr as _;

use clap::{Arg, ArgAction};
use serde_json::{Number, Value, json};

use crate::cli::client::command::{Call, Part, flag, own, switch, words};
use crate::cli::client::commands::cue;
use crate::cli::client::commands::cue::change::{document, edit_until_accepted, is_empty, read};
use crate::cli::client::commands::schedule::with_caret;
use crate::cli::client::context::Context;
use crate::cli::error::{CliError, usage};
use crate::cli::input;
use crate::cli::output::Format;
use crate::cli::output::table::{parse_duration, text_of};
use crate::cli::printable::printable;
use crate::client::request::{Answer, ApiRequest, segment};

const HOUR: i64 = 60;
const DAY: i64 = 24 * HOUR;

pub fn arguments() -> [(Arg, Part); 18] {
    let description = "Text for people about the purpose of the cue";
    let cron = "Run by a cron expression: minute, hour, day of month, month, day of week";
    let at = "Run once at an instant; without an offset in the time zone of the schedule";
    let every = "Run every so many minutes or hours, such as 5m, 2h or 1d";
    let tz = "Time zone of the schedule, such as Europe/Berlin [default: UTC]";
    let catch_up = "Runs that follow after the server was down";
    let server = "Base URL of the server, which other commands name with --url";
    let header =
        "Header field of the call, more than once for several; a value of @FILE is the content of a file";
    let payload = "Payload, a JSON or YAML object; @FILE and - read a file and standard input";
    let retries = "Attempts in all, and minutes before each further one: 4:1,5,15";
    let actions =
        "Actions after a failed run: email, pause, a URL to call, several of them with commas, or none";
    let minutes = flag("claim-within", "MINUTES", "Minutes that a worker has to claim a run");
    [
        flag("name", "NAME", "Name of the cue").required_unless_present("edit"),
        flag("description", "TEXT", description),
        flag("cron", "CRON", cron).group("schedule"),
        flag("at", "TIME", at).group("schedule"),
        flag("every", "TIME", every).group("schedule").value_parser(even_cron),
        flag("tz", "ZONE", tz),
        words("catch-up", "WHICH", &["latest", "all", "none"], catch_up),
        flag("url", "URL", "Call this URL").group("target"),
        flag("server", "URL", server).help_heading("Server and output"),
        switch("worker", "Wait for a worker instead of calling a URL").group("target"),
        flag("task", "TASK", "Task of the worker: the key `task` of the payload").requires("worker"),
        flag("method", "METHOD", "Method of the call").conflicts_with("worker"),
        flag("header", "NAME: VALUE", header).conflicts_with("worker").action(ArgAction::Append),
        flag("payload", "JSON|@FILE|-", payload).allow_hyphen_values(true),
        flag("retry", "N:MINUTES", retries).value_parser(retry),
        flag("on-failure", "ACTIONS", actions).value_parser(on_failure),
        minutes.requires("worker").value_parser(clap::value_parser!(u32)),
        switch("edit", "Edit the cue as YAML in an editor before it is added"),
    ]
    .map(own)
}

pub fn add(call: &Call<'_>) -> Result<(), CliError> {
    let body = body(call)?;
    if !call.is_set("edit") {
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
    let text = |id: &str| call.text(id).map(Value::from);
    let fields = [
        ("schedule", Some(schedule(call)?)),
        ("name", text("name")),
        ("description", text("description")),
        ("payload", payload(call)?),
        ("retry", call.get("retry").cloned()),
        ("on_failure", call.get("on-failure").cloned()),
        ("claim_within_minutes", call.get::<u32>("claim-within").map(|minutes| (*minutes).into())),
        ("transport", call.is_set("worker").then(|| "worker".into())),
        ("callback", callback(call)?),
    ];
    let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Ok(Value::Object(fields.collect()))
}

fn schedule(call: &Call<'_>) -> Result<Value, CliError> {
    let mut schedule = match (call.text("cron").or(call.text("every")), call.text("at")) {
        (Some(cron), _) => json!({ "type": "recurring", "cron": cron }),
        (None, Some(at)) => json!({ "type": "once", "at": at }),
        (None, None) if call.is_set("edit") => json!({}),
        (None, None) => {
            let reason = "the cue has no schedule: add --cron, --at or --every (or --edit)";
            return Err(usage(reason));
        }
    };
    for (name, id) in [("timezone", "tz"), ("catch_up", "catch-up")] {
        if let Some(value) = call.text(id) {
            schedule[name] = value.into();
        }
    }
    Ok(schedule)
}

fn callback(call: &Call<'_>) -> Result<Option<Value>, CliError> {
    if call.is_set("worker") {
        return Ok(None);
    }
    let mut callback = match call.text("url") {
        Some(url) => json!({ "url": url }),
        None if call.is_set("edit") => json!({}),
        None => {
            let reason = "the cue has no target: add --url URL or --worker (or --edit)";
            return Err(usage(reason));
        }
    };
    if let Some(method) = call.text("method") {
        callback["method"] = method.to_ascii_uppercase().into();
    }
    for text in call.texts("header") {
        let (name, value) = header(text)?;
        callback["headers"][name] = value.into();
    }
    Ok(Some(callback))
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
    let is_worker = body["transport"] == "worker";
    let defaults = json!({
        "name": "", "description": null, "schedule": { "timezone": "UTC", "catch_up": "latest" },
        "transport": "webhook", "payload": {},
        "retry": { "max_attempts": 4, "backoff_minutes": [1, 5, 15] },
        "on_failure": { "email": true, "webhook": null, "pause": false },
    });
    add_missing(&mut body, defaults);
    if body["schedule"]["at"].is_null() {
        add_missing(&mut body, json!({ "schedule": { "cron": "0 9 * * *" } }));
    }
    if !is_worker {
        add_missing(&mut body, json!({ "callback": { "url": "", "method": "POST", "headers": {} } }));
    }
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

/// The schedule in words. The cue was added, so a failure here is none of the command.
fn in_words(context: &Context, answer: &Answer) -> Result<String, CliError> {
    let added = answer.value()?;
    let path = format!("/v1/cues/{}/upcoming", segment(&text_of(&added, "id")));
    let request = ApiRequest::get(path).query("limit", "1").query("detail", "true");
    let described = context.look_up(&request).and_then(|answer| Ok(text_of(&answer.value()?, "description")));
    Ok(described.unwrap_or_else(|_| cue::schedule(context, &added)))
}

/// `--retry 4:1,5,15`: attempts, and minutes before each further one.
fn retry(text: &str) -> Result<Value, String> {
    let error = || "an example is 4:1,5,15, four attempts after 1, 5 and 15 minutes".to_owned();
    let (attempts, minutes) = match text.split_once(':') {
        Some((attempts, minutes)) => (attempts, Some(minutes)),
        None => (text, None),
    };
    let attempts: u32 = attempts.trim().parse().map_err(|_| error())?;
    let mut retry = json!({ "max_attempts": attempts });
    if let Some(minutes) = minutes {
        let minutes = minutes.split(',').map(|minutes| Number::from_str(minutes.trim()).map_err(|_| error()));
        retry["backoff_minutes"] = json!(minutes.collect::<Result<Vec<_>, _>>()?);
    }
    Ok(retry)
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

/// The name and the value of a header field; `@FILE` has the value in a file, so that it is not in the list of processes.
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

/// `--every 15m`: the cron expression of an even interval.
/// Errors: if there is none. The reason proposes what is near.
fn even_cron(text: &str) -> Result<String, String> {
    let seconds = parse_duration(text)?.as_secs();
    let minutes = seconds / 60;
    let hourly = |hours: i64| if hours == 1 { "0 * * * *".to_owned() } else { format!("0 */{hours} * * *") };
    match minutes {
        _ if seconds % 60 != 0 => Err("a schedule has no seconds; the shortest interval is 1m".to_owned()),
        1 => Ok("* * * * *".to_owned()),
        DAY => Ok("0 0 * * *".to_owned()),
        HOUR.. if minutes < DAY && DAY % minutes == 0 && minutes % HOUR == 0 => Ok(hourly(minutes / HOUR)),
        ..HOUR if HOUR % minutes == 0 => Ok(format!("*/{minutes} * * * *")),
        ..HOUR => Err(format!(
            "{minutes} minutes do not divide the hour; {}m is even, and --cron '*/{minutes} * * * *' begins again with \
             each hour",
            nearest(HOUR, minutes)
        )),
        _ if minutes > DAY => {
            let proposal = match minutes / DAY {
                7 if minutes % DAY == 0 => "--cron '0 0 * * 1' runs on each Monday".to_owned(),
                days @ 2..=15 => format!("--cron '0 0 */{days} * *' begins again with each month"),
                _ => "--cron '0 0 1 * *' runs on the first of each month".to_owned(),
            };
            Err(format!("an interval has a day at most; {proposal}"))
        }
        _ if minutes % HOUR != 0 => {
            let hours = nearest(DAY / HOUR, minutes / HOUR);
            Err(format!("{text} is no whole number of hours; {hours}h is even: --cron '{}'", hourly(hours)))
        }
        _ => Err(format!(
            "{hours} hours do not divide the day; {}h is even, and --cron '{}' begins again with each day",
            nearest(DAY / HOUR, minutes / HOUR),
            hourly(minutes / HOUR),
            hours = minutes / HOUR
        )),
    }
}

/// The divisor of `whole` that is nearest to `number`.
fn nearest(whole: i64, number: i64) -> i64 {
    let divisors = (1..whole).filter(|divisor| whole % divisor == 0);
    divisors.min_by_key(|divisor| (divisor - number).abs()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_and_on_failure_are_read_as_objects_of_the_api() {
        for (read, expected) in [
            (retry("4:1,5.5, 15"), r#"{"backoff_minutes":[1,5.5,15],"max_attempts":4}"#),
            (retry("1"), r#"{"max_attempts":1}"#),
            (on_failure("none"), r#"{"email":false,"pause":false,"webhook":null}"#),
            (
                on_failure("pause, https://x.test/a"),
                r#"{"email":false,"pause":true,"webhook":"https://x.test/a"}"#,
            ),
        ] {
            assert_eq!(read.unwrap().to_string(), expected);
        }
        let bad_retry = ["", "x", "4:", "4:1,,2", "4:a", ":1"];
        assert!(bad_retry.iter().all(|bad| retry(bad).is_err()));
        let bad_actions = ["mail", "http://a,http://b", "email,none"];
        assert!(bad_actions.iter().all(|bad| on_failure(bad).is_err()));
    }

    #[test]
    fn even_intervals_are_cron_expressions_and_others_have_a_proposal() {
        for (text, cron) in [
            ("1m", "* * * * *"),
            ("5m", "*/5 * * * *"),
            ("30m", "*/30 * * * *"),
            ("60m", "0 * * * *"),
            ("1h", "0 * * * *"),
            ("2h", "0 */2 * * *"),
            ("12h", "0 */12 * * *"),
            ("24h", "0 0 * * *"),
            ("1d", "0 0 * * *"),
        ] {
            assert_eq!(even_cron(text).unwrap(), cron);
        }
        for (text, proposal) in [
            ("7m", "--cron '*/7 * * * *'"),
            ("45m", "30m is even"),
            ("90m", "--cron '0 * * * *'"),
            ("5h", "4h is even"),
            ("7d", "--cron '0 0 * * 1'"),
            ("2d", "--cron '0 0 */2 * *'"),
            ("60d", "--cron '0 0 1 * *'"),
            ("30s", "the shortest interval is 1m"),
            ("x", "no duration"),
        ] {
            let error = even_cron(text).unwrap_err();
            assert!(error.contains(proposal), "{text}: {error}");
        }
    }
}
