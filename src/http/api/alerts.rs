//! `/v1/alerts`: the alerts of a user, and the test of their webhook.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::domain::channel::BUILT_IN_ALERT_WEBHOOK;
use crate::domain::execution::NextStep;
use crate::domain::notification::alert::{Alert, AlertType, TestAttempt, TestStatus};
use crate::domain::time::instant;
use crate::error::Result;
use crate::http::list::{ListBody, Pagination};
use crate::http::message::{Request, Response};
use crate::service::notify::PendingTest;
use crate::store::ReadTx;
use crate::store::alerts::{self, AlertFilter};

/// Longest wait for a test delivery: below the 30 s after which clients give up.
const MAX_TEST_WAIT: Duration = Duration::from_secs(25);

/// `GET /v1/alerts?alert_type&cue_id&since&limit&offset`, newest first.
pub async fn list(request: Request) -> Result<Response> {
    let (user_key, query) = (request.user_key()?, request.query());
    let pagination = query.pagination(50);
    let filter = AlertFilter {
        alert_type: query.one_of("alert_type", &AlertType::WORDS).and_then(AlertType::parse),
        cue_id: query.cue_id(),
        since: query.instant("since"),
    };
    query.finish()?;
    let Pagination { limit, offset } = pagination;
    let list = move |read: &ReadTx<'_>| alerts::list(read, user_key, &filter, limit, offset);
    let ((page, total), _turn) = request.read_list(false, list).await?;
    let list = ListBody::new("alerts", page.iter().map(Alert::json))?;
    Ok(list.with_page("", total, pagination).into_response())
}

/// `POST /v1/alerts/test`: sends a test alert, and answers when the first attempt has ended.
pub async fn test(request: Request) -> Result<Response> {
    let channel_id = BUILT_IN_ALERT_WEBHOOK.to_owned();
    let (mut body, attempt) = run_test(&request, MAX_TEST_WAIT, channel_id).await?;
    body["next_retry"] = match attempt.map(|attempt| attempt.next) {
        Some(NextStep::RetryAt(due)) => instant(due).into(),
        _ => Value::Null,
    };
    Ok(Response::ok(&body))
}

/// Sends a test to a channel, and waits until the first attempt has ended, the time is over or the server stops. Returns
/// the fields that all tests have, and the attempt, if it has ended.
pub async fn run_test(
    request: &Request,
    limit: Duration,
    channel_id: String,
) -> Result<(Value, Option<TestAttempt>)> {
    let (end, ended) = oneshot::channel();
    // Nobody waits for it if the client has gone away.
    let on_attempt = Box::new(move |attempt| drop(end.send(attempt)));
    let test = PendingTest::begin(&request.app, request.user_key()?, on_attempt)?;
    test.send(channel_id).await?;
    let ended = request.unless_stopping(timeout(limit, ended)).await;
    let attempt = ended.and_then(|in_time| in_time.ok()?.ok());
    let of = attempt.as_ref();
    let body = json!({
        "id": test.id,
        "status": of.map_or(TestStatus::Waiting, TestAttempt::status).as_str(),
        "http_status": of.and_then(|attempt| attempt.http_status),
        "duration_ms": of.map(|attempt| attempt.duration.as_millis().max(0)),
        "error_message": of.and_then(|attempt| attempt.error_message.as_deref()),
    });
    Ok((body, attempt))
}
