//! Failures of a request to the API, the exit code of each, and which of them are retried.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use thiserror::Error as ThisError;

use crate::client::credentials::CredentialsError;

/// Error codes that name a limit of the account (contract §2.4).
const LIMITS: [&str; 3] = ["cue_limit_exceeded", "execution_limit_exceeded", "storage_limit_exceeded"];

/// Attempts of a request, the first one included.
const MAX_ATTEMPTS: u32 = 4;

/// Before the second attempt; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// A server that asks for a longer pause is not asked again: a command should not seem to hang.
const MAX_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug, ThisError)]
pub enum ClientError {
    #[error("cannot reach {url}: {source}; is `cued serve` running there? (--url or CUED_URL)")]
    Unreachable { url: String, source: ureq::Error },
    #[error("{url} did not answer in time ({source})")]
    NoAnswer { url: String, source: ureq::Error },
    #[error("{url} answers with status {status} and no answer of cued; check --url or CUED_URL")]
    NotCued { url: String, status: u16 },
    #[error(
        "the answer has an unexpected form ({0}): the server is older than this client, or no cued; check --url or CUED_URL"
    )]
    UnexpectedAnswer(#[source] serde_json::Error),
    #[error("{0}")]
    Refused(Box<RefusedRequest>),
    #[error("not signed in: run `cued login`, set CUED_API_KEY, or name a stored profile by --profile")]
    NotSignedIn,
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// The file of `--ca` is not usable.
#[derive(Debug, ThisError)]
pub enum CertificateError {
    #[error("cannot read {path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{path} is no certificate authority in PEM: {source}")]
    Pem { path: PathBuf, source: ureq::Error },
    #[error("{0} is no certificate authority in PEM: it has no `BEGIN CERTIFICATE` block")]
    Empty(PathBuf),
}

/// An answer of the server that is an error.
#[derive(Debug, Clone, PartialEq, ThisError)]
#[error("{message}{}", self.details())]
pub struct RefusedRequest {
    pub status: u16,
    pub code: String,
    pub message: String,
    /// The server's wish before the next request.
    pub retry_after: Option<Duration>,
    /// The answer as it came.
    pub body: Value,
}

impl RefusedRequest {
    /// The error of an answer with a status other than 2xx.
    pub fn read(status: u16, retry_after: Option<&str>, body: &[u8], url: &str) -> ClientError {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |name: &str| body["error"][name].as_str().map(str::to_owned);
        let (Some(code), Some(message)) = (text("code"), text("message")) else {
            return ClientError::NotCued { url: url.to_owned(), status };
        };
        let retry_after = retry_after.and_then(|seconds| seconds.trim().parse().ok());
        let retry_after = retry_after.map(Duration::from_secs);
        ClientError::Refused(Box::new(Self { status, code, message, retry_after, body }))
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

    pub fn is_limit(&self) -> bool {
        self.status == 429 || LIMITS.contains(&self.code.as_str())
    }
}

impl ClientError {
    /// The status of the answer, if there was one.
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

    /// A repetition may succeed soon. An untrusted certificate stays untrusted, and a server that is slow to answer would be
    /// as slow again.
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

    /// The pause before the attempt after `attempt`; `None` if there is none.
    pub fn pause_before_retry(&self, attempt: u32) -> Option<Duration> {
        let pause = self.retry_after().unwrap_or(FIRST_PAUSE * 2_u32.pow(attempt.min(MAX_ATTEMPTS) - 1));
        (self.is_transient() && attempt < MAX_ATTEMPTS && pause <= MAX_PAUSE).then_some(pause)
    }

    /// 1: the server cannot be reached or has failed. 3: not found. 4: not signed in. 5: refused. 6: a limit.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotSignedIn => 4,
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
            | Self::NoAnswer { .. }
            | Self::NotCued { .. }
            | Self::UnexpectedAnswer(_) => 1,
        }
    }

    /// The error as JSON: that of the server unchanged, or one of the same form.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Refused(refused) => refused.body.clone(),
            _ => {
                serde_json::json!({"error": {"code": self.code(), "message": self.to_string(), "status": null}})
            }
        }
    }

    /// The code of the server, or one of the client.
    pub fn code(&self) -> &str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::NoAnswer { .. } => "no_answer",
            Self::NotCued { .. } | Self::UnexpectedAnswer(_) => "unexpected_answer",
            Self::NotSignedIn => "not_signed_in",
            Self::Credentials(_) => "credentials",
            Self::Certificate(_) => "certificate",
            Self::Refused(refused) => &refused.code,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(status: u16, body: &Value) -> ClientError {
        RefusedRequest::read(status, Some("7"), body.to_string().as_bytes(), "http://x")
    }

    #[test]
    fn each_status_has_its_exit_code() {
        let with = |status: u16, code: &str| {
            refused(status, &json!({"error": {"code": code, "message": "m", "status": status}})).exit_code()
        };
        assert_eq!(with(401, "invalid_api_key"), 4);
        assert_eq!(with(404, "cue_not_found"), 3);
        assert_eq!(with(409, "conflict"), 5);
        assert_eq!(with(403, "cue_limit_exceeded"), 6);
        assert_eq!(with(429, "rate_limit_exceeded"), 6);
        assert_eq!(with(503, "unavailable"), 1);
        assert_eq!(refused(502, &json!({"x": 1})).exit_code(), 1, "no answer of cued");
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
            [1, 2, 3, 4].map(|attempt| error.pause_before_retry(attempt).map(|pause| pause.as_millis()))
        };
        let unreachable = |source| ClientError::Unreachable { url: "http://x".to_owned(), source };
        let refused_connection = || unreachable(ureq::Error::ConnectionFailed);
        assert_eq!(pauses(&refused_connection()), [Some(250), Some(500), Some(1_000), None]);
        assert_eq!(pauses(&unreachable(ureq::Error::Timeout(ureq::Timeout::Connect)))[0], Some(250));
        let (url, source) = ("http://x".to_owned(), ureq::Error::Timeout(ureq::Timeout::Global));
        assert_eq!(pauses(&ClientError::NoAnswer { url, source })[0], None);
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
