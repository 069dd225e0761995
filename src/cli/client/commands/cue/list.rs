//! `cued cue list`.

use clap::Args;
use serde_json::Value;

use crate::cli::client::context::Context;
use crate::cli::client::pages;
use crate::cli::client::pages::Rows;
use crate::cli::error::CliError;
use crate::cli::output::Output;
use crate::cli::output::cells;
use crate::cli::output::cells::text_of;
use crate::cli::output::table::{Cell, Column, Table};
use crate::client::request::ApiRequest;
use crate::domain::cue::list_order::CueSort;
use crate::domain::cue::{CueStatus, Transport};

/// Letters of the wide form, one for a run.
const RECENT_RUNS: &str = "10";

#[derive(Debug, Args)]
pub struct CueList {
    /// Only cues in this state
    #[arg(long, value_name = "STATE", value_parser = CueStatus::WORDS)]
    status: Option<String>,

    /// Only cues of this transport
    #[arg(long, value_name = "TRANSPORT", value_parser = Transport::WORDS)]
    transport: Option<String>,

    /// Only cues whose latest execution failed
    #[arg(long)]
    failing: bool,

    /// The order; with - in front of it descending
    #[arg(long, value_name = "ORDER", value_parser = CueSort::WORDS, allow_hyphen_values = true)]
    sort: Option<String>,

    /// Only cues with this text in the name, the description or the host, or at the beginning of the id
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,

    #[command(flatten)]
    rows: Rows,
}

impl CueList {
    pub fn run(self, context: &Context) -> Result<(), CliError> {
        let output = &context.output;
        let request = ApiRequest::get("/v1/cues")
            .maybe_query("q", self.search)
            .maybe_query("status", self.status)
            .maybe_query("transport", self.transport)
            .maybe_query("failing", self.failing.then_some("true"))
            .maybe_query("sort", self.sort)
            .maybe_query("runs", output.is_wide().then_some(RECENT_RUNS));
        let list = pages::fetch(context, &request, "cues", self.rows)?;
        output.list(&list, "id", |cues| Table {
            columns: vec![
                Column::new("ID"),
                Column::new("NAME").text(),
                Column::new("STATUS"),
                Column::new("SCHEDULE").text(),
                Column::new("NEXT RUN"),
                Column::new("FAILING"),
                Column::new("TARGET").wide(),
                Column::new("RUNS").wide(),
                Column::new("MISSED").wide(),
                Column::new("RECENT").wide(),
            ],
            rows: cues.iter().map(|cue| row(output, cue)).collect(),
        })
    }
}

fn row(output: &Output, cue: &Value) -> Vec<Cell> {
    vec![
        text_of(cue, "id").into(),
        text_of(cue, "name").into(),
        cells::status(&text_of(cue, "status")),
        schedule(output, cue).into(),
        output.times.instant(&text_of(cue, "next_run")).into(),
        text_of(cue, "failing").into(),
        target(cue).into(),
        text_of(cue, "run_count").into(),
        text_of(cue, "missed_count").into(),
        text_of(cue, "recent.statuses").into(),
    ]
}

/// The expression and its zone, or the instant.
pub fn schedule(output: &Output, cue: &Value) -> String {
    let cron = text_of(cue, "schedule.cron");
    match text_of(cue, "schedule.timezone") {
        _ if cron.is_empty() => format!("at {}", output.times.instant(&text_of(cue, "schedule.at"))),
        zone if zone == "UTC" => cron,
        zone => format!("{cron} {zone}"),
    }
}

/// The callback, or the task of a worker.
pub fn target(cue: &Value) -> String {
    let task = text_of(cue, "payload.task");
    match text_of(cue, "transport").as_str() {
        "webhook" => text_of(cue, "callback.url"),
        transport if task.is_empty() => transport.to_owned(),
        transport => format!("{transport}, task {task}"),
    }
}
