//! One attempt: what was taken up is sent, and what came back is judged. No database here, and no waiting but for
//! the courier.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use jiff::Timestamp;

use crate::domain::execution::retry_after::honoured_retry_after;
use crate::domain::execution::{AttemptResult, NextStep, after_attempt};
use crate::domain::webhook::request::{AttemptRef, DeliverySpec, SignedRequest, message};
use crate::engine::delivery::dispatcher::FinishedAttempt;
use crate::engine::webhook_client::delivery_error::DeliveryError;
use crate::engine::webhook_client::{MAX_KEPT_BODY, WebhookClient, WebhookRequest, WebhookResponse};
use crate::metrics::milliseconds;
use crate::store::executions::delivery_queue::{AttemptRecord, ClaimedDelivery};

/// What sending brought.
pub enum SendResult {
    /// An answer.
    Answered(WebhookResponse),
    /// No answer.
    Unanswered {
        /// Why.
        reason: String,
        /// Why in one word.
        cause: &'static str,
        /// Whether the time was up.
        timed_out: bool,
    },
    /// Nothing that could be sent, now or later.
    Unsendable(String),
}

impl SendResult {
    /// What the rules have to know of it.
    #[must_use]
    pub fn attempt(&self, now: Timestamp) -> AttemptResult {
        match self {
            Self::Answered(WebhookResponse { http_status, retry_after, .. }) => AttemptResult::Answered {
                http_status: *http_status,
                retry_after: honoured_retry_after(*http_status, retry_after.as_deref(), now),
            },
            Self::Unanswered { .. } | Self::Unsendable(_) => AttemptResult::Unanswered,
        }
    }

    /// Whether the receiver kept its thread until the time was up.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        matches!(self, Self::Unanswered { timed_out: true, .. })
    }
}

/// Sends what was taken up, signed at `now`, and waits for the answer. Never panics.
pub fn send(webhook_client: &dyn WebhookClient, taken: &ClaimedDelivery, now: Timestamp) -> SendResult {
    let write = || match &taken.order {
        Ok(order) => Ok(parcel(&taken.ticket, order, now)),
        Err(reason) => Err(format!("The delivery cannot be made: {reason}")),
    };
    send_guarded(webhook_client, write, &taken.ticket.id)
}

/// Sends the parcel that `write` makes, or cannot make and says why, and waits for the answer; `id` says in the log
/// what it was. Never panics.
pub fn send_guarded(
    webhook_client: &dyn WebhookClient,
    write: impl FnOnce() -> Result<WebhookRequest, String>,
    id: &dyn Display,
) -> SendResult {
    // The writing and signing too: a thread that panics is lost, and what it had under way until the next start.
    let sent = catch_unwind(AssertUnwindSafe(|| match write().map(|parcel| webhook_client.send(&parcel)) {
        Ok(Ok(receipt)) => SendResult::Answered(receipt),
        Ok(Err(delivery_error)) => SendResult::Unanswered {
            reason: delivery_error.to_string(),
            cause: delivery_error.as_str(),
            timed_out: matches!(delivery_error, DeliveryError::Timeout { .. }),
        },
        Err(reason) => SendResult::Unsendable(reason),
    }));
    sent.unwrap_or_else(|_| {
        tracing::error!("the delivery of {id} panicked");
        let reason = "a fault inside cued; its log has more".to_owned();
        SendResult::Unanswered { reason, cause: "fault", timed_out: false }
    })
}

/// What an attempt that ended at `now` means for its execution.
#[must_use]
pub fn classify(taken: &ClaimedDelivery, outcome: SendResult, now: Timestamp) -> FinishedAttempt {
    let timed_out = outcome.timed_out();
    let next = match &taken.order {
        Ok(order) => after_attempt(&order.retry, taken.ticket.attempt, &outcome.attempt(now), now),
        Err(_) => NextStep::Failed,
    };
    let cause = cause(&outcome);
    let mut ended = AttemptRecord {
        ticket: taken.ticket,
        at: now,
        next,
        http_status: None,
        response_body: None,
        error_message: None,
    };
    match outcome {
        SendResult::Answered(receipt) => {
            let http_status = receipt.http_status;
            ended.http_status = Some(http_status);
            ended.response_body = Some(text(&receipt.body));
            ended.error_message = (next != NextStep::Success).then(|| answered(http_status));
        }
        SendResult::Unanswered { reason, .. } | SendResult::Unsendable(reason) => {
            ended.error_message = Some(reason);
        }
    }
    FinishedAttempt { ended, timed_out, cause }
}

