//! A request to the API, its answer, and its failures: the exit code of each, and which of them are retried.

use std::borrow::Cow;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use thiserror::Error as ThisError;
use url::form_urlencoded::{Serializer, byte_serialize};

use crate::client::Connection;
use crate::client::credentials::CredentialsError;
use crate::domain::certificate;
use crate::domain::text::shell_word;

pub const METHODS: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];

/// One request. `path` is from the root of the server, with its ids encoded by [`segment`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiRequest {
    pub method: &'static str,
    pub path: String,
    pub query: Vec<(Cow<'static, str>, String)>,
    pub headers: Vec<(Cow<'static, str>, String)>,
    pub body: Option<String>,
    pub is_anonymous: bool,
    /// Timeout of the whole exchange, if it is not the usual one.
    pub timeout: Option<Duration>,
    /// The longest time without a byte of the answer: that of a stream, which has no usual timeout.
    pub read_timeout: Option<Duration>,
}

impl ApiRequest {
    pub fn new(method: &'static str, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), ..Self::default() }
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

    pub fn query(self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        self.maybe_query(name, Some(value))
    }

    /// Adds a field of the query if there is a value.
    pub fn maybe_query(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: Option<impl Into<String>>,
    ) -> Self {
        self.query.extend(value.map(|value| (name.into(), value.into())));
        self
    }

    pub fn header(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub fn has_header(&self, name: &str) -> bool {
        self.headers.iter().any(|(it, _)| it.eq_ignore_ascii_case(name))
    }

    pub fn json(mut self, body: impl ToString) -> Self {
        self.body = Some(body.to_string());
        self
    }

    pub fn form(mut self, fields: &[(&str, &str)]) -> Self {
        self.body = Some(Serializer::new(String::new()).extend_pairs(fields).finish());
        self.header("content-type", "application/x-www-form-urlencoded")
    }

    /// With a key of idempotency, a repetition has the same answer and no second effect.
    pub fn idempotent(self) -> Self {
        let key = uuid::Uuid::new_v4().to_string();
        self.header("idempotency-key", key)
    }

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
        matches!(self.method, "GET" | "HEAD" | "PUT" | "DELETE")
            || self.has_header("idempotency-key")
    }

    /// The path and the query, as in the first line of the request.
    pub fn target(&self) -> String {
        let mut target = self.path.clone();
        for (index, (name, value)) in self.query.iter().enumerate() {
            let separator = if index == 0 && !self.path.contains('?') { '?' } else { '&' };
            let [name, value]: [String; 2] =
                [name, value.as_str()].map(|text| byte_serialize(text.as_bytes()).collect());
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
        if self.read_timeout.is_some() {
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

/// The characters that a segment of a path escapes: not the marks of ids. A dot is escaped, because `..` leads out of a
/// path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

pub fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiResponse {
    pub status: u16,
    /// The usual words for the status; empty for an unknown one.
    pub reason: &'static str,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl ApiResponse {
    /// A header's value, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }

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

/// Attempts of a request, the first one included.
const MAX_ATTEMPTS: u32 = 4;

/// Before the second attempt; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// A server that asks for a longer pause is not asked again: a command should not seem to hang.
const MAX_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug, ThisError)]
pub enum ClientError {
    #[error(
        "cannot reach {url}: {}; is `cued serve` running there? (--url or CUED_URL)",
        cause(source)
    )]
    Unreachable { url: String, source: ureq::Error },
    #[error("{url} did not answer in time ({source})")]
    ConnectionFailed { url: String, source: ureq::Error },
    #[error("{url} answers with status {status} and no answer of cued; check --url or CUED_URL")]
    NotCued { url: String, status: u16 },
    #[error("this is not a cued server, or an older one ({0}); check --url or CUED_URL")]
    UnexpectedAnswer(#[source] serde_json::Error),
    #[error("{0}")]
    Refused(Box<RefusedRequest>),
    #[error(
        "not signed in: run `cued login`, set CUED_API_KEY, or name a stored profile by --profile"
    )]
    NotSignedIn,
    /// A key is stored for another name of the same server.
    #[error(
        "no key is stored for {url}; profile {profile} is for {stored}: use that, or `cued login {url}`"
    )]
    OtherName { url: String, profile: String, stored: String },
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The file of `--ca` is not usable.
    #[error("{0}")]
    Certificate(String),
}

