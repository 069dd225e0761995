//! `cued account`, `cued worker`, `cued flow` and `cued alert`: what the server knows of the account, its workers, its flows
//! and its alerts.

use serde_json::Value;

use crate::cli::client::arguments::{items, pick, unknown};
use crate::cli::client::command::{
    Call, Entry, Part, View, cue_filter, flag, group, moment, own, place, row, switch,
};
use crate::cli::client::commands::channel::check_delivered;
use crate::cli::client::context::Context;
use crate::cli::client::forms::{Columns, Form, Lines, fill, quota};
use crate::cli::client::words::in_words;
use crate::cli::error::{CliError, Result, not_found};
use crate::cli::output::table::{Cell, ColumnRule, duration, from_now, status, text_of};
use crate::cli::output::{SHORT_ID, print_note};
use crate::cli::printable::printable;
use crate::client::request::{ApiRequest, ApiResponse, segment};
use crate::domain::account::plan::NO_LIMIT;

const USAGE: Lines = &[
    ("plan", Form::Of(|usage| plan(usage, "{plan.name} {plan.interval}", "executions.limit"))),
    ("active cues", Form::Quota("cues.active", "cues.limit", "")),
    ("all cues", Form::Quota("cues.total", "cues.total_limit", "")),
    ("runs", Form::Cell(|_, usage| runs(usage, "executions.used", "executions.limit"))),
    ("storage", Form::Quota("storage.used_bytes", "storage.limit_bytes", "")),
    ("requests", Form::Quota("rate_limit.current_usage", "rate_limit.limit", " in a minute")),
    ("outcomes", Form::Template(OUTCOMES)),
    ("period", Form::Template("{billing_period.start:at} to {billing_period.end:at}")),
];

const OUTCOMES: &str =
    "{outcomes.reported} reported: {outcomes.succeeded} succeeded, {outcomes.failed} failed";

