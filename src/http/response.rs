//! The response of a handler, and the format of errors. The only place that turns a `Refusal` into HTTP.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};

use crate::domain::api_error::{ErrorCode, FieldError, LocSegment, Refusal};
use crate::error::{Error, Result};

/// `Retry-After` in seconds while the database cannot be used (contract §2.4).
const STORAGE_RETRY_AFTER: u32 = 5;

/// The bytes of a gzip file (RFC 1952) before and after the deflated content; the last four are the length of the text.
const GZIP_HEAD: usize = 10;
const GZIP_TAIL: usize = 8;

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

/// Adds the field `payload`, stored text that is JSON, to a serialized object.
pub fn with_payload(mut object: String, payload: Option<String>) -> String {
    object.pop();
    object.push_str(",\"payload\":");
    enclosed(object, payload.unwrap_or_else(|| "null".to_owned()), "}")
}

/// Adds the field `payload_text`, the stored payload as a string, to a serialized object. No reader of JSON changes the
/// numbers in it.
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

/// Appends the JSON of `value`.
pub fn append_json(text: &mut Vec<u8>, value: &impl Serialize) -> Result<()> {
    serde_json::to_writer(text, value)
        .map_err(|error| Error::fault_from("a response could not be written as JSON", error))
}

/// Serializes a body as JSON.
pub fn to_json(body: &impl Serialize) -> Result<String> {
    let mut text = Vec::with_capacity(1_024);
    append_json(&mut text, body)?;
    String::from_utf8(text).map_err(|error| Error::fault_from("JSON is not UTF-8", error))
}

impl Response {
    pub fn ok(value: &Value) -> Self {
        Self::json(StatusCode::OK, value.to_string())
    }

    /// 200 with a serialized body.
    pub fn from_body(body: &impl Serialize) -> Result<Self> {
        Ok(Self::json(StatusCode::OK, to_json(body)?))
    }

    pub fn created(value: &Value) -> Self {
        Self::json(StatusCode::CREATED, value.to_string())
    }

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
            Refusal::new(ErrorCode::StorageUnavailable, message).retry_after(STORAGE_RETRY_AFTER)
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

/// A text of the program.
#[derive(Debug, Clone, Copy)]
pub struct CompressedText<'a> {
    pub content_type: &'static str,
    pub gzip: &'static [u8],
    /// Without quotes: another text at the same path has another version.
    pub version: &'a str,
}

impl CompressedText<'_> {
    /// Responds with the text in an encoding that the client accepts, or with 304 if the client has this version.
    /// Errors: [`Error::Fault`] if `inflated`, the text for clients that do not accept gzip, is `None`.
    pub fn respond(&self, headers: &HeaderMap, inflated: impl FnOnce() -> Option<Bytes>) -> Result<Response> {
        // The strong tag belongs to the bytes of one encoding (RFC 9110, 8.8.3.3); the weak one is that of the other one.
        let is_gzip = accepts_gzip(headers);
        let strong = format!("\"{}\"", self.version);
        let etag = if is_gzip { format!("W/{strong}") } else { strong.clone() };
        let etag = HeaderValue::from_str(&etag)
            .map_err(|error| Error::fault_from("the version of a text is not a header", error))?;
        let known = headers.get_all(header::IF_NONE_MATCH).iter();
        let is_known = known.filter_map(|value| value.to_str().ok()).any(|value| is_match(value, &strong));
        let response = if is_known {
            Response { status: StatusCode::NOT_MODIFIED, ..Response::no_content() }
        } else if is_gzip {
            Response::text(StatusCode::OK, self.content_type, Bytes::from_static(self.gzip))
                .with(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"))
        } else {
            let damaged = || Error::fault("a text of the program cannot be decompressed");
            Response::text(StatusCode::OK, self.content_type, inflated().ok_or_else(damaged)?)
        };
        let vary = HeaderValue::from_static("accept-encoding");
        Ok(response.with(header::ETAG, etag).with(header::VARY, vary))
    }
}

/// Decompresses a gzip file; `None` if it is damaged.
pub fn inflate(gzip: &[u8]) -> Option<Bytes> {
    let content = gzip.get(GZIP_HEAD..gzip.len().checked_sub(GZIP_TAIL)?)?;
    let length = usize::try_from(u32::from_le_bytes(*gzip.last_chunk()?)).ok()?;
    miniz_oxide::inflate::decompress_to_vec_with_limit(content, length).ok().map(Bytes::from)
}

/// Returns whether an `If-None-Match` contains the tag, also in the weak form that compressing proxies make of it.
fn is_match(value: &str, etag: &str) -> bool {
    value.split(',').map(str::trim).any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}

/// Returns whether the client names gzip and does not refuse it with the weight 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().trim_start_matches(['q', 'Q', '=', ' ']);
        name.trim().eq_ignore_ascii_case("gzip") && !weight.parse().is_ok_and(|weight: f32| weight == 0.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_value_without_a_json_form_is_an_error() {
        let map = std::collections::HashMap::from([((1, 2), 3)]);
        assert!(to_json(&map).is_err());
    }

    #[test]
    fn a_damaged_file_is_no_text() {
        for file in [&[][..], &[0; 17], &[0xff; 40]] {
            assert_eq!(inflate(file), None, "{file:?}");
        }
    }
}
