//! Makes test calls (contract §6.11), each on a thread of its own that ends with it: they take no thread from deliveries.
//!
//! The thread holds nothing of the program but the client: one that a stop cuts off keeps no database open.

use std::sync::Arc;
use std::time::Duration;

use crate::app::TestCaller;
use crate::domain::test_call::{MAX_TIMEOUT, TestCall, TestCallResult};
use crate::domain::webhook::delivery::SignedRequest;
use crate::engine::delivery::attempt::{
    cause_label, failure_cause, send_guarded, shown_headers, status_and_error, text,
};
use crate::engine::delivery::threads::STACK;
use crate::engine::webhook_client::{DeliveryError, MAX_KEPT_BODY, WebhookClient, WebhookRequest};
use crate::error::Error;
use crate::metrics::{Stopwatch, milliseconds};

/// Makes test calls with this client.
pub(in crate::engine) fn caller(webhook_client: Arc<dyn WebhookClient>) -> TestCaller {
    Box::new(move |call, on_result| {
        let webhook_client = Arc::clone(&webhook_client);
        let thread = std::thread::Builder::new().name("test-call".to_owned()).stack_size(STACK);
        thread.spawn(move || on_result(make(&*webhook_client, call)))?;
        Ok(())
    })
}

/// Signs and sends a test call, and waits for the response.
fn make(webhook_client: &dyn WebhookClient, call: TestCall) -> TestCallResult {
    let (id, started_at) = (call.id, call.started_at);
    let callback = &call.spec.callback;
    let (method, url) = (callback.method, callback.url.clone().into());
    let timeout = Duration::from_secs(callback.timeout_seconds.into()).min(MAX_TIMEOUT);
    let SignedRequest { headers, body } = call.into_request();
    let request = WebhookRequest {
        method,
        url,
        headers: headers.clone(),
        body,
        timeout: Some(timeout),
        max_response: MAX_KEPT_BODY,
        keeps_headers: true,
    };
    let clock = Stopwatch::start();
    let log_panic =
        |error: &Error| tracing::error!(execution_id = %id, %error, "test call panicked");
    let sent = send_guarded(webhook_client, || Ok(request), log_panic);
    let duration = clock.elapsed();
    let cause = failure_cause(&sent);
    let (http_status, error_message) = status_and_error(&sent);
    tracing::debug!(
        execution_id = %id,
        cause = cause_label(cause),
        reason = sent.as_ref().err().and_then(DeliveryError::detail),
        http_status,
        duration_ms = milliseconds(duration),
        "test call ended"
    );
    let response = sent.ok();
    TestCallResult {
        started_at,
        duration,
        cause,
        http_status,
        error_message,
        response_headers: response.as_ref().map(|response| shown_headers(&response.headers)),
        response_body: response.map(|response| text(&response.body)),
        request_headers: headers,
    }
}
