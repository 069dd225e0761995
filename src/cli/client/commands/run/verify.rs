//! `cued run verify`: a verdict about the outcome that a run reported.

use clap::Args;
use serde_json::json;

use crate::cli::client::arguments::run_id::find_run;
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::client::request::ApiRequest;

#[derive(Debug, Args)]
pub struct Verify {
    /// Id of the run, or at least 8 characters of its beginning
    run: String,
    /// Reject the outcome instead of accepting it
    #[arg(long)]
    invalid: bool,
    /// Reason of the verdict
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Withdraw the verdict; the outcome waits for another one
    #[arg(long, conflicts_with_all = ["invalid", "reason"])]
    reopen: bool,
}

impl Verify {
    pub fn run(self, context: &Context) -> Result<(), CliError> {
        let id = find_run(context, &self.run)?;
        let request = if self.reopen {
            ApiRequest::post(format!("/v1/executions/{id}/verification-pending"))
        } else {
            let mut body = json!({"valid": !self.invalid});
            if let Some(reason) = self.reason {
                body["reason"] = reason.into();
            }
            ApiRequest::post(format!("/v1/executions/{id}/verify")).json(body)
        };
        let answer = context.send(&request)?;
        context.output.done(&answer, "execution_id", |verdict| {
            format!("run {id} is {}", text_of(verdict, "outcome_state"))
        })
    }
}