const KEYS: Columns = &[
    ("ID", Form::Shown(key_id), ColumnRule::Always),
    ("NAME", Form::Text("name"), ColumnRule::Shortened),
    ("KEY", Form::Template("{prefix}…"), ColumnRule::Always),
    ("CREATED", Form::Time("created_at"), ColumnRule::Always),
    ("NOTE", Form::Of(note), ColumnRule::Always),
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

const NEW_KEY: Lines =
    &[("id", Form::Text("id")), ("name", Form::Text("name")), ("key", Form::Text("api_key"))];

pub fn entries() -> Vec<Entry> {
    vec![
        row("usage", "Show the usage of the account and the limits of its plan")
            .request("GET /v1/usage", View::Details("plan.name", USAGE)),
        group("keys", "List, add and revoke API keys", key_entries(), "list"),
        group("sessions", "List and end the sessions of browsers", session_entries(), "list"),
        group("secret", "Show or replace the secret that signs webhooks", secret_entries(), ""),
    ]
}

fn key_entries() -> Vec<Entry> {
    let name = place("name", "NAME", "Name of the key, such as that of the machine that uses it");
    let key = place("key", "KEY", "Id, name or beginning of the key; only one key may have it");
    vec![
        row("list", "List the keys, without their secret part")
            .request("GET /v1/auth/keys", View::List("id", "keys", KEYS)),
        // Without a key of idempotency, whose stored answer would contain the new key.
        row("add", "Add a key and print it once")
            .args([(name, Part::Body("name"))])
            .request("POST /v1/auth/keys", View::Details("id", NEW_KEY))
            .note("Keep the key now: it is not shown again."),
        row("revoke", "Revoke a key immediately").args([own(key)]).code(revoke_key),
    ]
}

fn session_entries() -> Vec<Entry> {
    let id =
        place("id", "ID", "Id of the session").required(false).required_unless_present("others");
    let others = switch("others", "End all sessions, and unused links").conflicts_with("id");
    vec![
        row("list", "List the sessions")
            .request("GET /v1/auth/sessions", View::List("id", "sessions", SESSIONS)),
        row("rm", "End a session immediately").args([own(id), own(others)]).code(end_sessions),
    ]
}

fn secret_entries() -> Vec<Entry> {
    let alert = || [own(switch("alert", "The secret for alerts instead of deliveries"))];
    let replace = "Replace the secret and print the new one\n\nDeliveries are signed with both for 24 hours, so that \
                   receivers have time for the change. The old secret of alerts ends at once.";
    vec![
        row("show", "Print only the secret").args(alert()).code(|call| print_secret(call, false)),
        row("regenerate", replace).args(alert()).code(|call| print_secret(call, true)),
    ]
}

/// Of the id at a terminal the beginning, which `revoke` takes.
fn key_id(context: &Context, key: &Value) -> String {
    let id = text_of(key, "id");
    if context.output.is_short() { id.chars().take(SHORT_ID).collect() } else { id }
}

fn note(key: &Value) -> String {
    if key["current"] == true { "in use here" } else { "" }.to_owned()
}

/// The plan, only on a server with limits.
pub fn plan(account: &Value, text: &str, limit: &str) -> String {
    match text_of(account, limit).parse::<u64>() {
        Ok(limit) if limit < NO_LIMIT.into() => {
            fill(text, |field| text_of(account, field)).trim_end().to_owned()
        }
        _ => String::new(),
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

fn revoke_key(call: &Call<'_>) -> Result {
    let context = call.context;
    let keys = items(context, &ApiRequest::get("/v1/auth/keys"), "keys", u64::MAX)?;
    let wanted = call.text("key").unwrap_or_default();
    let key = pick(&keys, wanted, "key", "`cued account keys` lists them");
    let key = key.map_err(|error| match error {
        // A whole key, given by mistake, is not repeated.
        CliError::NotFound(_) if wanted.starts_with("cue_sk_") => {
            not_found("no key begins so; `cued account keys` lists the keys")
        }
        error => error,
    })?;
    let (id, name) = (text_of(key, "id"), printable(&text_of(key, "name")));
    let is_own = key["current"] == true;
    if is_own {
        context.confirm(&format!("Key {name} is the one that this command uses. Revoke it?"))?;
    }
    let answer = context.send(&ApiRequest::delete(format!("/v1/auth/keys/{}", segment(&id))))?;
    context.output.done(&answer, "id", |_| format!("Key {name} ({id}) is revoked."))?;
    if is_own {
        print_note("Nothing is signed in with it any more: `cued login`")?;
    }
    Ok(())
}

fn end_sessions(call: &Call<'_>) -> Result {
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

fn print_secret(call: &Call<'_>, is_replaced: bool) -> Result {
    let (path, field, receivers) = if call.is_set("alert") {
        ("/v1/auth/alert-webhook-secret", "alert_webhook_secret", "receiver of alerts")
    } else {
        ("/v1/auth/webhook-secret", "webhook_secret", "receiver of deliveries")
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
        expiry if expiry.is_empty() => print_note("The old secret is not valid any more."),
        expiry => {
            print_note(&format!("Deliveries are signed with the old secret too until {expiry}."))
        }
    }
}

const WORKERS: Columns = &[
    ("WORKER", Form::Text("worker_id"), ColumnRule::Always),
    ("STATUS", Form::Status("heartbeat_status"), ColumnRule::Always),
    ("HEARTBEAT", Form::Of(heartbeat), ColumnRule::Always),
    ("TASKS", Form::List("handlers"), ColumnRule::Shortened),
    ("REGISTERED", Form::Time("registered_since"), ColumnRule::Wide),
];

const FLOWS: Columns = &[
    ("FLOW", Form::Text("key"), ColumnRule::Shortened),
    ("AT ONCE", Form::Text("parallelism"), ColumnRule::Always),
    ("PER MINUTE", Form::Text("per_minute"), ColumnRule::Always),
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
        row(
            "list",
            "List workers, most recently seen first\n\nA worker seen within 3 minutes is active, within 15 \
             minutes stale, otherwise dead. After 30 silent days it is forgotten.",
        )
        .request("GET /v1/workers", View::List("worker_id", "workers", WORKERS)),
        row(
            "rm",
            "Remove a worker\n\nIts claims stay until their leases end. A worker that still runs appears again with its \
             next heartbeat.",
        )
        .args([(id, Part::Place)])
        .code(remove_worker),
    ]
}

fn remove_worker(call: &Call<'_>) -> Result {
    let (context, id) = (call.context, call.place("worker"));
    let request = ApiRequest::delete(format!("/v1/workers/{}", segment(id)));
    let answer = context.send(&request).map_err(|error| {
        if error.code() != "worker_not_found" {
            return error;
        }
        // Without them there is the advice that needs none.
        let workers = items(context, &ApiRequest::get("/v1/workers"), "workers", u64::MAX);
        let (workers, list) = (workers.unwrap_or_default(), "`cued worker list` shows all");
        error.saying(unknown("there is no worker", id, &workers, "worker_id", list).to_string())
    })?;
    call.say(&answer, "worker_id", "removed worker {worker}")
}

pub fn flow_entries() -> Vec<Entry> {
    let list = row(
        "list",
        "List flows with their limits, waiting and running calls\n\nA flow limits the calls of all cues with its name, which \
         is the host and port of the URL unless --flow-key of `cued cue add` sets another. If they disagree, the strictest \
         limits hold.",
    );
    vec![list.request("GET /v1/flows", View::Pages("key", "flows", FLOWS))]
}

pub fn alert_entries() -> Vec<Entry> {
    let types = "Only of this type: consecutive_failures, verification_failed, claim_lost, catch_up, unclaimed, \
                 outcome_missing, clock_behind or time_zone_changed";
    let since = "Only since then: a time span before now (2h), a date or a time";
    vec![
        row("list", "List alerts, newest first\n\nThe newest 1,000 are kept.")
            .args([
                (flag("type", "TYPE", types), Part::QueryWords("alert_type")),
                cue_filter(),
                (moment("since", since), Part::QueryMoment("since")),
            ])
            .request("GET /v1/alerts", View::Pages("id", "alerts", ALERTS)),
        row(
            "test",
            "Send a test alert to the alert webhook and print the result\n\nIt is signed and retried as alerts are, and \
             has the field \"test\": true. Exits with 1 if it is not delivered.",
        )
        .request("POST /v1/alerts/test", View::Code(print_test)),
    ]
}

fn heartbeat(worker: &Value) -> String {
    let seconds = worker["seconds_since_heartbeat"].as_i64();
    seconds.map(|seconds| from_now(seconds.saturating_mul(-1_000))).unwrap_or_default()
}

fn alert_type(_: &Context, alert: &Value) -> Cell {
    let style = status(&text_of(alert, "severity")).style;
    Cell::new(in_words(&text_of(alert, "alert_type")), style)
}

fn print_test(call: &Call<'_>, answer: &ApiResponse) -> Result {
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
    check_delivered(answer, "alert")
}
