//! Compares one request and its response with the document.

use std::sync::LazyLock;

use hyper::header::{HeaderName, HeaderValue};
use hyper::http::response::Parts;

use crate::openapi::{CLOSED, DOCUMENT, Operation, faults, resolved};
use crate::support::*;

/// Headers of HTTP itself and of the server's policy, which the document does not list.
const ALWAYS: [&str; 7] = [
    "cache-control",
    "connection",
    "content-length",
    "content-type",
    "date",
    "transfer-encoding",
    "x-content-type-options",
];

/// The error of a request that is no operation.
static ANY_ERROR: LazyLock<Value> = LazyLock::new(
    || json!({"allOf": [{"$ref": "#/components/schemas/Error"}], "unevaluatedProperties": false}),
);

static INVALID: LazyLock<Value> =
    LazyLock::new(|| json!({"$ref": "#/components/schemas/ValidationError"}));

/// A request as it was sent: its head and the bytes after it.
struct SentRequest<'a> {
    method: String,
    path: String,
    query: String,
    head: Head,
    body: &'a [u8],
}

/// Fails the test whose request got a response that the document does not describe. `sent` is the text of the request;
/// of a request that is not HTTP, or not to our server, an error must have the common form.
#[track_caller]
pub fn check(sent: &[u8], response: &Response) {
    let Some(sent) = parse(sent) else {
        let found = unmatched_problems(response);
        assert!(found.is_empty(), "{}\n{}", found.join("\n"), response.text());
        return;
    };
    let mut found = match Operation::find(&sent.method, &sent.path) {
        Some(operation) => problems(operation, &sent, response),
        None => unmatched_problems(response),
    };
    if response.status >= 400 {
        found.extend(messages_that_name_their_field(response));
    }
    let call = format!("{} {} → {}", sent.method, sent.path, response.status);
    assert!(
        found.is_empty(),
        "{call} is not as openapi.json says:\n{}\n{}",
        found.join("\n"),
        response.text().chars().take(2_000).collect::<String>()
    );
}

/// A message of `detail` stands after the name that its field has where a person reads it: a path, a flag, a label. It
/// neither begins with the field itself nor quotes an endpoint.
fn messages_that_name_their_field(response: &Response) -> Vec<String> {
    let body: Value = serde_json::from_str(&response.text()).unwrap_or_default();
    let details = body["detail"].as_array().into_iter().flatten();
    let is_wrong = |detail: &&Value| {
        let Some(message) = detail["msg"].as_str() else { return false };
        let words = message.trim_start_matches("Value error, ");
        let own = detail["loc"].as_array().into_iter().flatten().rev().find_map(Value::as_str);
        let begins_with = |own: &str| {
            ["", "a ", "an ", "the "].into_iter().any(|article| {
                let rest = words.strip_prefix(article).and_then(|words| words.strip_prefix(own));
                rest.is_some_and(|rest| rest.starts_with([' ', ':']))
            })
        };
        own.is_some_and(begins_with) || words.contains("/v1/")
    };
    details.filter(is_wrong).map(|detail| format!("{} names its field", detail["msg"])).collect()
}

/// Fails the test that received an event which the document does not describe.
#[track_caller]
pub fn check_event(event_type: &str, data: &Value) {
    let schema = &CLOSED["paths"]["/v1/events"]["get"]["x-events"][event_type];
    assert!(schema.is_object(), "the event {event_type} is not in openapi.json");
    let found = faults(&CLOSED, schema, data);
    assert!(
        found.is_empty(),
        "the event {event_type} is not as openapi.json says:\n{}\n{data}",
        found.join("\n")
    );
}

/// As [`check`], for a request of HTTP/2.
#[track_caller]
pub fn check_http2(request: &str, body: &[u8], head: &Parts, received: &[u8]) {
    let header = |(name, value): (&HeaderName, &HeaderValue)| {
        (name.as_str().to_owned(), value.to_str().unwrap().to_owned())
    };
    let headers = head.headers.iter().map(header).collect();
    let response = Response { status: head.status.as_u16(), headers, body: received.to_vec() };
    let sent = format!("{request} HTTP/2\r\nContent-Length: {}\r\n\r\n", body.len());
    check(&[sent.as_bytes(), body].concat(), &response);
}

