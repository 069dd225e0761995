//! `cued run list`.

use clap::Args;
use serde_json::Value;

use crate::cli::client::arguments::cue_name::find_maybe_id;
use crate::cli::client::arguments::moment::{Moment, resolve_maybe};
use crate::cli::client::commands::run::cells::{attempts_of, duration_of, result_of};
use crate::cli::client::context::Context;
use crate::cli::client::pages::{self, Rows};
use crate::cli::error::CliError;
use crate::cli::output::cells::{status, text_of};
use crate::cli::output::table::{Cell, Column, Table};
use crate::client::request::ApiRequest;

#[derive(Debug, Args)]
pub struct ListRuns {
    /// Only of this cue: its id or its name
    #[arg(long, value_name = "CUE")]
    cue: Option<String>,
    /// Only in these states: pending, delivering, retrying, success, failed; several with commas
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// Only failed ones
    #[arg(long, conflicts_with = "status")]
    failed: bool,
    /// Only created since then: a duration before now (2h), a date or an instant
    #[arg(long, value_name = "TIME", value_parser = Moment::parse)]
    since: Option<Moment>,
    /// Only created before then
    #[arg(long, value_name = "TIME", value_parser = Moment::parse)]
    until: Option<Moment>,
    /// Only begun by this: schedule, manual_fire or replay
    #[arg(long, value_name = "TRIGGER")]
    trigger: Option<String>,
    /// Only with this cause of the last failure, such as timeout or status_5xx
    #[arg(long, value_name = "CAUSE")]
    cause: Option<String>,
    /// Only claimed by this worker
    #[arg(long, value_name = "ID")]
    worker: Option<String>,
    /// Only with this state of the outcome, such as verification_pending
    #[arg(long, value_name = "STATE")]
    outcome: Option<String>,
    #[command(flatten)]
    rows: Rows,
}

impl ListRuns {
    pub fn run(self, context: &Context) -> Result<(), CliError> {
        let cue = find_maybe_id(context, self.cue.as_deref())?;
        let since = resolve_maybe(context, self.since)?;
        let until = resolve_maybe(context, self.until)?;
        let status = self.status.or_else(|| self.failed.then(|| "failed".to_owned()));
        let request = ApiRequest::get("/v1/executions")
            .maybe_query("cue_id", cue)
            .maybe_query("status__in", status)
            .maybe_query("since", since.map(|at| at.to_string()))
            .maybe_query("until", until.map(|at| at.to_string()))
            .maybe_query("triggered_by", self.trigger)
            .maybe_query("cause", self.cause)
            .maybe_query("worker_id", self.worker)
            .maybe_query("outcome_state", self.outcome);
        let list = pages::fetch(context, &request, "executions", self.rows)?;
        context.output.list(&list, "id", |runs| table(context, runs))
    }
}

fn table(context: &Context, runs: &[Value]) -> Table {
    let columns = vec![
        Column::new("ID"),
        Column::new("CUE").text(),
        Column::new("STATUS"),
        Column::new("RESULT").text(),
        Column::new("SCHEDULED"),
        Column::new("LATE").wide(),
        Column::new("TOOK").wide(),
        Column::new("ATTEMPTS").wide(),
        Column::new("TRIGGER").wide(),
        Column::new("WORKER").wide(),
        Column::new("CUE ID").wide(),
        Column::new("MESSAGE").wide(),
    ];
    Table { columns, rows: runs.iter().map(|run| row(context, run)).collect() }
}

fn row(context: &Context, run: &Value) -> Vec<Cell> {
    vec![
        text_of(run, "id").into(),
        text_of(run, "cue_name").into(),
        status(&text_of(run, "status")),
        result_of(run).into(),
        context.output.column_time(&text_of(run, "scheduled_for")).into(),
        duration_of(run, "late_ms").into(),
        duration_of(run, "duration_ms").into(),
        attempts_of(run).into(),
        text_of(run, "triggered_by").into(),
        text_of(run, "claimed_by_worker").into(),
        text_of(run, "cue_id").into(),
        text_of(run, "error_message").into(),
    ]
}
