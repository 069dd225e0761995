//! What a handler answers, and how errors and instants are written. The one place where a `Refusal` becomes HTTP.

use hyper::body::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use jiff::Timestamp;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::domain::api_error::{ErrorCode, FieldError, LocSegment, Refusal};
use crate::error::{Error, Result};

/// Seconds after which a caller may try again when the database file could not be used.
const STORAGE_RETRY_AFTER: u32 = 5;

/// A response: status, rendered body and the headers that are its own. The gate adds those that all have.
#[derive(Debug)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// The body as it is sent.
    pub body: Bytes,
    /// Its own headers, `Content-Type` among them.
    pub headers: HeaderMap,
}

struct PageView<'a, T> {
    name: &'static str,
    entries: &'a [T],
    total: i64,
    limit: i64,
    offset: i64,
}

impl<T: Serialize> Serialize for PageView<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let shown = i64::try_from(self.entries.len()).unwrap_or(i64::MAX);
        let mut body = serializer.serialize_map(Some(5))?;
        body.serialize_entry(self.name, self.entries)?;
        body.serialize_entry("total", &self.total)?;
        body.serialize_entry("limit", &self.limit)?;
        body.serialize_entry("offset", &self.offset)?;
        body.serialize_entry("has_more", &(self.offset.saturating_add(shown) < self.total))?;
        body.end()
    }
}

/// JSON text.
///
/// # Errors
/// [`Error::Fault`] when `body` has no form in JSON.
pub fn text_of(body: &impl Serialize) -> Result<String> {
    serde_json::to_string(body).map_err(|error| Error::Fault(format!("an answer cannot be written: {error}")))
}

impl Response {
    /// 200 with a JSON body.
    #[must_use]
    pub fn ok(value: &Value) -> Self {
        Self::json(StatusCode::OK, value.to_string())
    }

    /// 200 with what writes itself as JSON.
    ///
    /// # Errors
    /// [`Error::Fault`] when it has no form in JSON.
    pub fn from_body(body: &impl Serialize) -> Result<Self> {
        Ok(Self::json(StatusCode::OK, text_of(body)?))
    }

    /// 200 with one page of a longer list: the entries under `name`, `total` in all, `limit` from `offset` on asked for.
    ///
    /// # Errors
    /// As [`Response::from_body`].
    pub fn page(
        name: &'static str,
        entries: &[impl Serialize],
        total: i64,
        limit: i64,
        offset: i64,
    ) -> Result<Self> {
        Self::from_body(&PageView { name, entries, total, limit, offset })
    }

    /// 201 with a JSON body.
    #[must_use]
    pub fn created(value: &Value) -> Self {
        Self::json(StatusCode::CREATED, value.to_string())
    }

    /// 204, which has no body.
    #[must_use]
    pub fn no_content() -> Self {
        Self { status: StatusCode::NO_CONTENT, body: Bytes::new(), headers: HeaderMap::new() }
    }

    /// JSON that is rendered already.
    #[must_use]
    pub fn json(status: StatusCode, text: String) -> Self {
        Self::text(status, "application/json", text)
    }

    /// A page.
    #[must_use]
    pub fn html(status: StatusCode, text: String) -> Self {
        Self::text(status, "text/html; charset=utf-8", text)
    }

    /// Text of any other type.
    #[must_use]
    pub fn text(status: StatusCode, content_type: &'static str, text: String) -> Self {
        let reply = Self { status, body: text.into(), headers: HeaderMap::new() };
        reply.with(header::CONTENT_TYPE, HeaderValue::from_static(content_type))
    }

    /// The same with one more header.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// The answer to a failed request. What is not the caller's to mend goes to the log, with the request's id.
    #[must_use]
    pub fn failed(error: Error, request_id: &str) -> Self {
        Self::refused(&refusal_of(error, request_id))
    }

