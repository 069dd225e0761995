//! Reads the idempotency key of a request, from the header or the body (contract §4.14).

use hyper::StatusCode;
use hyper::header::HeaderName;
use serde::Serialize;
use serde_json::{Value, json};

use crate::api::fields::JsonFields;
use crate::domain::account::credentials::sha256;
use crate::domain::api_error::{ErrorCode, FieldError, LocSegment, Refusal};
use crate::error::{Error, Result};
use crate::http::input::targets::ANSWER_BYTES;
use crate::http::request::Request;
use crate::http::response::Response;
use crate::service::bulk::{BulkCall, IN_PROGRESS, MAX_MATCHED};
use crate::service::idempotency::{IdempotencyRequest, StoredResponse};

const HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// The field of a body that has the same meaning as the header.
const FIELD: &str = "idempotency_key";

/// Most bytes of a key.
const MAX_KEY: usize = 255;

/// Reads the key from the body.
pub fn read_key(fields: &mut JsonFields<'_>) -> Option<String> {
    let key = fields.string(FIELD, 1..=MAX_KEY)?;
    if !key.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        fields.reject(FIELD, "an idempotency_key has 1 to 255 visible ASCII characters");
    }
    Some(key)
}

/// Returns the `Idempotency-Key` of a request, with a fingerprint of its route and body: the same key on a different
/// request is a conflict. `in_body` is the key of the body, if there is one.
/// Errors: 422 for a header of another form, or one that differs from the body.
pub fn idempotency_request(
    request: &Request,
    route: &str,
    in_body: Option<String>,
) -> Result<Option<IdempotencyRequest>> {
    let in_header = match request.headers.get(HEADER).map(|value| value.to_str()) {
        None => None,
        Some(Ok(key)) if (1..=MAX_KEY).contains(&key.len()) => Some(key.to_owned()),
        Some(_) => {
            return Err(invalid(
                ["header".into(), "Idempotency-Key".into()],
                "an Idempotency-Key has 1 to 255 visible ASCII characters",
                Value::Null,
            ));
        }
    };
    if let (Some(header), Some(body)) = (&in_header, &in_body)
        && header != body
    {
        let reason = "it differs from the header Idempotency-Key; send only one of the two";
        return Err(invalid(["body".into(), FIELD.into()], reason, Value::from(body.as_str())));
    }
    let Some(key) = in_header.or(in_body) else { return Ok(None) };
    let content = [route.as_bytes(), b"\n", request.body()].concat();
    Ok(Some(IdempotencyRequest { key, fingerprint: sha256(&content) }))
}

/// As [`idempotency_request`], for an action on many objects.
/// Errors: as [`idempotency_request`].
pub fn bulk_call(request: &Request, route: &str) -> Result<Option<BulkCall>> {
    let (code, status) = ErrorCode::InvalidState.text_and_status();
    let body = json!({"error": {"code": code, "message": IN_PROGRESS, "status": status}}).to_string();
    let in_progress = StoredResponse { status, body };
    let call = idempotency_request(request, route, None)?;
    Ok(call.map(|request| BulkCall { request, in_progress }))
}

/// Runs an action on many objects to its end, also if the client disconnects: a half of it would be done, and a repetition
/// with the same key would find no answer. The stop of the program ends it between two writes.
pub async fn run_to_end(
    action: impl Future<Output = Result<StoredResponse>> + Send + 'static,
) -> Result<Response> {
    let done = tokio::spawn(action).await;
    let done = done.map_err(|error| Error::fault_from("an action on many objects was interrupted", error))?;
    done.map(from_stored)
}

/// The objects that a request is for, without a change.
#[derive(Debug, Serialize)]
struct DryRunView<'a> {
    matched: usize,
    dry_run: bool,
    ids: &'a [String],
    has_more: bool,
}

/// The answer to a dry run. Of the objects that match it names as many as a request may change.
pub fn dry_run(request: &Request, mut ids: Vec<String>) -> Result<Response> {
    let has_more = ids.len() > MAX_MATCHED;
    ids.truncate(MAX_MATCHED);
    request.reserve_response(ids.len() * ANSWER_BYTES)?;
    Response::from_body(&DryRunView { matched: ids.len(), dry_run: true, ids: &ids, has_more })
}

/// The response that was stored under a key, or that would be.
pub fn from_stored(stored: StoredResponse) -> Response {
    Response::json(StatusCode::from_u16(stored.status).unwrap_or(StatusCode::OK), stored.body)
}

fn invalid(loc: [LocSegment; 2], reason: &str, input: Value) -> Error {
    let msg = format!("Value error, {reason}");
    Refusal::invalid(vec![FieldError { kind: "value_error", loc: loc.into(), msg, input }]).into()
}
