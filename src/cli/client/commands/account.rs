//! `cued account`, `cued worker`, `cued flow` and `cued alert`: what the server knows of the account, its workers, its flows
//! and its alerts.

use serde_json::{Value, json};

use crate::cli::client::command::{
    Call, Columns, Entry, Form, Lines, Part, View, Work, cue_filter, entry, flag, moment, own,
    place, switch,
};
use crate::cli::client::context::Context;
use crate::cli::client::words::in_words;
use crate::cli::error::{CliError, failed, not_found, refused};
use crate::cli::nearest::did_you_mean;
use crate::cli::output::table::{Cell, ColumnRule, Style, duration, from_now, text_of};
use crate::cli::output::{List, SHORT_ID};
use crate::cli::printable::printable;
use crate::cli::progress::size;
use crate::client::request::{ApiRequest, ApiResponse, ClientError, segment};
use crate::domain::account::plan::{NO_LIMIT, bytes_or_max};

const USAGE: Lines = &[
    (
        "plan",
        Form::Cell(|_, usage| plan(usage, &["plan.name", "plan.interval"], "executions.limit")),
    ),
    ("active cues", Form::Cell(|_, usage| quota(usage, "cues.active", "cues.limit", ""))),
    ("all cues", Form::Cell(|_, usage| quota(usage, "cues.total", "cues.total_limit", ""))),
    ("runs", Form::Cell(|_, usage| runs(usage, "executions.used", "executions.limit"))),
    (
        "storage",
        Form::Cell(|_, usage| quota(usage, "storage.used_bytes", "storage.limit_bytes", "")),
    ),
    (
        "requests",
        Form::Cell(|_, usage| {
            quota(usage, "rate_limit.current_usage", "rate_limit.limit", " in a minute")
        }),
    ),
    ("outcomes", Form::Template(OUTCOMES)),
    ("period", Form::Cell(period)),
];

const OUTCOMES: &str =
    "{outcomes.reported} reported: {outcomes.succeeded} succeeded, {outcomes.failed} failed";

const KEYS: Columns = &[
    ("ID", Form::Cell(|context, key| key_id(context, key).into()), ColumnRule::Always),
    ("NAME", Form::Text("name"), ColumnRule::Shortened),
    ("KEY", Form::Template("{prefix}…"), ColumnRule::Always),
    ("CREATED", Form::Time("created_at"), ColumnRule::Always),
    (
        "NOTE",
        Form::Cell(|_, key| if key["current"] == true { "in use here" } else { "" }.into()),
        ColumnRule::Always,
    ),
];

const SESSIONS: Columns = &[
    ("ID", Form::Text("id"), ColumnRule::Always),
    ("DEVICE", Form::Text("device"), ColumnRule::Shortened),
    ("ADDRESS", Form::Text("address"), ColumnRule::Always),
    ("BY", Form::Text("via"), ColumnRule::Always),
    ("SINCE", Form::Time("created_at"), ColumnRule::Always),
    ("SEEN", Form::Time("seen_at"), ColumnRule::Always),
    ("EXPIRES", Form::Time("expires_at"), ColumnRule::Always),
];

pub fn entries() -> Vec<Entry> {
    let usage = Work::Request("GET /v1/usage", View::Details("plan.name", USAGE));
    let keys = Work::Group(key_entries(), "list");
    let sessions = Work::Group(session_entries(), "list");
    let secret = Work::Group(secret_entries(), "");
    vec![
        entry("usage", "Show the usage of the account and the limits of its plan", [], usage),
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
        entry("add", "Add a key and print it once", [own(name)], Work::Code(add_key)),
        entry("revoke", "Revoke a key immediately", [own(key)], Work::Code(revoke_key)),
    ]
}

fn session_entries() -> Vec<Entry> {
    let list = Work::Request("GET /v1/auth/sessions", View::List("id", "sessions", SESSIONS));
    let id =
        place("id", "ID", "Id of the session").required(false).required_unless_present("others");
    let others = switch("others", "End all sessions, and unused links").conflicts_with("id");
    let arguments = [own(id), own(others)];
    vec![
        entry("list", "List the sessions", [], list),
        entry("rm", "End a session immediately", arguments, Work::Code(end_sessions)),
    ]
}

fn secret_entries() -> Vec<Entry> {
    let alert = || own(switch("alert", "The secret for alerts instead of deliveries"));
    let replace = "Replace the secret and print the new one\n\nDeliveries are signed with both for 24 hours, so that \
                   receivers have time for the change. The old secret of alerts ends at once.";
    vec![
        entry(
            "show",
            "Print only the secret",
            [alert()],
            Work::Code(|call| print_secret(call, false)),
        ),
        entry("regenerate", replace, [alert()], Work::Code(|call| print_secret(call, true))),
    ]
}

/// Of the id at a terminal the beginning, which `revoke` takes.
fn key_id(context: &Context, key: &Value) -> String {
    let id = text_of(key, "id");
    if context.output.is_short() { id.chars().take(SHORT_ID).collect() } else { id }
}

