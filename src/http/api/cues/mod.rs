//! `/v1/cues`. `cue_list` has the list, `upcoming` the next runs and the preview of a schedule.

pub mod bulk;
pub mod cue_list;
pub(in crate::http) mod upcoming;

use hyper::StatusCode;
use serde_json::json;

use crate::api::cue::{CueView, cue_patch, new_cue};
use crate::api::instants::instant;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::cue::payload::Payload;
use crate::domain::cue::{Cue, Transport};
use crate::domain::execution::worker::DEAD_AFTER;
use crate::domain::json::JsonStr;
use crate::domain::time::saturating_sub;
use crate::error::Result;
use crate::http::api::executions::execution_response::{ExecutionView, render_run};
use crate::http::api::idempotency::{from_stored, idempotency_request, read_key};
use crate::http::input::query::Pagination;
use crate::http::list::ListBody;
use crate::http::request::Request;
use crate::http::response::{Response, to_json, with_payload, with_payload_text};
use crate::service;
use crate::service::cues::not_found;
use crate::service::idempotency::StoredResponse;
use crate::service::manual_runs;
use crate::service::manual_runs::{FirePayload, FireRequest, ManualRun};
use crate::store::cues::{due_cues, payloads};
use crate::store::executions::{execution_list, workers};
use crate::store::{ReadTx, cues};

/// A cue with more runs is read on the thread for slow reads: counting its executions takes longer than a short read
/// may block the thread of the connection. A larger value saves thread switches; a smaller one protects other requests.
const SHORT_HISTORY: i64 = 1_000;

/// The number of times that `fire` merges an override again because the payload of the cue has changed meanwhile. Each time takes
/// another change of the same cue within a millisecond.
const MAX_MERGES: usize = 8;

/// Most bytes that the fields of a cue beside its payload take in a response and in the body that sets them. Larger ones
/// are possible, but the memory for them is not reserved.
const MAX_OTHER_FIELDS: usize = 128 << 10;

/// The warning of a new worker cue.
const NO_WORKER: &str = "No worker of this account was seen in the last 15 minutes: executions wait until a worker \
                         claims them";

pub async fn create(mut request: Request) -> Result<Response> {
    let caller = request.caller()?;
    let new = new_cue(request.fields()?, &request.app.config.callbacks)?;
    let call = idempotency_request(&request, "POST /v1/cues", None)?;
    reserve_cue(&mut request, new.payload.as_ref().map_or(0, |payload| payload.body.len()))?;
    let hint = worker_hint(&request, caller.user_key, new.transport).await?;
    let created = service::cues::create(&request.app, &caller, new, hint, call, render_created)?.await?;
    let StoredResponse { status, body } = created.response;
    let body = with_payload(body, created.payload.map(|payload| payload.body));
    Ok(from_stored(StoredResponse { status, body }))
}

/// `GET /v1/cues/{cue_id}?execution_limit&execution_offset&payload`
pub async fn show(request: Request) -> Result<Response> {
    let (caller, query, id) = (request.caller()?, request.query(), request.param("cue_id").to_owned());
    let pagination = query.pagination_of("execution_limit", "execution_offset", 10);
    let is_text = query.one_of("payload", &["json", "text"]) == Some("text");
    query.finish()?;
    let store = &request.app.store;
    let mut _turn = request.list_turn().await?;
    let found = store.read_inline(move |read| cues::find_with_payload(read, caller.user_key, &id)).await?;
    let (cue, mut payload) = found.ok_or_else(not_found)?;
    let (key, Pagination { limit, offset }) = (cue.key, pagination);
    let list = move |read: &ReadTx<'_>| execution_list::list_by_cue(read, key, limit, offset);
    let (page, total) = match cue.run_count {
        0 => (Vec::new(), 0),
        1..=SHORT_HISTORY => store.read_inline(list).await?,
        _ => {
            // Neither the payload nor the other turn is held while this request waits.
            drop((payload.take(), _turn));
            let turn = request.slow_list_turn().await?;
            let page;
            (page, _turn) = store.read_slow(move |read| Ok((list(read)?, turn))).await?;
            payload = current_payload(&request, &cue).await?;
            page
        }
    };
    let cue = to_json(&CueView::new(&cue, None))?;
    let history = ListBody::after(&cue, "executions", page.iter().map(ExecutionView))?;
    let history = history.with_page("execution_", total, pagination).into_text();
    let body = if is_text {
        with_payload_text(history, payload.as_deref())?
    } else {
        with_payload(history, payload)
    };
    Ok(Response::json(StatusCode::OK, body))
}

pub async fn update(mut request: Request) -> Result<Response> {
    let caller = request.caller()?;
    let patch = cue_patch(request.fields()?, &request.app.config.callbacks)?;
    let id = request.param("cue_id").to_owned();
    let payload_bytes = match &patch.payload {
        Some(given) => given.as_ref().map_or(0, |payload| payload.body.len()),
        None => payload_bytes(&request, &id).await?,
    };
    reserve_cue(&mut request, payload_bytes)?;
    let updated = service::cues::update(&request.app, &caller, id, patch).await?;
    let payload = match updated.payload {
        Some(given) => given.map(|payload| payload.body),
        None => current_payload(&request, &updated.cue).await?,
    };
    let body = with_payload(to_json(&CueView::new(&updated.cue, None))?, payload);
    Ok(Response::json(StatusCode::OK, body))
}

pub async fn delete(request: Request) -> Result<Response> {
    let caller = request.caller()?;
    service::cues::delete(&request.app, &caller, request.param("cue_id").to_owned()).await?;
    Ok(Response::no_content())
}

