//! Sessions: the cookie of a browser, the owner of its session, and the address of the page that has it (contract §3.11).

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use jiff::{SignedDuration, Timestamp};

use crate::app::App;
use crate::domain::account::session::{SessionToken, is_to_record};
use crate::domain::account::user::{Caller, Credential};
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::row_keys::UserKey;
use crate::error::{Error, Result};
use crate::http::middleware::authentication::{
    RefusalResult, RequestSource, SEC_FETCH_SITE, cross_site, read_key_owner,
};
use crate::http::middleware::{RequestContext, ServerState};
use crate::service::sessions;
use crate::store::accounts::sessions::{self as stored, SessionOwner};

/// The id of the account of a page. Another tab may have signed in to another account since then, and all tabs share the
/// cookie: the page then has no session, so that it changes nothing in that account.
const ACCOUNT_ID: HeaderName = HeaderName::from_static("x-account-id");

/// The most tokens of a request that are looked up. A browser has one cookie of the name; pages at other ports and paths
/// of the host can set more.
const MAX_TOKENS: usize = 4;

/// The cookie of this server, as the browser of one request has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionCookie {
    name: String,
    path: String,
    is_secure: bool,
    /// The origin of the request, at which a session is valid.
    pub origin: String,
}

impl SessionCookie {
    /// The cookie for a request.
    pub fn of_request(app: &App, source: &RequestSource<'_>) -> Self {
        let (is_secure, origin) = (is_https(app, source), origin(app, source));
        Self::new(app.instance, &app.config.public_url, is_secure, origin)
    }

    fn new(instance: u32, public_url: &str, is_secure: bool, origin: String) -> Self {
        let path = base_path(public_url);
        // The prefix keeps other hosts of the same domain from setting the cookie. It demands `Secure` and the path `/`.
        let prefix = if is_secure && path == "/" { "__Host-" } else { "" };
        Self { name: format!("{prefix}cued_{instance:08x}"), path, is_secure, origin }
    }

    /// Session tokens of this cookie name, at most [`MAX_TOKENS`]. Cookies of the same name from other programs are
    /// ignored.
    pub fn read(&self, headers: &HeaderMap) -> impl Iterator<Item = SessionToken> {
        let values = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes);
        let cookies =
            values.flat_map(|value| value.split(|byte| *byte == b';')).map(<[u8]>::trim_ascii);
        let of_name = |cookie: &[u8]| {
            let value = cookie.strip_prefix(self.name.as_bytes())?.strip_prefix(b"=")?;
            SessionToken::parse(std::str::from_utf8(value).ok()?)
        };
        cookies.filter_map(of_name).take(MAX_TOKENS)
    }

    /// The header that sets the cookie until `expires_at`.
    pub fn set(
        &self,
        token: &SessionToken,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> Result<HeaderValue> {
        self.header(
            token.expose(),
            expires_at.duration_since(now).max(SignedDuration::ZERO).as_secs(),
        )
    }

    /// The header that removes the cookie.
    pub fn clear(&self) -> Result<HeaderValue> {
        self.header("", 0)
    }

    fn header(&self, value: &str, max_age: i64) -> Result<HeaderValue> {
        let Self { name, path, is_secure, .. } = self;
        let secure = if *is_secure { "; Secure" } else { "" };
        let text = format!(
            "{name}={value}; Path={path}; Max-Age={max_age}; HttpOnly; SameSite=Strict{secure}"
        );
        let mut header = HeaderValue::try_from(text)
            .map_err(|error| Error::fault_from("a header cannot hold the session cookie", error))?;
        header.set_sensitive(true);
        Ok(header)
    }
}

/// Finds the owner of the session whose token the cookie has. Once a day the session gets a later end, and the response
/// the cookie.
/// Errors: 401 for cookies of several accounts, 403 `cross_site_request` for a request that a page of another site sent.
pub async fn find_session_owner(
    server: &ServerState,
    context: &mut RequestContext,
    source: &RequestSource<'_>,
) -> Result<Option<Caller>> {
    let (app, now) = (&server.app, context.now);
    let cookie = SessionCookie::of_request(app, source);
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
        let (write, expires_at) =
            sessions::record_seen(app, owner.user_key, hash, owner.created_at, now);
        match write.await {
            Ok(()) => context.set_cookie = Some(cookie.set(&token, now, expires_at)?),
            // The session stays valid until its present end.
            Err(error) => tracing::warn!(%error, "cannot record that a session was seen"),
        }
    }
    let credential = Credential::Session { id: owner.id.clone(), api_key: owner.api_key_key, hash };
    let SessionOwner { user_key, user_id, plan, is_operator, executions, .. } = owner;
    let limits = app.config.plans.limits(&plan);
    Ok(Some(Caller { user_key, user_id, credential, plan, limits, is_operator, executions }))
}

/// The valid sessions of the tokens in the cookies; only those of the account that the request names, if it names one.
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

