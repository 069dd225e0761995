//! A request to the API and its answer.

use std::borrow::Cow;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::form_urlencoded::byte_serialize;

use crate::client::Connection;
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

    /// The command of curl that makes the same request. It expects the key in `CUED_API_KEY`.
    pub fn curl(&self, connection: &Connection) -> String {
        let mut parts = vec!["curl".to_owned()];
        if let Some(ca) = &connection.tls.ca {
            parts.push(format!("--cacert {}", shell_word(&ca.display().to_string())));
        }
        if connection.tls.is_insecure {
            parts.push("--insecure".to_owned());
        }
        if self.headers.iter().any(|(name, value)| *name == "accept" && value == "text/event-stream") {
            parts.push("--no-buffer".to_owned());
        }
        match self.method {
            "GET" => {}
            // With `-X HEAD` curl would wait for a body.
            "HEAD" => parts.push("--head".to_owned()),
            method => parts.push(format!("-X {method}")),
        }
        parts.push(shell_word(&format!("{}{}", connection.url, self.target())));
        if !self.is_anonymous {
            // In double quotes, so that the shell puts in the key.
            parts.push("-H \"Authorization: Bearer $CUED_API_KEY\"".to_owned());
        }
        for (name, value) in &self.headers {
            parts.push(format!("-H {}", shell_word(&format!("{name}: {value}"))));
        }
        if let Some(body) = &self.body {
            if !self.has_header("content-type") {
                parts.push("-H 'Content-Type: application/json'".to_owned());
            }
            parts.push(format!("--data-raw {}", shell_word(body)));
        }
        parts.join(" ")
    }
}

/// The characters that a segment of a path escapes: not the marks of ids. A dot is escaped, because `..` leads out of a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// A text as one segment of a path.
pub fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// A text as one word of a shell.
fn shell_word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// The usual words for the status; empty for an unknown one.
    pub reason: &'static str,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    /// A header's value, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }

    /// The body as text: the JSON of the server unchanged.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Errors: if the body is no JSON object: the server is not `cued`.
    pub fn value(&self) -> Result<Value, ClientError> {
        let object: serde_json::Map<String, Value> = self.read()?;
        Ok(Value::Object(object))
    }

    pub fn read<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        serde_json::from_slice(&self.body).map_err(ClientError::UnexpectedAnswer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::TlsOptions;

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

    #[test]
    fn a_command_of_curl_names_the_key_and_does_not_show_it() {
        let key = Some("cue_sk_secret".to_owned());
        let connection = Connection { url: "http://pi:8000".to_owned(), key, tls: TlsOptions::default() };
        assert_eq!(
            ApiRequest::get("/v1/cues").query("limit", "2").curl(&connection),
            "curl 'http://pi:8000/v1/cues?limit=2' -H \"Authorization: Bearer $CUED_API_KEY\""
        );
        let body = r#"'{"name":"it'\''s"}'"#;
        assert_eq!(
            ApiRequest::post("/v1/cues").json(r#"{"name":"it's"}"#).anonymous().curl(&connection),
            format!(
                "curl -X POST http://pi:8000/v1/cues -H 'Content-Type: application/json' --data-raw {body}"
            )
        );
    }
}
