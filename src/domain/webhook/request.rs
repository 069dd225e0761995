//! What a delivery sends: the body and the headers of contract §6, signed. How it is carried is not known here.

use jiff::Timestamp;

use crate::domain::execution::RetryPolicy;
use crate::domain::ids::ExecutionId;
use crate::domain::webhook::callback::{Callback, delivery_headers};
use crate::domain::webhook::signature::{SigningSecrets, signature_headers};

/// One attempt of one execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptRef {
    /// The execution's row.
    pub key: i64,
    /// The execution's id.
    pub id: ExecutionId,
    /// The cue's row.
    pub cue_key: i64,
    /// Fairness key of the destination.
    pub lane: i64,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The instant at which the execution was to run.
    pub scheduled_for: Timestamp,
    /// Whether the cue's schedule made the execution.
    pub by_schedule: bool,
}

/// What to send for a cue and by which rules. It holds secrets: never to be logged.
#[derive(Clone)]
pub struct DeliverySpec {
    /// The cue's id.
    pub cue_id: String,
    /// Where to.
    pub callback: Callback,
    /// The payload as it is stored: the canonical text that is sent.
    pub payload: Option<String>,
    /// What follows a failure.
    pub retry: RetryPolicy,
    /// The user's secret.
    pub secret: String,
    /// The one before.
    pub previous_secret: Option<String>,
    /// Until when the one before signs too.
    pub previous_secret_expires: Option<Timestamp>,
}

/// The headers and body of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedRequest {
    /// All headers but `Host` and those that frame the body.
    pub headers: Vec<(String, String)>,
    /// The canonical JSON; none with GET and DELETE.
    pub body: Option<Vec<u8>>,
}

/// The message of the attempt `ticket`, signed at `now`.
#[must_use]
pub fn message(ticket: &AttemptRef, order: &DeliverySpec, now: Timestamp) -> SignedRequest {
    let body = order.callback.method.has_body().then(|| body(order));
    let id = ticket.id.to_string();
    let signed = body.as_deref().unwrap_or_default();
    let signatures = signature_headers(secrets(order, now), &id, now.as_second(), signed);
    let mut headers = vec![
        ("User-Agent", concat!("cued/", env!("CARGO_PKG_VERSION")).to_owned()),
        ("X-CueAPI-Cue-Id", order.cue_id.clone()),
        ("X-CueAPI-Execution-Id", id),
        ("X-CueAPI-Scheduled-For", instant(ticket.scheduled_for)),
        ("X-CueAPI-Attempt", ticket.attempt.to_string()),
    ];
    headers.extend(signatures);
    // Without a body it would be a promise not kept: some frameworks refuse such a request.
    if body.is_some() {
        headers.insert(0, ("Content-Type", "application/json".to_owned()));
    }
    SignedRequest { headers: delivery_headers(&order.callback.headers, headers), body }
}

fn body(order: &DeliverySpec) -> Vec<u8> {
    order.payload.as_deref().unwrap_or("{}").as_bytes().to_vec()
}

fn secrets(order: &DeliverySpec, now: Timestamp) -> SigningSecrets<'_> {
    SigningSecrets::at(now, &order.secret, order.previous_secret.as_deref(), order.previous_secret_expires)
}

