//! The echo path: keeps what a callback brought for a while, so that its sender sees that it arrives.

use std::sync::{MutexGuard, PoisonError};

use hyper::header::{self, HeaderMap, HeaderName};
use serde_json::{Map, Value, json};

use crate::domain::api_error::{FieldError, Refusal};
use crate::domain::json;
use crate::domain::webhook::echo::{Echo, EchoStore, EchoToken};
use crate::error::{Error, Result};
use crate::http::input::validation_errors::clipped;
use crate::http::request::Request;
use crate::http::response::{Response, instant};

/// `POST /v1/echo/{token}`: any JSON. A later one takes the place of an earlier one.
pub async fn receive(request: Request) -> Result<Response> {
    let token = token(&request)?;
    request.json()?;
    let (payload, headers) = (request.body().into(), texts(&request.headers));
    echoes(&request).put(token, Echo { payload, headers, received_at: request.now });
    Ok(Response::ok(&json!({"status": "delivered", "received_at": instant(request.now)})))
}

/// `GET /v1/echo/{token}`
pub async fn show(request: Request) -> Result<Response> {
    let token = token(&request)?;
    let found = echoes(&request).find(&token, request.now);
    let Some(echo) = found else { return Ok(Response::ok(&json!({"status": "waiting"}))) };
    let payload = json::read(&echo.payload).map_err(|error| Error::fault_from("an echo", error))?;
    let headers: Map<String, Value> =
        echo.headers.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    Ok(Response::ok(&json!({
        "status": "delivered",
        "payload": payload,
        "headers": headers,
        "received_at": instant(echo.received_at),
    })))
}

fn echoes(request: &Request) -> MutexGuard<'_, EchoStore> {
    request.app.echoes.lock().unwrap_or_else(PoisonError::into_inner)
}

fn token(request: &Request) -> Result<EchoToken> {
    let text = request.param("token");
    EchoToken::parse(text).ok_or_else(|| {
        let problem = FieldError {
            kind: "string_pattern_mismatch",
            loc: vec!["path".into(), "token".into()],
            msg: format!("String should match pattern '{}'", EchoToken::PATTERN),
            input: clipped(text).into(),
        };
        Refusal::invalid(vec![problem]).into()
    })
}

/// Names and values; those of a name that comes more than once in one, as HTTP reads them. What may be a key of the
/// sender's is not for whoever knows the token.
fn texts(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |name: &HeaderName| {
        let values: Vec<_> =
            headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        if [header::AUTHORIZATION, header::COOKIE].contains(name) {
            "(hidden)".to_owned()
        } else {
            values.join(", ")
        }
    };
    headers.keys().map(|name| (name.as_str().to_owned(), text(name))).collect()
}
