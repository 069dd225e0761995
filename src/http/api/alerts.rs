//! `/v1/alerts`: the alerts of a user, and the test of their webhook.

use std::time::Duration;

use serde_json::{Value, json};

use crate::domain::execution::NextStep;
use crate::domain::notification::alert::{Alert, AlertType, TestAttempt, TestStatus};
use crate::domain::time::instant;
use crate::error::Result;
use crate::http::list::{ListBody, Pagination};
use crate::http::message::{Request, Response};
use crate::service::notify::PendingTest;
use crate::store::ReadTx;
use crate::store::alerts::{self, AlertFilter};
use tokio::time::timeout;

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
    let test = PendingTest::begin(&request.app, request.user_key()?)?;
    test.send_alert().await?;
    let attempt = first_attempt(&request, &test, MAX_TEST_WAIT).await;
    let mut body = render_test(&test, attempt.as_ref());
    body["next_retry"] = match attempt.map(|attempt| attempt.next) {
        Some(NextStep::RetryAt(due)) => instant(due).into(),
        _ => Value::Null,
    };
    Ok(Response::ok(&body))
}

/// What the tests of alerts and of channels have in common.
pub fn render_test(test: &PendingTest, attempt: Option<&TestAttempt>) -> Value {
    json!({
        "id": test.id,
        "status": attempt.map_or(TestStatus::Waiting, TestAttempt::status).as_str(),
        "http_status": attempt.and_then(|attempt| attempt.http_status),
        "duration_ms": attempt.map(|attempt| attempt.duration.as_millis().max(0)),
        "error_message": attempt.and_then(|attempt| attempt.error_message.as_deref()),
    })
}

/// Waits until the first attempt has ended; `None` if the time is over or the server stops before.
pub async fn first_attempt(
    request: &Request,
    test: &PendingTest,
    limit: Duration,
) -> Option<TestAttempt> {
    timeout(limit, first_end(request, test)).await.ok().flatten()
}

async fn first_end(request: &Request, test: &PendingTest) -> Option<TestAttempt> {
    let mut stopping = request.stopping.clone();
    let mut ended = request.app.notifiers.test_alerts.subscribe();
    loop {
        if let Some(attempt) = test.attempt() {
            return Some(attempt);
        }
        // Tests of other users notify too.
        tokio::select! {
            changed = ended.changed() => changed.ok()?,
            _ = stopping.wait_for(|stopping| *stopping) => return None,
        }
    }
}
