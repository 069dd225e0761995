//! `/v1/executions/{execution_id}/attempts` and `/request`: what was sent, and how each attempt ended.

use serde::Serialize;

use crate::actions::executions::not_found;
use crate::domain::execution::attempt::AttemptEnd;
use crate::domain::execution::failure_cause::FailureCause;
use crate::domain::json::JsonText;
use crate::error::Result;
use crate::http::request::Request;
use crate::http::response::{JsonTimestamp, Response};
use crate::store::executions::attempts;
use crate::store::executions::attempts::Attempt;

/// A kept body of this size may have been longer: 2,000 bytes are kept, without a character that was cut in half.
const MAY_BE_CUT: usize = 1_997;

/// `GET /v1/executions/{execution_id}/attempts`.
pub async fn list(request: Request) -> Result<Response> {
    let (caller, id) = (request.caller()?, request.execution_id()?);
    let found = request.app.store.read_inline(move |read| attempts::list(read, caller.user_key, id)).await?;
    let attempts = found.ok_or_else(not_found)?;
    Response::from_body(&AttemptList { attempts: attempts.iter().map(AttemptView::from).collect() })
}

#[derive(Debug, Serialize)]
struct AttemptList<'a> {
    attempts: Vec<AttemptView<'a>>,
}

/// An attempt (contract §5.8). `result` is `null` while it runs.
#[derive(Debug, Serialize)]
struct AttemptView<'a> {
    attempt: u32,
    started_at: Option<JsonTimestamp>,
    ended_at: Option<JsonTimestamp>,
    duration_ms: Option<i128>,
    result: Option<&'static str>,
    cause: Option<&'static str>,
    http_status: Option<u16>,
    error_message: Option<&'a str>,
    response_headers: Option<&'a JsonText>,
    response_body: Option<&'a str>,
    response_truncated: bool,
    next_retry: Option<JsonTimestamp>,
    worker_id: Option<&'a str>,
}

impl<'a> From<&'a Attempt> for AttemptView<'a> {
    fn from(it: &'a Attempt) -> Self {
        Self {
            attempt: it.number,
            started_at: it.started_at.map(JsonTimestamp),
            ended_at: it.ended_at().map(JsonTimestamp),
            duration_ms: it.duration.map(|duration| duration.as_millis()),
            result: it.end.map(AttemptEnd::as_str),
            cause: it.cause.map(FailureCause::as_str),
            http_status: it.http_status,
            error_message: it.error_message.as_deref(),
            response_headers: it.response_headers.as_ref(),
            response_body: it.response_body.as_deref(),
            response_truncated: it.response_body.as_ref().is_some_and(|body| body.len() >= MAY_BE_CUT),
            next_retry: it.next_retry.map(JsonTimestamp),
            worker_id: it.worker_id.as_deref(),
        }
    }
}
