//! A request to the API and its answer.

use std::borrow::Cow;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::form_urlencoded::byte_serialize;

use crate::client::error::ClientError;

/// One request. `path` is from the root of the server, with its ids encoded by [`segment`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiRequest {
    pub method: &'static str,
    pub path: String,
    pub query: Vec<(&'static str, String)>,
    pub headers: Vec<(Cow<'static, str>, String)>,
    /// JSON.
    pub body: Option<String>,
    /// Sent without the key.
    pub is_anonymous: bool,
    /// Of the whole exchange, if it is not the usual one.
    pub timeout: Option<Duration>,
}

impl ApiRequest {
    pub fn new(method: &'static str, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            query: Vec::new(),
            headers: Vec::new(),
            body: None,
            is_anonymous: false,
            timeout: None,
        }
    }

    pub fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path)
    }

    pub fn post(path: impl Into<String>) -> Self {
        Self::new("POST", path)
    }

    pub fn patch(path: impl Into<String>) -> Self {
        Self::new("PATCH", path)
    }

    pub fn delete(path: impl Into<String>) -> Self {
        Self::new("DELETE", path)
    }

    /// Adds a field of the query.
    pub fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    /// Adds a field of the query if there is a value.
    pub fn maybe_query(self, name: &'static str, value: Option<impl Into<String>>) -> Self {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    pub fn header(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Returns `true` if the request has a header of this name, in any case.
    pub fn has_header(&self, name: &str) -> bool {
        self.headers.iter().any(|(it, _)| it.eq_ignore_ascii_case(name))
    }

    /// Sets the body to the text of a JSON value.
    pub fn json(mut self, body: impl ToString) -> Self {
        self.body = Some(body.to_string());
        self
    }

    /// Sets the body to the fields of a form.
    pub fn form(mut self, fields: &[(&str, &str)]) -> Self {
        let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
        let fields = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
        self.body = Some(fields.collect::<Vec<_>>().join("&"));
        self.header("content-type", "application/x-www-form-urlencoded")
    }

    /// With a key of idempotency, a repetition has the same answer and no second effect.
    pub fn idempotent(self) -> Self {
        let key = uuid::Uuid::new_v4().to_string();
        self.header("idempotency-key", key)
    }

    /// Without the key of the account.
    pub fn anonymous(mut self) -> Self {
        self.is_anonymous = true;
        self
    }

    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// A repetition has the effect of one request.
    pub fn is_repeatable(&self) -> bool {
        matches!(self.method, "GET" | "HEAD" | "PUT" | "DELETE") || self.has_header("idempotency-key")
    }

    /// The path and the query, as in the first line of the request.
    pub fn target(&self) -> String {
        let mut target = self.path.clone();
        for (index, (name, value)) in self.query.iter().enumerate() {
            let separator = if index == 0 && !self.path.contains('?') { '?' } else { '&' };
            let value: String = byte_serialize(value.as_bytes()).collect();
            target.push_str(&format!("{separator}{name}={value}"));
        }
        target
    }
}

/// The characters that a segment of a path escapes: not the marks of ids. A dot is escaped, because `..` leads out of a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// A text as one segment of a path.
pub fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// An answer as it came, whatever its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawAnswer {
    pub status: u16,
    /// The usual words for the status; empty for an unknown one.
    pub reason: &'static str,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl RawAnswer {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// A header's value, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }
}

/// An answer of success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub content_type: Option<String>,
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as text: the JSON of the server unchanged.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Errors: if the body is no JSON object: the server is not `cued`.
    pub fn value(&self) -> Result<Value, ClientError> {
        let object: serde_json::Map<String, Value> = self.read()?;
        Ok(Value::Object(object))
    }

    /// Errors: if the body is no JSON of this shape.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        serde_json::from_slice(&self.body).map_err(ClientError::UnexpectedAnswer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_has_the_path_and_the_encoded_query() {
        let request = ApiRequest::get("/v1/cues").query("q", "a b&c").maybe_query("tag", None::<String>);
        assert_eq!(request.query("limit", "2").target(), "/v1/cues?q=a+b%26c&limit=2");
        assert_eq!(ApiRequest::get("/v1/cues?a=1").query("b", "2").target(), "/v1/cues?a=1&b=2");
        assert_eq!(segment("a/b é"), "a%2Fb%20%C3%A9");
        assert_eq!(segment("cue_1-x.."), "cue_1-x%2E%2E");
    }

    #[test]
    fn a_request_is_repeatable_by_its_method_or_its_key() {
        let is_repeatable = |request: ApiRequest| request.is_repeatable();
        assert!(is_repeatable(ApiRequest::get("/")) && is_repeatable(ApiRequest::delete("/")));
        assert!(!is_repeatable(ApiRequest::post("/")) && !is_repeatable(ApiRequest::patch("/")));
        assert!(is_repeatable(ApiRequest::post("/").idempotent()));
    }
}
