//! `/v1/cues`, and the preview of a schedule. `cue_list` has the list.

use std::sync::Arc;

use hyper::StatusCode;
use jiff::Timestamp;
use jiff::civil::DateTime;
use serde_json::{Value, json};

use crate::api::cue::{changed_cue, new_cue, put_cue};
use crate::api::cue_view::{CueView, PutView};
use crate::api::fields::JsonFields;
use crate::api::preview::{PreviewedSchedule, preview_schedule, schedule_fields};
use crate::domain::api_error::Refusal;
use crate::domain::cue::slug::{SLUG_RULE, Slug};
use crate::domain::cue::{Cue, CueRequest, FileOrigin, Payload, Transport};
use crate::domain::execution::worker::DEAD_AFTER;
use crate::domain::json::JsonStr;
use crate::domain::schedule::{EARLIEST, Schedule, Zone, offset_text, parse_instant};
use crate::domain::text::shell_word;
use crate::domain::time::{instant, just_before, saturating_sub};
use crate::error::Result;
use crate::http::api::executions::{ExecutionView, render_run};
use crate::http::list::{ListBody, Pagination};
use crate::http::message::{
    Request, Response, read_idempotency_key, to_json, with_payload, with_payload_as,
};
use crate::service;
use crate::service::cues::{PutAction, not_found};
use crate::service::manual_runs::{self, FirePayload, FireRequest, ManualRun};
use crate::store::accounts::idempotency::StoredResponse;
use crate::store::cues::due_cues;
use crate::store::executions::{execution_list, workers};
use crate::store::{ReadTx, cues};

/// A cue with more runs is read on the thread for slow reads: counting its executions takes longer than a short read
/// may block the thread of the connection. A larger value saves thread switches; a smaller one protects other requests.
const SHORT_HISTORY: i64 = 1_000;

/// Most bytes that the fields of a cue beside its payload take in a response and in the body that sets them. Larger
/// ones are possible, but the memory for them is not reserved.
const MAX_OTHER_FIELDS: usize = 128 << 10;

pub async fn create(mut request: Request) -> Result<Response> {
    let caller = request.caller()?;
    let new = new_cue(request.fields()?, &request.app.config.callbacks)?;
    let call = request.idempotency("POST /v1/cues", None)?;
    reserve_cue(&mut request, new_payload_bytes(&new))?;
    let hint = worker_hint(&request, &new).await?;
    let created =
        service::cues::create(&request.app, &caller, new, hint.as_deref(), call, render_created)?
            .await?;
    let StoredResponse { status, body } = created.response;
    let body = with_payload(body, created.payload.map(|payload| payload.body));
    Ok(Response::stored(StoredResponse { status, body }))
}

/// `GET /v1/cues/{cue_id}?execution_limit&execution_offset&payload`
pub async fn show(request: Request) -> Result<Response> {
    let (query, id) = (request.query(), cue_id(&request).await?);
    let pagination = query.pagination_of("execution_limit", "execution_offset", 10);
    let is_text = query.one_of("payload", &["json", "text"]) == Some("text");
    query.finish()?;
    let store = &request.app.store;
    let mut _turn = request.list_turn().await?;
    let find = move |read: &ReadTx<'_>, user_key| cues::find_with_payload(read, user_key, &id);
    let (cue, mut payload) = request.read_own(find).await?.ok_or_else(not_found)?;
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
    Ok(Response::json(StatusCode::OK, with_payload_as(is_text, history, payload)?))
}

