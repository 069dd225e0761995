//! `cued worker` and `cued alert`: what the server knows of workers, and what it wants a person to know.

use serde_json::Value;

use crate::cli::client::command::{
    Call, Columns, Entry, Form, Part, Shown, View, Work, entry, flag, moment, of_cue, place,
};
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::table::{Cell, Style, duration, text_of};
use crate::client::request::Answer;

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
    Err(CliError::Failed("the test alert is not delivered".to_owned()))
}
