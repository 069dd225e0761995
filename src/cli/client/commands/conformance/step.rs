//! A step of the scenarios: its request, and whether the response is as expected.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::cli::client::commands::conformance::values::{difference, text};
use crate::cli::error::{CliError, failed};
use crate::client::request::{ApiRequest, ApiResponse, METHODS};
use crate::domain::account::credentials::without_secrets;
use crate::domain::text::one_line;

/// What a request with `until` may take, and a response of any other.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Characters of each part of a difference.
pub const SHOWN: usize = 300;

/// Refusals that say how much the account holds, not what the server does.
const LIMITS: [&str; 4] = [
    "cue_limit_exceeded",
    "execution_limit_exceeded",
    "key_limit_exceeded",
    "storage_limit_exceeded",
];

#[derive(Debug, Clone)]
pub struct Difference {
    pub request: String,
    pub expected: String,
    pub came: String,
}

/// Why a promise does not hold, or is not known to.
#[derive(Debug, Clone)]
pub enum Miss {
    Differs(Box<Difference>),
    /// With the reason.
    NotChecked(String),
    /// Not checked either: the account is full, in the words of the server.
    NoRoom(String),
}

/// Why no further step is run.
pub enum Stop {
    Missed(Miss),
    /// The command ends.
    Failed(CliError),
}

impl From<Miss> for Stop {
    fn from(miss: Miss) -> Self {
        Self::Missed(miss)
    }
}

impl From<CliError> for Stop {
    fn from(error: CliError) -> Self {
        Self::Failed(error)
    }
}

pub struct Step<'a> {
    pub request: &'a str,
    pub body: &'a Value,
    pub expected: &'a str,
    pub rest: Map<String, Value>,
    pub key: &'a str,
}

impl<'a> Step<'a> {
    pub fn read(line: &'a Value, key: &'a str) -> Result<Self, CliError> {
        let (request, after) =
            line.as_array().and_then(|it| it.split_first()).unwrap_or((&Value::Null, &[]));
        let (body, after) = match after {
            [Value::String(_), ..] => (&Value::Null, after),
            [body, after @ ..] => (body, after),
            [] => (&Value::Null, after),
        };
        match (request.as_str(), after.first().and_then(Value::as_str)) {
            (Some(request), Some(expected)) => {
                let rest = after.get(1).and_then(Value::as_object).cloned().unwrap_or_default();
                Ok(Self { request, body, expected, rest, key })
            }
            _ => Err(failed(format!("this is no step: {line}"))),
        }
    }

    /// The same request with other expectations.
    pub fn with(&self, promise: &Value) -> Self {
        Self { rest: promise.as_object().cloned().unwrap_or_default(), ..*self }
    }

    pub fn fields(&self, name: &str) -> impl Iterator<Item = (&String, &Value)> {
        self.rest.get(name).and_then(Value::as_object).into_iter().flatten()
    }

    pub fn api_request(&self) -> Result<ApiRequest, CliError> {
        let (method, path) = self.request.split_once(' ').unwrap_or((self.request, ""));
        let method = METHODS.into_iter().find(|known| *known == method);
        let method =
            method.ok_or_else(|| failed(format!("there is no request {:?}", self.request)))?;
        let mut request = ApiRequest::new(method, path).timeout(PATIENCE);
        for (name, value) in self.fields("send") {
            request.is_anonymous |= name == "authorization";
            if !value.is_null() {
                request = request.header(name.clone(), text(value));
            }
        }
        Ok(match self.rest.get("text") {
            Some(body) => request.json(text(body)),
            None if self.body.is_null() => request,
            None => request.json(self.body),
        })
    }

    pub fn check(&self, response: &ApiResponse) -> Result<(), Miss> {
        let mut words = self.expected.split(' ');
        let (status, code, loc) = (words.next(), words.next(), words.next());
        let body = body_of(response);
        let came = &body["error"]["code"];
        if code != came.as_str() && LIMITS.iter().any(|limit| came == limit) {
            return Err(Miss::NoRoom(self.reason(response, &body)));
        }
        let has = match (status, code, loc) {
            (_, None, _) => json!({}),
            (Some("422"), Some(kind), Some(loc)) => {
                let step = |step: &str| {
                    step.parse::<u64>().map_or_else(|_| json!(step), |index| json!(index))
                };
                let loc: Vec<Value> = loc.split('.').map(step).collect();
                json!({"detail": ["{has}", {"type": kind, "loc": loc}]})
            }
            (_, Some(code), _) => json!({"error": {"code": code}}),
        };
        let is_status = status.is_some_and(|status| status == response.status.to_string());
        if !is_status || (code.is_some() && difference(&has, Some(&body), "").is_some()) {
            return Err(self.differs(self.expected.to_owned(), shown(response)));
        }
        self.check_parts(response)
    }

    /// Everything but the status and the code.
    pub fn check_parts(&self, response: &ApiResponse) -> Result<(), Miss> {
        for (name, expected) in self.fields("headers") {
            let value = response.header(name).map(|value| json!(value));
            if let Some((_, expected, came)) = difference(expected, value.as_ref(), "") {
                return Err(self.differs(format!("{name}: {expected}"), format!("{name}: {came}")));
            }
        }
        if let Some((at, expected, came)) =
            self.rest.get("has").and_then(|has| difference(has, Some(&body_of(response)), ""))
        {
            let came = if at.is_empty() { shown(response) } else { came };
            return Err(self.differs(format!("{at} {expected}"), came));
        }
        match self.rest.get("body") {
            Some(body) if *body != response.text() => {
                Err(self.differs(format!("the body {body}"), shown(response)))
            }
            _ => Ok(()),
        }
    }

    pub fn differs(&self, expected: String, came: String) -> Miss {
        let mut request = self.request.to_owned();
        for (name, value) in self.fields("send") {
            request += &format!("  {name}: {}", text(value));
        }
        let body = self.rest.get("text").or(Some(self.body).filter(|body| !body.is_null()));
        let body = body.map(|body| format!("  {}", text(body))).unwrap_or_default();
        let request = self.brief(&(request + &body), SHOWN / 2);
        let (expected, came) = (self.brief(&expected, SHOWN), self.brief(&came, SHOWN));
        Miss::Differs(Box::new(Difference { request, expected, came }))
    }

    /// Why a group is not checked, by a response.
    pub fn reason(&self, response: &ApiResponse, body: &Value) -> String {
        let message = body["error_message"].as_str().or(body["error"]["message"].as_str());
        self.brief(&message.map_or_else(|| shown(response), str::to_owned), SHOWN)
    }

    /// The beginning of a text, without secrets. A key of another server has no form that tells it.
    pub fn brief(&self, text: &str, max_chars: usize) -> String {
        let hidden =
            if self.key.is_empty() { text.to_owned() } else { text.replace(self.key, "…") };
        one_line(&without_secrets(&hidden), max_chars)
    }
}

pub fn body_of(response: &ApiResponse) -> Value {
    serde_json::from_slice(&response.body).unwrap_or_default()
}

/// The status and the body, which is cut once it has no secrets.
pub fn shown(response: &ApiResponse) -> String {
    format!("{} {}", response.status, response.text())
}
