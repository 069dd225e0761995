//! `cued account usage`: what the account uses, and the limits of its plan.

use clap::Args;
use serde_json::Value;

use crate::cli::client::command::ClientAction;
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::cells::{of_limit, quota, text_of};
use crate::cli::output::table::Cell;
use crate::cli::progress::size;
use crate::client::request::ApiRequest;
use crate::domain::account::plan::bytes_or_max;

#[derive(Debug, Args)]
pub struct Usage {}

impl ClientAction for Usage {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let answer = context.send(&ApiRequest::get("/v1/usage"))?;
        let time = |usage: &Value, field: &str| context.output.times.instant(&text_of(usage, field));
        context.output.object(&answer, "plan.name", |usage| {
            let period =
                format!("{} to {}", time(usage, "billing_period.start"), time(usage, "billing_period.end"));
            vec![
                ("plan", plan(usage).into()),
                ("active cues", quota(usage, "cues.active", "cues.limit", "")),
                ("all cues", quota(usage, "cues.total", "cues.total_limit", "")),
                ("executions", quota(usage, "executions.used", "executions.limit", "")),
                ("storage", storage(usage)),
                ("requests", quota(usage, "rate_limit.current_usage", "rate_limit.limit", " in a minute")),
                ("outcomes", outcomes(usage).into()),
                ("period", period.into()),
            ]
        })
    }
}

fn plan(usage: &Value) -> String {
    format!("{} {}", text_of(usage, "plan.name"), text_of(usage, "plan.interval")).trim().to_owned()
}

fn storage(usage: &Value) -> Cell {
    let bytes = |field: &str| text_of(usage, field).parse::<u64>().ok();
    let no_limit = u64::try_from(bytes_or_max(None)).unwrap_or(u64::MAX);
    match (bytes("storage.used_bytes"), bytes("storage.limit_bytes")) {
        (Some(used), Some(limit)) if limit < no_limit => {
            Cell::new(format!("{} of {}", size(used), size(limit)), of_limit(used, limit))
        }
        (Some(used), _) => format!("{}, no limit", size(used)).into(),
        (None, _) => Cell::default(),
    }
}

fn outcomes(usage: &Value) -> String {
    let number = |field: &str| text_of(usage, &format!("outcomes.{field}"));
    let [reported, succeeded, failed] = ["reported", "succeeded", "failed"].map(number);
    format!("{reported} reported: {succeeded} succeeded, {failed} failed")
}