pub async fn update(mut request: Request) -> Result<Response> {
    let (caller, id) = (request.caller()?, cue_id(&request).await?);
    let app = request.app.clone();
    let mut base = find_own(&request, &id).await?;
    // Beside the payload, which is judged once: a cue that another request changes meanwhile is read again.
    let fields = request.fields()?;
    let others = fields.without("payload");
    let mut change = changed_cue(fields, &base.fields, &app.config.callbacks)?;
    let payload_bytes = match &change.payload {
        Some(given) => given.as_ref().map_or(0, |payload| payload.body.len()),
        None => payload_bytes(&request, &id).await?,
    };
    reserve_cue(&mut request, payload_bytes)?;
    let updated = loop {
        match service::cues::update(&app, &caller, base, change).await? {
            Ok(updated) => break updated,
            Err(CueRequest { payload, .. }) => {
                base = find_own(&request, &id).await?;
                let fields = JsonFields::of_body(others.get())?;
                let again = changed_cue(fields, &base.fields, &app.config.callbacks)?;
                change = CueRequest { payload, ..again };
            }
        }
    };
    let payload = match updated.payload {
        Some(given) => given.map(|payload| payload.body),
        None => current_payload(&request, &updated.cue).await?,
    };
    let body = with_payload(to_json(&CueView::new(&updated.cue, None))?, payload);
    Ok(Response::json(StatusCode::OK, body))
}

/// Errors: `cue_not_found`.
async fn find_own(request: &Request, id: &str) -> Result<Cue> {
    let id = id.to_owned();
    let found = request.read_own(move |read, user_key| cues::find(read, user_key, &id)).await?;
    Ok(found.ok_or_else(not_found)?)
}

/// `PUT /v1/cues/by-slug/{slug}?dry_run&source&adopt`, and with a namespace before the slug.
pub async fn put(mut request: Request) -> Result<Response> {
    let (caller, query) = (request.caller()?, request.query());
    let is_dry_run = query.boolean("dry_run").unwrap_or(false);
    let adopts = query.boolean("adopt").unwrap_or(false);
    let namespace = query.text("source", 0..=63).map(str::to_owned);
    let origin = namespace.map(|namespace| FileOrigin { namespace, adopts });
    let text = match request.param("namespace") {
        "" => request.param("slug").to_owned(),
        namespace => format!("{namespace}/{}", request.param("slug")),
    };
    query.finish()?;
    let slug = Slug::parse(&text)
        .ok_or_else(|| Refusal::invalid_value(["path", "slug"], SLUG_RULE, text))?;
    let (mut wanted, refusals) = put_cue(request.fields()?, slug, &request.app.config.callbacks);
    if let Some(refusal) = refusals.into_iter().next() {
        return Err(refusal.into());
    }
    wanted.origin = origin;
    reserve_cue(&mut request, new_payload_bytes(&wanted))?;
    let (wanted, now) = (Arc::new(wanted), request.now);
    let put = Arc::clone(&wanted);
    let result = if is_dry_run {
        let dry_run = move |read: &ReadTx<'_>| service::cues::dry_run(read, &caller, &put, now);
        request.app.store.read(dry_run).await?
    } else {
        service::cues::put(&request.app, &caller, put)?.await?
    };
    let (status, action) = match result.action {
        PutAction::Created if is_dry_run => (StatusCode::OK, "created"),
        PutAction::Created => (StatusCode::CREATED, "created"),
        PutAction::Updated => (StatusCode::OK, "updated"),
        PutAction::Unchanged => (StatusCode::OK, "unchanged"),
    };
    let view =
        PutView { action, changed: &result.changed, next_run_before: result.next_run_before };
    let body = to_json(&CueView::new(&result.cue, None).with_put(view))?;
    let payload = Arc::unwrap_or_clone(wanted).payload.flatten().map(|payload| payload.body);
    Ok(Response::json(status, with_payload(body, payload)))
}

pub async fn delete(request: Request) -> Result<Response> {
    let caller = request.caller()?;
    let id = cue_id(&request).await?;
    service::cues::delete(&request.app, &caller, id).await?;
    Ok(Response::no_content())
}

