//! `/v1/cues` and `/v1/schedule/preview`.

pub(in crate::http) mod cue_request;
pub(in crate::http) mod cue_response;

use hyper::StatusCode;
use hyper::header::HeaderName;
use serde_json::{Value, json};

use crate::actions::cues::{self as actions, CueWithPayload, not_found};
use crate::actions::idempotency::{IdempotencyRequest, StoredResponse};
use crate::actions::manual_runs;
use crate::actions::manual_runs::{FireRequest, ManualRun};
use crate::domain::account::credentials::sha256;
use crate::domain::api_error::{FieldError, Refusal};
use crate::domain::cue::CueStatus;
use crate::domain::execution::ExecutionStatus;
use crate::error::Result;
use crate::http::api::cues::cue_request::{cue_change, new_cue, schedule};
use crate::http::api::cues::cue_response::{CueListView, CueView, HistoryView};
use crate::http::api::executions::execution_response::ExecutionView;
use crate::http::request::Request;
use crate::http::response::{Response, instant, text_of};
use crate::store::cues::due_cues;
use crate::store::executions::execution_list;
use crate::store::{ReadTx, cues};

/// A cue that ran more often has a history that takes a while to count.
const SHORT_HISTORY: i64 = 1_000;

/// `POST /v1/cues`
pub async fn create(request: Request) -> Result<Response> {
    let caller = request.caller()?;
    let new = new_cue(request.fields()?, &request.app.config.callbacks)?;
    let call = idempotent_call(&request, "POST /v1/cues")?;
    Ok(answered(actions::create(&request.app, &caller, new, call, created)?.await?))
}

/// `GET /v1/cues?status&limit&offset`
pub async fn list(request: Request) -> Result<Response> {
    let (caller, query) = (request.caller()?, request.query());
    let status = query.one_of("status", &CueStatus::WORDS).and_then(CueStatus::parse);
    let (limit, offset) = (query.integer("limit", 1..=100, 20), query.integer("offset", 0..=i64::MAX, 0));
    query.finish()?;
    let (page, total) = request
        .app
        .store
        .read(move |read| {
            cues::list(
                read,
                caller.user_key,
                status,
                u32::try_from(limit).unwrap_or(100),
                offset.unsigned_abs(),
            )
        })
        .await?;
    let cues = page.iter().map(CueView::listed).collect();
    Response::from_body(&CueListView { cues, total, limit, offset })
}

/// `GET /v1/cues/{cue_id}?execution_limit&execution_offset`
pub async fn show(request: Request) -> Result<Response> {
    let (caller, query, id) = (request.caller()?, request.query(), request.param("cue_id").to_owned());
    let limit = query.integer("execution_limit", 1..=100, 10);
    let offset = query.integer("execution_offset", 0..=i64::MAX, 0);
    query.finish()?;
    let store = &request.app.store;
    let found = store.read_inline_single(move |read| cues::find_whole(read, caller.user_key, &id)).await?;
    let (cue, payload) = found.ok_or_else(not_found)?;
    let (key, most) = (cue.key, u32::try_from(limit).unwrap_or(100));
    let look = move |read: &ReadTx<'_>| execution_list::list_of_cue(read, key, most, offset.unsigned_abs());
    let (page, total) = match cue.run_count {
        0 => (Vec::new(), 0),
        1..=SHORT_HISTORY => store.read_inline(look).await?,
        _ => store.read_slow(look).await?,
    };
    let shown = CueWithPayload { cue, payload };
    let history = HistoryView {
        executions: page.iter().map(ExecutionView::from).collect(),
        execution_total: total,
        execution_limit: limit,
        execution_offset: offset,
    };
    Response::from_body(&CueView::whole(&shown).with_history(history))
}

/// `PATCH /v1/cues/{cue_id}`
pub async fn update(request: Request) -> Result<Response> {
    let caller = request.caller()?;
    let change = cue_change(request.fields()?, &request.app.config.callbacks)?;
    let id = request.param("cue_id").to_owned();
    let updated = actions::update(&request.app, &caller, id, change)?.await?;
    Response::from_body(&CueView::whole(&updated))
}

/// `DELETE /v1/cues/{cue_id}`
pub async fn delete(request: Request) -> Result<Response> {
    let caller = request.caller()?;
    actions::delete(&request.app, &caller, request.param("cue_id").to_owned()).await?;
    Ok(Response::no_content())
}

/// `POST /v1/cues/{cue_id}/fire`
pub async fn fire(request: Request) -> Result<Response> {
    let (caller, id) = (request.caller()?, request.param("cue_id").to_owned());
    let mut fields = request.optional_fields()?;
    let send_at = fields.string("send_at", 0..=64);
    let payload_override = fields.dictionary("payload_override").cloned().map(Value::Object);
    let replace = fields.one_of("merge_strategy", &["merge", "replace"]) == Some("replace");
    // A misspelt `send_at` would run the cue at once.
    fields.forbid_rest();
    fields.finish()?;
    let fire = FireRequest { send_at, payload_override, replace };
    let call = idempotent_call(&request, &format!("POST /v1/cues/{id}/fire"))?;
    let render = |run: &ManualRun| StoredResponse { status: 200, body: render_run(run).to_string() };
    Ok(answered(manual_runs::fire(&request.app, &caller, id, fire, call, render).await?))
}

