//! One attempt: sends a claimed execution and classifies the response. No database access; the only wait is for the
//! webhook client.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::api::fields::JsonFields;
use crate::api::work::read_report;
use crate::domain::cue_fields::expired_message;
use crate::domain::execution::attempt::{FailureCause, requested_pause};
use crate::domain::execution::outcome::{MAX_RESPONSE_OUTCOME, Outcome};
use crate::domain::execution::{AttemptResult, NextStep, RetryPolicy, after_attempt};
use crate::domain::json::{self, JsonText};
use crate::domain::webhook::callback::DEFAULT_TIMEOUT_SECONDS;
use crate::domain::webhook::delivery::{
    AttemptRef, DeliverySpec, SignedRequest, kept_headers, signed_request,
};
use crate::engine::webhook_client::{
    DeliveryError, MAX_KEPT_BODY, WebhookClient, WebhookRequest, WebhookResponse,
};
use crate::error::Error;
use crate::metrics::milliseconds;
use crate::store::executions::delivery_queue::{AttemptRecord, ClaimedDelivery, LoadedDelivery};
use crate::system::panics;

/// The pause after a database error, before another attempt: long enough to keep the log readable while a disk fails.
const AFTER_READ_ERROR: SignedDuration = SignedDuration::from_secs(5);

pub struct FinishedAttempt {
    pub claimed: ClaimedDelivery,
    pub record: AttemptRecord,
    /// More than the error message says, for the log only.
    pub detail: Option<String>,
    pub cue_id: Option<String>,
}

impl FinishedAttempt {
    pub fn has_timed_out(&self) -> bool {
        self.record.cause == Some(FailureCause::Timeout)
    }
}

pub type SendResult = Result<WebhookResponse, DeliveryError>;

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

/// Why an attempt has failed; `None` for a success.
pub(in crate::engine) fn failure_cause(result: &SendResult) -> Option<FailureCause> {
    match result {
        Ok(response) => FailureCause::from_status(response.http_status),
        Err(error) => Some(error.cause()),
    }
}

pub(in crate::engine) fn status_and_error(result: &SendResult) -> (Option<u16>, Option<String>) {
    match result {
        Ok(WebhookResponse { http_status, note, .. }) => {
            let message = match failure_cause(result) {
                None => note.clone(),
                Some(_) => Some(status_message(*http_status)),
            };
            (Some(*http_status), message)
        }
        Err(error) => (None, Some(error.to_string())),
    }
}

/// The headers of a request or a response as they are stored and shown.
pub(in crate::engine) fn shown_headers(headers: &[(String, String)]) -> JsonText {
    kept_headers(headers.iter().map(|(name, value)| (name.as_str(), value.as_str())))
}

/// Sends a claimed execution and returns its record. Reads the time with `now` before and after; `None` from it, when
/// the program stops, ends the work without a record. The caller sets the duration. Never panics.
pub fn deliver(
    webhook_client: &dyn WebhookClient,
    delivery: LoadedDelivery,
    now: impl Fn() -> Option<Timestamp>,
) -> Option<FinishedAttempt> {
    let LoadedDelivery { claimed, spec } = delivery;
    let cue_id = spec.as_ref().ok().map(|(spec, _)| spec.cue_id.clone());
    let (spec, retry) = match spec {
        Ok((spec, retry)) => (Ok(spec), Some(retry)),
        Err(reason) => (Err(reason), None),
    };
    let started = now()?;
    let build = || match spec {
        Ok(spec) => Ok(request(&claimed, spec, started)),
        Err(reason) => Err(format!("the request cannot be built: {reason}")),
    };
    let AttemptRef { id, attempt, .. } = claimed.attempt_ref;
    let log_panic =
        |error: &Error| tracing::error!(execution_id = %id, attempt, %error, "delivery panicked");
    let result = send_guarded(webhook_client, build, log_panic);
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
    ended.record.next =
        now.checked_add(AFTER_READ_ERROR).map_or(NextStep::Failed, NextStep::RetryAt);
    end_if_expired(&mut ended.record, &claimed);
    ended
}

