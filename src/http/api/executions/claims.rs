//! Work for workers over HTTP: what can be claimed, with a long poll, and the claim.

use std::time::Duration;

use serde_json::{Value, json};

use crate::actions::executions::{self as actions, ClaimedExecution};
use crate::domain::execution::LEASE;
use crate::domain::execution::worker::ANONYMOUS;
use crate::error::Result;
use crate::http::api::executions::execution_id;
use crate::http::request::Request;
use crate::http::response::{Response, instant};
use crate::http::server::connection::within;
use crate::store::executions::claims;
use crate::store::executions::claims::{ClaimFilter, ClaimableExecution};

/// `GET /v1/executions/claimable`.
pub async fn list(request: Request) -> Result<Response> {
    let query = request.query();
    let filter = ClaimFilter {
        task: query.raw("task").map(str::to_owned),
        agent: query.raw("agent").map(str::to_owned),
    };
    let limit = query.integer("limit", 1..=100, 50);
    let wait = query.integer("wait", 0..=30, 0);
    query.finish()?;
    let (limit, wait) = (u32::try_from(limit).unwrap_or(1), u64::try_from(wait).unwrap_or(0));
    let found = match wait {
        0 => look(&request, &filter, limit).await?,
        seconds => {
            let found = within(Duration::from_secs(seconds), await_work(request, filter, limit)).await;
            found.unwrap_or_else(|| Ok(Vec::new()))?
        }
    };
    Ok(Response::ok(&json!({"executions": found.into_iter().map(claimable).collect::<Vec<_>>()})))
}

/// `POST /v1/executions/{execution_id}/claim`.
pub async fn claim(request: Request) -> Result<Response> {
    let (caller, id) = (request.caller()?, execution_id(&request)?);
    let mut fields = request.optional_fields()?;
    let worker = fields.string("worker_id", 1..=255);
    fields.finish()?;
    let claimed = actions::claim(&request.app, caller.user_key, id, named(worker)).await?;
    Ok(Response::ok(&claim_answer(claimed)))
}

/// `POST /v1/executions/claim`.
pub async fn claim_next(request: Request) -> Result<Response> {
    let caller = request.caller()?;
    let mut fields = request.optional_fields()?;
    let worker = fields.string("worker_id", 1..=255);
    let task = fields.string("task", 0..=1_048_576);
    fields.finish()?;
    let claimed = actions::claim_next(&request.app, caller.user_key, task, named(worker)).await?;
    Ok(Response::ok(&claim_answer(claimed)))
}

/// Looks until there is work or the server stops.
async fn await_work(request: Request, filter: ClaimFilter, limit: u32) -> Result<Vec<ClaimableExecution>> {
    let mut stopping = request.stopping.clone();
    // Taken before the first look, so that work that comes during it is not missed.
    let mut notifier = request.app.notifiers.claim.subscribe();
    loop {
        let found = look(&request, &filter, limit).await?;
        if !found.is_empty() {
            return Ok(found);
        }
        tokio::select! {
            rung = notifier.changed() => if rung.is_err() { return Ok(found) },
            _ = stopping.wait_for(|stopping| *stopping) => return Ok(found),
        }
    }
}

async fn look(request: &Request, filter: &ClaimFilter, limit: u32) -> Result<Vec<ClaimableExecution>> {
    let (user_key, filter) = (request.caller()?.user_key, filter.clone());
    request.app.store.read(move |read| claims::list(read, user_key, &filter, limit)).await
}

fn claimable(it: ClaimableExecution) -> Value {
    let id = it.id.to_string();
    json!({
        "id": id,
        "execution_id": id,
        "cue_id": it.cue_id,
        "cue_name": it.cue_name,
        "task": it.task,
        "attempt": it.attempt,
        "scheduled_for": instant(it.scheduled_for),
        "payload": payload(it.payload),
    })
}

fn claim_answer(it: ClaimedExecution) -> Value {
    json!({
        "claimed": true,
        "execution_id": it.id.to_string(),
        "cue_id": it.cue_id,
        "cue_name": it.cue_name,
        "scheduled_for": instant(it.scheduled_for),
        "attempt": it.attempt,
        "lease_seconds": LEASE.as_secs(),
        "payload": payload(it.payload),
    })
}

/// Workers always get an object (contract §7.1).
fn payload(payload: Option<Value>) -> Value {
    payload.unwrap_or_else(|| json!({}))
}

fn named(worker: Option<String>) -> String {
    worker.unwrap_or_else(|| ANONYMOUS.to_owned())
}
