//! `/v1/admin`: registration, requests for a plan, the hold of a restored copy, and the latest warnings.

use std::path::{self, Path};

use serde_json::{Value, json};

use crate::domain::account::user::RegistrationPolicy;
use crate::domain::time::instant;
use crate::error::Result;
use crate::http::list::ListBody;
use crate::http::message::{Request, Response};
use crate::logging::{self, LogEntry, MAX_ENTRIES};
use crate::service::{billing, operator};
use crate::store::billing as stored;
use crate::store::billing::BillingRequest;
use crate::store::db::meta;

const DEFAULT_ENTRIES: usize = 100;

pub async fn settings(request: Request) -> Result<Response> {
    let config = &request.app.config;
    let fixed = config.registration;
    let registration =
        request.app.store.read_inline(move |read| meta::registration(read, fixed)).await?;
    Ok(Response::ok(&json!({
        "registration": registration.as_str(),
        "is_registration_fixed": fixed.is_some(),
        "backup_dir": config.backup_dir.as_ref().map(full_path),
    })))
}

/// Whoever reads it may not know the working directory of the server.
fn full_path(folder: impl AsRef<Path>) -> String {
    let folder = folder.as_ref();
    path::absolute(folder).unwrap_or_else(|_| folder.to_owned()).display().to_string()
}

/// `PATCH /v1/admin/settings {registration}`. Returns the same as `GET`.
pub async fn update_settings(request: Request) -> Result<Response> {
    let mut fields = request.fields()?;
    let registration = fields.one_of("registration", &RegistrationPolicy::WORDS);
    fields.forbid_unknown();
    fields.finish()?;
    if let Some(registration) = registration.and_then(RegistrationPolicy::parse) {
        operator::set_registration(&request.app, registration)?.await?;
    }
    settings(request).await
}

/// `GET /v1/admin/billing`: the undecided requests, oldest first.
pub async fn list_requests(request: Request) -> Result<Response> {
    let (requests, _turn) =
        request.read_list(false, |read| stored::list_requests(read, false)).await?;
    let list = ListBody::new("requests", requests.iter().map(render_request))?;
    Ok(list.with_more(false).into_response())
}

pub async fn approve(request: Request) -> Result<Response> {
    let (app, id) = (&request.app, request.param("request_id").to_owned());
    let (approved, _) =
        billing::approve(&app.store, app.config.plans.clone(), id, request.now).await?;
    decided(&request, approved).await
}

pub async fn decline(request: Request) -> Result<Response> {
    let id = request.param("request_id").to_owned();
    let declined = billing::decline(&request.app.store, id, request.now).await?;
    decided(&request, declined).await
}

/// The request as the decision has left it.
async fn decided(request: &Request, before: BillingRequest) -> Result<Response> {
    let id = before.id.clone();
    let now = request.app.store.read(move |read| stored::find_request(read, &id)).await?;
    Ok(Response::ok(&render_request(&now.unwrap_or(before))))
}

fn render_request(request: &BillingRequest) -> Value {
    json!({
        "id": request.id,
        "user_id": request.user_id,
        "email": request.email,
        "current_plan": request.current_plan,
        "plan": request.offer.plan.as_str(),
        "interval": request.offer.interval.as_str(),
        "status": request.status.as_str(),
        "requested_at": request.requested_at.map(instant),
        "decided_at": request.decided_at.map(instant),
    })
}

/// `POST /v1/admin/promote`: ends the hold of a restored copy.
pub async fn promote(request: Request) -> Result<Response> {
    let (held_since, overdue) = operator::promote(&request.app, request.now).await?;
    Ok(Response::ok(&json!({
        "held_since": instant(held_since),
        "overdue": {"cues": overdue.cues, "executions": overdue.executions},
    })))
}

/// `GET /v1/admin/log?limit`: warnings and errors since the start, newest first.
pub async fn log(request: Request) -> Result<Response> {
    let query = request.query();
    let limit = query.integer("limit", 1..=MAX_ENTRIES as i64);
    query.finish()?;
    let entries = logging::latest(limit.unwrap_or(DEFAULT_ENTRIES));
    request.reserve_response(entries.len() * logging::MAX_ENTRY_BYTES)?;
    let list = ListBody::new("entries", entries.iter().map(render_entry))?;
    Ok(list.with_more(false).into_response())
}

fn render_entry(entry: &LogEntry) -> Value {
    json!({
        "timestamp": instant(entry.at),
        "level": entry.level,
        "target": entry.target,
        "message": entry.message,
        "fields": entry.fields,
    })
}
