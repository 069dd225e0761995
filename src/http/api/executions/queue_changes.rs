//! `retry` and `cancel` of a waiting execution, and the replay of many.

use serde::Serialize;

use crate::api::fields::JsonFields;
use crate::domain::execution::ExecutionStatus;
use crate::domain::execution::attempt::FailureCause;
use crate::domain::ids::ExecutionId;
use crate::domain::schedule::parse_instant;
use crate::domain::schedule::time_zone::Zone;
use crate::error::{Error, Result};
use crate::http::api::bulk::{Resolved, bulk_call, read_targets, run_to_end};
use crate::http::api::executions::execution_response::{ExecutionView, render_run};
use crate::http::request::Request;
use crate::http::response::{Response, to_json, to_refusal};
use crate::service::bulk::replays as actions;
use crate::service::bulk::replays::ReplayResults;
use crate::service::bulk::{BulkRequest, MAX_MATCHED, distinct};
use crate::service::idempotency::StoredResponse;
use crate::service::manual_runs;
use crate::store::ReadTx;
use crate::store::executions::execution_list::{self, CreatedRange, ExecutionFilter};

/// The answer to a replay of many. `matched` is the sum of `replayed` and the length of `skipped`.
#[derive(Debug, Serialize)]
struct ReplayView<'a> {
    matched: usize,
    replayed: usize,
    skipped: Vec<SkippedView<'a>>,
    execution_ids: Vec<String>,
}

#[derive(Debug, Serialize)]
struct SkippedView<'a> {
    id: &'a str,
    code: &'static str,
}

pub async fn retry(request: Request) -> Result<Response> {
    let (caller, id) = (request.caller()?, request.execution_id()?);
    request.optional_fields()?;
    let (run, status) = manual_runs::retry(&request.app, caller.user_key, id).await?;
    let mut body = render_run(&run);
    body["status"] = status.as_str().into();
    Ok(Response::ok(&body))
}

pub async fn cancel(request: Request) -> Result<Response> {
    let (caller, id) = (request.caller()?, request.execution_id()?);
    request.optional_fields()?;
    let cancelled = manual_runs::cancel(&request.app, caller.user_key, id).await?;
    Response::from_body(&ExecutionView(&cancelled))
}

pub async fn replay_all(request: Request) -> Result<Response> {
    let caller = request.caller()?;
    let mut fields = request.fields()?;
    let targets = read_targets(&mut fields, oldest_first, read_filter);
    fields.forbid_unknown();
    fields.finish()?;
    let (targets, is_dry_run) =
        targets.ok_or_else(|| Error::fault("the executions to replay are missing after validation"))?;
    let call = bulk_call(&request, "POST /v1/executions/replay")?;
    let narrower = "narrow since and until, and replay one part after the other";
    let select = |filter| select(&request, filter);
    let ids = match targets.resolve(&request, (call.as_ref(), is_dry_run), narrower, select).await? {
        Resolved::Ids(ids) => ids,
        Resolved::Answer(response) => return Ok(response),
    };
    let request_id = request.id.clone();
    let bulk =
        BulkRequest { ids, call, render, explain: Box::new(move |error| to_refusal(error, &request_id)) };
    // The request moves into the task, because the memory for the answer is reserved as long as it exists.
    run_to_end(async move { actions::apply(&request.app, &caller, bulk).await }).await
}

/// Each id once and in its usual spelling. Ids sort by the time of creation.
fn oldest_first(ids: Vec<String>) -> Vec<String> {
    let usual = |id: String| ExecutionId::parse(&id).map_or(id, |id| id.to_string());
    let mut ids = distinct(ids.into_iter().map(usual).collect());
    ids.sort_unstable();
    ids
}

/// The ids of the caller's executions that match, one more than there may be.
async fn select(request: &Request, filter: ExecutionFilter) -> Result<Vec<String>> {
    let user_key = request.caller()?.user_key;
    let turn = request.slow_list_turn().await?;
    let select = move |read: &ReadTx<'_>| {
        Ok((execution_list::select_for_replay(read, user_key, &filter, MAX_MATCHED + 1)?, turn))
    };
    let (ids, _turn) = request.app.store.read_slow(select).await?;
    Ok(ids.iter().map(ToString::to_string).collect())
}

fn read_filter(fields: &mut JsonFields<'_>) -> ExecutionFilter {
    // The only status that is replayed by a filter, so it is the default too.
    fields.one_of("status", &[ExecutionStatus::Failed.as_str()]);
    let (since, until) = (read_instant(fields, "since"), read_instant(fields, "until"));
    if since.is_some_and(|since| until.is_some_and(|until| until <= since)) {
        fields.reject("until", "until must be later than since");
    }
    let cause = fields.one_of("cause", &FailureCause::WORDS).and_then(FailureCause::parse);
    ExecutionFilter {
        cue_id: fields.string("cue_id", 1..=255),
        statuses: vec![ExecutionStatus::Failed],
        created: CreatedRange { since, until },
        cause,
        ..ExecutionFilter::default()
    }
}

fn read_instant(fields: &mut JsonFields<'_>, name: &'static str) -> Option<jiff::Timestamp> {
    let text = fields.string(name, 1..=64)?;
    match parse_instant(&text, &Zone::UTC) {
        Ok(instant) => Some(instant),
        Err(error) => {
            fields.reject(name, &error.to_string());
            None
        }
    }
}

fn render(done: &ReplayResults) -> Result<StoredResponse> {
    let skipped: Vec<SkippedView<'_>> =
        done.skipped.iter().map(|(id, code)| SkippedView { id, code: code.text_and_status().0 }).collect();
    let replayed = done.execution_ids.len();
    let execution_ids = done.execution_ids.iter().map(ToString::to_string).collect();
    let body = to_json(&ReplayView { matched: replayed + skipped.len(), replayed, skipped, execution_ids })?;
    Ok(StoredResponse { status: 200, body })
}
