//! One attempt: what was taken up is sent, and what came back is judged. No database here, and no waiting but for
//! the courier.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use jiff::Timestamp;

use crate::domain::execution::retry_after::honoured_retry_after;
use crate::domain::execution::{Attempt, Next, after_attempt};
use crate::domain::webhook::request::{Message, Order, Ticket, message};
use crate::engine::delivery::dispatcher::Returned;
use crate::engine::webhook_client::delivery_error::Mishap;
use crate::engine::webhook_client::{Courier, MAX_KEPT_BODY, Parcel, Receipt};
use crate::metrics::milliseconds;
use crate::store::executions::delivery_queue::{Ended, Taken};

/// What sending brought.
pub enum Outcome {
    /// An answer.
    Answered(Receipt),
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

impl Outcome {
    /// What the rules have to know of it.
    #[must_use]
    pub fn attempt(&self, now: Timestamp) -> Attempt {
        match self {
            Self::Answered(Receipt { http_status, retry_after, .. }) => Attempt::Answered {
                http_status: *http_status,
                retry_after: honoured_retry_after(*http_status, retry_after.as_deref(), now),
            },
            Self::Unanswered { .. } | Self::Unsendable(_) => Attempt::Unanswered,
        }
    }

    /// Whether the receiver kept its thread until the time was up.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        matches!(self, Self::Unanswered { timed_out: true, .. })
    }
}

/// Sends what was taken up, signed at `now`, and waits for the answer. Never panics.
pub fn send(courier: &dyn Courier, taken: &Taken, now: Timestamp) -> Outcome {
    let write = || match &taken.order {
        Ok(order) => Ok(parcel(&taken.ticket, order, now)),
        Err(reason) => Err(format!("The delivery cannot be made: {reason}")),
    };
    carry(courier, write, &taken.ticket.id)
}

/// Sends the parcel that `write` makes, or cannot make and says why, and waits for the answer; `id` says in the log
/// what it was. Never panics.
pub fn carry(
    courier: &dyn Courier,
    write: impl FnOnce() -> Result<Parcel, String>,
    id: &dyn Display,
) -> Outcome {
    // The writing and signing too: a thread that panics is lost, and what it had under way until the next start.
    let sent = catch_unwind(AssertUnwindSafe(|| match write().map(|parcel| courier.send(&parcel)) {
        Ok(Ok(receipt)) => Outcome::Answered(receipt),
        Ok(Err(mishap)) => Outcome::Unanswered {
            reason: mishap.to_string(),
            cause: mishap.word(),
            timed_out: matches!(mishap, Mishap::Timeout { .. }),
        },
        Err(reason) => Outcome::Unsendable(reason),
    }));
    sent.unwrap_or_else(|_| {
        tracing::error!("the delivery of {id} panicked");
        let reason = "a fault inside cued; its log has more".to_owned();
        Outcome::Unanswered { reason, cause: "fault", timed_out: false }
    })
}

/// What an attempt that ended at `now` means for its execution.
#[must_use]
pub fn judge(taken: &Taken, outcome: Outcome, now: Timestamp) -> Returned {
    let timed_out = outcome.timed_out();
    let next = match &taken.order {
        Ok(order) => after_attempt(&order.retry, taken.ticket.attempt, &outcome.attempt(now), now),
        Err(_) => Next::Failed,
    };
    let cause = cause(&outcome);
    let mut ended = Ended {
        ticket: taken.ticket,
        at: now,
        next,
        http_status: None,
        response_body: None,
        error_message: None,
    };
    match outcome {
        Outcome::Answered(receipt) => {
            let http_status = receipt.http_status;
            ended.http_status = Some(http_status);
            ended.response_body = Some(text(&receipt.body));
            ended.error_message = (next != Next::Success).then(|| answered(http_status));
        }
        Outcome::Unanswered { reason, .. } | Outcome::Unsendable(reason) => {
            ended.error_message = Some(reason);
        }
    }
    Returned { ended, timed_out, cause }
}

/// Writes an attempt that took `took` to the log.
pub fn log(taken: &Taken, Returned { ended, cause, .. }: &Returned, took: Duration) {
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
fn cause(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Answered(receipt) => match receipt.http_status {
            200..=299 => "none",
            300..=399 => "status_3xx",
            400..=499 => "status_4xx",
            500..=599 => "status_5xx",
            _ => "status_other",
        },
        Outcome::Unanswered { cause, .. } => cause,
        Outcome::Unsendable(_) => "unsendable",
    }
}

fn parcel(ticket: &Ticket, order: &Order, now: Timestamp) -> Parcel {
    let Message { headers, body } = message(ticket, order, now);
    Parcel { method: order.callback.method, url: order.callback.url.clone(), headers, body }
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

    struct Answers(Result<u16, Mishap>);

    impl Courier for Answers {
        fn send(&self, _: &Parcel) -> Result<Receipt, Mishap> {
            match &self.0 {
                Ok(0) => panic!("a courier that is broken"),
                Ok(http_status) => {
                    Ok(Receipt { http_status: *http_status, retry_after: None, body: Vec::new() })
                }
                Err(mishap) => Err(mishap.clone()),
            }
        }
    }

    #[test]
    fn every_cause_of_a_failure_is_counted_from_the_start() {
        let why = || "why".to_owned();
        let mishaps = [
            Mishap::Timeout { within: std::time::Duration::ZERO, status: None },
            Mishap::Refused(why()),
            Mishap::Unresolved(why()),
            Mishap::Connection(why()),
            Mishap::Tls(why()),
            Mishap::Unsendable(why()),
        ];
        let parcel = || {
            let (url, headers, body) = (String::new(), Vec::new(), None);
            Parcel { method: crate::domain::webhook::callback::Method::Post, url, headers, body }
        };
        let answers = mishaps.into_iter().map(Err).chain([0, 199, 302, 404, 500, 600].map(Ok));
        let mut causes: Vec<_> =
            answers.map(|answer| cause(&carry(&Answers(answer), || Ok(parcel()), &"x"))).collect();
        causes.push(cause(&carry(&Answers(Ok(200)), || Err(why()), &"x")));
        causes.sort_unstable();
        causes.dedup();
        let mut known = CAUSES;
        known.sort_unstable();
        assert_eq!(causes, known);
    }
}