    fn refused(refusal: &Refusal) -> Self {
        let (code, status) = refusal.code.text_and_status();
        let mut body = json!({"error": {"code": code, "message": refusal.message, "status": status}});
        if refusal.code == ErrorCode::ValidationError {
            body["detail"] = refusal.problems.iter().map(detail).collect();
        }
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut reply = Self::json(status, body.to_string());
        if let Some(seconds) = refusal.retry_after {
            reply = reply.with(header::RETRY_AFTER, seconds.into());
        }
        if status == StatusCode::UNAUTHORIZED {
            reply = reply.with(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        reply
    }
}

/// What a caller is told of an error. What is not the caller's to mend goes to the log, with the request's id.
#[must_use]
pub fn refusal_of(error: Error, request_id: &str) -> Refusal {
    match error {
        Error::Refused(refusal) => refusal,
        Error::Storage(what) => {
            tracing::error!(request_id, error = what, "the database file cannot be used");
            let message = "The service cannot store anything at the moment; try again";
            let refusal = Refusal::new(ErrorCode::StorageUnavailable, message);
            Refusal { retry_after: Some(STORAGE_RETRY_AFTER), ..refusal }
        }
        Error::Fault(what) | Error::Damaged(what) => {
            tracing::error!(request_id, error = what, "a request failed");
            Refusal::new(ErrorCode::InternalError, "Internal error")
        }
    }
}

fn detail(problem: &FieldError) -> Value {
    let loc: Vec<Value> = problem
        .loc
        .iter()
        .map(|step| match step {
            LocSegment::Field(name) => name.as_ref().into(),
            LocSegment::Index(index) => (*index).into(),
        })
        .collect();
    json!({"type": problem.kind, "loc": loc, "msg": problem.msg, "input": problem.input})
}

/// An instant that is written as [`instant`] does.
#[derive(Debug, Clone, Copy)]
pub struct JsonTimestamp(pub Timestamp);

impl Serialize for JsonTimestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(&instant(self.0))
    }
}

/// `2026-01-01T09:00:00Z`; with milliseconds where there is a fraction.
#[must_use]
pub fn instant(at: Timestamp) -> String {
    written(at, "Z")
}

/// As [`instant`], with `+00:00` in place of `Z`: how `next_run` is written.
#[must_use]
pub fn instant_with_offset(at: Timestamp) -> String {
    written(at, "+00:00")
}

/// As [`instant`], without a zone: how health's `timestamp` is written.
#[must_use]
pub fn instant_without_zone(at: Timestamp) -> String {
    written(at, "")
}

fn written(at: Timestamp, zone: &str) -> String {
    // Rounded down, before 1970 too: whole milliseconds are what everything else counts in.
    let milliseconds = at.as_millisecond();
    let precision = if milliseconds.rem_euclid(1000) == 0 { 0 } else { 3 };
    let mut text = format!("{at:.precision$}");
    text.truncate(text.len() - 1);
    text + zone
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn instants_have_milliseconds_only_where_there_is_a_fraction() {
        assert_eq!(instant(at("2026-01-01T09:00:00Z")), "2026-01-01T09:00:00Z");
        assert_eq!(instant(at("2026-01-01T10:00:00.25+01:00")), "2026-01-01T09:00:00.250Z");
        assert_eq!(instant(at("2026-01-01T09:00:00.007Z")), "2026-01-01T09:00:00.007Z");
        assert_eq!(instant(at("1969-12-31T23:59:59.5Z")), "1969-12-31T23:59:59.500Z");
    }

    #[test]
    fn instants_end_with_the_suffix_of_their_field() {
        assert_eq!(instant_with_offset(at("2026-01-01T09:00:00Z")), "2026-01-01T09:00:00+00:00");
        assert_eq!(instant_with_offset(at("2026-01-01T09:00:00.5Z")), "2026-01-01T09:00:00.500+00:00");
        assert_eq!(instant_without_zone(at("2026-01-01T09:00:00.5Z")), "2026-01-01T09:00:00.500");
    }

    #[test]
    fn an_internal_error_response_has_no_reason() {
        let reply = Response::failed(Error::Fault("SQLite: no such table: cues".to_owned()), "id");
        assert_eq!(reply.status, 500);
        let body = r#"{"error":{"code":"internal_error","message":"Internal error","status":500}}"#;
        assert_eq!(reply.body, body);
    }

    #[test]
    fn failing_storage_is_503_with_retry_after() {
        let reply = Response::failed(Error::Storage("disk full".to_owned()), "id");
        assert_eq!(reply.status, 503);
        assert_eq!(reply.headers[header::RETRY_AFTER], "5");
        assert!(!String::from_utf8_lossy(&reply.body).contains("disk"));
    }

    #[test]
    fn a_422_has_detail_next_to_error() {
        let problem = FieldError {
            kind: "missing",
            loc: vec!["body".into(), "handlers".into(), 2.into()],
            msg: "Field required".to_owned(),
            input: json!({"a": 1}),
        };
        let reply = Response::failed(Refusal::invalid(vec![problem]).into(), "id");
        assert_eq!(reply.status, 422);
        let body: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(body["error"]["code"], "validation_error");
        assert_eq!(
            body["detail"],
            json!([{"type": "missing", "loc": ["body", "handlers", 2], "msg": "Field required", "input": {"a": 1}}])
        );
    }
}