pub async fn fire(request: Request) -> Result<Response> {
    let (caller, id) = (request.caller()?, cue_id(&request).await?);
    let mut fields = request.optional_fields()?;
    let send_at = fields.string("send_at", 0..=64);
    let payload_override = fields.dictionary("payload_override");
    let replace = fields.one_of("merge_strategy", &["merge", "replace"]) == Some("replace");
    let key = read_idempotency_key(&mut fields);
    // Ignoring a misspelled `send_at` would run the cue immediately.
    fields.forbid_unknown();
    fields.finish()?;
    let call = request.idempotency(&format!("POST /v1/cues/{id}/fire"), key)?;
    let render =
        |run: &ManualRun| StoredResponse { status: 200, body: render_run(run).to_string() };
    let payload = match payload_override {
        None => FirePayload::OfCue,
        Some(over) if replace => FirePayload::Replaced(Payload::new(over)),
        Some(over) => merged_payload(&request, &id, over).await?,
    };
    if let FirePayload::Replaced(Ok(payload)) = &payload {
        // The stored form, up to six times the override, is held until the write is done.
        request.reserve_response(payload.body.len())?;
    }
    let fire = FireRequest { send_at, payload };
    let fired = manual_runs::fire(&request.app, &caller, id, fire, call, render).await?;
    Ok(Response::stored(fired))
}

/// `GET /v1/cues/{cue_id}/missed?limit&offset`
pub async fn missed(request: Request) -> Result<Response> {
    let (query, id) = (request.query(), cue_id(&request).await?);
    let pagination = query.pagination(20);
    query.finish()?;
    let list = move |read: &ReadTx<'_>, user_key| {
        let cue_key = cues::find_key(read, user_key, &id)?.ok_or_else(not_found)?;
        due_cues::list_missed(read, cue_key, pagination.limit, pagination.offset)
    };
    let (rows, total) = request.read_own(list).await?;
    let rows = rows.iter().map(|row| {
        json!({"first": instant(row.first), "last": instant(row.last), "count": row.count, "reason": row.reason})
    });
    let has_more = pagination.offset.saturating_add(rows.len() as u64) < total.unsigned_abs();
    let list = ListBody::new("missed", rows)?.with("total", &total.to_string());
    Ok(list.with_more(has_more).into_response())
}

/// The text before a slug in place of the id in a path.
const BY_SLUG: &str = "slug:";

/// The id that the path names, also by the slug of the cue. Errors: `cue_not_found`, if no cue has the slug.
async fn cue_id(request: &Request) -> Result<String> {
    let text = request.param("cue_id");
    let Some(slug) = text.strip_prefix(BY_SLUG) else { return Ok(text.to_owned()) };
    let slug = Slug::parse(slug).ok_or_else(not_found)?;
    let find = move |read: &ReadTx<'_>, user_key| cues::find_id_of_slug(read, user_key, &slug);
    Ok(request.read_own(find).await?.ok_or_else(not_found)?)
}

/// Renders the response to a create without the payload. An `Idempotency-Key` stores it for a repetition of the
/// request.
fn render_created(cue: &Cue) -> Result<StoredResponse> {
    Ok(StoredResponse { status: 201, body: to_json(&CueView::new(cue, None))? })
}

/// A warning for the creator of a worker cue if no worker of the account was seen lately that takes its runs.
async fn worker_hint(request: &Request, new: &CueRequest) -> Result<Option<String>> {
    if new.fields.transport == Transport::Webhook {
        return Ok(None);
    }
    let task = new_payload(new).and_then(|payload| payload.task.clone());
    let (since, wanted) = (saturating_sub(request.now, DEAD_AFTER), task.clone());
    let seen = move |read: &ReadTx<'_>, user_key| {
        workers::is_taker_seen(read, user_key, wanted.as_deref(), since)
    };
    if request.read_own(seen).await? {
        return Ok(None);
    }
    Ok(Some(match task {
        Some(task) => format!(
            "No worker for task {task} has polled in the last 15 minutes; start one: `cued work --task {} -- ./COMMAND`",
            shell_word(&task)
        ),
        None => {
            "No worker for runs without a task has polled in the last 15 minutes; runs wait until a worker \
                 claims them"
                .to_owned()
        }
    }))
}