/// Why there was no answer: of an error of the system only its words.
fn cause(error: &ureq::Error) -> String {
    if let Some(fault) = certificate::fault(&error.to_string(), "--ca") {
        return fault;
    }
    let ureq::Error::Io(error) = error else { return error.to_string() };
    match error.raw_os_error() {
        Some(number) => {
            error.to_string().replace(&format!(" (os error {number})"), "").to_lowercase()
        }
        None => error.to_string(),
    }
}

#[derive(Debug, Clone, PartialEq, ThisError)]
#[error("{}", self.text())]
pub struct RefusedRequest {
    pub status: u16,
    pub code: String,
    pub message: String,
    /// The server's wish before the next request.
    pub retry_after: Option<Duration>,
    /// The answer as it came.
    pub body: Value,
    /// The refusal in the words of the command, in place of those of the server.
    reworded: Option<String>,
}

impl RefusedRequest {
    /// The error of an answer with a status other than 2xx.
    pub fn read(answer: &ApiResponse, url: &str) -> ClientError {
        let status = answer.status;
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let text = |name: &str| body["error"][name].as_str().map(str::to_owned);
        let (Some(code), Some(message)) = (text("code"), text("message")) else {
            return ClientError::NotCued { url: url.to_owned(), status };
        };
        // A date, the other form of this header, counts as absent.
        let retry_after =
            answer.header("retry-after").and_then(|seconds| seconds.trim().parse().ok());
        let retry_after = retry_after.map(Duration::from_secs);
        ClientError::Refused(Box::new(Self {
            status,
            code,
            message,
            retry_after,
            body,
            reworded: None,
        }))
    }

    pub fn say(&mut self, text: String) {
        self.reworded = Some(text);
    }

    pub fn is_reworded(&self) -> bool {
        self.reworded.is_some()
    }

    fn text(&self) -> String {
        self.reworded.clone().unwrap_or_else(|| format!("{}{}", self.message, self.details()))
    }

    /// The fields that the server refuses, each on a line.
    fn details(&self) -> String {
        let line = |detail: &Value| {
            let loc: Vec<String> = detail["loc"]
                .as_array()?
                .iter()
                .map(|part| part.as_str().map_or_else(|| part.to_string(), str::to_owned))
                .collect();
            let reason = detail["msg"].as_str()?.trim_start_matches("Value error, ");
            Some(format!("\n  {}: {reason}", loc.join(".")))
        };
        let lines: Vec<String> =
            self.body["detail"].as_array().into_iter().flatten().filter_map(line).collect();
        match &lines[..] {
            // The message is the same.
            [_] => String::new(),
            _ => lines.concat(),
        }
    }

    /// It names a limit of the account, or one of the pace (contract §2.4).
    pub fn is_limit(&self) -> bool {
        self.status == 429 || (self.status == 403 && self.code.ends_with("_limit_exceeded"))
    }
}