/// The length of the first request of several.
pub fn request_length(sent: &[u8]) -> usize {
    match parse(sent) {
        Some(first) if header(&first.head.1, "transfer-encoding").is_none() => {
            let length = header(&first.head.1, "content-length").and_then(|text| text.parse().ok());
            sent.len() - first.body.len() + first.body.len().min(length.unwrap_or(0))
        }
        _ => sent.len(),
    }
}

fn parse(sent: &[u8]) -> Option<SentRequest<'_>> {
    let end = sent.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
    let head = read_head(&mut &sent[..end]).ok()??;
    let mut words = head.0.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    target.starts_with('/').then(|| SentRequest {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        head,
        body: &sent[end..],
    })
}

/// A path or a method that does not exist: an error of the common form.
fn unmatched_problems(response: &Response) -> Vec<String> {
    let is_json = response.header("content-type") == Some("application/json");
    if response.status < 400 || !is_json || response.body.is_empty() {
        return Vec::new();
    }
    let schema = if response.status == 422 { &INVALID } else { &ANY_ERROR };
    faults(&CLOSED, schema, &response.json())
}

fn problems(
    operation: &'static Operation,
    sent: &SentRequest<'_>,
    response: &Response,
) -> Vec<String> {
    let Some(described) = operation.response(response.status) else {
        return vec![format!("status {} is not documented", response.status)];
    };
    let mut found = header_problems(described, response);
    // A response to HEAD has the headers of a body only.
    if sent.method != "HEAD" {
        found.extend(body_problems(described, response));
    }
    if response.status < 300 {
        found.extend(query_problems(operation, &sent.query));
        found.extend(request_problems(operation, sent));
    }
    found
}

pub fn body_problems(described: &'static Value, response: &Response) -> Vec<String> {
    let Some(content) = described["content"].as_object() else {
        return if response.body.is_empty() {
            vec![]
        } else {
            vec!["a body is not documented".to_owned()]
        };
    };
    let kind = response.header("content-type").unwrap_or_default();
    let Some(described) = content.get(kind) else {
        return vec![format!("content type {kind:?} is not documented")];
    };
    // The tests that ask for a compressed body compare it with the plain one.
    if !kind.starts_with("application/json") || response.header("content-encoding").is_some() {
        return Vec::new();
    }
    let Ok(body) = serde_json::from_slice::<Value>(&response.body) else {
        return vec!["no JSON".to_owned()];
    };
    let mut found = faults(&CLOSED, &described["schema"], &body);
    if let Some(status) = body["error"]["status"].as_u64()
        && status != u64::from(response.status)
    {
        found.push(format!("error.status is {status}"));
    }
    found
}

fn header_problems(described: &'static Value, response: &Response) -> Vec<String> {
    let own = described["headers"].as_object().into_iter().flatten();
    let every = CLOSED["x-headers-of-every-response"].as_object().unwrap();
    let documented: Vec<(&String, &'static Value)> =
        own.chain(every).map(|(name, it)| (name, resolved(&CLOSED, it))).collect();
    let mut found = Vec::new();
    for (name, described) in &documented {
        let Some(text) = response.header(name) else {
            if described["required"] == true {
                found.push(format!("header {name} is missing"));
            }
            continue;
        };
        let value = typed(&described["schema"], text);
        found.extend(
            faults(&DOCUMENT, &described["schema"], &value)
                .into_iter()
                .map(|it| format!("{name}: {it}")),
        );
    }
    let is_known =
        |name: &str| documented.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
    let unknown = response
        .headers
        .iter()
        .filter(|(name, _)| !ALWAYS.contains(&name.as_str()) && !is_known(name));
    found.extend(unknown.map(|(name, _)| format!("header {name} is not documented")));
    found
}

/// Every known parameter of an accepted request fits its schema.
fn query_problems(operation: &'static Operation, query: &str) -> Vec<String> {
    let pairs: Vec<(String, String)> =
        url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let of = |parameter: &'static Value| {
        let (name, schema) = (parameter.text("name"), &parameter["schema"]);
        let all: Vec<&String> =
            pairs.iter().filter(|(given, _)| given == name).map(|(_, text)| text).collect();
        let value = if schema["type"] == "array" { json!(all) } else { typed(schema, all.last()?) };
        let found = if all.is_empty() { Vec::new() } else { faults(&DOCUMENT, schema, &value) };
        (!found.is_empty()).then(|| format!("the query was accepted: {name}: {}", found.join(", ")))
    };
    operation.parameters("query").filter_map(of).collect()
}

