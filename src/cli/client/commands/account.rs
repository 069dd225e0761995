//! `cued account`, `cued worker` and `cued alert`: what the server knows of the account, its workers and its alerts.

use serde_json::{Value, json};

use crate::cli::client::command::{
    Call, Columns, Entry, Form, Lines, Part, View, Work, entry, flag, moment, of_cue, own, place, switch,
};
use crate::cli::client::context::Context;
use crate::cli::error::{CliError, failed, not_found, refused};
use crate::cli::output::table::{Cell, Shown, Style, details, duration, of_limit, quota, text_of};
use crate::cli::output::{Format, List, print_part};
use crate::cli::printable::printable;
use crate::cli::progress::size;
use crate::client::request::{Answer, ApiRequest, segment};
use crate::domain::account::plan::bytes_or_max;

/// The beginning of a key that the server shows.
const KEY_PREFIX: usize = 12;

const USAGE: Lines = &[
    ("plan", Form::Template("{plan.name} {plan.interval}")),
    ("active cues", Form::Cell(|_, usage| quota(usage, "cues.active", "cues.limit", ""))),
    ("all cues", Form::Cell(|_, usage| quota(usage, "cues.total", "cues.total_limit", ""))),
    ("executions", Form::Cell(|_, usage| quota(usage, "executions.used", "executions.limit", ""))),
    ("storage", Form::Cell(storage)),
    (
        "requests",
        Form::Cell(|_, usage| quota(usage, "rate_limit.current_usage", "rate_limit.limit", " in a minute")),
    ),
    (
        "outcomes",
        Form::Template(
            "{outcomes.reported} reported: {outcomes.succeeded} succeeded, {outcomes.failed} failed",
        ),
    ),
    ("period", Form::Cell(period)),
];

const KEYS: Columns = &[
    ("ID", Form::Text("id"), Shown::Always),
    ("NAME", Form::Text("name"), Shown::Shortened),
    ("KEY", Form::Template("{prefix}…"), Shown::Always),
    ("CREATED", Form::Time("created_at"), Shown::Always),
    (
        "NOTE",
        Form::Cell(|_, key| if key["current"] == true { "in use here" } else { "" }.into()),
        Shown::Always,
    ),
];

const SESSIONS: Columns = &[
    ("ID", Form::Text("id"), Shown::Always),
    ("DEVICE", Form::Text("device"), Shown::Shortened),
    ("ADDRESS", Form::Text("address"), Shown::Always),
    ("BY", Form::Text("via"), Shown::Always),
    ("SINCE", Form::Time("created_at"), Shown::Always),
    ("SEEN", Form::Time("seen_at"), Shown::Always),
    ("EXPIRES", Form::Time("expires_at"), Shown::Always),
];

pub fn entries() -> Vec<Entry> {
    let usage = Work::Request("GET /v1/usage", View::Details("plan.name", USAGE));
    let keys = Work::Group(key_entries(), "list");
    let sessions = Work::Group(session_entries(), "list");
    let secret = Work::Group(secret_entries(), "");
    vec![
        entry("usage", "Show what the account uses, and the limits of its plan", [], usage),
        entry("keys", "List, add and revoke API keys", [], keys),
        entry("sessions", "List and end the sessions of browsers", [], sessions),
        entry("secret", "Show or replace the secret that signs webhooks", [], secret),
    ]
}

fn key_entries() -> Vec<Entry> {
    let list = Work::Request("GET /v1/auth/keys", View::List("id", "keys", KEYS));
    let name = place("name", "NAME", "Name of the key, such as that of the machine that uses it");
    let key = place("key", "KEY", "Id, name or beginning of the key; only one key may have it");
    vec![
        entry("list", "List the keys, without their secret part", [], list),
        entry("add", "Add a key and print it, this once", [own(name)], Work::Code(add_key)),
        entry("revoke", "Revoke a key, at once", [own(key)], Work::Code(revoke_key)),
    ]
}

fn session_entries() -> Vec<Entry> {
    let list = Work::Request("GET /v1/auth/sessions", View::List("id", "sessions", SESSIONS));
    let id = place("id", "ID", "Id of the session").required(false).required_unless_present("others");
    let others = switch("others", "End all sessions, and unused links").conflicts_with("id");
    let arguments = [own(id), own(others)];
    vec![
        entry("list", "List the sessions", [], list),
        entry("rm", "End a session, at once", arguments, Work::Code(end_sessions)),
    ]
}

fn secret_entries() -> Vec<Entry> {
    let alert = || own(switch("alert", "The secret that signs alerts, in place of that of deliveries"));
    let replace = "Replace the secret and print the new one\n\nDeliveries are signed with both for 24 hours, so that \
                   receivers have time for the change. The old secret of alerts ends at once.";
    vec![
        entry(
            "show",
            "Print the secret, and nothing else",
            [alert()],
            Work::Code(|call| print_secret(call, false)),
        ),
        entry("regenerate", replace, [alert()], Work::Code(|call| print_secret(call, true))),
    ]
}

