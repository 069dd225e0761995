//! The test call of a callback in the API: the body of its request and its result (contract §6.11).

use serde::Serialize;

use crate::api::cue::test_callback;
use crate::api::fields::JsonFields;
use crate::domain::api_error::Refusal;
use crate::domain::cue::Payload;
use crate::domain::execution::attempt::{AttemptEnd, FailureCause, MAX_SHOWN_BODY, shown_body};
use crate::domain::json::JsonText;
use crate::domain::test_call::TestCallResult;
use crate::domain::time::JsonTimestamp;
use crate::domain::webhook::address_policy::AddressPolicy;
use crate::domain::webhook::callback::{Callback, Method};

/// Parses the body: the callback of a cue, checked as in a create, and a payload. Unknown fields are errors: a header
/// that is ignored would change what the test says.
pub fn new_test_call(
    mut fields: JsonFields<'_>,
    policy: &AddressPolicy,
) -> Result<(Callback, Option<Payload>), Refusal> {
    let callback = fields.required().object("callback").map(|mut callback| {
        if callback.any("url").is_none() {
            callback.add_missing("url");
        }
        test_callback(callback, policy)
    });
    let payload = fields.dictionary("payload");
    fields.forbid_unknown();
    let callback = fields.finish_with(callback)??;
    Ok((callback, payload.map(Payload::new).transpose()?))
}

/// The result, with the names of an attempt and of its request (contract §5.8, §5.9).
#[derive(Debug, Serialize)]
pub struct TestCallView<'a> {
    result: &'static str,
    started_at: JsonTimestamp,
    duration_ms: u128,
    cause: Option<&'static str>,
    http_status: Option<u16>,
    error_message: Option<&'a str>,
    response_headers: Option<&'a JsonText>,
    response_body: Option<&'a str>,
    response_truncated: bool,
    request: TestRequestView<'a>,
}

/// Without the body, which can be large; its sender has it.
#[derive(Debug, Serialize)]
struct TestRequestView<'a> {
    method: &'static str,
    url: &'a str,
    headers: &'a [(String, String)],
}

impl<'a> TestCallView<'a> {
    pub fn new(method: Method, url: &'a str, result: &'a TestCallResult) -> Self {
        let end = if result.cause.is_none() { AttemptEnd::Success } else { AttemptEnd::Failed };
        let body = result.response_body.as_deref();
        Self {
            result: end.as_str(),
            started_at: JsonTimestamp(result.started_at),
            duration_ms: result.duration.as_millis(),
            cause: result.cause.map(FailureCause::as_str),
            http_status: result.http_status,
            error_message: result.error_message.as_deref(),
            response_headers: result.response_headers.as_ref(),
            response_body: body.map(shown_body),
            response_truncated: body.is_some_and(|body| body.len() > MAX_SHOWN_BODY),
            request: TestRequestView {
                method: method.as_str(),
                url,
                headers: result.request_headers.expose(),
            },
        }
    }
}
