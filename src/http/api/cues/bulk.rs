//! `/v1/cues/bulk` and `/v1/cues/bulk-delete`: one action on many cues.

use serde::Serialize;

use crate::api::fields::JsonFields;
use crate::domain::cue::list::{CueFilter, MAX_SEARCH, SearchText};
use crate::domain::cue::{CueStatus, Transport};
use crate::error::{Error, Result};
use crate::http::api::bulk::{ANSWER_BYTES, Resolved, bulk_call, read_ids, read_targets, run_to_end};
use crate::http::request::Request;
use crate::http::response::{Response, to_json, to_refusal};
use crate::service::bulk::cues as actions;
use crate::service::bulk::cues::{CueAction, CueResults};
use crate::service::bulk::{BulkCall, BulkRequest, MAX_MATCHED, distinct};
use crate::service::idempotency::StoredResponse;
use crate::store::ReadTx;
use crate::store::cues::matching;

/// The answer of `/v1/cues/bulk`. `matched` is the sum of `done` and the length of `failed`.
#[derive(Debug, Serialize)]
struct BulkView<'a> {
    matched: usize,
    done: usize,
    failed: Vec<FailedView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution_ids: Option<Vec<String>>,
}

#[derive(Debug, Serialize)]
struct FailedView<'a> {
    id: &'a str,
    code: &'static str,
    message: &'a str,
}

#[derive(Debug, Serialize)]
struct DeletedView<'a> {
    deleted: &'a [String],
    skipped: Vec<&'a str>,
}

pub async fn apply(request: Request) -> Result<Response> {
    let mut fields = request.fields()?;
    let action = fields.required_one_of("action", &CueAction::WORDS).and_then(CueAction::parse);
    let targets = read_targets(&mut fields, distinct, read_filter);
    fields.forbid_unknown();
    fields.finish()?;
    let (Some(action), Some((targets, is_dry_run))) = (action, targets) else { return Err(missing()) };
    let call = bulk_call(&request, "POST /v1/cues/bulk")?;
    let select = |filter| select(&request, filter);
    let ids = match targets.resolve(&request, (call.as_ref(), is_dry_run), "narrow it", select).await? {
        Resolved::Ids(ids) => ids,
        Resolved::Answer(response) => return Ok(response),
    };
    let render = if action == CueAction::Fire { render_fired } else { render_done };
    run_all(request, action, ids, call, render).await
}

/// `POST /v1/cues/bulk-delete`, with the answer of the public service. Its header `X-Confirm-Destructive` has no effect.
pub async fn delete(request: Request) -> Result<Response> {
    let mut fields = request.fields()?;
    let ids = read_ids(&mut fields);
    fields.forbid_unknown();
    fields.finish()?;
    let ids = distinct(ids.ok_or_else(missing)?);
    let call = bulk_call(&request, "POST /v1/cues/bulk-delete")?;
    request.reserve_response(ids.len() * ANSWER_BYTES)?;
    run_all(request, CueAction::Delete, ids, call, render_deleted).await
}

async fn run_all(
    request: Request,
    action: CueAction,
    ids: Vec<String>,
    call: Option<BulkCall>,
    render: fn(&CueResults) -> Result<StoredResponse>,
) -> Result<Response> {
    let caller = request.caller()?;
    let request_id = request.id.clone();
    let bulk =
        BulkRequest { ids, call, render, explain: Box::new(move |error| to_refusal(error, &request_id)) };
    // The request moves into the task, because the memory for the answer is reserved as long as it exists.
    run_to_end(async move { actions::apply(&request.app, &caller, action, bulk).await }).await
}

/// The ids of the caller's cues that match, one more than there may be.
async fn select(request: &Request, filter: CueFilter) -> Result<Vec<String>> {
    let user_key = request.caller()?.user_key;
    let turn = request.slow_list_turn().await?;
    let select =
        move |read: &ReadTx<'_>| Ok((matching::select(read, user_key, &filter, MAX_MATCHED + 1)?, turn));
    let (ids, _turn) = request.app.store.read_slow(select).await?;
    Ok(ids)
}

fn read_filter(fields: &mut JsonFields<'_>) -> CueFilter {
    CueFilter {
        q: fields.string("q", 1..=MAX_SEARCH).map(|text| SearchText::new(&text)),
        status: fields.one_of("status", &CueStatus::WORDS).and_then(CueStatus::parse),
        transport: fields.one_of("transport", &Transport::WORDS).and_then(Transport::parse),
        failing: fields.boolean("failing"),
    }
}

fn render_done(done: &CueResults) -> Result<StoredResponse> {
    render(done, None)
}

fn render_fired(done: &CueResults) -> Result<StoredResponse> {
    render(done, Some(done.execution_ids.iter().map(ToString::to_string).collect()))
}

fn render(done: &CueResults, execution_ids: Option<Vec<String>>) -> Result<StoredResponse> {
    let failed: Vec<FailedView<'_>> = done
        .refused
        .iter()
        .map(|refused| FailedView {
            id: &refused.id,
            code: refused.refusal.code.text_and_status().0,
            message: &refused.refusal.message,
        })
        .collect();
    let matched = done.ids.len() + failed.len();
    let body = to_json(&BulkView { matched, done: done.ids.len(), failed, execution_ids })?;
    Ok(StoredResponse { status: 200, body })
}

fn render_deleted(done: &CueResults) -> Result<StoredResponse> {
    let skipped = done.refused.iter().map(|refused| refused.id.as_str()).collect();
    Ok(StoredResponse { status: 200, body: to_json(&DeletedView { deleted: &done.ids, skipped })? })
}

/// For a value that the validation guarantees.
fn missing() -> Error {
    Error::fault("a field of a bulk request is missing after validation")
}