impl ClientError {
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused(refused) => Some(refused.status),
            Self::NotCued { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// The server's wish before the next request.
    pub fn retry_after(&self) -> Option<Duration> {
        if let Self::Refused(refused) = self { refused.retry_after } else { None }
    }

    /// A repetition may succeed soon. An untrusted certificate stays untrusted, and a server that is slow to answer
    /// would be as slow again.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { source: ureq::Error::Io(error), .. } => {
                error.kind() != std::io::ErrorKind::InvalidData
            }
            Self::Unreachable { source, .. } => {
                matches!(source, ureq::Error::ConnectionFailed | ureq::Error::Timeout(_))
            }
            Self::Refused(refused) => matches!(refused.status, 429 | 502..=504),
            Self::NotCued { status, .. } => (502..=504).contains(status),
            _ => false,
        }
    }

    /// The same request may succeed later: the server is away, busy or on hold.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Refused(refused) => matches!(refused.status, 408 | 409 | 429 | 500..),
            _ => self.exit_code() == 1,
        }
    }

    /// The pause before the attempt after `attempt`; `None` if there is none.
    pub fn pause_before_retry(&self, attempt: u32) -> Option<Duration> {
        let pause =
            self.retry_after().unwrap_or(FIRST_PAUSE * 2_u32.pow(attempt.min(MAX_ATTEMPTS) - 1));
        (self.is_transient() && attempt < MAX_ATTEMPTS && pause <= MAX_PAUSE).then_some(pause)
    }

    /// 1: the server cannot be reached or has failed. 3: not found. 4: not signed in. 5: refused. 6: a limit.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotSignedIn | Self::OtherName { .. } => 4,
            Self::Refused(refused) if refused.is_limit() => 6,
            Self::Refused(refused) => match refused.status {
                401 => 4,
                404 => 3,
                400..500 => 5,
                _ => 1,
            },
            Self::Credentials(CredentialsError::BadUrl(_)) | Self::Certificate(_) => 2,
            Self::Credentials(_) => 4,
            Self::Unreachable { .. }
            | Self::ConnectionFailed { .. }
            | Self::NotCued { .. }
            | Self::UnexpectedAnswer(_) => 1,
        }
    }

    /// The error as JSON: that of the server unchanged, or one of the same form.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Refused(refused) => refused.body.clone(),
            _ => {
                json!({"error": {"code": self.code(), "message": self.to_string(), "status": null}})
            }
        }
    }

    /// The code of the server, or one of the client.
    pub fn code(&self) -> &str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::ConnectionFailed { .. } => "no_answer",
            Self::NotCued { .. } | Self::UnexpectedAnswer(_) => "unexpected_answer",
            Self::NotSignedIn | Self::OtherName { .. } => "not_signed_in",
            Self::Credentials(_) => "credentials",
            Self::Certificate(_) => "certificate",
            Self::Refused(refused) => &refused.code,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_has_the_path_and_the_encoded_query() {
        let request =
            ApiRequest::get("/v1/cues").query("q", "a b&c").maybe_query("tag", None::<String>);
        assert_eq!(request.query("limit", "2").target(), "/v1/cues?q=a+b%26c&limit=2");
        assert_eq!(ApiRequest::get("/v1/cues?a=1").query("b", "2").target(), "/v1/cues?a=1&b=2");
        assert_eq!(segment("a/b é"), "a%2Fb%20%C3%A9");
        assert_eq!(segment("cue_1-x.."), "cue_1-x%2E%2E");
    }

    #[test]
    fn a_request_is_repeatable_by_its_method_or_its_key() {
        let [get, delete] = [ApiRequest::get("/"), ApiRequest::delete("/")];
        assert!(
            [get, delete, ApiRequest::post("/").idempotent()].iter().all(ApiRequest::is_repeatable)
        );
        assert!(
            ![ApiRequest::post("/"), ApiRequest::patch("/")].iter().any(ApiRequest::is_repeatable)
        );
    }

    fn refused(status: u16, body: &Value) -> ClientError {
        let headers = vec![("retry-after".to_owned(), "7".to_owned())];
        let answer =
            ApiResponse { status, reason: "", headers, body: body.to_string().into_bytes() };
        RefusedRequest::read(&answer, "http://x")
    }

    #[test]
    fn the_refused_fields_are_named() {
        let body = json!({
            "detail": [{"loc": ["body", "name"], "msg": "Value error, too long"}, {"loc": ["body", "tags", 1], "msg": "no"}],
            "error": {"code": "validation_error", "message": "The request is invalid", "status": 422},
        });
        assert_eq!(
            refused(422, &body).to_string(),
            "The request is invalid\n  body.name: too long\n  body.tags.1: no"
        );
        assert_eq!(refused(422, &body).to_json(), body);
    }

    #[test]
    fn what_may_succeed_soon_is_tried_three_times_again() {
        let pauses = |error: &ClientError| {
            [1, 2, 3, 4]
                .map(|attempt| error.pause_before_retry(attempt).map(|pause| pause.as_millis()))
        };
        let unreachable = |source| ClientError::Unreachable { url: "http://x".to_owned(), source };
        let refused_connection = || unreachable(ureq::Error::ConnectionFailed);
        assert_eq!(pauses(&refused_connection()), [Some(250), Some(500), Some(1_000), None]);
        assert_eq!(
            pauses(&unreachable(ureq::Error::Timeout(ureq::Timeout::Connect)))[0],
            Some(250)
        );
        let (url, source) = ("http://x".to_owned(), ureq::Error::Timeout(ureq::Timeout::Global));
        assert_eq!(pauses(&ClientError::ConnectionFailed { url, source })[0], None);
        let error = |status| refused(status, &json!({"error": {"code": "c", "message": "m"}}));
        assert_eq!(pauses(&error(503)), [Some(7_000), Some(7_000), Some(7_000), None]);
        assert_eq!(pauses(&error(500))[0], None);
        let mut busy = error(429);
        if let ClientError::Refused(refused) = &mut busy {
            refused.retry_after = Some(MAX_PAUSE + FIRST_PAUSE);
        }
        assert_eq!(pauses(&busy)[0], None);
    }
}