fn period(context: &Context, usage: &Value) -> Cell {
    let time =
        |field: &str| context.output.times.instant(&text_of(&usage["billing_period"], field));
    format!("{} to {}", time("start"), time("end")).into()
}

/// The plan, only on a server with limits.
pub fn plan(account: &Value, fields: &[&str], limit: &str) -> Cell {
    let is_limited =
        text_of(account, limit).parse::<u64>().is_ok_and(|limit| limit < NO_LIMIT.into());
    let texts = fields.iter().map(|field| text_of(account, field)).filter(|text| !text.is_empty());
    let texts: Vec<String> = texts.filter(|_| is_limited).collect();
    texts.join(" ").into()
}

/// A used amount and its limit: `3 of 10 active`. It has a colour from four fifths of the limit.
pub fn quota(usage: &Value, used: &str, limit: &str, unit: &str) -> Cell {
    let number = |field: &str| text_of(usage, field).parse::<u64>().ok();
    let is_bytes = limit.ends_with("_bytes");
    let show = |number| if is_bytes { size(number) } else { number.to_string() };
    let no_limit = if is_bytes {
        u64::try_from(bytes_or_max(None)).unwrap_or(u64::MAX)
    } else {
        NO_LIMIT.into()
    };
    match (number(used), number(limit)) {
        (Some(used), Some(limit)) if limit < no_limit => {
            let style = match used {
                _ if used >= limit => Style::Bad,
                _ if used >= limit.saturating_sub(limit / 5) => Style::Warning,
                _ => Style::Plain,
            };
            Cell::new(format!("{} of {}{unit}", show(used), show(limit)), style)
        }
        (Some(used), _) => format!("{}{unit}, no limit", show(used)).into(),
        (None, _) => Cell::default(),
    }
}

/// The runs of the month and their limit, above which at most as many again are sent, and only for a day.
pub fn runs(account: &Value, used: &str, limit: &str) -> Cell {
    let mut cell = quota(account, used, limit, " this month");
    let number = |field: &str| text_of(account, field).parse::<u64>().unwrap_or(0);
    cell.text += match (number(used), number(limit)) {
        (used, limit) if used < limit || limit >= NO_LIMIT.into() => "",
        (used, limit) if used >= limit.saturating_mul(2) => ": none is sent until next month",
        _ => ": more are sent for a day at most, then none until next month",
    };
    cell
}

// Without a key of idempotency, whose stored answer would contain the new key.
fn add_key(call: &Call<'_>) -> Result<(), CliError> {
    let output = &call.context.output;
    let request = ApiRequest::post("/v1/auth/keys").json(json!({ "name": call.text("name") }));
    let answer = call.context.send(&request)?;
    output.object(&answer, "id", |key| {
        [("id", "id"), ("name", "name"), ("key", "api_key")]
            .map(|(title, field)| (title, text_of(key, field).into()))
            .to_vec()
    })?;
    if output.format.is_for_programs() {
        return Ok(());
    }
    output.note("Keep the key now: it is not shown again.")
}

fn revoke_key(call: &Call<'_>) -> Result<(), CliError> {
    let context = call.context;
    let keys =
        List::from_response(&context.fetch(&ApiRequest::get("/v1/auth/keys"))?, "keys")?.items;
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
    let mut found = with(&["id"]);
    if found.is_empty() {
        found = with(&["name", "prefix"]);
    }
    if found.is_empty() && wanted.len() >= SHORT_ID {
        found = keys.iter().filter(|key| text_of(key, "id").starts_with(wanted)).collect();
    }
    match found[..] {
        [key] => Ok(key),
        // A whole key, given by mistake, is not repeated.
        [] if wanted.starts_with("cue_sk_") => {
            Err(not_found("no key begins so; `cued account keys` lists the keys"))
        }
        [] => {
            let names: Vec<String> =
                keys.iter().map(|key| printable(&text_of(key, "name"))).collect();
            let names = names.iter().map(String::as_str);
            let advice = did_you_mean(&printable(wanted), names, "`cued account keys` lists them");
            Err(not_found(format!("there is no key {wanted:?}; {advice}")))
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
        let answer =
            context.send(&ApiRequest::delete(format!("/v1/auth/sessions/{}", segment(id))))?;
        return output.done(&answer, "id", |_| format!("Session {id} is ended."));
    }
    // The key of this request is the current credential; all sessions are others.
    context.confirm("Every browser that is signed in to the account will be signed out. Do it?")?;
    let answer = context.send(&ApiRequest::delete("/v1/auth/sessions"))?;
    output
        .done(&answer, "ended", |ended| format!("{} sessions are ended.", text_of(ended, "ended")))
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
        expiry => {
            output.note(&format!("Deliveries are signed with the old secret too until {expiry}."))
        }
    }
}

const WORKERS: Columns = &[
    ("WORKER", Form::Text("worker_id"), ColumnRule::Always),
    ("STATUS", Form::Status("heartbeat_status"), ColumnRule::Always),
    ("HEARTBEAT", Form::Cell(heartbeat), ColumnRule::Always),
    ("TASKS", Form::List("handlers"), ColumnRule::Shortened),
    ("REGISTERED", Form::Time("registered_since"), ColumnRule::Wide),
];

