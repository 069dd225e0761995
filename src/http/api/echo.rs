//! `/v1/echo`: stores a received callback for a short time, so that a user can test deliveries without a receiver.

use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderName};
use serde_json::{Map, Value, json};
use std::sync::MutexGuard;

use crate::api::fields::truncated;
use crate::domain::account::rate_limit::rate_limit_address;
use crate::domain::api_error::{FieldError, Refusal};
use crate::domain::ids::CueId;
use crate::domain::json;
use crate::domain::time::instant;
use crate::domain::webhook::echo::{Echo, EchoSender, EchoStore, EchoToken};
use crate::domain::webhook::signature::verify_v1;
use crate::error::{Error, Result};
use crate::http::message::{Request, Response, with_payload};
use crate::store::cues::DeliverySource;
use crate::store::{ReadTx, cues};

/// `POST /v1/echo/{token}`: any JSON value. Replaces the previous one.
pub async fn receive(request: Request) -> Result<Response> {
    let token = token(&request)?;
    request.json()?;
    let sender = sender(&request, &token).await?;
    let (payload, headers) = (request.body().into(), header_texts(&request.headers));
    echoes(&request).put(sender, token, Echo { payload, headers, received_at: request.now });
    Ok(Response::ok(
        &json!({"status": "delivered", "stored": true, "received_at": instant(request.now)}),
    ))
}

pub async fn show(request: Request) -> Result<Response> {
    let token = token(&request)?;
    let found = echoes(&request).find(&token, request.now);
    let Some(echo) = found else {
        return Ok(Response::ok(&json!({"status": "waiting"})));
    };
    let payload = json::read(&echo.payload)
        .map_err(|fault| Error::fault_from("a stored echo is not JSON", fault))?;
    let headers: Map<String, Value> =
        echo.headers.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    let view = json!({"status": "delivered", "headers": headers, "received_at": instant(echo.received_at)});
    let body = with_payload(view.to_string(), Some(payload.into_string()));
    Ok(Response::json(StatusCode::OK, body))
}

fn echoes(request: &Request) -> MutexGuard<'_, EchoStore> {
    request.app.echoes.lock()
}

/// The account of the key, if there is one, or of the cue that a delivery names: all deliveries of this server come from
/// one address. Every receiver learns the ids of the cues that call it, and gets signed bodies. So the account must
/// have signed the delivery, for this echo: no other sender takes from the share of the account.
async fn sender(request: &Request, token: &EchoToken) -> Result<EchoSender> {
    if let Some(caller) = &request.caller {
        return Ok(EchoSender::Account(caller.user_key));
    }
    let address = EchoSender::Address(rate_limit_address(request.client_ip));
    let Some(cue_id) = request.header("x-cueapi-cue-id").and_then(CueId::parse) else {
        return Ok(address);
    };
    let find = move |read: &ReadTx<'_>| cues::find_delivery_source(read, &cue_id);
    let source = request.app.store.read_inline(find).await?;
    let sent_by = source.filter(|source| is_delivery(request, token, source));
    Ok(sent_by.map_or(address, |source| EchoSender::Account(source.user_key)))
}

fn is_delivery(request: &Request, token: &EchoToken, source: &DeliverySource) -> bool {
    let (timestamp, signature) =
        (request.header("x-cueapi-timestamp"), request.header("x-cueapi-signature"));
    let (Some(timestamp), Some(signature)) = (timestamp, signature) else { return false };
    source.callback_url.as_deref().is_some_and(|url| token.is_target_of(url))
        && verify_v1(source.webhook_secret.expose(), timestamp, signature, request.body())
}

fn token(request: &Request) -> Result<EchoToken> {
    let text = request.param("token");
    EchoToken::parse(text).ok_or_else(|| {
        let problem = FieldError {
            kind: "string_pattern_mismatch",
            loc: vec!["path".into(), "token".into()],
            msg: format!("String should match pattern '{}'", EchoToken::PATTERN),
            input: truncated(text).into(),
        };
        Refusal::invalid(vec![problem]).into()
    })
}

/// Returns names and values, with repeated headers joined by commas. Hides credentials of the sender: anybody with the
/// token can read the echo.
fn header_texts(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |name: &HeaderName| {
        let values: Vec<_> = headers
            .get_all(name)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()))
            .collect();
        if [header::AUTHORIZATION, header::COOKIE].contains(name) {
            "(hidden)".to_owned()
        } else {
            values.join(", ")
        }
    };
    headers.keys().map(|name| (name.as_str().to_owned(), text(name))).collect()
}
