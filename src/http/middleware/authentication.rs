//! The API key or the session of a request: who sent it, which rate limit it counts against, how near the quota is.

use std::net::IpAddr;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;

use crate::app::App;
use crate::domain::account::credentials::ApiKey;
use crate::domain::account::plan::is_nearly_used_up;
use crate::domain::account::session::{REQUESTS_PER_MINUTE, SessionToken, is_to_record};
use crate::domain::account::user::{Caller, Credential};
use crate::domain::api_error::ErrorCode;
use crate::error::{Error, Result};
use crate::http::limits::budget::Owner as MemoryOwner;
use crate::http::middleware::browser_guard::RequestSource;
use crate::http::middleware::context::RequestContext;
use crate::http::middleware::session_cookie::SessionCookie;
use crate::http::middleware::{RateKey, ServerState};
use crate::http::router::Access;
use crate::service::accounts::sessions;
use crate::store::accounts::api_keys::{self, Owner};
use crate::store::accounts::sessions::{self as stored, SessionOwner};
use crate::store::accounts::usage;

/// The id of the account that a page was opened as. Another tab may have signed in as another account since, and the cookie
/// is that of all tabs: the page then has no session, so that it changes nothing of that account.
const ACCOUNT_ID: HeaderName = HeaderName::from_static("x-account-id");

/// Finds the owner of the API key or the session, and counts the request against a rate limit.
///
/// A request with a valid key counts for its user, one of a session in a window of its own, so that an open page takes
/// nothing from the user's programs. Every other request counts for the client address, also one with an invalid key:
/// otherwise a client could guess keys without a limit.
/// Errors: 403 `cross_site_request` for a request by session that a page of another site sent. It counts for the
/// client address too: otherwise such a page could use up the window of the user's own page.
pub async fn authenticate(
    server: &ServerState,
    context: &mut RequestContext,
    source: &RequestSource<'_>,
    peer: IpAddr,
    access: Option<Access>,
) -> Result<Option<Caller>> {
    let headers = source.headers;
    // The header wins, valid or not, so that nothing changes for programs. Routes without a key need no session: a page
    // of another site then cannot use one there.
    let found = if headers.contains_key(header::AUTHORIZATION) {
        match bearer_token(headers) {
            Some(token) => find_key_owner(&server.app, token, context.now).await,
            None => Ok(None),
        }
    } else if access == Some(Access::ApiKey) {
        find_session_owner(server, context, source, peer).await
    } else {
        Ok(None)
    };
    match &found {
        Ok(Some(caller)) if caller.credential.session_id().is_some() => {
            context.count(server, RateKey::Sessions(caller.user_key), Some(REQUESTS_PER_MINUTE));
        }
        Ok(Some(caller)) => {
            context.count(server, RateKey::User(caller.user_key), caller.limits.requests_per_minute);
        }
        _ => context.count_for_address(server),
    }
    let caller = found?;
    context.user_id = caller.as_ref().map(|caller| caller.user_id.clone());
    if let Some(caller) = &caller {
        context.owner = MemoryOwner::Account(caller.user_key);
    }
    context.near_quota =
        caller.as_ref().is_some_and(|caller| is_nearly_used_up(caller.limits.executions, caller.executions));
    Ok(caller)
}

/// Returns whether a key or a session is still valid, for a request that lasts.
pub async fn is_valid(app: &App, credential: &Credential, now: Timestamp) -> Result<bool> {
    match credential {
        Credential::ApiKey { hash, .. } => Ok(read_key_owner(app, *hash, now).await?.is_some()),
        Credential::Session { hash, .. } => Ok(read_session(app, *hash, now).await?.is_some()),
    }
}

/// Returns whether this request itself created the execution that brought the user near the quota.
///
/// Reads the usage only if one more execution can make the difference.
pub async fn reached_near_quota(server: &ServerState, caller: &Caller, context: &RequestContext) -> bool {
    let (user_key, limit, now) = (caller.user_key, caller.limits.executions, context.now);
    if !is_nearly_used_up(limit, caller.executions + 1) {
        return false;
    }
    match server.app.store.read_inline(move |read| usage::find(read, user_key, now)).await {
        Ok(month) => is_nearly_used_up(limit, month.executions),
        Err(error) => {
            // The handler has finished its work; the next response carries the header instead.
            tracing::warn!(request_id = context.id, error = %error, "cannot read the monthly usage");
            false
        }
    }
}

