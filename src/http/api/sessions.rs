//! `/v1/auth/session`: sessions of browsers, and one-time links that begin one (contract §3.11).

use hyper::header::{self, HeaderMap};
use serde_json::{Value, json};

use crate::api::fields::JsonFields;
use crate::domain::account::credentials::ApiKey;
use crate::domain::account::device_login::DeviceCode;
use crate::domain::account::rate_limit::rate_limit_address;
use crate::domain::account::session::{MAX_FAILED_SIGN_INS, Session, SessionToken, device_name};
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::time::instant;
use crate::error::{Error, Result};
use crate::http::list::ListBody;
use crate::http::message::{Request, Response};
use crate::http::middleware::authentication::{RequestSource, host_name};
use crate::http::middleware::session::{SessionCookie, base_url, check_sign_in, signed_in_users};
use crate::service::sessions::{self, NewSession, NewSessionLink, SignIn};

/// Characters of a credential in a request: any text is looked up.
const MAX_CREDENTIAL: usize = 1_000;

/// Headers of proxies: a request with one comes from another machine, whatever its peer is.
const PROXY_HEADERS: [&str; 5] =
    ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"];

/// The names of the hosts that are this machine for every browser.
const LOOPBACK_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// `POST /v1/auth/session {api_key | device_code | link_token, switch_account | dev}`
pub async fn begin(request: Request) -> Result<Response> {
    check_sign_in(&request.headers)?;
    let mut fields = request.fields()?;
    let credential = read_credential(&mut fields);
    fields.finish()?;
    let credential =
        credential.ok_or_else(|| Error::fault("a sign-in has no credential after validation"))?;
    if matches!(credential, Credential::Dev) && !permits_dev(&request) {
        return Err(dev_refused(&request));
    }
    // Also an address with too many failures has its credential looked up: a valid one cannot be guessed, and one
    // device must not lock out all others behind the same proxy.
    let client = rate_limit_address(request.client_ip);
    let refused_for = request.app.sign_ins.lock().admit(client, request.app.clock.now_moving());
    let cookie = cookie_of(&request);
    let result = sign_in(&request, &cookie, credential).await;
    match (refused_for, result.as_ref().is_err_and(is_failure)) {
        (Some(seconds), true) => return Err(too_many_failures(seconds)),
        (None, false) => request.app.sign_ins.lock().return_unused(client),
        _ => {}
    }
    let NewSession { token, session, user, .. } = result?;
    let body = json!({
        "user": {"id": user.id, "email": user.email, "plan": user.plan, "is_operator": user.is_operator},
        "session": {"id": session.id, "expires_at": instant(session.expires_at)},
    });
    let cookie = cookie.set(&token, request.now, session.expires_at)?;
    Ok(Response::created(&body).with(header::SET_COOKIE, cookie))
}

pub async fn end_own(request: Request) -> Result<Response> {
    let caller = request.caller()?;
    let Some(id) = caller.credential.session_id() else {
        let message = "The request has an API key, not a session: end a session by its id";
        return Err(Error::refused(ErrorCode::SessionNotFound, message));
    };
    sessions::end(&request.app, caller.user_key, id.to_owned()).await?;
    Ok(Response::no_content().with(header::SET_COOKIE, cookie_of(&request).clear()?))
}

fn cookie_of(request: &Request) -> SessionCookie {
    SessionCookie::of_request(&request.app, &RequestSource::of(request))
}

pub async fn list(request: Request) -> Result<Response> {
    let caller = request.caller()?;
    let current = caller.credential.session_id();
    let sessions = sessions::list(&request.app, caller.user_key, request.now).await?;
    let rendered = sessions.iter().map(|session| render(session, current == Some(&session.id)));
    Ok(ListBody::new("sessions", rendered)?.with_more(false).into_response())
}

pub async fn end(request: Request) -> Result<Response> {
    let user_key = request.user_key()?;
    let id = request.param("session_id").to_owned();
    sessions::end(&request.app, user_key, id).await?;
    Ok(Response::no_content())
}

/// `DELETE /v1/auth/sessions`: ends all but the one that makes the request
pub async fn end_others(request: Request) -> Result<Response> {
    let ended = sessions::end_others(&request.app, &request.caller()?).await?;
    Ok(Response::ok(&json!({"ended": ended})))
}

pub async fn create_link(request: Request) -> Result<Response> {
    let caller = request.caller()?;
    let (app, now) = (&request.app, request.now);
    let maker = Some(caller.credential);
    let link = sessions::create_link(&app.store, caller.user_key, maker, now)?.await?;
    Ok(link_response(&request, &link))
}

pub fn link_response(request: &Request, link: &NewSessionLink) -> Response {
    let base = base_url(&request.app, &RequestSource::of(request));
    let url = sessions::link_url(&base, link);
    Response::created(&json!({"url": url, "expires_at": instant(link.expires_at)}))
}

