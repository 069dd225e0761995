//! The response of a handler, and the format of errors and times. The only place that turns a `Refusal` into HTTP.

pub mod compressed;
pub mod json_writer;

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use jiff::Timestamp;
use jiff::tz::Offset;
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::domain::api_error::{ErrorCode, FieldError, LocSegment, Refusal};
use crate::error::{Error, Result};
use crate::http::response::json_writer::to_json;

/// `Retry-After` in seconds while the database cannot be used (contract §2.4).
const STORAGE_RETRY_AFTER: u32 = 5;

/// Status, body and specific headers of a response. The middleware adds the headers that all responses have.
#[derive(Debug)]
pub struct Response {
    pub status: StatusCode,
    pub body: Bytes,
    pub headers: HeaderMap,
    /// The body of a response without an end, in place of `body`.
    pub stream: Option<BodyStream>,
}

/// A part of a body and the rest, or the end of the body.
type NextPart = dyn Future<Output = Option<(Bytes, BodyStream)>> + Send;

/// A body whose parts come as time passes. Each part has a few KB at most.
pub struct BodyStream(Pin<Box<NextPart>>);

impl BodyStream {
    /// The body whose next part, with the rest, `next` returns.
    pub fn new(next: impl Future<Output = Option<(Bytes, Self)>> + Send + 'static) -> Self {
        Self(Box::pin(next))
    }

    /// The next part; `None` at the end.
    pub fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.0.as_mut().poll(context).map(|next| {
            next.map(|(part, rest)| {
                *self = rest;
                part
            })
        })
    }
}

impl std::fmt::Debug for BodyStream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("BodyStream")
    }
}

/// Stored JSON, written as it is after one look through it.
#[derive(Debug, Clone, Copy)]
pub struct StoredJson<'a>(pub &'a str);

impl Serialize for StoredJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serde_json::from_str::<&RawValue>(self.0).map_err(S::Error::custom)?.serialize(serializer)
    }
}

/// Adds the field `payload`, stored text that is JSON, to a serialized object.
pub fn with_payload(mut object: String, payload: Option<String>) -> String {
    object.pop();
    object.push_str(",\"payload\":");
    enclosed(object, payload.unwrap_or_else(|| "null".to_owned()), "}")
}

/// Adds the field `payload_text`, the stored payload as a string, to a serialized object. No reader of JSON changes the
/// numbers in it.
/// Errors: [`Error::Fault`] if the text has no JSON form.
pub fn with_payload_text(mut object: String, payload: Option<&str>) -> Result<String> {
    let text = to_json(&payload)?;
    object.pop();
    object.push_str(",\"payload_text\":");
    Ok(enclosed(object, text, "}"))
}

/// `text` between `before` and `after`. The longer one of the first two gets the other one, so that no third text of
/// their size is made.
pub fn enclosed(mut before: String, mut text: String, after: &str) -> String {
    if text.len() > before.len() {
        text.reserve_exact(before.len() + after.len());
        text.insert_str(0, &before);
        text.push_str(after);
        return text;
    }
    before.push_str(&text);
    before.push_str(after);
    before
}

impl Response {
    /// 200 with a JSON body.
    pub fn ok(value: &Value) -> Self {
        Self::json(StatusCode::OK, value.to_string())
    }

    /// 200 with a serialized body.
    /// Errors: [`Error::Fault`] if a value has no JSON form.
    pub fn from_body(body: &impl Serialize) -> Result<Self> {
        Ok(Self::json(StatusCode::OK, to_json(body)?))
    }

    /// 201 with a JSON body.
    pub fn created(value: &Value) -> Self {
        Self::json(StatusCode::CREATED, value.to_string())
    }

    /// 204, without a body.
    pub fn no_content() -> Self {
        Self { status: StatusCode::NO_CONTENT, body: Bytes::new(), headers: HeaderMap::new(), stream: None }
    }

    /// JSON that is already serialized.
    pub fn json(status: StatusCode, text: impl Into<Bytes>) -> Self {
        Self::text(status, "application/json", text)
    }

    pub fn html(status: StatusCode, text: String) -> Self {
        Self::text(status, "text/html; charset=utf-8", text)
    }

    pub fn text(status: StatusCode, content_type: &'static str, text: impl Into<Bytes>) -> Self {
        let response = Self { status, body: text.into(), headers: HeaderMap::new(), stream: None };
        response.with(header::CONTENT_TYPE, HeaderValue::from_static(content_type))
    }