/// Writes an attempt that took `took` to the log.
pub fn log(taken: &ClaimedDelivery, FinishedAttempt { ended, cause, .. }: &FinishedAttempt, took: Duration) {
    tracing::debug!(
        execution_id = %taken.ticket.id,
        cue_id = taken.order.as_ref().ok().map(|order| order.cue_id.as_str()),
        attempt = taken.ticket.attempt,
        result = ended.next.status().as_str(),
        cause,
        http_status = ended.http_status,
        duration_ms = milliseconds(took),
        "an attempt has ended"
    );
}

/// Why an attempt was no success, in one word, as figures and the log name it.
fn cause(outcome: &SendResult) -> &'static str {
    match outcome {
        SendResult::Answered(receipt) => match receipt.http_status {
            200..=299 => "none",
            300..=399 => "status_3xx",
            400..=499 => "status_4xx",
            500..=599 => "status_5xx",
            _ => "status_other",
        },
        SendResult::Unanswered { cause, .. } => cause,
        SendResult::Unsendable(_) => "unsendable",
    }
}

fn parcel(ticket: &AttemptRef, order: &DeliverySpec, now: Timestamp) -> WebhookRequest {
    let SignedRequest { headers, body } = message(ticket, order, now);
    WebhookRequest { method: order.callback.method, url: order.callback.url.clone(), headers, body }
}

fn answered(http_status: u16) -> String {
    match http_status {
        300..=399 => format!("the callback answered {http_status}; redirects are not followed"),
        410 => "the callback answered 410: it is gone, and not tried again".to_owned(),
        _ => format!("the callback answered {http_status}"),
    }
}

/// The body as text, without the character that the cut may have gone through.
fn text(body: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(body).into_owned();
    if body.len() >= MAX_KEPT_BODY && text.ends_with(char::REPLACEMENT_CHARACTER) {
        text.pop();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::engine::CAUSES;

    struct Answers(Result<u16, DeliveryError>);

    impl WebhookClient for Answers {
        fn send(&self, _: &WebhookRequest) -> Result<WebhookResponse, DeliveryError> {
            match &self.0 {
                Ok(0) => panic!("a courier that is broken"),
                Ok(http_status) => {
                    Ok(WebhookResponse { http_status: *http_status, retry_after: None, body: Vec::new() })
                }
                Err(delivery_error) => Err(delivery_error.clone()),
            }
        }
    }

    #[test]
    fn every_failure_cause_has_a_counter_from_the_start() {
        let why = || "why".to_owned();
        let mishaps = [
            DeliveryError::Timeout { within: std::time::Duration::ZERO, status: None },
            DeliveryError::Refused(why()),
            DeliveryError::Unresolved(why()),
            DeliveryError::Connection(why()),
            DeliveryError::Tls(why()),
            DeliveryError::Unsendable(why()),
        ];
        let parcel = || {
            let (url, headers, body) = (String::new(), Vec::new(), None);
            WebhookRequest { method: crate::domain::webhook::callback::Method::Post, url, headers, body }
        };
        let answers = mishaps.into_iter().map(Err).chain([0, 199, 302, 404, 500, 600].map(Ok));
        let mut causes: Vec<_> =
            answers.map(|answer| cause(&send_guarded(&Answers(answer), || Ok(parcel()), &"x"))).collect();
        causes.push(cause(&send_guarded(&Answers(Ok(200)), || Err(why()), &"x")));
        causes.sort_unstable();
        causes.dedup();
        let mut known = CAUSES;
        known.sort_unstable();
        assert_eq!(causes, known);
    }
}