/// Returns whether this request may sign in without a credential: on a server in development mode, from a browser on
/// its machine that knows the server by a name that no other machine has.
pub fn permits_dev(request: &Request) -> bool {
    let host = host_name(&request.host).to_ascii_lowercase();
    let is_direct =
        |headers: &HeaderMap| !PROXY_HEADERS.iter().any(|name| headers.contains_key(*name));
    request.app.config.dev
        && request.peer.ip().to_canonical().is_loopback()
        && LOOPBACK_HOSTS.contains(&host.as_str())
        && is_direct(&request.headers)
}

/// A field of the body.
enum Credential {
    ApiKey(String),
    DeviceCode(String),
    LinkToken { token: String, switch_account: bool },
    Dev,
}

/// Reads the one credential of the body. Adds a validation error if there is not exactly one.
fn read_credential(fields: &mut JsonFields<'_>) -> Option<Credential> {
    let api_key = fields.string("api_key", 1..=MAX_CREDENTIAL);
    let device_code = fields.string("device_code", 1..=MAX_CREDENTIAL);
    let link_token = fields.string("link_token", 1..=MAX_CREDENTIAL);
    let switch_account = fields.boolean("switch_account").unwrap_or(false);
    let dev = fields.boolean("dev").unwrap_or(false);
    let mut given = [
        api_key.map(Credential::ApiKey),
        device_code.map(Credential::DeviceCode),
        link_token.map(|token| Credential::LinkToken { token, switch_account }),
        dev.then_some(Credential::Dev),
    ]
    .into_iter()
    .flatten();
    match (given.next(), given.next()) {
        (Some(credential), None) => Some(credential),
        _ => {
            fields.reject(
                "api_key",
                "must be given, or one of device_code, link_token and dev: exactly one of the four",
            );
            None
        }
    }
}

async fn sign_in(
    request: &Request,
    cookie: &SessionCookie,
    credential: Credential,
) -> Result<NewSession> {
    let (app, now) = (&request.app, request.now);
    let device = device_name(request.header("user-agent").unwrap_or_default());
    let address = request.client_ip.to_string();
    let by = match credential {
        Credential::ApiKey(text) => SignIn::ApiKey(ApiKey::parse(&text).ok_or_else(not_a_key)?),
        Credential::DeviceCode(text) => {
            SignIn::DeviceCode(DeviceCode::parse(&text).ok_or_else(not_a_code)?)
        }
        Credential::LinkToken { token, switch_account } => {
            let token = SessionToken::parse(&token).ok_or_else(not_a_link)?;
            // Any page can lead its visitor to a link, which must not change the account without a question.
            let only_for = if switch_account {
                Vec::new()
            } else {
                signed_in_users(app, cookie, &request.headers, now).await?
            };
            SignIn::Link { token, only_for }
        }
        Credential::Dev => SignIn::Dev,
    };
    sessions::sign_in(app, by, &cookie.origin, device, address, now)?.await
}

/// The credential was wrong.
fn is_failure(error: &Error) -> bool {
    let codes = [ErrorCode::InvalidApiKey, ErrorCode::DeviceCodeNotFound];
    matches!(error, Error::Refused(refusal) if codes.contains(&refusal.code))
}

fn not_a_key() -> Error {
    let message =
        "This is no API key: one begins with cue_sk_ and has 32 digits of 0-9 and a-f after that";
    Error::refused(ErrorCode::InvalidApiKey, message)
}

fn not_a_code() -> Error {
    Error::refused(ErrorCode::DeviceCodeNotFound, "This is no device code: start again")
}

fn not_a_link() -> Error {
    let message = "This link is not complete: open it again, or get a new one with `cued open`";
    Error::refused(ErrorCode::InvalidApiKey, message)
}

fn dev_refused(request: &Request) -> Error {
    if !request.app.config.dev {
        let message =
            "Signing in without a credential needs a server in development mode (cued serve --dev)";
        return Error::refused(ErrorCode::InvalidState, message);
    }
    let message = "Signing in without a credential works on the machine of the server only, at http://localhost or \
                   http://127.0.0.1 and without a proxy";
    Error::refused(ErrorCode::ForbiddenHost, message)
}

fn too_many_failures(seconds: u32) -> Error {
    let message = format!(
        "{MAX_FAILED_SIGN_INS} sign-ins from this client address have failed; try again in {seconds} s"
    );
    Refusal::new(ErrorCode::RateLimitExceeded, message).retry_after(seconds).into()
}

fn render(session: &Session, is_current: bool) -> Value {
    json!({
        "id": session.id,
        "via": session.method.as_str(),
        "device": session.device,
        "address": session.address,
        "created_at": instant(session.created_at),
        "seen_at": instant(session.seen_at),
        "expires_at": instant(session.expires_at),
        "current": is_current,
    })
}
