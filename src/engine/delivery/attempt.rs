//! One attempt: sends a claimed execution and classifies the response. No database access; the only wait is for the
//! webhook client.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::domain::execution::attempt::{FailureCause, requested_pause};
use crate::domain::execution::outcome::{MAX_RESPONSE_OUTCOME, Outcome, OutcomeReport};
use crate::domain::execution::{AttemptResult, NextStep, RetryPolicy, after_attempt};
use crate::domain::webhook::request::{
    AttemptRef, DeliverySpec, SignedRequest, kept_headers, signed_request,
};
use crate::engine::webhook_client::{
    DeliveryError, MAX_KEPT_BODY, WebhookClient, WebhookRequest, WebhookResponse,
};
use crate::error::Error;
use crate::metrics::milliseconds;
use crate::panics;
use crate::store::executions::delivery_queue::{AttemptRecord, ClaimedDelivery};
use crate::store::executions::delivery_request::LoadedDelivery;

/// The pause after a database error, before another attempt: long enough to keep the log readable while a disk fails.
const AFTER_READ_ERROR: SignedDuration = SignedDuration::from_secs(5);

/// An attempt that a delivery thread has ended.
pub struct FinishedAttempt {
    pub claimed: ClaimedDelivery,
    pub record: AttemptRecord,
    /// True if the attempt ended by its timeout.
    pub timed_out: bool,
    /// More than the error message says, for the log only.
    pub detail: Option<String>,
    /// The public id of the cue, for the log only.
    pub cue_id: Option<String>,
}

pub type SendResult = Result<WebhookResponse, DeliveryError>;

/// The part of the result that the retry rules need.
pub fn attempt_result(result: &SendResult, now: Timestamp) -> AttemptResult {
    match result {
        Ok(WebhookResponse { http_status, retry_after, .. }) => AttemptResult::Responded {
            http_status: *http_status,
            retry_after: requested_pause(*http_status, retry_after.as_deref(), now),
        },
        Err(DeliveryError::Timeout { .. }) => AttemptResult::TimedOut,
        Err(_) => AttemptResult::NoResponse,
    }
}

/// The status of the response, and for the user why the attempt has failed. A response that is no success has failed.
pub(in crate::engine) fn status_and_error(
    result: &SendResult,
    is_success: bool,
) -> (Option<u16>, Option<String>) {
    match result {
        Ok(WebhookResponse { http_status, .. }) => {
            (Some(*http_status), (!is_success).then(|| status_message(*http_status)))
        }
        Err(error) => (None, Some(error.to_string())),
    }
}

pub(in crate::engine) fn timed_out(result: &SendResult) -> bool {
    matches!(result, Err(DeliveryError::Timeout { .. }))
}

/// Sends a claimed execution and returns its record. Reads the time with `now` before and after; `None` from it, when the
/// program stops, ends the work without a record. The caller sets the duration. Never panics.
pub fn deliver(
    webhook_client: &dyn WebhookClient,
    delivery: LoadedDelivery,
    now: impl Fn() -> Option<Timestamp>,
) -> Option<FinishedAttempt> {
    let LoadedDelivery { claimed, spec } = delivery;
    let (spec, retry, cue_id) = match spec {
        Ok((spec, retry)) => {
            let cue_id = spec.cue_id.clone();
            (Ok(spec), Some(retry), Some(cue_id))
        }
        Err(reason) => (Err(reason), None, None),
    };
    let started = now()?;
    let result = send(webhook_client, &claimed, spec, started);
    let mut ended = classify(claimed, retry.as_ref(), result, now()?);
    ended.record.duration = ended.record.at.duration_since(started);
    Some(FinishedAttempt { cue_id, ..ended })
}

/// The record of an attempt whose request could not be read, at `now`. It counts, and another one follows, whatever the
/// cue's number of attempts: the receiver has got nothing.
pub fn unread(claimed: ClaimedDelivery, error: &Error, now: Timestamp) -> FinishedAttempt {
    let AttemptRef { id, attempt, .. } = claimed.attempt_ref;
    tracing::error!(execution_id = %id, attempt, %error, "cannot read a delivery; it is tried again");
    let mut ended = classify(claimed, None, Err(DeliveryError::Internal), now);
    ended.record.next = now.checked_add(AFTER_READ_ERROR).map_or(NextStep::Failed, NextStep::RetryAt);
    ended
}

/// Sends a request, signed at `now`, and waits for the response. Never panics.
fn send(
    webhook_client: &dyn WebhookClient,
    claimed: &ClaimedDelivery,
    spec: Result<DeliverySpec, String>,
    now: Timestamp,
) -> SendResult {
    let build = || match spec {
        Ok(spec) => Ok(request(claimed, spec, now)),
        Err(reason) => Err(format!("the request cannot be built: {reason}")),
    };
    let AttemptRef { id, attempt, .. } = claimed.attempt_ref;
    send_guarded(
        webhook_client,
        build,
        |error| tracing::error!(execution_id = %id, attempt, %error, "delivery panicked"),
    )
}

