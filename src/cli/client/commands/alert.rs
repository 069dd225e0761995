//! `cued alert`: what the server wants a person to know.

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::cli::client::arguments::cue_name::find_maybe_id;
use crate::cli::client::arguments::moment::{Moment, resolve_maybe};
use crate::cli::client::command::ClientAction;
use crate::cli::client::context::Context;
use crate::cli::client::pages::{self, Rows};
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::cli::output::style::Style;
use crate::cli::output::table::{Cell, Column, Table};
use crate::cli::output::times::duration;
use crate::client::request::ApiRequest;

#[derive(Debug, Subcommand)]
pub enum AlertAction {
    /// List alerts, newest first
    ///
    /// The newest 1,000 are kept.
    #[command(after_long_help = "Example:\n  cued alert list --cue nightly-backup --since 7d")]
    List(AlertList),
    /// Send a test alert to the alert webhook and print the result
    ///
    /// It is signed and retried as alerts are, and has the field "test": true. If it is not delivered, the exit code is 1.
    Test,
}

#[derive(Debug, Args)]
pub struct AlertList {
    /// Only of this type: consecutive_failures, verification_failed, claim_lost, catch_up or unclaimed
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only of this cue: its id or its name
    #[arg(long, value_name = "CUE")]
    cue: Option<String>,
    /// Only since then: a duration before now (2h), a date or an instant
    #[arg(long, value_name = "TIME", value_parser = Moment::parse)]
    since: Option<Moment>,
    #[command(flatten)]
    rows: Rows,
}

impl ClientAction for AlertAction {
    fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::List(wanted) => list(context, wanted),
            Self::Test => test(context),
        }
    }
}

fn list(context: &Context, wanted: AlertList) -> Result<(), CliError> {
    let cue = find_maybe_id(context, wanted.cue.as_deref())?;
    let since = resolve_maybe(context, wanted.since)?;
    let request = ApiRequest::get("/v1/alerts")
        .maybe_query("alert_type", wanted.kind)
        .maybe_query("cue_id", cue)
        .maybe_query("since", since.map(|at| at.to_string()));
    let list = pages::fetch(context, &request, "alerts", wanted.rows)?;
    context.output.list(&list, "id", |alerts| Table {
        columns: vec![
            Column::new("TIME"),
            Column::new("TYPE"),
            Column::new("MESSAGE").text(),
            Column::new("CUE").wide(),
            Column::new("RUN").wide(),
            Column::new("ID").wide(),
        ],
        rows: alerts.iter().map(|alert| row(context, alert)).collect(),
    })
}

fn test(context: &Context) -> Result<(), CliError> {
    let answer = context.send(&ApiRequest::post("/v1/alerts/test"))?;
    context.output.done(&answer, "id", |result| test_sentence(context, result))?;
    if answer.value()?["status"] == "delivered" {
        return Ok(());
    }
    Err(CliError::Failed("the test alert is not delivered".to_owned()))
}

fn test_sentence(context: &Context, result: &Value) -> String {
    let time = result["duration_ms"].as_i64().map(duration).unwrap_or_default();
    match result["status"].as_str() {
        Some("delivered") => format!("Delivered: the webhook returned {} in {time}.", result["http_status"]),
        Some("failed") => {
            let again = match text_of(result, "next_retry") {
                due if due.is_empty() => "It is not sent again.".to_owned(),
                due => format!("It is sent again at {}.", context.output.times.instant(&due)),
            };
            format!("Failed after {time}: {}. {again}", text_of(result, "error_message"))
        }
        _ => "The webhook has not answered yet; the server goes on.".to_owned(),
    }
}

fn row(context: &Context, alert: &Value) -> Vec<Cell> {
    let style = match alert["severity"].as_str() {
        Some("critical") => Style::Bad,
        Some("warning") => Style::Warning,
        _ => Style::Plain,
    };
    vec![
        context.output.column_time(&text_of(alert, "created_at")).into(),
        Cell::new(text_of(alert, "alert_type"), style),
        text_of(alert, "message").into(),
        text_of(alert, "cue_id").into(),
        text_of(alert, "execution_id").into(),
        text_of(alert, "id").into(),
    ]
}