pub async fn fire(request: Request) -> Result<Response> {
    let (caller, id) = (request.caller()?, request.param("cue_id").to_owned());
    let mut fields = request.optional_fields()?;
    let send_at = fields.string("send_at", 0..=64);
    let payload_override = fields.dictionary("payload_override");
    let replace = fields.one_of("merge_strategy", &["merge", "replace"]) == Some("replace");
    let key = read_key(&mut fields);
    // Ignoring a misspelled `send_at` would run the cue immediately.
    fields.forbid_unknown();
    fields.finish()?;
    let call = idempotency_request(&request, &format!("POST /v1/cues/{id}/fire"), key)?;
    let render = |run: &ManualRun| StoredResponse { status: 200, body: render_run(run).to_string() };
    for _ in 0..MAX_MERGES {
        let payload = match payload_override {
            None => FirePayload::OfCue,
            Some(over) if replace => FirePayload::Replaced(Payload::new(over)),
            Some(over) => merged_payload(&request, &id, over).await?,
        };
        if let FirePayload::Replaced(Ok(payload)) | FirePayload::Merged { payload: Ok(payload), .. } =
            &payload
        {
            // The stored form, up to six times the override, is held until the write is done.
            request.reserve_response(payload.body.len())?;
        }
        let fire = FireRequest { send_at: send_at.clone(), payload };
        let fired = manual_runs::fire(&request.app, &caller, id.clone(), fire, call.clone(), render).await?;
        if let Some(response) = fired {
            return Ok(from_stored(response));
        }
    }
    let message =
        "The payload of the cue kept changing while the override was merged into it; send the request again";
    Err(Refusal::new(ErrorCode::InvalidState, message).into())
}

/// `GET /v1/cues/{cue_id}/missed?limit&offset`
pub async fn missed(request: Request) -> Result<Response> {
    let (caller, query, id) = (request.caller()?, request.query(), request.param("cue_id").to_owned());
    let pagination = query.pagination(20);
    query.finish()?;
    let (rows, total) = request
        .app
        .store
        .read(move |read| {
            let cue = cues::find(read, caller.user_key, &id)?.ok_or_else(not_found)?;
            due_cues::list_missed(read, cue.key, pagination.limit, pagination.offset)
        })
        .await?;
    let rows = rows.iter().map(|row| {
        json!({"first": instant(row.first), "last": instant(row.last), "count": row.count, "reason": row.reason})
    });
    let has_more = pagination.offset.saturating_add(rows.len() as u64) < total.unsigned_abs();
    let list = ListBody::new("missed", rows)?.with("total", &total.to_string());
    Ok(list.with_more(has_more).into_response())
}

/// Renders the response to a create without the payload. An `Idempotency-Key` stores it for a repetition of the request.
fn render_created(cue: &Cue) -> Result<StoredResponse> {
    Ok(StoredResponse { status: 201, body: to_json(&CueView::new(cue, None))? })
}

/// A warning for the creator of a worker cue if no worker of the account was seen lately.
async fn worker_hint(request: &Request, user_key: i64, transport: Transport) -> Result<Option<&'static str>> {
    if transport == Transport::Webhook {
        return Ok(None);
    }
    let since = saturating_sub(request.now, DEAD_AFTER);
    let seen = move |read: &ReadTx<'_>| workers::is_any_seen(read, user_key, since);
    let is_any_seen = request.app.store.read_inline(seen).await?;
    Ok((!is_any_seen).then_some(NO_WORKER))
}

/// Reserves the memory for a changed cue with a payload of this size, and drops the body, of which all is read.
fn reserve_cue(request: &mut Request, payload_bytes: usize) -> Result<()> {
    let others = request.body().len().min(MAX_OTHER_FIELDS);
    request.drop_body();
    request.reserve_response(payload_bytes + others)
}

/// The size of the stored payload of a cue; 0 if there is none.
async fn payload_bytes(request: &Request, id: &str) -> Result<usize> {
    let (user_key, id) = (request.caller()?.user_key, id.to_owned());
    request.app.store.read_inline(move |read| payloads::size_of_current(read, user_key, &id)).await
}

/// The text of the payload of a cue after a change that left it as it was.
async fn current_payload(request: &Request, cue: &Cue) -> Result<Option<String>> {
    let Some(payload_key) = cue.payload_key else { return Ok(None) };
    let (user_key, cue_key, id) = (cue.user_key, cue.key, cue.id.clone());
    let read = move |read: &ReadTx<'_>| match payloads::find(read, cue_key, payload_key)? {
        Some(payload) => Ok(Some(payload)),
        // Another change has replaced it since.
        None => Ok(cues::find_with_payload(read, user_key, &id)?.and_then(|(_, payload)| payload)),
    };
    request.app.store.read_inline(read).await
}

/// Merges `over` into the payload of the cue. A missing cue is left to `fire` to refuse.
async fn merged_payload(request: &Request, id: &str, over: JsonStr<'_>) -> Result<FirePayload> {
    let (user_key, id) = (request.caller()?.user_key, id.to_owned());
    let find = move |read: &ReadTx<'_>| cues::find_with_payload(read, user_key, &id);
    let found = request.app.store.read_inline(find).await?;
    let (base, own) = found.map_or((None, None), |(cue, payload)| (cue.payload_key, payload));
    let payload = match own {
        Some(own) => Payload::merged(&own, over),
        None => Payload::new(over),
    };
    Ok(FirePayload::Merged { base, payload })
}