/// Sends the request that `build` returns and waits for the response. A panic of `build` or of the client is passed to
/// `log_panic` and becomes a failed attempt.
pub fn send_guarded(
    webhook_client: &dyn WebhookClient,
    build: impl FnOnce() -> Result<WebhookRequest, String>,
    log_panic: impl FnOnce(&Error),
) -> SendResult {
    // A panic would end the thread and leave the execution in flight until the next start.
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
    let next = retry.map_or(NextStep::Failed, |retry| {
        after_attempt(retry, claimed.attempt_ref.attempt, &attempt_result(&result, now), now)
    });
    let is_success = next == NextStep::Success;
    let (http_status, error_message) = status_and_error(&result);
    let cause = failure_cause(&result);
    let mut record = AttemptRecord {
        attempt_ref: claimed.attempt_ref,
        at: now,
        duration: SignedDuration::ZERO,
        next,
        http_status,
        response_body: None,
        response_headers: None,
        error_message,
        cause,
        outcome: None,
        has_outcome_deadline: claimed.has_outcome_deadline,
    };
    end_if_expired(&mut record, &claimed);
    let detail = match result {
        Ok(response) => {
            record.response_body = Some(text(&response.body));
            if is_success && claimed.takes_outcome {
                record.outcome = reported_outcome(&claimed.attempt_ref, &response.body, now);
            }
            record.response_headers = (!is_success).then(|| shown_headers(&response.headers));
            None
        }
        Err(error) => error.detail(),
    };
    FinishedAttempt { claimed, record, detail, cue_id: None }
}

/// No attempt follows one that has failed after the maximum age.
fn end_if_expired(record: &mut AttemptRecord, claimed: &ClaimedDelivery) {
    let is_over = claimed.expires_at.is_some_and(|expires_at| expires_at <= record.at);
    if let (true, NextStep::RetryAt(_), Some(seconds)) =
        (is_over, record.next, claimed.max_age_seconds)
    {
        record.next = NextStep::Failed;
        record.cause = Some(FailureCause::Expired);
        record.error_message = Some(expired_message(seconds, record.error_message.as_deref()));
    }
}

/// The outcome that a response reports (contract §6.10): its body has the fields of a report. `None` if it is too long, or
/// would be refused as a report. Never panics: what a receiver sends must not end the thread.
fn reported_outcome(attempt_ref: &AttemptRef, body: &[u8], now: Timestamp) -> Option<Outcome> {
    let read = || {
        let body = json::read(body).ok()?;
        let report = read_report(JsonFields::of_body(body.get()).ok()?).ok()?;
        report.record(now).ok()
    };
    if body.len() > MAX_RESPONSE_OUTCOME {
        return None;
    }
    panics::catch("a response", || Ok(read())).unwrap_or_else(|error| {
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

fn request(claimed: &ClaimedDelivery, spec: DeliverySpec, now: Timestamp) -> WebhookRequest {
    let (method, url) = (spec.callback.method, spec.callback.url.clone().into());
    let timeout_seconds = spec.callback.timeout_seconds;
    let timeout = (timeout_seconds != DEFAULT_TIMEOUT_SECONDS)
        .then(|| Duration::from_secs(timeout_seconds.into()));
    let SignedRequest { headers, body } = signed_request(&claimed.attempt_ref, spec, now);
    // One byte more shows that the response is too long for an outcome.
    let max_response = if claimed.takes_outcome { MAX_RESPONSE_OUTCOME + 1 } else { MAX_KEPT_BODY };
    WebhookRequest { method, url, headers, body, timeout, max_response, keeps_headers: false }
}

fn status_message(http_status: u16) -> String {
    match http_status {
        300..=399 => format!("the URL returned {http_status}; redirects are not followed"),
        410 => "the URL returned 410 (gone); no further attempts".to_owned(),
        _ => format!("the URL returned {http_status}"),
    }
}

/// The beginning of the body as text: what is shown, and of a longer one the character after it.
pub(in crate::engine) fn text(body: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(&body[..body.len().min(MAX_KEPT_BODY)]).into_owned();
    // Each byte that is no UTF-8 becomes three.
    let end = (MAX_KEPT_BODY..text.len()).find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(text.len()));
    text
}

pub fn cause_label(cause: Option<FailureCause>) -> &'static str {
    cause.map_or("none", FailureCause::as_str)
}
