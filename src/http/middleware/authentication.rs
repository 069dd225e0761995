//! The API key of a request: who sent it, which rate limit it counts against, how near the quota is.

use hyper::header::{self, HeaderMap};
use jiff::Timestamp;

use crate::app::App;
use crate::domain::account::credentials::ApiKey;
use crate::domain::account::quota::is_nearly_used_up;
use crate::domain::account::user::Caller;
use crate::error::Result;
use crate::http::limits::buffer_budget::BufferOwner;
use crate::http::middleware::context::RequestContext;
use crate::http::middleware::rate_limiter::RateLimitKey;
use crate::http::middleware::state::ServerState;
use crate::store::accounts::api_keys::{self, Owner};
use crate::store::accounts::usage;

/// Finds the owner of the API key and counts the request against a rate limit.
///
/// A request with a valid key counts for its user. Every other request counts for the client address, also one with an
/// invalid key: otherwise a client could guess keys without a limit.
pub async fn authenticate(
    server: &ServerState,
    context: &mut RequestContext,
    headers: &HeaderMap,
) -> Result<Option<Caller>> {
    let found = match bearer_token(headers) {
        Some(token) => find_caller(&server.app, token, context.now).await,
        None => Ok(None),
    };
    let key = match &found {
        Ok(Some(caller)) => RateLimitKey::User(caller.user_key, caller.limits.requests_per_minute),
        _ => RateLimitKey::Address(context.client_ip),
    };
    context.rate_limit = server.rate_limiter.admit(key, context.now);
    let caller = found?;
    context.user_id = caller.as_ref().map(|caller| caller.user_id.clone());
    if let Some(caller) = &caller {
        context.owner = BufferOwner::Account(caller.user_key);
    }
    context.near_quota =
        caller.as_ref().is_some_and(|caller| is_nearly_used_up(caller.limits.executions, caller.executions));
    Ok(caller)
}

/// Returns whether this request itself created the execution that brought the user near the quota.
///
/// Reads the usage only if one more execution can make the difference.
pub async fn reached_near_quota(server: &ServerState, caller: &Caller, context: &RequestContext) -> bool {
    let (user_key, limit, now) = (caller.user_key, caller.limits.executions, context.now);
    if !is_nearly_used_up(limit, caller.executions + 1) {
        return false;
    }
    match server.app.store.read_inline_single(move |read| usage::find(read, user_key, now)).await {
        Ok(month) => is_nearly_used_up(limit, month.executions),
        Err(error) => {
            // The handler has finished its work; the next response carries the header instead.
            tracing::warn!(request_id = context.id, error = %error, "cannot read the monthly usage");
            false
        }
    }
}

async fn find_caller(app: &App, token: &str, now: Timestamp) -> Result<Option<Caller>> {
    let Some(key) = ApiKey::parse(token) else { return Ok(None) };
    let key_hash = key.hash();
    let found = app.store.read_inline_single(move |read| api_keys::find_owner(read, &key_hash, now)).await?;
    Ok(found.map(|Owner { key, user_key, user_id, plan, executions }| {
        let limits = app.config.plans.limits(&plan);
        Caller { user_key, user_id, key, key_hash, plan, limits, executions }
    }))
}

/// Returns the token of `Authorization: Bearer TOKEN`. A missing, repeated or malformed header counts as none.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim_start();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && !token.contains(' ')).then_some(token)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn the_key_is_read_from_exactly_one_bearer_header() {
        let token = |values: &[&str]| {
            let value = |text: &&str| (header::AUTHORIZATION, HeaderValue::from_str(text).unwrap());
            bearer_token(&values.iter().map(value).collect()).map(str::to_owned)
        };
        for valid in ["Bearer cue_sk_1", "bearer cue_sk_1", "BEARER   cue_sk_1", "Bearer cue_sk_1 "] {
            assert_eq!(token(&[valid]).as_deref(), Some("cue_sk_1"), "{valid}");
        }
        for invalid in
            ["cue_sk_1", "Bearer", "Bearer ", "Basic cue_sk_1", "Bearer a b", "Bearer\tcue_sk_1", ""]
        {
            assert_eq!(token(&[invalid]), None, "{invalid}");
        }
        assert_eq!(token(&[]), None);
        assert_eq!(token(&["Bearer a", "Bearer a"]), None);
    }
}
