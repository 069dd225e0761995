//! The request of a webhook delivery: body and headers, signed (contract §6), and the headers of a response that are kept with
//! a failed attempt (§5.8). Sending is the engine's part.

use jiff::Timestamp;

use crate::domain::ids::ExecutionId;
use crate::domain::json::JsonText;
use crate::domain::time::rfc3339;
use crate::domain::webhook::callback::{Callback, delivery_headers};
use crate::domain::webhook::signature::{SigningSecrets, signature_headers};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptRef {
    pub key: i64,
    pub id: ExecutionId,
    pub cue_key: i64,
    pub user_key: i64,
    pub destination: i64,
    /// The attempt number, from 1.
    pub attempt: u32,
    pub scheduled_for: Timestamp,
    /// True if the cue's schedule created the execution.
    pub by_schedule: bool,
    /// The start of the first attempt.
    pub started_at: Timestamp,
}

/// The request of a delivery before it is signed. It contains secrets and must not be logged.
#[derive(Clone)]
pub struct DeliverySpec {
    pub cue_id: String,
    pub callback: Callback,
    /// The stored payload: the canonical text that is sent.
    pub payload: Option<String>,
    pub secret: String,
    /// The secret before the last rotation.
    pub previous_webhook_secret: Option<String>,
    /// The previous secret signs too until then.
    pub previous_webhook_secret_expires_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedRequest {
    /// All headers except `Host` and those that frame the body.
    pub headers: Vec<(String, String)>,
    /// Canonical JSON; `None` with GET and DELETE.
    pub body: Option<Vec<u8>>,
}

pub fn signed_request(attempt: &AttemptRef, mut delivery: DeliverySpec, now: Timestamp) -> SignedRequest {
    // Moved: of a payload of megabytes there is one copy while it is sent.
    let payload = delivery.payload.take();
    let body = payload.map_or_else(|| b"{}".to_vec(), String::into_bytes);
    let body = Some(body).filter(|_| delivery.callback.method.has_body());
    let id = attempt.id.to_string();
    let signed = body.as_deref().unwrap_or_default();
    let signatures = signature_headers(secrets(&delivery, now), &id, now.as_second(), signed);
    let mut headers = vec![
        ("User-Agent", concat!("cued/", env!("CARGO_PKG_VERSION")).to_owned()),
        ("X-CueAPI-Cue-Id", delivery.cue_id),
        ("X-CueAPI-Execution-Id", id),
        ("X-CueAPI-Scheduled-For", rfc3339(attempt.scheduled_for)),
        ("X-CueAPI-Attempt", attempt.attempt.to_string()),
    ];
    headers.extend(signatures);
    // Some frameworks reject a request with a content type and no body.
    if body.is_some() {
        headers.insert(0, ("Content-Type", "application/json".to_owned()));
    }
    SignedRequest { headers: delivery_headers(delivery.callback.headers, headers), body }
}

/// The request of `attempt` as its owner sees it: signed at `sent_at`, and without time and signatures if that is not
/// known.
pub fn shown_request(
    attempt: &AttemptRef,
    delivery: DeliverySpec,
    sent_at: Option<Timestamp>,
) -> SignedRequest {
    let mut request = signed_request(attempt, delivery, sent_at.unwrap_or(Timestamp::UNIX_EPOCH));
    if sent_at.is_none() {
        request.headers.retain(|(name, _)| !depends_on_time(name));
    }
    request
}

fn depends_on_time(name: &str) -> bool {
    ["X-CueAPI-Timestamp", "X-CueAPI-Signature", "webhook-timestamp", "webhook-signature"].contains(&name)
}

fn secrets(delivery: &DeliverySpec, now: Timestamp) -> SigningSecrets<'_> {
    SigningSecrets::at(
        now,
        &delivery.secret,
        delivery.previous_webhook_secret.as_deref(),
        delivery.previous_webhook_secret_expires_at,
    )
}

/// The size of the kept headers as JSON, in bytes: enough for those that name the server that answered and its reason. A row of an
/// attempt then stays below 3.2 KB, with a body of 2,000 bytes.
const MAX_KEPT_HEADERS: usize = 1024;

