//! The request of a webhook delivery: its body and headers, signed (contract §6), and the headers of a response that are
//! kept with a failed attempt (§5.8). Sending is the engine's part.

use jiff::Timestamp;

use crate::domain::ids::ExecutionId;
use crate::domain::json::JsonText;
use crate::domain::row_keys::{CueKey, ExecutionKey, UserKey};
use crate::domain::secret::Secret;
use crate::domain::time::instant;
use crate::domain::webhook::callback::Callback;
use crate::domain::webhook::signature::{WebhookSecrets, signature_headers};

/// The headers of a delivery: the standard ones, with custom ones in place of `Content-Type` and
/// `User-Agent` (contract §6), then the other custom headers.
pub fn delivery_headers(
    custom: Secret<Vec<(String, String)>>,
    standard: Vec<(&'static str, String)>,
) -> Secret<Vec<(String, String)>> {
    let mut headers: Vec<(String, String)> =
        standard.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    for (name, value) in custom.into_exposed() {
        match headers.iter_mut().find(|(standard, _)| standard.eq_ignore_ascii_case(&name)) {
            None => headers.push((name, value)),
            Some(existing) if is_replaceable(&name) => existing.1 = value,
            Some(_) => {}
        }
    }
    headers.into()
}

fn is_replaceable(name: &str) -> bool {
    name.eq_ignore_ascii_case("content-type") || name.eq_ignore_ascii_case("user-agent")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptRef {
    pub key: ExecutionKey,
    pub id: ExecutionId,
    pub cue_key: CueKey,
    pub user_key: UserKey,
    pub destination: i64,
    pub attempt: u32,
    pub scheduled_for: Timestamp,
    /// True if the cue's schedule created the execution.
    pub by_schedule: bool,
    pub started_at: Timestamp,
}

/// The request of a delivery before it is signed.
#[derive(Debug, Clone)]
pub struct DeliverySpec {
    pub cue_id: String,
    pub callback: Callback,
    /// The stored payload: the canonical text that is sent.
    pub payload: Option<Secret>,
    pub secrets: WebhookSecrets,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedRequest {
    /// All headers except `Host` and those that frame the body.
    pub headers: Secret<Vec<(String, String)>>,
    /// Canonical JSON; `None` with GET and DELETE.
    pub body: Option<Secret<Vec<u8>>>,
}

pub fn signed_request(
    attempt: &AttemptRef,
    mut delivery: DeliverySpec,
    now: Timestamp,
) -> SignedRequest {
    // Moved: of a payload of megabytes there is one copy while it is sent.
    let payload = delivery.payload.take();
    let body = payload.map_or_else(|| b"{}".to_vec(), |text| text.into_exposed().into_bytes());
    let body = Some(body).filter(|_| delivery.callback.method.has_body());
    let id = attempt.id.to_string();
    let signed = body.as_deref().unwrap_or_default();
    let signatures = signature_headers(delivery.secrets.at(now), &id, now.as_second(), signed);
    let mut headers = vec![
        ("User-Agent", concat!("cued/", env!("CARGO_PKG_VERSION")).to_owned()),
        ("X-CueAPI-Cue-Id", delivery.cue_id),
        ("X-CueAPI-Execution-Id", id),
        ("X-CueAPI-Scheduled-For", instant(attempt.scheduled_for)),
        ("X-CueAPI-Attempt", attempt.attempt.to_string()),
    ];
    headers.extend(signatures);
    // Some frameworks reject a request with a content type and no body.
    if body.is_some() {
        headers.insert(0, ("Content-Type", "application/json".to_owned()));
    }
    let headers = delivery_headers(delivery.callback.headers, headers);
    SignedRequest { headers, body: body.map(Secret::new) }
}

/// The request as its owner sees it: without time and signatures if it is not known when it was sent.
pub fn shown_request(
    attempt: &AttemptRef,
    delivery: DeliverySpec,
    sent_at: Option<Timestamp>,
) -> SignedRequest {
    let mut request = signed_request(attempt, delivery, sent_at.unwrap_or(Timestamp::UNIX_EPOCH));
    if sent_at.is_none() {
        request.headers.expose_mut().retain(|(name, _)| !depends_on_time(name));
    }
    request
}

fn depends_on_time(name: &str) -> bool {
    ["X-CueAPI-Timestamp", "X-CueAPI-Signature", "webhook-timestamp", "webhook-signature"]
        .contains(&name)
}

/// Bytes of the kept headers as JSON: enough for those that name the server and its reason.
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

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn custom_headers_replace_two_of_the_standard_ones_and_no_others() {
        let standard =
            ["Content-Type", "User-Agent", "X-CueAPI-Cue-Id"].map(|name| (name, "ours".to_owned()));
        let custom = ["X-Mine", "content-type", "USER-AGENT", "x-cueapi-cue-id", "Accept"]
            .map(|name| (name, "mine"));
        let headers = delivery_headers(pairs(&custom).into(), standard.to_vec());
        let text: Vec<String> =
            headers.expose().iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let expected = "Content-Type: mine, User-Agent: mine, X-CueAPI-Cue-Id: ours, X-Mine: mine, Accept: mine";
        assert_eq!(text.join(", "), expected);
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
        let kept = kept_headers([
            ("a", long.as_str()),
            ("b", quotes.as_str()),
            ("c", long.as_str()),
            ("d", "1"),
        ]);
        assert_eq!(kept.as_str(), format!(r#"[["a","{long}"],["d","1"]]"#));
        let most = "x".repeat(MAX_KEPT_HEADERS - r#"[["a",""]]"#.len());
        assert_eq!(kept_headers([("a", most.as_str())]).as_str().len(), MAX_KEPT_HEADERS);
        let over = format!("{most}x");
        assert_eq!(kept_headers([("a", over.as_str())]).as_str(), "[]");
    }
}
