//! `cued worker`: the workers of the account.

use clap::Subcommand;
use serde_json::Value;

use crate::cli::client::command::ClientAction;
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::cells::{status, text_of};
use crate::cli::output::list::List;
use crate::cli::output::table::{Cell, Column, Table};
use crate::cli::output::times::duration;
use crate::cli::printable::printable;
use crate::client::request::{ApiRequest, segment};

#[derive(Debug, Subcommand)]
pub enum WorkerAction {
    /// List workers, the last one heard of first
    ///
    /// A worker is active if it was heard of within 3 minutes, stale within 15, else dead. A worker that is silent for 30
    /// days is forgotten.
    List,
    /// Remove a worker
    ///
    /// Its claims stay until their leases end. A worker that still runs appears again with its next
    /// heartbeat.
    Rm {
        /// Id of the worker, as `cued worker list` shows it
        #[arg(value_name = "ID")]
        worker: String,
    },
}

impl ClientAction for WorkerAction {
    fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::List => list(context),
            Self::Rm { worker } => remove(context, &worker),
        }
    }
}

fn list(context: &Context) -> Result<(), CliError> {
    let answer = context.send(&ApiRequest::get("/v1/workers"))?;
    let list = List::of(&answer, "workers")?;
    context.output.list(&list, "worker_id", |workers| Table {
        columns: vec![
            Column::new("WORKER"),
            Column::new("STATUS"),
            Column::new("HEARTBEAT"),
            Column::new("TASKS").text(),
            Column::new("REGISTERED").wide(),
        ],
        rows: workers.iter().map(|worker| row(context, worker)).collect(),
    })
}

fn row(context: &Context, worker: &Value) -> Vec<Cell> {
    let seconds = worker["seconds_since_heartbeat"].as_i64();
    let handlers = worker["handlers"].as_array().into_iter().flatten();
    let tasks: Vec<&str> = handlers.filter_map(Value::as_str).collect();
    vec![
        text_of(worker, "worker_id").into(),
        status(&text_of(worker, "heartbeat_status")),
        seconds.map(ago).unwrap_or_default().into(),
        tasks.join(", ").into(),
        context.output.times.instant(&text_of(worker, "registered_since")).into(),
    ]
}

fn ago(seconds: i64) -> String {
    if seconds == 0 { "now".to_owned() } else { format!("{} ago", duration(seconds.saturating_mul(1_000))) }
}

fn remove(context: &Context, worker: &str) -> Result<(), CliError> {
    let answer = context.send(&ApiRequest::delete(format!("/v1/workers/{}", segment(worker))))?;
    context.output.done(&answer, "worker_id", |_| format!("removed worker {}", printable(worker)))
}