/// UTC, to the millisecond only where there is a fraction (contract §2).
#[must_use]
pub fn instant(at: Timestamp) -> String {
    if at.subsec_nanosecond() == 0 { at.to_string() } else { format!("{at:.3}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::webhook::callback::Method;

    const SECRET: &str = "whsec_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const PREVIOUS: &str = "whsec_ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn ticket() -> AttemptRef {
        AttemptRef {
            key: 1,
            id: ExecutionId::parse("0190a5c0-0000-7000-8000-000000000001").unwrap(),
            cue_key: 1,
            lane: 1,
            attempt: 2,
            scheduled_for: at("2025-12-31T23:59:59.5Z"),
            by_schedule: true,
        }
    }

    fn order(method: Method, payload: Option<&str>) -> DeliverySpec {
        let callback = Callback { url: "https://example.com/".to_owned(), method, headers: Vec::new() };
        DeliverySpec {
            cue_id: "cue_abcdefghijkl".to_owned(),
            callback,
            payload: payload.map(str::to_owned),
            retry: RetryPolicy::default(),
            secret: SECRET.to_owned(),
            previous_secret: None,
            previous_secret_expires: None,
        }
    }

    fn made(order: &DeliverySpec, now: &str) -> SignedRequest {
        message(&ticket(), order, at(now))
    }

    fn header<'a>(message: &'a SignedRequest, name: &str) -> Option<&'a str> {
        message.headers.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }

    #[test]
    fn a_delivery_has_the_headers_of_the_contract_signed_at_the_time_of_sending() {
        let message =
            made(&order(Method::Post, Some(r#"{"a": 1, "b": "\u00fc"}"#)), "2026-01-01T00:00:00.25Z");
        assert_eq!(message.body.as_deref(), Some(br#"{"a": 1, "b": "\u00fc"}"#.as_slice()));
        let names: Vec<_> = message.headers.iter().map(|(name, _)| name.as_str()).collect();
        let expected = "Content-Type User-Agent X-CueAPI-Cue-Id X-CueAPI-Execution-Id X-CueAPI-Scheduled-For \
                        X-CueAPI-Attempt X-CueAPI-Timestamp X-CueAPI-Signature webhook-id webhook-timestamp \
                        webhook-signature";
        assert_eq!(names.join(" "), expected);
        for (name, value) in [
            ("Content-Type", "application/json"),
            ("X-CueAPI-Cue-Id", "cue_abcdefghijkl"),
            ("X-CueAPI-Execution-Id", "0190a5c0-0000-7000-8000-000000000001"),
            ("X-CueAPI-Scheduled-For", "2025-12-31T23:59:59.500Z"),
            ("X-CueAPI-Attempt", "2"),
            ("X-CueAPI-Timestamp", "1767225600"),
            ("webhook-id", "0190a5c0-0000-7000-8000-000000000001"),
            ("webhook-timestamp", "1767225600"),
        ] {
            assert_eq!(header(&message, name), Some(value), "{name}");
        }
    }

    #[test]
    fn both_signatures_are_over_the_bytes_that_are_sent() {
        // Computed with Python's hmac, hashlib and base64 over `{"a": 1}`.
        let message = made(&order(Method::Put, Some(r#"{"a": 1}"#)), "2026-01-01T00:00:00Z");
        let v1 = "v1=bb8d5493c3c781c7232f2b2f4a8ee8e323213f17aa4ed65fe5e2d68ee1f3e5af";
        assert_eq!(header(&message, "X-CueAPI-Signature"), Some(v1));
        let standard = "v1,gfiQxYpPhg0l4G16Tnholwi0vwWP4w5/suw21UZ8VJ4=";
        assert_eq!(header(&message, "webhook-signature"), Some(standard));
    }

    #[test]
    fn the_previous_secret_also_signs_until_it_expires() {
        let mut order = order(Method::Post, Some(r#"{"a": 1}"#));
        order.previous_secret = Some(PREVIOUS.to_owned());
        order.previous_secret_expires = Some(at("2026-01-01T00:00:01Z"));
        let both =
            "v1,gfiQxYpPhg0l4G16Tnholwi0vwWP4w5/suw21UZ8VJ4= v1,PAJLiJe41f2W3A5YuU+UUrqmsy9vkd7Ylp31YWVL7ec=";
        assert_eq!(header(&made(&order, "2026-01-01T00:00:00.999Z"), "webhook-signature"), Some(both));
        let after = made(&order, "2026-01-01T00:00:01Z");
        assert_eq!(header(&after, "webhook-signature").unwrap().split(' ').count(), 1);
    }

    #[test]
    fn no_payload_is_an_empty_object() {
        let message = made(&order(Method::Patch, None), "2026-01-01T00:00:00Z");
        assert_eq!(message.body.as_deref(), Some(b"{}".as_slice()));
    }

    #[test]
    fn get_and_delete_carry_no_body_and_sign_the_empty_one() {
        for method in [Method::Get, Method::Delete] {
            let message = made(&order(method, Some(r#"{"a": 1}"#)), "2026-01-01T00:00:00Z");
            assert_eq!(message.body, None);
            assert_eq!(header(&message, "Content-Type"), None);
            let v1 = "v1=4fd23912b406bc4b4e6271e3e19d2adb18a6797f462c4936df11258b2eaead84";
            assert_eq!(header(&message, "X-CueAPI-Signature"), Some(v1));
        }
    }

    #[test]
    fn own_headers_are_sent_and_replace_the_content_type() {
        let mut order = order(Method::Post, None);
        order.callback.headers = vec![
            ("content-type".to_owned(), "application/cloudevents+json".to_owned()),
            ("Authorization".to_owned(), "Bearer x".to_owned()),
        ];
        let message = made(&order, "2026-01-01T00:00:00Z");
        assert_eq!(header(&message, "Content-Type"), Some("application/cloudevents+json"));
        assert_eq!(header(&message, "Authorization"), Some("Bearer x"));
    }
}
