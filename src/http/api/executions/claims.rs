//! Executions for workers: the list of claimable ones, with long polling, and the claim.

use std::time::Duration;

use serde_json::{Value, json};

use crate::actions::executions::{self as actions, ClaimedExecution};
use crate::domain::execution::LEASE;
use crate::domain::execution::worker::ANONYMOUS;
use crate::error::Result;
use crate::http::request::Request;
use crate::http::response::{Response, instant};
use crate::http::timeout::within;
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
        0 => list_claimable(&request, &filter, limit).await?,
        seconds => {
            let found = within(Duration::from_secs(seconds), await_work(request, filter, limit)).await;
            found.unwrap_or_else(|| Ok(Vec::new()))?
        }
    };
    Ok(Response::ok(&json!({"executions": found.into_iter().map(render_claimable).collect::<Vec<_>>()})))
}

/// `POST /v1/executions/{execution_id}/claim`.
pub async fn claim(request: Request) -> Result<Response> {
    let (caller, id) = (request.caller()?, request.execution_id()?);
    let mut fields = request.optional_fields()?;
    let worker = fields.string("worker_id", 1..=255);
    fields.finish()?;
    let claimed = actions::claim(&request.app, caller.user_key, id, worker_id(worker)).await?;
    Ok(Response::ok(&render_claim(claimed)))
}

/// `POST /v1/executions/claim`.
pub async fn claim_next(request: Request) -> Result<Response> {
    let caller = request.caller()?;
    let mut fields = request.optional_fields()?;
    let worker = fields.string("worker_id", 1..=255);
    let task = fields.string("task", 0..=1_048_576);
    fields.finish()?;
    let claimed = actions::claim_next(&request.app, caller.user_key, task, worker_id(worker)).await?;
    Ok(Response::ok(&render_claim(claimed)))
}

/// Waits until an execution is claimable or the server stops.
async fn await_work(request: Request, filter: ClaimFilter, limit: u32) -> Result<Vec<ClaimableExecution>> {
    let mut stopping = request.stopping.clone();
    // Subscribed before the first read, so that an execution that becomes claimable during it is not missed.
    let mut notifier = request.app.notifiers.claim.subscribe();
    loop {
        let found = list_claimable(&request, &filter, limit).await?;
        if !found.is_empty() {
            return Ok(found);
        }
        tokio::select! {
            changed = notifier.changed() => if changed.is_err() { return Ok(found) },
            _ = stopping.wait_for(|stopping| *stopping) => return Ok(found),
        }
    }
}

async fn list_claimable(
    request: &Request,
    filter: &ClaimFilter,
    limit: u32,
) -> Result<Vec<ClaimableExecution>> {
    let (user_key, filter) = (request.caller()?.user_key, filter.clone());
    request.app.store.read(move |read| claims::list(read, user_key, &filter, limit)).await
}

fn render_claimable(it: ClaimableExecution) -> Value {
    let id = it.id.to_string();
    json!({
        "id": id,
        "execution_id": id,
        "cue_id": it.cue_id,
        "cue_name": it.cue_name,
        "task": it.task,
        "attempt": it.attempt,
        "scheduled_for": instant(it.scheduled_for),
        "payload": payload_or_empty(it.payload),
    })
}

fn render_claim(it: ClaimedExecution) -> Value {
    json!({
        "claimed": true,
        "execution_id": it.id.to_string(),
        "cue_id": it.cue_id,
        "cue_name": it.cue_name,
        "scheduled_for": instant(it.scheduled_for),
        "attempt": it.attempt,
        "lease_seconds": LEASE.as_secs(),
        "payload": payload_or_empty(it.payload),
    })
}

/// A worker always receives an object (contract §7.1).
fn payload_or_empty(payload: Option<Value>) -> Value {
    payload.unwrap_or_else(|| json!({}))
}

fn worker_id(worker: Option<String>) -> String {
    worker.unwrap_or_else(|| ANONYMOUS.to_owned())
}