const FLOWS: Columns = &[
    ("FLOW", Form::Text("key"), ColumnRule::Shortened),
    ("AT ONCE", Form::Text("parallelism"), ColumnRule::Always),
    ("A MINUTE", Form::Text("per_minute"), ColumnRule::Always),
    ("CUES", Form::Text("cues"), ColumnRule::Always),
    ("WAITING", Form::Text("waiting"), ColumnRule::Always),
    ("RUNNING", Form::Text("running"), ColumnRule::Always),
];

const ALERTS: Columns = &[
    ("TIME", Form::Time("created_at"), ColumnRule::Always),
    ("TYPE", Form::Cell(alert_type), ColumnRule::Always),
    ("MESSAGE", Form::Text("message"), ColumnRule::Shortened),
    ("CUE", Form::Text("cue_id"), ColumnRule::Wide),
    ("RUN", Form::Text("execution_id"), ColumnRule::Wide),
    ("ID", Form::Text("id"), ColumnRule::Wide),
];

pub fn worker_entries() -> Vec<Entry> {
    let id = place("worker", "ID", "Id of the worker, as `cued worker list` shows it");
    vec![
        entry(
            "list",
            "List workers, most recently seen first\n\nA worker seen within 3 minutes is active, within 15 \
             minutes stale, otherwise dead. After 30 silent days it is forgotten.",
            [],
            Work::Request("GET /v1/workers", View::List("worker_id", "workers", WORKERS)),
        ),
        entry(
            "rm",
            "Remove a worker\n\nIts claims stay until their leases end. A worker that still runs appears again with its \
             next heartbeat.",
            [(id, Part::Place)],
            Work::Code(remove_worker),
        ),
    ]
}

fn remove_worker(call: &Call<'_>) -> Result<(), CliError> {
    let (context, id) = (call.context, call.place("worker"));
    let request = ApiRequest::delete(format!("/v1/workers/{}", segment(id)));
    let answer = context.send(&request).map_err(|mut error| {
        if let CliError::Client(ClientError::Refused(refused)) = &mut error
            && refused.code == "worker_not_found"
        {
            let ids = worker_ids(context);
            let advice =
                did_you_mean(id, ids.iter().map(String::as_str), "`cued worker list` shows all");
            refused.say(format!("there is no worker {id:?}; {advice}"));
        }
        error
    })?;
    context.output.done(&answer, "worker_id", |_| format!("removed worker {}", printable(id)))
}

/// Without them there is the advice that needs none.
fn worker_ids(context: &Context) -> Vec<String> {
    let workers = context.fetch(&ApiRequest::get("/v1/workers"));
    let workers = workers.and_then(|answer| List::from_response(&answer, "workers"));
    let workers = workers.map(|list| list.items).unwrap_or_default();
    workers.iter().map(|worker| printable(&text_of(worker, "worker_id"))).collect()
}

pub fn flow_entries() -> Vec<Entry> {
    vec![entry(
        "list",
        "List flows with their limits, waiting and running calls\n\nA flow limits the calls of all cues with its name, which \
         is the host and port of the URL unless --flow-key of `cued cue add` sets another. If they disagree, the strictest \
         limits hold.",
        [],
        Work::Request("GET /v1/flows", View::Pages("key", "flows", FLOWS)),
    )]
}

pub fn alert_entries() -> Vec<Entry> {
    let types = "Only of this type: consecutive_failures, verification_failed, claim_lost, catch_up, unclaimed, \
                 outcome_missing, clock_behind or time_zone_changed";
    let since = "Only since then: a time span until now (2h), a date or an instant";
    vec![
        entry(
            "list",
            "List alerts, newest first\n\nThe newest 1,000 are kept.",
            [
                (flag("type", "TYPE", types), Part::QueryWords("alert_type")),
                cue_filter(),
                (moment("since", since), Part::QueryMoment("since")),
            ],
            Work::Request("GET /v1/alerts", View::Pages("id", "alerts", ALERTS)),
        ),
        entry(
            "test",
            "Send a test alert to the alert webhook and print the result\n\nIt is signed and retried as alerts are, and \
             has the field \"test\": true. Exits with 1 if it is not delivered.",
            [],
            Work::Request("POST /v1/alerts/test", View::Code(print_test)),
        ),
    ]
}

fn heartbeat(_: &Context, worker: &Value) -> Cell {
    match worker["seconds_since_heartbeat"].as_i64() {
        None => Cell::default(),
        Some(seconds) => from_now(seconds.saturating_mul(-1_000)).into(),
    }
}

fn alert_type(_: &Context, alert: &Value) -> Cell {
    let style = match alert["severity"].as_str() {
        Some("critical") => Style::Bad,
        Some("warning") => Style::Warning,
        _ => Style::Plain,
    };
    Cell::new(in_words(&text_of(alert, "alert_type")), style)
}

fn print_test(call: &Call<'_>, answer: &ApiResponse) -> Result<(), CliError> {
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