/// The row keys of the users that the browser of a sign-in has sessions of already.
pub async fn signed_in_users(
    app: &App,
    cookie: &SessionCookie,
    headers: &HeaderMap,
    now: Timestamp,
) -> Result<Vec<UserKey>> {
    let found = find_sessions(app, cookie, headers, now).await?;
    Ok(found.into_iter().map(|(_, session)| session.user_key).collect())
}

/// A program at another port of the host can set our cookie too. It must not choose the account of a request.
fn of_several_accounts() -> Error {
    let message = "The request has cookies of several accounts; name one as X-Account-Id, or delete the cookies";
    Error::refused(ErrorCode::InvalidApiKey, message)
}

async fn read_session(app: &App, hash: [u8; 32], now: Timestamp) -> Result<Option<SessionOwner>> {
    app.store.read_inline(move |read| stored::find_owner(read, &hash, now)).await
}

/// Returns whether a key or a session is still valid, for a request that lasts.
pub async fn is_valid(app: &App, credential: &Credential, now: Timestamp) -> Result<bool> {
    match credential {
        Credential::ApiKey { hash, .. } => Ok(read_key_owner(app, *hash, now).await?.is_some()),
        Credential::Session { hash, .. } => Ok(read_session(app, *hash, now).await?.is_some()),
    }
}

/// Checks that a sign-in comes from a page of this server or from no browser: a page of another site could sign its
/// visitor in to an account of its own. A cross-site page can send no JSON without asking first, which gets no answer.
/// Errors: 403 `cross_site_request`, 400 `invalid_request`.
pub fn check_sign_in(headers: &HeaderMap) -> RefusalResult<()> {
    if headers.get_all(SEC_FETCH_SITE).iter().any(|site| site != "same-origin") {
        return Err(cross_site());
    }
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = content_type.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = "A sign-in needs the header `Content-Type: application/json`";
    Err(Refusal::new(ErrorCode::InvalidRequest, message))
}

/// The address of this server for the client, without a trailing slash: the public URL if the operator set one, otherwise
/// the host that the request, or a trusted proxy, names.
pub fn base_url(app: &App, source: &RequestSource<'_>) -> String {
    if app.config.has_public_url || source.asked_host().is_empty() {
        return app.config.public_url.clone();
    }
    origin(app, source)
}

/// Scheme, host and port of the page that sent a request, as the client asked a trusted proxy for them.
fn origin(app: &App, source: &RequestSource<'_>) -> String {
    let scheme = if is_https(app, source) { "https" } else { "http" };
    format!("{scheme}://{}", source.asked_host().to_ascii_lowercase())
}

/// True if browsers reach this server by https.
fn is_https(app: &App, source: &RequestSource<'_>) -> bool {
    let is_public =
        app.config.public_url.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://"));
    is_public || source.is_forwarded_https
}

/// The path of a URL, as the attribute of a cookie can hold it; `/` if it cannot.
fn base_path(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = rest.find('/').map_or("", |at| &rest[at..]).trim_end_matches('/');
    let is_plain = path
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b';' | b',' | b'?' | b'#'));
    if path.is_empty() || !is_plain { "/".to_owned() } else { path.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::slice;

    fn token() -> SessionToken {
        SessionToken::from_random([0; 32])
    }

    #[test]
    fn a_path_that_a_cookie_cannot_hold_becomes_the_root() {
        for (url, expected) in [("http://h/a;b", "/"), ("http://h/a/b/", "/a/b"), ("http://h", "/")]
        {
            assert_eq!(base_path(url), expected, "{url}");
        }
    }

    #[test]
    fn only_the_cookie_of_this_server_is_read() {
        let cookie = SessionCookie::new(42, "", false, String::new());
        let (token, other) = (token(), SessionToken::from_random([1; 32]));
        let read = |values: &[String]| {
            let value =
                |text: &String| (header::COOKIE, HeaderValue::from_bytes(text.as_bytes()).unwrap());
            cookie.read(&values.iter().map(value).collect()).collect::<Vec<_>>()
        };
        let own = format!("cued_0000002a={}", token.expose());
        let of_another = format!("cued_0000002b={}", other.expose());
        assert_eq!(read(&[format!("a=b; {of_another};{own}; c")]), slice::from_ref(&token));
        assert_eq!(read(&["x=y".to_owned(), own.clone()]), slice::from_ref(&token));
        assert_eq!(
            read(&[format!("theme=blåu; {own}")]),
            slice::from_ref(&token),
            "another program's text"
        );
        let second = format!("cued_0000002a={}", other.expose());
        assert_eq!(read(&[format!("cued_0000002a=x; {own}"), second]), [token.clone(), other]);
        assert_eq!(
            read(&[[own.as_str(); 9].join("; ")]),
            vec![token; 4],
            "the look-ups are bounded"
        );
        for foreign in [
            of_another,
            format!("__Host-{own}"),
            "cued_0000002a=short".to_owned(),
            "cued_0000002a=ä".to_owned(),
            String::new(),
        ] {
            assert_eq!(read(&[foreign]), []);
        }
    }
}