fn period(context: &Context, usage: &Value) -> Cell {
    let time = |field: &str| context.output.times.instant(&text_of(&usage["billing_period"], field));
    format!("{} to {}", time("start"), time("end")).into()
}

fn storage(_: &Context, usage: &Value) -> Cell {
    let bytes = |field: &str| usage["storage"][field].as_u64();
    let no_limit = u64::try_from(bytes_or_max(None)).unwrap_or(u64::MAX);
    match (bytes("used_bytes"), bytes("limit_bytes")) {
        (Some(used), Some(limit)) if limit < no_limit => {
            Cell::new(format!("{} of {}", size(used), size(limit)), of_limit(used, limit))
        }
        (Some(used), _) => format!("{}, no limit", size(used)).into(),
        (None, _) => Cell::default(),
    }
}

// Without a key of idempotency, whose stored answer would contain the new key.
fn add_key(call: &Call<'_>) -> Result<(), CliError> {
    let output = &call.context.output;
    let request = ApiRequest::post("/v1/auth/keys").json(json!({ "name": call.text("name") }));
    let answer = call.context.send(&request)?;
    if !matches!(output.format, Format::Table | Format::Wide) {
        return output.object(&answer, "id", |_| Vec::new());
    }
    let key = answer.value()?;
    let id = text_of(&key, "id");
    let lines = [("id", "id"), ("name", "name"), ("key", "api_key")]
        .map(|(title, field)| (title, Cell::from(text_of(&key, field))));
    let reason = match print_part(&details(&lines, &output.styles)) {
        Ok(true) => return output.note("Keep the key now: it is not shown again."),
        Ok(false) => "nobody reads standard output".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(failed(format!("{reason}. The new key is lost: `cued account keys revoke {id}`")))
}

fn revoke_key(call: &Call<'_>) -> Result<(), CliError> {
    let context = call.context;
    let keys = List::of(&context.look_up(&ApiRequest::get("/v1/auth/keys"))?, "keys")?.values()?;
    let key = find_key(&keys, call.text("key").unwrap_or_default())?;
    let (id, name) = (text_of(key, "id"), printable(&text_of(key, "name")));
    let is_own = key["current"] == true;
    if is_own {
        context.confirm(&format!("Key {name} is the one that this command uses. Revoke it?"))?;
    }
    let answer = context.send(&ApiRequest::delete(format!("/v1/auth/keys/{}", segment(&id))))?;
    context.output.done(&answer, "id", |_| format!("Key {name} ({id}) is revoked."))?;
    if is_own {
        context.output.note("Nothing is signed in with it any more: `cued login`")?;
    }
    Ok(())
}

/// The only key with this id, name or beginning.
fn find_key<'a>(keys: &'a [Value], wanted: &str) -> Result<&'a Value, CliError> {
    let with = |fields: &[&str]| {
        let is = |key: &&Value| fields.iter().any(|field| key[*field] == wanted);
        keys.iter().filter(is).collect::<Vec<_>>()
    };
    let by_id = with(&["id"]);
    let found = if by_id.is_empty() { with(&["name", "prefix"]) } else { by_id };
    match found[..] {
        [key] => Ok(key),
        [] => {
            // A whole key, given by mistake, is not repeated.
            let shown = match wanted.char_indices().nth(KEY_PREFIX) {
                Some((end, _)) if wanted.starts_with("cue_sk_") => format!("{}…", &wanted[..end]),
                _ => wanted.to_owned(),
            };
            Err(not_found(format!("there is no key {shown:?}; `cued account keys` lists them")))
        }
        _ => {
            let ids: Vec<String> = found.iter().map(|key| text_of(key, "id")).collect();
            Err(refused(format!("{} keys are named {wanted:?}: {}", found.len(), ids.join(", "))))
        }
    }
}

fn end_sessions(call: &Call<'_>) -> Result<(), CliError> {
    let (context, output) = (call.context, &call.context.output);
    if let Some(id) = call.text("id") {
        let answer = context.send(&ApiRequest::delete(format!("/v1/auth/sessions/{}", segment(id))))?;
        return output.done(&answer, "id", |_| format!("Session {id} is ended."));
    }
    // "Others" than that of the request, which has a key here: all of them.
    context.confirm("Every browser that is signed in to the account will be signed out. Do it?")?;
    let answer = context.send(&ApiRequest::delete("/v1/auth/sessions"))?;
    output.done(&answer, "ended", |ended| format!("{} sessions are ended.", text_of(ended, "ended")))
}