/// The body of an accepted request fits its schema.
fn request_problems(operation: &'static Operation, sent: &SentRequest<'_>) -> Vec<String> {
    let described = &operation.json["requestBody"];
    let Some(content) = described["content"].get("application/json") else { return Vec::new() };
    let length = header(&sent.head.1, "content-length").and_then(|text| text.parse::<usize>().ok());
    if header(&sent.head.1, "transfer-encoding").is_some()
        || length.is_some_and(|length| length != sent.body.len())
    {
        return Vec::new();
    }
    if sent.body.trim_ascii().is_empty() {
        let is_required = described["required"] == true;
        return if is_required {
            vec!["a request without a body was accepted".to_owned()]
        } else {
            vec![]
        };
    }
    let Ok(body) = serde_json::from_slice::<Value>(sent.body) else { return Vec::new() };
    let found = faults(&DOCUMENT, &content["schema"], &body);
    found.into_iter().map(|fault| format!("the request was accepted: {fault}")).collect()
}

/// A header or a parameter as its schema sees it.
fn typed(schema: &'static Value, text: &str) -> Value {
    match schema["type"].as_str() {
        Some("integer") => text.parse::<i64>().map_or_else(|_| text.into(), Value::from),
        Some("boolean") => match text {
            "true" | "1" => true.into(),
            "false" | "0" => false.into(),
            _ => text.into(),
        },
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, body: &Value) -> Response {
        let headers = [
            ("content-type", "application/json"),
            ("x-request-id", "a"),
            ("x-ratelimit-limit", "60"),
            ("x-ratelimit-remaining", "59"),
            ("x-ratelimit-reset", "1893488460"),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Response { status, headers, body: body.to_string().into() }
    }

    const KEYS: &str = "GET /v1/auth/webhook-secret HTTP/1.1\r\n\r\n";

    #[test]
    fn the_first_of_several_requests_is_found() {
        let post = "POST /v1/cues HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(request_length(format!("{post}{KEYS}").as_bytes()), post.len());
        assert_eq!(request_length(format!("{KEYS}{post}").as_bytes()), KEYS.len());
        for rest in ["", "GET / HT", &post[..post.len() - 1]] {
            assert_eq!(request_length(rest.as_bytes()), rest.len());
        }
    }

    #[test]
    fn what_the_document_does_not_say_is_a_fault() {
        let secret = json!({"webhook_secret": "whsec_1"});
        let heartbeat = json!({"acknowledged": true, "server_time": "2030-01-01T09:00:00Z"});
        let cues = json!({"cues": [], "total": 0, "limit": 20, "offset": 0, "has_more": false});
        let unknown = json!({"error": {"code": "cue_not_found", "message": "", "status": 403}});
        let post =
            "POST /v1/worker/heartbeat HTTP/1.1\r\nContent-Length: 16\r\n\r\n{\"worker_id\":\"\"}";
        let table = [
            (KEYS, 200, secret.clone(), ""),
            (KEYS, 200, json!({"webhook_secret": "whsec_1", "extra": 1}), "Unevaluated properties"),
            (KEYS, 200, json!({}), "is a required property"),
            (KEYS, 418, secret, "status 418 is not documented"),
            (KEYS, 403, unknown, "is not one of"),
            (post, 200, heartbeat, "the request was accepted"),
            ("GET /v1/cues?status=lost HTTP/1.1\r\n\r\n", 200, cues, "the query was accepted"),
        ];
        for (sent, status, body, expected) in table {
            let sent = parse(sent.as_bytes()).unwrap();
            let operation = Operation::find(&sent.method, &sent.path).unwrap();
            let found = problems(operation, &sent, &response(status, &body)).join("\n");
            assert!(
                found.contains(expected) && found.is_empty() == expected.is_empty(),
                "{body}: {found}"
            );
        }
        let mut new = response(200, &json!({"webhook_secret": "whsec_1"}));
        new.headers.push(("x-new".to_owned(), "1".to_owned()));
        let sent = parse(KEYS.as_bytes()).unwrap();
        let found = problems(Operation::find("GET", &sent.path).unwrap(), &sent, &new);
        assert_eq!(found, ["header x-new is not documented"]);
        let no_error = response(400, &json!({"error": {"code": "bad_request"}}));
        assert!(!unmatched_problems(&no_error).is_empty());
    }
}
