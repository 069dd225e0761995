//! `/v1/cues`, and the preview of a schedule. `cue_list` has the list.

use hyper::StatusCode;
use jiff::Timestamp;
use jiff::civil::DateTime;
use serde_json::{Value, json};

use crate::api::cue::{CueView, cue_patch, new_cue, preview_schedule};
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::cue::{Cue, Payload, Transport};
use crate::domain::execution::worker::DEAD_AFTER;
use crate::domain::json::JsonStr;
use crate::domain::schedule::{EARLIEST, Schedule, Zone, offset_text, parse_instant};
use crate::domain::time::{instant, just_before, saturating_sub};
use crate::error::Result;
use crate::http::api::executions::{ExecutionView, render_run};
use crate::http::list::{ListBody, Pagination};
use crate::http::message::{
    Request, Response, read_idempotency_key, to_json, with_payload, with_payload_text,
};
use crate::service;
use crate::service::cues::not_found;
use crate::service::manual_runs::{self, FirePayload, FireRequest, ManualRun};
use crate::store::accounts::idempotency::StoredResponse;
use crate::store::cues::due_cues;
use crate::store::executions::{execution_list, workers};
use crate::store::{ReadTx, cues};

/// A cue with more runs is read on the thread for slow reads: counting its executions takes longer than a short read
/// may block the thread of the connection. A larger value saves thread switches; a smaller one protects other requests.
const SHORT_HISTORY: i64 = 1_000;

/// Merge attempts in `fire` while the cue's payload changes concurrently. Each further attempt takes another change of
/// the same cue within a millisecond.
const MAX_MERGES: usize = 8;

/// Most bytes that the fields of a cue beside its payload take in a response and in the body that sets them. Larger
/// ones are possible, but the memory for them is not reserved.
const MAX_OTHER_FIELDS: usize = 128 << 10;

/// The warning of a new worker cue.
const NO_WORKER: &str = "No worker of this account was seen in the last 15 minutes: executions wait until a worker \
                         claims them";