/// Sends the request that `build` returns and waits for the response. Never panics: a
/// panic of `build` or of the client is passed to `log_panic` and becomes a failed attempt.
pub fn send_guarded(
    webhook_client: &dyn WebhookClient,
    build: impl FnOnce() -> Result<WebhookRequest, String>,
    log_panic: impl FnOnce(&Error),
) -> SendResult {
    // Building and signing run inside as well: a panic would end the thread and leave the execution in flight until the
    // next start.
    let send = || match build() {
        Ok(request) => webhook_client.send(&request),
        Err(reason) => Err(DeliveryError::Unsendable(reason)),
    };
    panics::catch("the delivery", || Ok(send())).unwrap_or_else(|error| {
        log_panic(&error);
        Err(DeliveryError::Internal)
    })
}

/// The record of an attempt that ended at `now`, with the next step of its execution. Without a retry policy it has
/// failed.
fn classify(
    claimed: ClaimedDelivery,
    retry: Option<&RetryPolicy>,
    result: SendResult,
    now: Timestamp,
) -> FinishedAttempt {
    let timed_out = timed_out(&result);
    let next = retry.map_or(NextStep::Failed, |retry| {
        after_attempt(retry, claimed.attempt_ref.attempt, &attempt_result(&result, now), now)
    });
    let is_success = next == NextStep::Success;
    let (http_status, error_message) = status_and_error(&result, is_success);
    let mut record = AttemptRecord {
        attempt_ref: claimed.attempt_ref,
        at: now,
        duration: SignedDuration::ZERO,
        next,
        http_status,
        response_body: None,
        response_headers: None,
        error_message,
        cause: cause(&result),
        outcome: None,
    };
    let detail = match result {
        Ok(response) => {
            record.response_body = Some(text(&response.body));
            if is_success && claimed.takes_outcome {
                record.outcome = reported_outcome(&claimed.attempt_ref, &response.body, now);
            }
            let headers = response.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            record.response_headers = (!is_success).then(|| kept_headers(headers));
            None
        }
        Err(error) => error.detail(),
    };
    FinishedAttempt { claimed, record, timed_out, detail, cue_id: None }
}

/// The outcome that a response reports. Never panics: what a receiver sends must not end the thread.
fn reported_outcome(attempt_ref: &AttemptRef, body: &[u8], now: Timestamp) -> Option<Outcome> {
    let read = panics::catch("a response", || Ok(OutcomeReport::from_response(body, now)));
    read.unwrap_or_else(|error| {
        tracing::error!(execution_id = %attempt_ref.id, %error, "response not read as an outcome");
        None
    })
}

pub fn log(ended: &FinishedAttempt, duration: Duration) {
    let FinishedAttempt { claimed, record, detail, cue_id, .. } = ended;
    tracing::debug!(
        execution_id = %claimed.attempt_ref.id,
        cue_id,
        attempt = claimed.attempt_ref.attempt,
        result = record.next.status().as_str(),
        cause = cause_label(record.cause),
        reason = detail,
        http_status = record.http_status,
        duration_ms = milliseconds(duration),
        "attempt ended"
    );
}

/// The cause of a failure; `None` for a success.
fn cause(result: &SendResult) -> Option<FailureCause> {
    match result {
        Ok(response) => FailureCause::of_status(response.http_status),
        Err(error) => Some(error.cause()),
    }
}

fn request(claimed: &ClaimedDelivery, spec: DeliverySpec, now: Timestamp) -> WebhookRequest {
    let (method, url) = (spec.callback.method, spec.callback.url.clone());
    let SignedRequest { headers, body } = signed_request(&claimed.attempt_ref, spec, now);
    // One byte more shows that the response is too long for an outcome.
    let max_response = if claimed.takes_outcome { MAX_RESPONSE_OUTCOME + 1 } else { MAX_KEPT_BODY };
    WebhookRequest { method, url, headers, body, max_response }
}

fn status_message(http_status: u16) -> String {
    match http_status {
        300..=399 => format!("the callback returned {http_status}; redirects are not followed"),
        410 => "the callback returned 410 (gone); no further attempts".to_owned(),
        _ => format!("the callback returned {http_status}"),
    }
}

/// The beginning of the body as text: what is shown, and of a longer one the character after it.
fn text(body: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(&body[..body.len().min(MAX_KEPT_BODY)]).into_owned();
    // Each byte that is no UTF-8 becomes three.
    let end = (MAX_KEPT_BODY..text.len()).find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(text.len()));
    text
}

pub fn cause_label(cause: Option<FailureCause>) -> &'static str {
    cause.map_or("none", FailureCause::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::webhook_client::address_guard::ResolveError;

    #[test]
    fn every_failure_cause_has_a_counter_from_the_start() {
        let why = || "why".to_owned();
        let errors = [
            DeliveryError::Timeout { within: std::time::Duration::ZERO, status: None },
            DeliveryError::NoAddress(ResolveError::Blocked {
                host: String::new(),
                address: std::net::Ipv4Addr::LOCALHOST.into(),
            }),
            DeliveryError::NoAddress(ResolveError::Unknown { name: String::new(), why: why() }),
            DeliveryError::Connection(why()),
            DeliveryError::Tls(why()),
            DeliveryError::Unsendable(why()),
            DeliveryError::Internal,
        ];
        let response = |http_status| {
            Ok(WebhookResponse { http_status, retry_after: None, headers: Vec::new(), body: Vec::new() })
        };
        let results = errors.into_iter().map(Err).chain([199, 200, 302, 404, 500, 600].map(response));
        let mut causes: Vec<_> = results.filter_map(|result| cause(&result)).collect();
        causes.sort_unstable();
        causes.dedup();
        assert_eq!(causes, FailureCause::ALL);
    }
}
