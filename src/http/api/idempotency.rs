//! Reads the idempotency key of a request, from the header or the body (contract §4.14).

use hyper::StatusCode;
use hyper::header::HeaderName;
use serde_json::Value;

use crate::api::fields::JsonFields;
use crate::domain::account::credentials::sha256;
use crate::domain::api_error::{FieldError, LocSegment, Refusal};
use crate::error::{Error, Result};
use crate::http::request::Request;
use crate::http::response::Response;
use crate::service::idempotency::{IdempotencyRequest, StoredResponse};

const HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// The field of a body that has the same meaning as the header.
const FIELD: &str = "idempotency_key";

const MAX_KEY: usize = 255;

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

/// The response that was stored under a key, or that would be.
pub fn from_stored(stored: StoredResponse) -> Response {
    Response::json(StatusCode::from_u16(stored.status).unwrap_or(StatusCode::OK), stored.body)
}

fn invalid(loc: [LocSegment; 2], reason: &str, input: Value) -> Error {
    let msg = format!("Value error, {reason}");
    Refusal::invalid(vec![FieldError { kind: "value_error", loc: loc.into(), msg, input }]).into()
}
