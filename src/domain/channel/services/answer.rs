//! What the answers of several services share: which status repeats a message, pauses, and reasons.

use jiff::SignedDuration;
use serde_json::Value;

use crate::domain::channel::secrets::without_secrets;
use crate::domain::channel::services::{ServiceAnswer, Verdict};
use crate::domain::execution::attempt::{MAX_PAUSE, requested_pause};
use crate::domain::text::one_line;

/// Characters of a service's words in a reason.
const MAX_WORDS: usize = 200;

pub fn is_success(answer: &ServiceAnswer<'_>) -> bool {
    (200..=299).contains(&answer.http_status)
}

/// Returns whether the body is the beginning of a JSON object with this text in it, which has no white space.
pub fn says(answer: &ServiceAnswer<'_>, text: &str) -> bool {
    let body: String = String::from_utf8_lossy(answer.body).split_whitespace().collect();
    body.starts_with('{') && body.contains(text)
}

/// The verdict on a success that is not the service's own: it may be that of a login page.
pub fn unconfirmed(name: &str, answer: &ServiceAnswer<'_>) -> Verdict {
    let words =
        "but not as it confirms a message: the URL may lead to a login page or another server";
    verdict(name, answer.http_status, words, None, false)
}

/// The verdict on an answer that is no success. `words` are those of the service, or empty; `after` is the pause in its
/// own field, which counts before the header `Retry-After`. `is_of_settings` as in [`verdict`].
pub fn failure(
    name: &str,
    answer: &ServiceAnswer<'_>,
    words: &str,
    after: Option<SignedDuration>,
    is_of_settings: bool,
) -> Verdict {
    let in_header =
        || requested_pause(answer.http_status, header(answer, "Retry-After"), answer.now);
    verdict(name, answer.http_status, words, after.or_else(in_header), is_of_settings)
}

/// 401, 403, 404 and 410 are repeated too: a change of the channel, or of the service's own settings, can end them. Only
/// what the service says of the message itself ends it. A 400 says so unless it `is_of_settings`.
pub fn verdict(
    name: &str,
    http_status: u16,
    words: &str,
    after: Option<SignedDuration>,
    is_of_settings: bool,
) -> Verdict {
    let words = without_secrets(&one_line(words, MAX_WORDS));
    let space = if words.is_empty() { "" } else { " " };
    let reason = format!("{name} answered {http_status}{space}{words}");
    match http_status {
        400 if is_of_settings => Verdict::Retry { after, reason },
        400 | 413 | 422 => Verdict::Refused { reason },
        _ => Verdict::Retry { after, reason },
    }
}

/// Whether the words have one of the parts, in any case.
pub fn names_any(words: &str, parts: &[&str]) -> bool {
    let words = words.to_lowercase();
    parts.iter().any(|part| words.contains(part))
}

/// `null` if the body is not JSON.
pub fn json_body(answer: &ServiceAnswer<'_>) -> Value {
    serde_json::from_slice(answer.body).unwrap_or_default()
}

/// A text at the path of a JSON pointer; empty if there is none.
pub fn words<'a>(json: &'a Value, pointer: &str) -> &'a str {
    json.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The parts of an error that are not empty.
pub fn joined(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    parts.join(": ")
}

/// A body of plain text; empty for JSON, and for the page of a proxy.
pub fn plain_text(answer: &ServiceAnswer<'_>) -> String {
    let text = String::from_utf8_lossy(answer.body);
    let text = text.trim();
    if text.starts_with(['<', '{', '[']) { String::new() } else { text.to_owned() }
}

pub fn header<'a>(answer: &ServiceAnswer<'a>, name: &str) -> Option<&'a str> {
    let mut headers = answer.headers.iter();
    headers.find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// A pause of as many seconds as the JSON number says.
pub fn pause(seconds: &Value) -> Option<SignedDuration> {
    let seconds = seconds.as_f64()?.clamp(0.0, MAX_PAUSE.as_secs_f64());
    Some(SignedDuration::from_millis((seconds * 1000.0).round() as i64))
}