fn print_secret(call: &Call<'_>, is_replaced: bool) -> Result<(), CliError> {
    let (path, field, receivers) = match call.is_set("alert") {
        true => ("/v1/auth/alert-webhook-secret", "alert_webhook_secret", "receiver of alerts"),
        false => ("/v1/auth/webhook-secret", "webhook_secret", "receiver of deliveries"),
    };
    let (context, output) = (call.context, &call.context.output);
    let print = |secret: &Value| text_of(secret, field);
    if !is_replaced {
        return output.done(&context.send(&ApiRequest::get(path))?, field, print);
    }
    context.confirm(&format!("Every {receivers} must then know the new secret. Replace it?"))?;
    let answer = context.send(&ApiRequest::post(format!("{path}/regenerate")))?;
    output.done(&answer, field, print)?;
    match output.times.instant(&text_of(&answer.value()?, "previous_secret_expires_at")) {
        expiry if expiry.is_empty() => output.note("The old secret is not valid any more."),
        expiry => output.note(&format!("Deliveries are signed with the old secret too until {expiry}.")),
    }
}

const WORKERS: Columns = &[
    ("WORKER", Form::Text("worker_id"), Shown::Always),
    ("STATUS", Form::Status("heartbeat_status"), Shown::Always),
    ("HEARTBEAT", Form::Cell(heartbeat), Shown::Always),
    ("TASKS", Form::List("handlers"), Shown::Shortened),
    ("REGISTERED", Form::Time("registered_since"), Shown::Wide),
];

const ALERTS: Columns = &[
    ("TIME", Form::ShortTime("created_at"), Shown::Always),
    ("TYPE", Form::Cell(alert_type), Shown::Always),
    ("MESSAGE", Form::Text("message"), Shown::Shortened),
    ("CUE", Form::Text("cue_id"), Shown::Wide),
    ("RUN", Form::Text("execution_id"), Shown::Wide),
    ("ID", Form::Text("id"), Shown::Wide),
];

pub fn worker_entries() -> Vec<Entry> {
    let id = place("worker", "ID", "Id of the worker, as `cued worker list` shows it");
    vec![
        entry(
            "list",
            "List workers, the last one heard of first\n\nA worker is active if it was heard of within 3 minutes, stale \
             within 15, else dead. A worker that is silent for 30 days is forgotten.",
            [],
            Work::Request("GET /v1/workers", View::List("worker_id", "workers", WORKERS)),
        ),
        entry(
            "rm",
            "Remove a worker\n\nIts claims stay until their leases end. A worker that still runs appears again with its \
             next heartbeat.",
            [(id, Part::Place)],
            Work::Request(
                "DELETE /v1/workers/{worker}",
                View::Sentence("worker_id", "removed worker {worker}"),
            ),
        ),
    ]
}

pub fn alert_entries() -> Vec<Entry> {
    let types =
        "Only of this type: consecutive_failures, verification_failed, claim_lost, catch_up or unclaimed";
    let since = "Only since then: a duration before now (2h), a date or an instant";
    vec![
        entry(
            "list",
            "List alerts, newest first\n\nThe newest 1,000 are kept.",
            [
                (flag("type", "TYPE", types), Part::Query("alert_type")),
                of_cue(),
                (moment("since", since), Part::QueryMoment("since")),
            ],
            Work::Request("GET /v1/alerts", View::Pages("id", "alerts", ALERTS)),
        )
        .example("Example:\n  cued alert list --cue nightly-backup --since 7d"),
        entry(
            "test",
            "Send a test alert to the alert webhook and print the result\n\nIt is signed and retried as alerts are, and \
             has the field \"test\": true. If it is not delivered, the exit code is 1.",
            [],
            Work::Request("POST /v1/alerts/test", View::Code(print_test)),
        ),
    ]
}

fn heartbeat(_: &Context, worker: &Value) -> Cell {
    match worker["seconds_since_heartbeat"].as_i64() {
        None => Cell::default(),
        Some(0) => "now".into(),
        Some(seconds) => format!("{} ago", duration(seconds.saturating_mul(1_000))).into(),
    }
}

fn alert_type(_: &Context, alert: &Value) -> Cell {
    let style = match alert["severity"].as_str() {
        Some("critical") => Style::Bad,
        Some("warning") => Style::Warning,
        _ => Style::Plain,
    };
    Cell::new(text_of(alert, "alert_type"), style)
}

fn print_test(call: &Call<'_>, answer: &Answer) -> Result<(), CliError> {
    let output = &call.context.output;
    output.done(answer, "id", |result| {
        let time = result["duration_ms"].as_i64().map(duration).unwrap_or_default();
        match result["status"].as_str() {
            Some("delivered") => {
                format!("Delivered: the webhook returned {} in {time}.", result["http_status"])
            }
            Some("failed") => {
                let again = match output.times.instant(&text_of(result, "next_retry")) {
                    due if due.is_empty() => "It is not sent again.".to_owned(),
                    due => format!("It is sent again at {due}."),
                };
                format!("Failed after {time}: {}. {again}", text_of(result, "error_message"))
            }
            _ => "The webhook has not answered yet; the server goes on.".to_owned(),
        }
    })?;
    if answer.value()?["status"] == "delivered" {
        return Ok(());
    }
    Err(failed("the test alert is not delivered"))
}