pub async fn create(mut request: Request) -> Result<Response> {
    let caller = request.caller()?;
    let new = new_cue(request.fields()?, &request.app.config.callbacks)?;
    let call = request.idempotency("POST /v1/cues", None)?;
    reserve_cue(&mut request, new.payload.as_ref().map_or(0, |payload| payload.body.len()))?;
    let hint = worker_hint(&request, caller.user_key, new.transport).await?;
    let created = service::cues::create(&request.app, &caller, new, hint, call, render_created)?.await?;
    let StoredResponse { status, body } = created.response;
    let body = with_payload(body, created.payload.map(|payload| payload.body));
    Ok(Response::stored(StoredResponse { status, body }))
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
            let page;
            (page, _turn) = request.read_list(true, list).await?;
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
    let key = read_idempotency_key(&mut fields);
    // Ignoring a misspelled `send_at` would run the cue immediately.
    fields.forbid_unknown();
    fields.finish()?;
    let call = request.idempotency(&format!("POST /v1/cues/{id}/fire"), key)?;
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
            return Ok(Response::stored(response));
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

/// Renders the response to a create without the payload. An `Idempotency-Key` stores it for a repetition of the
/// request.
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

/// Reserves memory for the response to a change, and drops the request body.
fn reserve_cue(request: &mut Request, payload_bytes: usize) -> Result<()> {
    let others = request.body().len().min(MAX_OTHER_FIELDS);
    request.drop_body();
    request.reserve_response(payload_bytes + others)
}

/// The size of the stored payload of a cue; 0 if there is none.
async fn payload_bytes(request: &Request, id: &str) -> Result<usize> {
    let (user_key, id) = (request.caller()?.user_key, id.to_owned());
    request.app.store.read_inline(move |read| cues::payload_size(read, user_key, &id)).await
}

/// The text of the payload of a cue after a change that left it as it was.
async fn current_payload(request: &Request, cue: &Cue) -> Result<Option<String>> {
    let Some(payload_key) = cue.payload_key else { return Ok(None) };
    let (user_key, cue_key, id) = (cue.user_key, cue.key, cue.id.clone());
    let read = move |read: &ReadTx<'_>| match cues::find_payload(read, cue_key, payload_key)? {
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

const DEFAULT_LIMIT: usize = 10;

const BAD_FROM: &str = "from should be a time since the year 0001 such as 2030-01-31T09:00:00Z";

/// `GET /v1/cues/{cue_id}/upcoming?limit&from&detail`: an empty list if no run is scheduled.
pub async fn upcoming(request: Request) -> Result<Response> {
    let (caller, query, id) = (request.caller()?, request.query(), request.param("cue_id").to_owned());
    let limit = query.integer("limit", 1..=100).unwrap_or(DEFAULT_LIMIT);
    let has_detail = query.boolean("detail").unwrap_or(false);
    let from = query.instant("from");
    if from.is_some_and(|from| from < EARLIEST) {
        query.reject("from", BAD_FROM);
    }
    query.finish()?;
    let cue = request
        .app
        .store
        .read_inline(move |read| Ok(cues::find(read, caller.user_key, &id)?.ok_or_else(not_found)?))
        .await?;
    let after = from.map_or(request.now, just_before);
    let schedule = cue.schedule.read().map_err(Refusal::from)?;
    let runs = match (cue.next_run, from) {
        (None, _) => Vec::new(),
        (Some(_), Some(_)) => schedule.upcoming(after, limit),
        (Some(next_run), None) => {
            std::iter::once(next_run).chain(schedule.upcoming(next_run, limit - 1)).collect()
        }
    };
    let mut body = json!({"upcoming": instants(&runs)});
    if has_detail {
        let per_month = if cue.next_run.is_some() { schedule.count_in_month(after) } else { 0 };
        add_detail(&mut body, &schedule, after, &runs, per_month);
    }
    Ok(Response::ok(&body))
}

pub async fn preview(request: Request) -> Result<Response> {
    let mut fields = request.fields()?;
    let limit = fields.integer("limit", 1..=100).and_then(|limit| usize::try_from(limit).ok());
    let from = fields.string("from", 0..=64).and_then(|text| {
        let from = parse_instant(&text, &Zone::UTC).ok().filter(|from| *from >= EARLIEST);
        from.or_else(|| {
            fields.reject("from", BAD_FROM);
            None
        })
    });
    let parsed = preview_schedule(&mut fields);
    fields.finish()?;
    let Some(schedule) = parsed else { return Err(Refusal::invalid(Vec::new()).into()) };
    let (mut schedule, gap_note) = schedule?;
    schedule.begin(request.now);
    schedule.first_run(request.now).map_err(Refusal::from)?;
    let after = from.map_or(request.now, just_before);
    let runs = schedule.upcoming(after, limit.unwrap_or(DEFAULT_LIMIT));
    let mut body = json!({"upcoming": instants(&runs)});
    add_detail(&mut body, &schedule, after, &runs, schedule.count_in_month(after));
    if let (Some(note), [_]) = (gap_note, &runs[..]) {
        body["occurrences"][0]["note"] = note.into();
    }
    Ok(Response::ok(&body))
}

/// A local time with as many digits as an [`instant`].
fn local_time(local: DateTime) -> String {
    if local.millisecond() == 0 { format!("{local:.0}") } else { format!("{local:.3}") }
}

fn instants(runs: &[Timestamp]) -> Vec<String> {
    runs.iter().copied().map(instant).collect()
}

/// Adds the schedule in words, its runs in local time, and the clock changes from `after` to the last run.
fn add_detail(body: &mut Value, schedule: &Schedule, after: Timestamp, runs: &[Timestamp], per_month: u64) {
    let occurrences = runs.iter().map(|run| schedule.occurrence(*run)).map(|run| {
        json!({
            "at": instant(run.at), "local": local_time(run.local), "offset": offset_text(run.offset),
            "note": run.note,
        })
    });
    let until = runs.last().copied().unwrap_or(after);
    let transitions = schedule.transitions(after, until).into_iter().map(|change| {
        json!({"at": instant(change.at), "from": offset_text(change.from), "to": offset_text(change.to)})
    });
    body["description"] = schedule.describe().into();
    body["occurrences"] = occurrences.collect();
    body["transitions"] = transitions.collect();
    body["per_month"] = per_month.into();
}