/// `GET /v1/cues/{cue_id}/upcoming?limit`: none while no run is planned.
pub async fn upcoming(request: Request) -> Result<Response> {
    let (caller, id, limit) =
        (request.caller()?, request.param("cue_id").to_owned(), upcoming_limit(&request)?);
    let cue = request
        .app
        .store
        .read_inline_single(move |read| Ok(cues::find(read, caller.user_key, &id)?.ok_or_else(not_found)?))
        .await?;
    let Some(next_run) = cue.next_run else { return Ok(Response::ok(&json!({"upcoming": []}))) };
    let schedule = cue.schedule.read().map_err(Refusal::from)?;
    let later = schedule.upcoming(next_run, limit - 1);
    let upcoming: Vec<String> = std::iter::once(next_run).chain(later).map(instant).collect();
    Ok(Response::ok(&json!({"upcoming": upcoming})))
}

/// `POST /v1/schedule/preview`
pub async fn preview(request: Request) -> Result<Response> {
    let mut fields = request.fields()?;
    let limit = fields.integer("limit", 1..=100).unwrap_or(10);
    let parsed = schedule(&mut fields);
    fields.finish()?;
    let Some(schedule) = parsed else { return Err(Refusal::invalid(Vec::new()).into()) };
    let schedule = schedule?;
    schedule.first_run(request.now).map_err(Refusal::from)?;
    let upcoming = schedule.upcoming(request.now, usize::try_from(limit).unwrap_or(10));
    let upcoming: Vec<String> = upcoming.into_iter().map(instant).collect();
    Ok(Response::ok(&json!({"upcoming": upcoming})))
}

/// `GET /v1/cues/{cue_id}/missed?limit&offset`
pub async fn missed(request: Request) -> Result<Response> {
    let (caller, query, id) = (request.caller()?, request.query(), request.param("cue_id").to_owned());
    let (limit, offset) = (query.integer("limit", 1..=100, 20), query.integer("offset", 0..=i64::MAX, 0));
    query.finish()?;
    let (rows, total) = request
        .app
        .store
        .read(move |read| {
            let cue = cues::find(read, caller.user_key, &id)?.ok_or_else(not_found)?;
            due_cues::list_missed(read, cue.key, u32::try_from(limit).unwrap_or(100), offset.unsigned_abs())
        })
        .await?;
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({"first": instant(row.first), "last": instant(row.last), "count": row.count, "reason": row.reason})
        })
        .collect();
    Ok(Response::ok(&json!({"missed": rows, "total": total})))
}

/// A cue as the answer to its creation, which an `Idempotency-Key` keeps.
fn created(shown: &CueWithPayload) -> Result<StoredResponse> {
    Ok(StoredResponse { status: 201, body: text_of(&CueView::whole(shown))? })
}

/// A run that was asked for, as `fire` and `replay` answer.
pub(in crate::http) fn render_run(run: &ManualRun) -> Value {
    json!({
        "id": run.execution_id.to_string(),
        "execution_id": run.execution_id.to_string(),
        "cue_id": run.cue_id,
        "scheduled_for": instant(run.scheduled_for),
        "status": ExecutionStatus::Pending.as_str(),
        "triggered_by": run.triggered_by.as_str(),
    })
}

fn upcoming_limit(request: &Request) -> Result<usize> {
    let query = request.query();
    let limit = query.integer("limit", 1..=100, 10);
    query.finish()?;
    Ok(usize::try_from(limit).unwrap_or(10))
}

/// The `Idempotency-Key` of a request to `route`, with what tells it from another request.
fn idempotent_call(request: &Request, route: &str) -> Result<Option<IdempotencyRequest>> {
    const HEADER: HeaderName = HeaderName::from_static("idempotency-key");
    let Some(value) = request.headers.get(HEADER) else { return Ok(None) };
    match value.to_str() {
        Ok(key) if (1..=255).contains(&key.len()) => {
            let asked = [route.as_bytes(), b"\n", request.body()].concat();
            Ok(Some(IdempotencyRequest { key: key.to_owned(), fingerprint: sha256(&asked) }))
        }
        _ => Err(Refusal::invalid(vec![FieldError {
            kind: "value_error",
            loc: vec!["header".into(), "Idempotency-Key".into()],
            msg: "Value error, an Idempotency-Key has 1 to 255 visible ASCII characters".to_owned(),
            input: Value::Null,
        }])
        .into()),
    }
}

fn answered(answer: StoredResponse) -> Response {
    Response::json(StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK), answer.body)
}