    /// 200 with a body that comes as time passes.
    pub fn stream(content_type: &'static str, stream: BodyStream) -> Self {
        Self { stream: Some(stream), ..Self::text(StatusCode::OK, content_type, "") }
    }

    /// Adds a header, or replaces it.
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// The response to a failed request. Logs an error that the caller cannot correct.
    pub fn error(error: Error, request_id: &str) -> Self {
        Self::from_refusal(&to_refusal(error, request_id))
    }

    fn from_refusal(refusal: &Refusal) -> Self {
        let (code, status) = refusal.code.text_and_status();
        let mut body = json!({"error": {"code": code, "message": refusal.message, "status": status}});
        if refusal.code == ErrorCode::ValidationError {
            body["detail"] = refusal.problems.iter().map(detail).collect();
        }
        if let Some(part) = &refusal.schedule_part {
            body["error"]["field"] = part.field.into();
            body["error"]["span"] = part.span.map(|(from, to)| [from, to]).into();
        }
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = Self::json(status, body.to_string());
        if let Some(seconds) = refusal.retry_after {
            response = response.with(header::RETRY_AFTER, seconds.into());
        }
        if status == StatusCode::UNAUTHORIZED {
            response = response.with(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Returns the part of an error that the caller may see. Logs the rest, with the id of the request.
pub fn to_refusal(error: Error, request_id: &str) -> Refusal {
    match error {
        Error::Refused(refusal) => refusal,
        Error::Storage(reason) => {
            tracing::error!(request_id, error = %reason, "the database is unavailable");
            let message =
                format!("The database is temporarily unavailable; try again in {STORAGE_RETRY_AFTER} s");
            let refusal = Refusal::new(ErrorCode::StorageUnavailable, message);
            Refusal { retry_after: Some(STORAGE_RETRY_AFTER), ..refusal }
        }
        Error::Fault(reason) | Error::Corrupt(reason) => {
            tracing::error!(request_id, error = %reason, "request failed");
            Refusal::new(
                ErrorCode::InternalError,
                "Internal error; the server log has the details under the request id",
            )
        }
    }
}

fn detail(problem: &FieldError) -> Value {
    let loc: Vec<Value> = problem
        .loc
        .iter()
        .map(|segment| match segment {
            LocSegment::Field(name) => name.as_ref().into(),
            LocSegment::Index(index) => (*index).into(),
        })
        .collect();
    json!({"type": problem.kind, "loc": loc, "msg": problem.msg, "input": problem.input})
}

/// Serializes a time in the format of [`instant`].
#[derive(Debug, Clone, Copy)]
pub struct JsonTimestamp(pub Timestamp);

impl Serialize for JsonTimestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(&instant(self.0))
    }
}

/// Formats a time as `2026-01-01T09:00:00Z`, with milliseconds if it has a fraction of a second.
pub fn instant(at: Timestamp) -> String {
    format_instant(at, "Z")
}

/// Same as [`instant`], but with `+00:00` in place of `Z`: the format of `next_run`.
pub fn instant_with_offset(at: Timestamp) -> String {
    format_instant(at, "+00:00")
}

/// Same as [`instant`], but without a zone: the format of `timestamp` in `GET /health`.
pub fn instant_without_zone(at: Timestamp) -> String {
    format_instant(at, "")
}

fn format_instant(at: Timestamp, zone: &str) -> String {
    // Rounded down, also before 1970: the rest of the program counts in whole milliseconds.
    let has_fraction = at.as_millisecond().rem_euclid(1000) != 0;
    let local = Offset::UTC.to_datetime(at);
    let Some(year) = u32::try_from(local.year()).ok() else {
        let mut text = if has_fraction { format!("{at:.3}") } else { format!("{at:.0}") };
        text.truncate(text.len() - 1);
        return text + zone;
    };
    // Written digit by digit: a list has hundreds of instants, and the formatter takes several times as long.
    let mut text = Vec::with_capacity("2026-01-01T09:00:00.000+00:00".len());
    push_digits(&mut text, year, [1_000, 100, 10, 1]);
    for (separator, number) in [
        (b'-', local.month()),
        (b'-', local.day()),
        (b'T', local.hour()),
        (b':', local.minute()),
        (b':', local.second()),
    ] {
        text.push(separator);
        push_digits(&mut text, u32::from(number.unsigned_abs()), [10, 1]);
    }
    if has_fraction {
        text.push(b'.');
        push_digits(&mut text, u32::from(local.millisecond().unsigned_abs()), [100, 10, 1]);
    }
    text.extend_from_slice(zone.as_bytes());
    // Digits, separators and a zone are ASCII.
    String::from_utf8(text).unwrap_or_default()
}

/// Appends the decimal digits of a number at these places.
fn push_digits<const COUNT: usize>(text: &mut Vec<u8>, number: u32, places: [u32; COUNT]) {
    for place in places {
        // Less than 10.
        let digit = (number / place % 10) as u8;
        text.push(b'0' + digit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn instants_have_milliseconds_only_with_a_fraction() {
        assert_eq!(instant(at("2026-01-01T09:00:00Z")), "2026-01-01T09:00:00Z");
        assert_eq!(instant(at("2026-01-01T10:00:00.25+01:00")), "2026-01-01T09:00:00.250Z");
        assert_eq!(instant(at("2026-01-01T09:00:00.007Z")), "2026-01-01T09:00:00.007Z");
        assert_eq!(instant(at("1969-12-31T23:59:59.5Z")), "1969-12-31T23:59:59.500Z");
    }

    #[test]
    fn instants_are_written_as_the_library_writes_them() {
        let (first, last) = (Timestamp::MIN.as_millisecond(), Timestamp::MAX.as_millisecond());
        let step = (last - first) / 20_011;
        for number in 0..20_011 {
            let at = Timestamp::from_millisecond(first + number * step).unwrap();
            let whole = Timestamp::from_second(at.as_second()).unwrap();
            assert_eq!(instant(whole), format!("{whole:.0}"));
            if at.as_millisecond().rem_euclid(1000) != 0 {
                assert_eq!(instant(at), format!("{at:.3}"));
            }
        }
        for text in ["0000-01-01T00:00:00Z", "-000001-12-31T23:59:59Z", "9999-12-30T21:59:59.999Z"] {
            assert_eq!(instant(at(text)), text);
        }
    }

    #[test]
    fn instants_end_in_the_zone_of_their_format() {
        assert_eq!(instant_with_offset(at("2026-01-01T09:00:00Z")), "2026-01-01T09:00:00+00:00");
        assert_eq!(instant_with_offset(at("2026-01-01T09:00:00.5Z")), "2026-01-01T09:00:00.500+00:00");
        assert_eq!(instant_without_zone(at("2026-01-01T09:00:00.5Z")), "2026-01-01T09:00:00.500");
    }

    #[test]
    fn a_payload_is_added_to_an_object() {
        let object = || "{\"a\":1}".to_owned();
        assert_eq!(with_payload(object(), None), r#"{"a":1,"payload":null}"#);
        assert_eq!(with_payload(object(), Some("{}".to_owned())), r#"{"a":1,"payload":{}}"#);
        let long = format!("\"{}\"", "x".repeat(50));
        assert_eq!(with_payload(object(), Some(long.clone())), format!("{{\"a\":1,\"payload\":{long}}}"));
    }

    #[test]
    fn a_fault_hides_its_reason() {
        let response = Response::error(Error::fault("SQLite: no such table: cues"), "id");
        assert_eq!(response.status, 500);
        let body = r#"{"error":{"code":"internal_error","message":"Internal error; the server log has the details under the request id","status":500}}"#;
        assert_eq!(response.body, body);
    }

    #[test]
    fn unavailable_storage_is_503_with_retry_after() {
        let response = Response::error(Error::storage("disk full"), "id");
        assert_eq!(response.status, 503);
        assert_eq!(response.headers[header::RETRY_AFTER], "5");
        assert!(!String::from_utf8_lossy(&response.body).contains("disk"));
    }

    #[test]
    fn a_422_has_a_detail_next_to_the_error() {
        let problem = FieldError {
            kind: "missing",
            loc: vec!["body".into(), "handlers".into(), 2.into()],
            msg: "Field required".to_owned(),
            input: json!({"a": 1}),
        };
        let response = Response::error(Refusal::invalid(vec![problem]).into(), "id");
        assert_eq!(response.status, 422);
        let body: Value = serde_json::from_slice(&response.body).unwrap();
        assert_eq!(body["error"]["code"], "validation_error");
        assert_eq!(
            body["detail"],
            json!([{"type": "missing", "loc": ["body", "handlers", 2], "msg": "Field required", "input": {"a": 1}}])
        );
    }
}
