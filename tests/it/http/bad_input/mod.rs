//! Invalid requests of every kind, each with its status, code and, for a 422, its problem.

mod callbacks;
mod fields;
mod paths;

use crate::support::*;

/// A request and its expected response.
pub struct Case {
    name: String,
    method: &'static str,
    path: String,
    body: Vec<u8>,
    expected: Expected,
}

enum Expected {
    /// Expects success, which shows that the other rows fail for their fault only.
    Accepted(u16),
    Refused(u16, &'static str),
    /// Expects a 422 whose `detail` includes this type at this location.
    Invalid(&'static str, &'static str),
}

impl Case {
    pub fn new(method: &'static str, path: &str, body: &Value) -> Self {
        Self::raw(
            method,
            path,
            if body.is_null() { Vec::new() } else { body.to_string().into_bytes() },
        )
    }

    pub fn raw(method: &'static str, path: &str, body: impl Into<Vec<u8>>) -> Self {
        let (path, expected) = (path.to_owned(), Expected::Accepted(200));
        Self { name: String::new(), method, path, body: body.into(), expected }
    }

    pub fn get(path: &str) -> Self {
        Self::raw("GET", path, "")
    }

    pub fn post(path: &str, body: &Value) -> Self {
        Self::new("POST", path, body)
    }

    /// Creates [`good_cue`] with `field` (a path with dots) set to `value`.
    fn cue(field: &str, value: Value) -> Self {
        Self::post("/v1/cues", &changed(good_cue(), field, Some(value))).named(field)
    }

    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    pub fn accepted(mut self, status: u16) -> Self {
        self.expected = Expected::Accepted(status);
        self
    }

    pub fn expect_error(mut self, status: u16, code: &'static str) -> Self {
        self.expected = Expected::Refused(status, code);
        self
    }

    pub fn invalid(mut self, kind: &'static str, loc: &'static str) -> Self {
        self.expected = Expected::Invalid(kind, loc);
        self
    }

    /// The difference between the response and the expected one, if any.
    fn fault(&self, response: &Response) -> Option<String> {
        let json: Value = match (response.status, serde_json::from_slice(&response.body)) {
            (204, _) => Value::Null,
            (_, Ok(json)) => json,
            (status, Err(error)) => {
                return Some(format!("{status} with a body that is no JSON: {error}"));
            }
        };
        let (status, code) = match self.expected {
            Expected::Accepted(status) => (status, None),
            Expected::Refused(status, code) => (status, Some(code)),
            Expected::Invalid(..) => (422, Some("validation_error")),
        };
        if response.status != status {
            return Some(format!(
                "expected {status} {}, came {} {json:.300}",
                code.unwrap_or(""),
                response.status
            ));
        }
        let code = code?;
        let error = &json["error"];
        let message = error["message"].as_str().unwrap_or_default();
        if error["code"] != code || error["status"] != status || message.is_empty() {
            return Some(format!("expected {code}, came {json}"));
        }
        match self.expected {
            Expected::Invalid(kind, loc) => problem_missing(&json["detail"], kind, loc),
            _ => None,
        }
    }
}

/// A webhook cue that any server accepts.
fn good_cue() -> Value {
    json!({
        "name": "nightly",
        "schedule": {"type": "recurring", "cron": "0 9 * * *"},
        "callback": {"url": "https://hooks.example.com/cue"},
    })
}

fn changed(mut value: Value, path: &str, new: Option<Value>) -> Value {
    let mut place = &mut value;
    let mut names = path.split('.').peekable();
    while let Some(name) = names.next() {
        let object = place.as_object_mut().unwrap();
        if names.peek().is_some() {
            place = object.entry(name).or_insert_with(|| json!({}));
        } else if let Some(new) = new {
            object.insert(name.to_owned(), new);
            break;
        } else {
            object.remove(name);
            break;
        }
    }
    value
}

fn problem_missing(detail: &Value, kind: &str, loc: &str) -> Option<String> {
    let step = |step: &Value| step.as_str().map_or_else(|| step.to_string(), str::to_owned);
    let place = |problem: &Value| {
        problem["loc"].as_array().map(|loc| loc.iter().map(step).collect::<Vec<_>>().join("."))
    };
    let is_it = |problem: &Value| {
        problem["type"] == kind
            && place(problem).as_deref() == Some(loc)
            && problem["msg"].is_string()
    };
    let found = detail.as_array().is_some_and(|problems| problems.iter().any(is_it));
    (!found).then(|| format!("expected {kind} at {loc}, came {detail}"))
}

/// A server with the default address policy and without limits.
fn server() -> Server {
    Server::start(&["--registration", "open", "--limits", "off"])
}

/// Sends every row and reports all failures together.
pub fn check(client: &Client, cases: impl IntoIterator<Item = Case>) {
    let mut faults = Vec::new();
    let mut sent = 0;
    for case in cases {
        sent += 1;
        let fault = match client.call(case.method, &case.path, &[], &case.body) {
            Ok(response) => case.fault(&response).or_else(|| headers_missing(&response)),
            Err(error) => Some(error.to_string()),
        };
        let body = String::from_utf8_lossy(&case.body).chars().take(200).collect::<String>();
        faults.extend(fault.map(|fault| {
            format!("{} [{} {} {body}]\n    {fault}", case.name, case.method, case.path)
        }));
    }
    assert!(faults.is_empty(), "{} of {sent} rows:\n{}", faults.len(), faults.join("\n"));
}

fn headers_missing(response: &Response) -> Option<String> {
    let wanted =
        ["x-request-id", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
    let missing: Vec<&str> =
        wanted.into_iter().filter(|name| response.header(name).is_none()).collect();
    (!missing.is_empty()).then(|| format!("{} without {missing:?}", response.status))
}
