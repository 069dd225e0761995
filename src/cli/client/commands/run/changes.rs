//! `cued run retry` and `cued run cancel`: changes of a run that waits.

use crate::cli::client::arguments::run_id::find_run;
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::cli::printable::printable;
use crate::client::request::ApiRequest;

pub fn retry(context: &Context, run: &str) -> Result<(), CliError> {
    let id = find_run(context, run)?;
    let answer = context.send(&ApiRequest::post(format!("/v1/executions/{id}/retry")))?;
    context.output.done(&answer, "id", |_| format!("sending run {id} now; see `cued run show {id}`"))
}

pub fn cancel(context: &Context, run: &str) -> Result<(), CliError> {
    let id = find_run(context, run)?;
    let answer = context.send(&ApiRequest::post(format!("/v1/executions/{id}/cancel")))?;
    context
        .output
        .done(&answer, "id", |run| format!("cancelled run {id} of {}", printable(&text_of(run, "cue_name"))))
}
