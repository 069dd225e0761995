//! Executions for workers: the list of claimable ones, with long polling, and the claim.

use std::time::Duration;

use hyper::StatusCode;
use tokio::time::Instant;

use crate::api::view::view;
use crate::api::work::{Claim, ClaimRequest};
use crate::domain::api_error::ErrorCode;
use crate::domain::execution::LEASE;
use crate::domain::execution::worker::ANONYMOUS;
use crate::domain::json::JsonStr;
use crate::domain::time::{JsonTimestamp, instant};
use crate::error::{Error, Result};
use crate::http::limits::turns::Turn;
use crate::http::list::ListBody;
use crate::http::message::{Request, Response, enclosed, to_json};
use crate::http::middleware::session::is_valid;
use crate::service;
use crate::service::executions::{ClaimedExecution, not_found};
use crate::store::cues;
use crate::store::executions::claims::{self, ClaimFilter, ClaimableExecution, ClaimableList};
use tokio::time::{timeout, timeout_at};

/// Time between two checks of the key of a long poll. A revoked key ends its long polls within 15 s (contract §7.1);
/// the difference is for the check itself on a busy machine.
const KEY_CHECK_INTERVAL: Duration = Duration::from_secs(10);

pub async fn list(request: Request) -> Result<Response> {
    let query = request.query();
    let filter = ClaimFilter {
        task: query.raw("task").map(str::to_owned),
        agent: query.raw("agent").map(str::to_owned),
    };
    let limit = query.integer("limit", 1..=100).unwrap_or(50);
    let wait = query.integer("wait", 0..=30).unwrap_or(0);
    query.finish()?;
    let found = match wait {
        0 => Some(list_claimable(&request, &filter, limit).await?),
        seconds => {
            let _permit = request.begin_waiting()?;
            let found =
                timeout(Duration::from_secs(seconds), await_work(&request, &filter, limit)).await;
            found.unwrap_or(Ok(None))?
        }
    };
    let (found, _turn) = found.unzip();
    let found = found.unwrap_or_default();
    let list = ListBody::new("executions", found.executions.iter().map(ClaimableView))?;
    Ok(list.with_more(found.has_more).into_response())
}

pub async fn claim(request: Request) -> Result<Response> {
    let (user_key, id) = (request.user_key()?, request.execution_id()?);
    let mut fields = request.optional_fields()?;
    let body = ClaimRequest::read(&mut fields);
    fields.finish()?;
    // Before the claim: one whose response is lost blocks the execution until its lease expires.
    let bytes = request.read_own(move |read, user_key| claims::payload_size(read, user_key, id));
    request.reserve_response(bytes.await?)?;
    let worker = claimant(body.worker_id);
    let claimed = service::executions::claim(&request.app, user_key, id, worker).await?;
    claim_response(&request, claimed).await
}

pub async fn claim_next(request: Request) -> Result<Response> {
    let user_key = request.user_key()?;
    let mut fields = request.optional_fields()?;
    let body = ClaimRequest::read_next(&mut fields);
    fields.finish()?;
    let wanted = body.task.clone();
    // Usually the one that is claimed.
    let bytes = request.read_own(move |read, user_key| {
        let next = claims::find_next(read, user_key, wanted.as_deref())?;
        next.map_or(Ok(0), |id| claims::payload_size(read, user_key, id))
    });
    request.reserve_response(bytes.await?)?;
    let worker = claimant(body.worker_id);
    let claimed =
        service::executions::claim_next(&request.app, user_key, body.task, worker).await?;
    claim_response(&request, claimed).await
}

/// Waits until an execution is claimable, the server stops, or the caller's key is no longer valid. `None` means none.
async fn await_work(
    request: &Request,
    filter: &ClaimFilter,
    limit: u32,
) -> Result<Option<(ClaimableList, Turn)>> {
    // Subscribed before the first read, so that an execution that becomes claimable during it is not missed.
    let mut notifier = request.app.notifiers.claim.subscribe();
    let found = list_claimable(request, filter, limit).await?;
    if !found.0.executions.is_empty() {
        return Ok(Some(found));
    }
    // Frees the turn for other requests.
    drop(found);
    let mut check_at = Instant::now() + KEY_CHECK_INTERVAL;
    loop {
        // Other users' work notifies too, so the deadline does not move with each notification.
        match request.unless_stopping(timeout_at(check_at, notifier.changed())).await {
            None | Some(Ok(Err(_))) => return Ok(None),
            Some(Ok(Ok(()))) => {
                let found = list_claimable(request, filter, limit).await?;
                if !found.0.executions.is_empty() {
                    // After the list, so that nothing is returned that was read after a revocation.
                    require_valid_key(request).await?;
                    return Ok(Some(found));
                }
            }
            Some(Err(_)) => {
                require_valid_key(request).await?;
                check_at = Instant::now() + KEY_CHECK_INTERVAL;
            }
        }
    }
}

/// The key or session was valid when the poll began, and may have been revoked since.
async fn require_valid_key(request: &Request) -> Result<()> {
    let caller = request.caller()?;
    if is_valid(&request.app, &caller.credential, request.now).await? {
        return Ok(());
    }
    let message =
        "The API key was revoked, or its account disabled, during the request; send a valid key";
    Err(Error::refused(ErrorCode::InvalidApiKey, message))
}

/// The list and its read permit.
async fn list_claimable(
    request: &Request,
    filter: &ClaimFilter,
    limit: u32,
) -> Result<(ClaimableList, Turn)> {
    let (user_key, filter) = (request.user_key()?, filter.clone());
    request.read_list(false, move |read| claims::list(read, user_key, &filter, limit)).await
}

view! {
    /// An execution in the list of claimable ones (contract §7.1). A worker always receives an object as its payload.
    ClaimableView(it: &ClaimableExecution) {
        "attempt": it.attempt,
        "cue_id": it.cue_id,
        "cue_name": it.cue_name,
        "execution_id": it.id.to_string(),
        "id": it.id.to_string(),
        "payload": it.payload.as_deref().map_or(JsonStr::EMPTY_OBJECT, JsonStr::stored),
        "scheduled_for": JsonTimestamp(it.scheduled_for),
        "task": it.task,
    }
}

/// The answer to a claim, with the payload, which the writer did not read.
async fn claim_response(request: &Request, it: ClaimedExecution) -> Result<Response> {
    let payload = match it.payload_key {
        // A worker always receives an object.
        None => "{}".to_owned(),
        Some(key) => {
            let read = request.read_own(move |read, _| cues::find_payload(read, it.cue_key, key));
            // Deleted with its cue since the claim.
            read.await?.ok_or_else(not_found)?
        }
    };
    let claim = to_json(&Claim {
        attempt: it.attempt,
        claimed: true,
        cue_id: it.cue_id,
        cue_name: it.cue_name,
        execution_id: it.id.to_string(),
        lease_seconds: LEASE.as_secs().unsigned_abs(),
        payload: Box::default(),
        scheduled_for: instant(it.scheduled_for),
    })?;
    // The last `null` is the payload: only an instant follows it. Its text is not parsed again.
    let (before, after) = claim.rsplit_once("null").unwrap_or_default();
    Ok(Response::json(StatusCode::OK, enclosed(before.to_owned(), payload, after)))
}

fn claimant(worker_id: Option<String>) -> String {
    worker_id.unwrap_or_else(|| ANONYMOUS.to_owned())
}
