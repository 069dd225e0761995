//! The flags of `cued cue add` and `cued cue set`, and the fields of the API that they set.

use std::str::FromStr as _;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Arg, ArgAction};
use serde_json::{Number, Value, json};

use crate::api::cue_names::field_of;
use crate::cli::client::command::{
    Call, Part, flag, number, seconds, server_flag, switch, tag_flag, words,
};
use crate::cli::client::commands::schedule::ZONE;
use crate::cli::error::{Result, usage};
use crate::cli::input;
use crate::cli::output::table::parse_duration;
use crate::domain::cue_fields::{PLAIN_FIELDS, PlainField, Values};
use crate::domain::execution::outcome::VerificationMode;

/// The flags of a cue in the short help.
pub const SHORT_FLAGS: &str =
    "name cron at every tz url worker task payload on-failure edit or-update";

/// The flags that set the fields of a cue.
pub fn flags() -> impl Iterator<Item = (Arg, Part)> {
    let cron =
        "Run by a cron expression, or in words such as 'every weekday at 9' or 'mon,wed 18:30'";
    let at = "Run once at an instant, or in words such as '+10m', 'in 2 hours' or 'tomorrow 9:00'";
    let every = "Run at intervals of elapsed time, such as 90s, 5m, 1h30m or 2d";
    let start = "No run before this instant; intervals are counted from it";
    let end = "No run at or after this instant";
    let jitter = "Delay all runs by a fixed time of at most this long, such as 10m";
    let catch_up = "Missed runs to catch up on after downtime";
    let retries = "Number of attempts, and the pause before each retry: 4:30s,5m,15m, or minutes";
    let actions = "Actions after a failed run: email, pause, a URL to call, or none; separate several by commas";
    let from_response = "Take the outcome of a run from the body of the response";
    let verification = "What a report of success must have";
    let parallelism = "Maximum number of simultaneous calls in its flow";
    let per_minute = "Maximum number of calls per minute in its flow";
    let flow_key =
        "Name of the flow, whose cues share these limits [default: host and port of the URL]";
    let slug = "Name for files and programs, unique in the account: backup, or home/backup";
    let [url, server, timeout, method, header, payload] = call_flags();
    let first = [
        flag("name", "NAME", "Name of the cue"),
        flag("slug", "SLUG", slug),
        flag("description", "TEXT", "Description"),
        tag_flag("Tag of the cue; repeat it for several"),
        flag("cron", "CRON", cron).group("schedule"),
        flag("at", "TIME", at).group("schedule"),
        flag("every", "TIME", every).group("schedule"),
        flag("start", "TIME", start),
        flag("end", "TIME", end),
        seconds("jitter", jitter),
        flag("tz", "ZONE", ZONE),
        words("catch-up", "WHICH", &["latest", "all", "none"], catch_up),
        url.group("target"),
        server,
        switch("worker", "Hand runs to a worker instead of calling a URL").group("target"),
        flag("task", "TASK", "Task of the worker: the key `task` of the payload"),
        timeout,
        method,
        header,
        payload,
        flag("retry", "N:PAUSES", retries).value_parser(retry),
        flag("on-failure", "ACTIONS", actions).value_parser(on_failure),
    ];
    let last = [
        switch("outcome-from-response", from_response),
        words("verification", "MODE", &VerificationMode::WORDS, verification),
        number("parallelism", 64, parallelism),
        number("per-minute", 6_000, per_minute),
        flag("flow-key", "KEY", flow_key),
    ];
    let flags = first.into_iter().chain(PLAIN_FIELDS.iter().map(plain_flag)).chain(last);
    flags.map(with_part)
}

fn plain_flag(field: &'static PlainField) -> Arg {
    let (id, value, help) = field.flag;
    match &field.values {
        Values::Minutes(_) => {
            flag(id, value, help).value_parser(clap::value_parser!(u32).map(Value::from))
        }
        // Unlike other spans, with a unit: the fields beside are of minutes.
        Values::Seconds(_) => flag(id, value, help).value_parser(|text: &str| {
            parse_duration(text).map(|span| Value::from(span.as_secs()))
        }),
        Values::Words(known) => flag(id, value, help)
            .value_parser(PossibleValuesParser::new(known.iter().map(|(word, ..)| *word))),
    }
}