/// The headers as a JSON array of pairs of at most `MAX_KEPT_HEADERS` bytes, in their order. Those that do not fit are
/// left out, and so are cookies, which may be credentials.
pub fn kept_headers<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> JsonText {
    let mut kept = "[".to_owned();
    for (name, value) in headers.into_iter().filter(|(name, _)| !is_cookie(name)) {
        // Longer ones never fit, and need not be written.
        if name.len() + value.len() > MAX_KEPT_HEADERS {
            continue;
        }
        let comma = if kept.len() > 1 { "," } else { "" };
        let pair = format!("{comma}{}", serde_json::json!([name, value]));
        if kept.len() + pair.len() < MAX_KEPT_HEADERS {
            kept.push_str(&pair);
        }
    }
    kept.push(']');
    JsonText::stored(kept)
}

fn is_cookie(name: &str) -> bool {
    name.eq_ignore_ascii_case("set-cookie") || name.eq_ignore_ascii_case("set-cookie2")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::webhook::callback::Method;

    const SECRET: &str = "whsec_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn attempt() -> AttemptRef {
        AttemptRef {
            key: 1,
            id: ExecutionId::parse("0190a5c0-0000-7000-8000-000000000001").unwrap(),
            cue_key: 1,
            user_key: 1,
            destination: 1,
            attempt: 2,
            scheduled_for: at("2025-12-31T23:59:59.5Z"),
            by_schedule: true,
            started_at: at("2026-01-01T00:00:00Z"),
        }
    }

    fn delivery(method: Method, payload: Option<&str>) -> DeliverySpec {
        let callback = Callback {
            url: "https://example.com/".to_owned(),
            method,
            headers: Vec::new(),
            outcome_from_response: false,
        };
        DeliverySpec {
            cue_id: "cue_abcdefghijkl".to_owned(),
            callback,
            payload: payload.map(str::to_owned),
            secret: SECRET.to_owned(),
            previous_webhook_secret: None,
            previous_webhook_secret_expires_at: None,
        }
    }

    fn signed(delivery: &DeliverySpec, now: &str) -> SignedRequest {
        signed_request(&attempt(), delivery.clone(), at(now))
    }

    fn header<'a>(request: &'a SignedRequest, name: &str) -> Option<&'a str> {
        request.headers.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }

    #[test]
    fn a_delivery_has_the_headers_of_the_contract_signed_at_the_time_of_sending() {
        let request =
            signed(&delivery(Method::Post, Some(r#"{"a": 1, "b": "\u00fc"}"#)), "2026-01-01T00:00:00.25Z");
        assert_eq!(request.body.as_deref(), Some(br#"{"a": 1, "b": "\u00fc"}"#.as_slice()));
        let names: Vec<_> = request.headers.iter().map(|(name, _)| name.as_str()).collect();
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
            assert_eq!(header(&request, name), Some(value), "{name}");
        }
    }

    #[test]
    fn a_missing_payload_is_an_empty_object_and_get_and_delete_have_no_body() {
        let request = signed(&delivery(Method::Patch, None), "2026-01-01T00:00:00Z");
        assert_eq!(request.body.as_deref(), Some(b"{}".as_slice()));
        for method in [Method::Get, Method::Delete] {
            let request = signed(&delivery(method, Some(r#"{"a": 1}"#)), "2026-01-01T00:00:00Z");
            assert_eq!(request.body, None);
            assert_eq!(header(&request, "Content-Type"), None);
            let v1 = "v1=4fd23912b406bc4b4e6271e3e19d2adb18a6797f462c4936df11258b2eaead84";
            assert_eq!(header(&request, "X-CueAPI-Signature"), Some(v1));
        }
    }

    #[test]
    fn headers_are_kept_as_pairs_without_cookies() {
        let headers = [("server", "nginx"), ("Set-Cookie", "id=secret"), ("x-quote", "a \"b\"")];
        assert_eq!(kept_headers(headers).as_str(), r#"[["server","nginx"],["x-quote","a \"b\""]]"#);
        assert_eq!(kept_headers([]).as_str(), "[]");
    }

    #[test]
    fn headers_that_do_not_fit_are_left_out_whole() {
        let (long, quotes) = ("x".repeat(900), "\"".repeat(600));
        let kept =
            kept_headers([("a", long.as_str()), ("b", quotes.as_str()), ("c", long.as_str()), ("d", "1")]);
        assert_eq!(kept.as_str(), format!(r#"[["a","{long}"],["d","1"]]"#));
        let most = "x".repeat(MAX_KEPT_HEADERS - r#"[["a",""]]"#.len());
        assert_eq!(kept_headers([("a", most.as_str())]).as_str().len(), MAX_KEPT_HEADERS);
        let over = format!("{most}x");
        assert_eq!(kept_headers([("a", over.as_str())]).as_str(), "[]");
    }
}
