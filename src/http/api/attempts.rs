//! `/v1/executions/{execution_id}/attempts` and `/request`: what was sent, and how each attempt ended.

use serde::Serialize;

use crate::api::view::view;
use crate::domain::account::user::SECRET_OVERLAP;
use crate::domain::api_error::ErrorCode;
use crate::domain::execution::ExecutionStatus;
use crate::domain::execution::attempt::{AttemptEnd, FailureCause, MAX_SHOWN_BODY, shown_body};
use crate::domain::time::{JsonTimestamp, saturating_sub};
use crate::domain::webhook::delivery::{SignedRequest, shown_request};
use crate::error::{Error, Result};
use crate::http::message::{MAX_ESCAPED, Request, Response};
use crate::service::executions::not_found;
use crate::store::executions::attempts::Attempt;
use crate::store::executions::delivery_queue::ShownDelivery;
use crate::store::executions::{attempts, claims, delivery_queue};
use crate::store::{ReadTx, executions};

pub async fn list(request: Request) -> Result<Response> {
    let id = request.execution_id()?;
    let found = request.read_own(move |read, user_key| attempts::list(read, user_key, id)).await?;
    let attempts = found.ok_or_else(not_found)?;
    Response::from_body(&AttemptList { attempts: attempts.iter().map(AttemptView).collect() })
}

/// `GET /v1/executions/{execution_id}/request?attempt`.
pub async fn show_request(request: Request) -> Result<Response> {
    let (id, query) = (request.execution_id()?, request.query());
    let asked: Option<u32> = query.integer("attempt", 1..=u32::MAX.into());
    query.finish()?;
    let find = move |read: &ReadTx<'_>, user_key| {
        Ok((executions::find(read, user_key, id)?, claims::payload_size(read, user_key, id)?))
    };
    let (found, payload_bytes) = request.read_own(find).await?;
    let execution = found.ok_or_else(not_found)?.execution;
    if execution.is_worker {
        let message = "A worker execution sends no request; the execution itself has its payload";
        return Err(Error::refused(ErrorCode::InvalidState, message));
    }
    // An execution may have ended before its first attempt; then the request is shown that it would have sent.
    let attempt = asked.unwrap_or(execution.attempts.max(1));
    let is_waiting =
        matches!(execution.status, ExecutionStatus::Pending | ExecutionStatus::Retrying);
    if asked.is_some() && attempt > execution.attempts + u32::from(is_waiting) {
        query.reject(
            "attempt",
            &format!("the execution has {} attempts so far", execution.attempts),
        );
        query.finish()?;
    }
    request.reserve_response(payload_bytes.saturating_mul(MAX_ESCAPED))?;
    let show = move |read: &ReadTx<'_>, user_key| {
        delivery_queue::show_request(read, user_key, id, attempt)
    };
    let shown = request.read_own(show).await?.ok_or_else(not_found)?;
    Response::from_body(&RequestView::new(shown))
}

/// A request as it is or was sent (contract §5.9).
#[derive(Debug, Serialize)]
struct RequestView {
    method: &'static str,
    url: String,
    headers: Vec<(String, String)>,
    body: Option<String>,
    exact: bool,
    why: String,
}

impl RequestView {
    fn new(shown: ShownDelivery) -> Self {
        let why = approximation_note(&shown);
        let ShownDelivery { attempt_ref, spec, started_at, .. } = shown;
        let (method, url) = (spec.callback.method.as_str(), spec.callback.url.clone());
        let SignedRequest { headers, body } = shown_request(&attempt_ref, spec, started_at);
        // A stored payload is text, and nothing else is sent.
        let body = body.map(|body| String::from_utf8(body.into_exposed()).unwrap_or_default());
        Self { method, url, headers: headers.into_exposed(), body, exact: false, why }
    }
}

/// Requests are not stored, so the rebuilt one may differ.
fn approximation_note(shown: &ShownDelivery) -> String {
    let ShownDelivery { attempt_ref, spec, attempts, started_at, cue_updated_at, .. } = shown;
    if attempt_ref.attempt > *attempts {
        return not_counted(shown).to_owned();
    }
    let Some(started_at) = started_at else {
        return "rebuilt from the record: the time of this attempt is not known, so it is not signed, and the cue or \
                the secret may have changed since"
            .to_owned();
    };
    let mut why =
        "rebuilt from the record: timestamp and signatures may differ slightly".to_owned();
    if cue_updated_at > started_at {
        why += "; the cue may have been changed since";
    }
    let rotated_at =
        spec.secrets.previous_expires_at.map(|end| saturating_sub(end, SECRET_OVERLAP));
    if rotated_at.is_some_and(|rotated_at| rotated_at > *started_at) {
        why += "; the webhook secret was replaced since";
    }
    why
}

/// The reason for an attempt that is not one of those that count.
fn not_counted(shown: &ShownDelivery) -> &'static str {
    match (shown.was_cut, shown.status.is_over()) {
        (true, false) => {
            "it may have been sent, and was then cut off by the end of the program: it is sent again, and time and \
             signatures are added then"
        }
        (true, true) => {
            "it may have been sent, and was then cut off by the end of the program: the execution has ended since, and \
             the request is not signed"
        }
        (false, true) => {
            "it was never sent: the execution has ended before, and the request is not signed"
        }
        (false, false) => {
            "not sent yet: time and signatures are added when it is sent, and changes of the cue until then count"
        }
    }
}

#[derive(Debug, Serialize)]
struct AttemptList<'a> {
    attempts: Vec<AttemptView<'a>>,
}

view! {
    /// An attempt (contract §5.8). `result` is `null` while it runs.
    AttemptView(it: &Attempt) {
        "attempt": it.number,
        "started_at": it.started_at.map(JsonTimestamp),
        "ended_at": it.ended_at().map(JsonTimestamp),
        "duration_ms": it.duration.map(|duration| duration.as_millis()),
        "result": it.end.map(AttemptEnd::as_str),
        "cause": it.cause.map(FailureCause::as_str),
        "http_status": it.http_status,
        "error_message": it.error_message,
        "response_headers": it.response_headers.as_ref(),
        "response_body": it.response_body.as_deref().map(shown_body),
        "response_truncated": it.response_body.as_ref().is_some_and(|body| body.len() > MAX_SHOWN_BODY),
        "next_retry": it.next_retry.map(JsonTimestamp),
        "worker_id": it.worker_id,
    }
}