/// A flag with the field that it sets.
pub fn with_part(flag: Arg) -> (Arg, Part) {
    let part = match flag.get_id().as_str() {
        "payload" => Part::BodyObject("payload"),
        "tag" => Part::BodyList("tags"),
        "retry" => Part::Body("retry"),
        "on-failure" => Part::Body("on_failure"),
        "header" => Part::Sets("callback.headers"),
        "outcome-from-response" => Part::BodySwitch("callback.outcome_from_response", true.into()),
        id => field_of(id).map_or(Part::Own, Part::Body),
    };
    (flag, part)
}

/// The flags of a call, and of the server that makes it.
pub fn call_flags() -> [Arg; 6] {
    let timeout = "Time limit of one attempt, 1s to 5m [default: 30s]";
    let header = "Header of the call; repeat it for several; the value @FILE reads a file";
    let payload = "Payload, a JSON or YAML object; @FILE and - read a file and standard input";
    let method = flag("method", "METHOD", "Method of the call");
    [
        flag("url", "URL", "Call this URL"),
        server_flag(),
        seconds("timeout", timeout),
        method.value_parser(|text: &str| Ok::<_, String>(Value::from(text.to_ascii_uppercase()))),
        flag("header", "NAME: VALUE", header).action(ArgAction::Append),
        flag("payload", "JSON|@FILE|-", payload).allow_hyphen_values(true),
    ]
}

/// The fields that the flags set.
pub fn body(call: &Call<'_>) -> Result<Value> {
    let mut body = call.fields()?;
    set_headers(call, &mut body)?;
    if let Some(task) = call.text("task") {
        let payload = &mut body["payload"];
        if !payload.is_object() && !payload.is_null() {
            return Err(usage("--task needs a payload that is an object"));
        }
        payload["task"] = task.into();
    }
    Ok(body)
}

/// The flags of a new cue are for workers: a task alone is enough.
pub fn is_for_workers(call: &Call<'_>) -> bool {
    call.is_set("worker") || call.is_given("task")
}

/// A header replaces one of the same name.
pub fn set_headers(call: &Call<'_>, body: &mut Value) -> Result {
    for text in call.texts("header") {
        let (name, value) = header(text)?;
        let headers = &mut body["callback"]["headers"];
        if let Some(headers) = headers.as_object_mut() {
            headers.retain(|known, _| !known.eq_ignore_ascii_case(&name));
        }
        headers[name] = value.into();
    }
    Ok(())
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
        "an example is 4:30s,5m,15m, 4 attempts with pauses of 30 seconds, 5 and 15 minutes"
            .to_owned()
    })
}

/// `--on-failure email,pause,URL`: exactly these actions.
fn on_failure(text: &str) -> Result<Value, String> {
    let mut actions = json!({ "email": false, "pause": false, "webhook": null });
    for word in text.split(',').map(str::trim) {
        match word {
            "none" if text.trim() == "none" => {}
            "email" | "pause" => actions[word] = true.into(),
            url if url.contains("://") && actions["webhook"].is_null() => {
                actions["webhook"] = url.into()
            }
            url if url.contains("://") => return Err("there is one URL at most".to_owned()),
            other => {
                return Err(format!(
                    "{other:?} is not an action; use email, pause, a URL, or none"
                ));
            }
        }
    }
    Ok(actions)
}

/// The name and the value of a header field; `@FILE` has the value in a file, so that it is not in the list of
/// processes.
fn header(text: &str) -> Result<(String, String)> {
    let (name, value) = text.split_once(':').ok_or_else(|| {
        usage(format!("--header: {text:?} has no colon; an example is 'X-Source: cued'"))
    })?;
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
            (
                on_failure("pause, http://x/a"),
                r#"{"email":false,"pause":true,"webhook":"http://x/a"}"#,
            ),
        ] {
            assert_eq!(read.unwrap().to_string(), expected);
        }
        let bad_retry = ["", "x", "4:", "4:1,,2", "4:a", ":1"];
        assert!(bad_retry.iter().all(|bad| retry(bad).is_err()));
        let bad_actions = ["mail", "http://a,http://b", "email,none"];
        assert!(bad_actions.iter().all(|bad| on_failure(bad).is_err()));
    }
}