fn new_payload(new: &CueRequest) -> Option<&Payload> {
    new.payload.as_ref().and_then(Option::as_ref)
}

fn new_payload_bytes(new: &CueRequest) -> usize {
    new_payload(new).map_or(0, |payload| payload.body.len())
}

/// Reserves memory for the response to a change, and drops the request body.
fn reserve_cue(request: &mut Request, payload_bytes: usize) -> Result<()> {
    let others = request.body().len().min(MAX_OTHER_FIELDS);
    request.drop_body();
    request.reserve_response(payload_bytes + others)
}

/// The size of the stored payload of a cue; 0 if there is none.
async fn payload_bytes(request: &Request, id: &str) -> Result<usize> {
    let id = id.to_owned();
    request.read_own(move |read, user_key| cues::payload_size(read, user_key, &id)).await
}

/// The text of the payload of a cue after a change that left it as it was.
async fn current_payload(request: &Request, cue: &Cue) -> Result<Option<String>> {
    let Some(payload_key) = cue.payload_key else { return Ok(None) };
    let (cue_key, id) = (cue.key, cue.id.clone());
    let read =
        move |read: &ReadTx<'_>, user_key| match cues::find_payload(read, cue_key, payload_key)? {
            Some(payload) => Ok(Some(payload)),
            // Another change has replaced it since.
            None => {
                Ok(cues::find_with_payload(read, user_key, &id)?.and_then(|(_, payload)| payload))
            }
        };
    request.read_own(read).await
}

/// Merges `over` into the payload of the cue. A missing cue is left to `fire` to refuse.
async fn merged_payload(request: &Request, id: &str, over: JsonStr<'_>) -> Result<FirePayload> {
    let id = id.to_owned();
    let find = move |read: &ReadTx<'_>, user_key| cues::find_with_payload(read, user_key, &id);
    let found = request.read_own(find).await?;
    Ok(FirePayload::Replaced(match found.and_then(|(_, own)| own) {
        Some(own) => Payload::merged(&own, over),
        None => Payload::new(over),
    }))
}

const DEFAULT_LIMIT: usize = 10;

pub(in crate::http::api) const BAD_FROM: &str =
    "must be a time since the year 0001 such as 2030-01-31T09:00:00Z";

/// `GET /v1/cues/{cue_id}/upcoming?limit&from&detail`: an empty list if no run is scheduled.
pub async fn upcoming(request: Request) -> Result<Response> {
    let (query, id) = (request.query(), cue_id(&request).await?);
    let limit = query.integer("limit", 1..=100).unwrap_or(DEFAULT_LIMIT);
    let has_detail = query.boolean("detail").unwrap_or(false);
    let from = query.instant("from");
    if from.is_some_and(|from| from < EARLIEST) {
        query.reject("from", BAD_FROM);
    }
    query.finish()?;
    let cue = find_own(&request, &id).await?;
    let after = from.map_or(request.now, just_before);
    let schedule = cue.fields.schedule.read().map_err(Refusal::from)?;
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
    let parsed = preview_schedule(&mut fields, request.now);
    let parsed = fields.finish_with(parsed)??;
    let PreviewedSchedule { mut schedule, skipped_note, is_text } = parsed;
    schedule.begin(request.now);
    schedule.first_run(request.now).map_err(Refusal::from)?;
    let after = from.map_or(request.now, just_before);
    let runs = schedule.upcoming(after, limit.unwrap_or(DEFAULT_LIMIT));
    let mut body = json!({"upcoming": instants(&runs)});
    add_detail(&mut body, &schedule, after, &runs, schedule.count_in_month(after));
    if let (Some(note), [_]) = (skipped_note, &runs[..]) {
        body["occurrences"][0]["note"] = note.into();
    }
    if is_text {
        body["schedule"] = schedule_fields(&schedule);
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
fn add_detail(
    body: &mut Value,
    schedule: &Schedule,
    after: Timestamp,
    runs: &[Timestamp],
    per_month: u64,
) {
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