async fn find_key_owner(app: &App, token: &str, now: Timestamp) -> Result<Option<Caller>> {
    let Some(key) = ApiKey::parse(token) else { return Ok(None) };
    let hash = key.hash();
    let found = read_key_owner(app, hash, now).await?;
    Ok(found.map(|owner| {
        let credential = Credential::ApiKey { key: owner.key, hash };
        caller(app, credential, owner.user_key, owner.user_id, owner.plan, owner.executions)
    }))
}

/// Finds the owner of the session whose token the cookie has. Once a day the session gets a later end, and the response
/// the cookie.
async fn find_session_owner(
    server: &ServerState,
    context: &mut RequestContext,
    source: &RequestSource<'_>,
    peer: IpAddr,
) -> Result<Option<Caller>> {
    let (app, now) = (&server.app, context.now);
    let cookie = SessionCookie::of_request(app, peer, source.headers, source.host);
    let mut found = find_sessions(app, &cookie, source.headers, now).await?;
    if found.iter().any(|(_, session)| session.user_key != found[0].1.user_key) {
        return Err(of_several_accounts());
    }
    if found.is_empty() {
        return Ok(None);
    }
    let (token, owner) = found.swap_remove(0);
    if let Some(route) = context.route {
        server.browser_guard.check_session_request(&route.method, source)?;
    }
    let hash = token.hash_at(&cookie.origin);
    // While the file cannot be written, each request would try.
    if is_to_record(owner.seen_at, now) && app.store.is_writable() {
        let (write, expires_at) = sessions::record_seen(app, owner.user_key, hash, owner.created_at, now);
        match write.await {
            Ok(()) => context.set_cookie = Some(cookie.set(&token, now, expires_at)?),
            // The session stays valid until its present end.
            Err(error) => tracing::warn!(%error, "cannot record that a session was seen"),
        }
    }
    let credential = Credential::Session { id: owner.id, api_key: owner.api_key_key, hash };
    Ok(Some(caller(app, credential, owner.user_key, owner.user_id, owner.plan, owner.executions)))
}

/// The sessions that are valid among those whose tokens the cookies have, and of the account that the request names.
async fn find_sessions(
    app: &App,
    cookie: &SessionCookie,
    headers: &HeaderMap,
    now: Timestamp,
) -> Result<Vec<(SessionToken, SessionOwner)>> {
    let account = headers.get(ACCOUNT_ID).map(HeaderValue::as_bytes);
    let mut sessions = Vec::new();
    for token in cookie.read(headers) {
        let found = read_session(app, token.hash_at(&cookie.origin), now).await?;
        let found = found.filter(|found| account.is_none_or(|id| id == found.user_id.as_bytes()));
        sessions.extend(found.map(|found| (token, found)));
    }
    Ok(sessions)
}

/// The keys of the users whose sessions the browser of a sign-in has already.
pub async fn signed_in_users(
    app: &App,
    cookie: &SessionCookie,
    headers: &HeaderMap,
    now: Timestamp,
) -> Result<Vec<i64>> {
    let found = find_sessions(app, cookie, headers, now).await?;
    Ok(found.into_iter().map(|(_, session)| session.user_key).collect())
}

/// A program at another port of the host can set our cookie too: nothing is done in an account that it may have chosen.
fn of_several_accounts() -> Error {
    let message =
        "The request has cookies of several accounts; name one as X-Account-Id, or delete the cookies";
    Error::refused(ErrorCode::InvalidApiKey, message)
}

fn caller(
    app: &App,
    credential: Credential,
    user_key: i64,
    user_id: String,
    plan: String,
    executions: i64,
) -> Caller {
    let limits = app.config.plans.limits(&plan);
    Caller { user_key, user_id, credential, plan, limits, executions }
}

async fn read_key_owner(app: &App, hash: [u8; 32], now: Timestamp) -> Result<Option<Owner>> {
    app.store.read_inline(move |read| api_keys::find_owner(read, &hash, now)).await
}

/// Finds a valid session, in memory or in the file. One in memory has no row, and is never recorded as seen.
async fn read_session(app: &App, hash: [u8; 32], now: Timestamp) -> Result<Option<SessionOwner>> {
    let unstored = app.unstored_sessions.lock().find(&hash, now).cloned();
    let Some(unstored) = unstored else {
        return app.store.read_inline(move |read| stored::find_owner(read, &hash, now)).await;
    };
    let owner = read_key_owner(app, unstored.key_hash, now).await?;
    Ok(owner.map(|owner| SessionOwner {
        key: 0,
        id: unstored.session.id,
        api_key_key: Some(owner.key),
        created_at: unstored.session.created_at,
        seen_at: now,
        user_key: owner.user_key,
        user_id: owner.user_id,
        plan: owner.plan,
        executions: owner.executions,
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
