//! Sessions of browsers and one-time links (contract §3.11): sign-in, sign-out, and the user's list of sessions.

use jiff::Timestamp;

use crate::app::App;
use crate::domain::account::credentials::ApiKey;
use crate::domain::account::device_login::{DeviceCode, LoginPurpose, LoginState};
use crate::domain::account::session::{
    DEV_EMAIL, LINK_LIFETIME, MAX_LINKS, MAX_SESSIONS, Session, SessionToken, SignInMethod, expiry,
};
use crate::domain::account::user::{Caller, Credential, User};
use crate::domain::api_error::ErrorCode;
use crate::domain::row_keys::UserKey;
use crate::domain::time::saturating_add;
use crate::error::{Error, Result};
use crate::service::accounts::{new_user, random_id};
use crate::store::accounts::sessions::{self, LinkKind, NewLink};
use crate::store::accounts::{device_logins, users};
use crate::store::{Pending, ReadTx, Store, WriteTx};
use crate::system::random;

#[derive(Debug, Clone)]
pub enum SignIn {
    ApiKey(ApiKey),
    DeviceCode(DeviceCode),
    /// The link of a user beside those of `only_for`, if there are any, is refused, and can be used later.
    Link {
        token: SessionToken,
        only_for: Vec<UserKey>,
    },
    /// Nothing, in development mode. The caller has checked that this is permitted.
    Dev,
}

#[derive(Debug, Clone)]
pub struct NewSession {
    pub token: SessionToken,
    pub session: Session,
    pub user: User,
}

#[derive(Debug, Clone)]
pub struct NewSessionLink {
    pub token: SessionToken,
    pub expires_at: Timestamp,
}

/// Errors: `invalid_api_key`, `device_code_not_found`, `invalid_state` while the mailed link is not confirmed, or for a
/// link of another account.
pub fn sign_in(
    app: &App,
    sign_in: SignIn,
    origin: &str,
    device: String,
    address: String,
    now: Timestamp,
) -> Result<Pending<NewSession>> {
    let token = SessionToken::from_random(random::bytes()?);
    let token_hash = token.hash_at(origin);
    let id = random_id()?;
    let new_dev_user = new_user(DEV_EMAIL, app.config.plans.default_plan(), now)?;
    Ok(app.store.write(move |tx| {
        let (user, api_key_key, method) = match sign_in {
            SignIn::ApiKey(key) => {
                let owner = users::find_owner(tx, &key.hash(), now)?.ok_or_else(invalid_key)?;
                (users::find(tx, owner.user_key)?, Some(owner.key), SignInMethod::Key)
            }
            SignIn::DeviceCode(code) => {
                (claim_device_login(tx, &code, now)?, None, SignInMethod::Mail)
            }
            SignIn::Link { token, only_for } => {
                let (user_key, api_key_key) =
                    sessions::take_link(tx, &token.hash(), now)?.ok_or_else(invalid_link)?;
                if only_for.iter().any(|other| *other != user_key) {
                    return Err(other_account());
                }
                (users::find(tx, user_key)?, api_key_key, SignInMethod::Link)
            }
            SignIn::Dev => {
                let first = match users::first_enabled(tx)? {
                    Some(user) => Some(user),
                    None => users::insert(tx, &new_dev_user)?
                        .map(|key| users::find(tx, key))
                        .transpose()?
                        .flatten(),
                };
                (Some(first.ok_or_else(all_disabled)?), None, SignInMethod::Dev)
            }
        };
        let user = user.filter(|user| user.disabled_at.is_none()).ok_or_else(invalid_link)?;
        let session = Session::begin(id, method, device, address, now);
        sessions::insert(tx, &session, user.key, api_key_key, &token_hash, MAX_SESSIONS)?;
        Ok(NewSession { token, session, user })
    }))
}

fn claim_device_login(tx: &WriteTx<'_>, code: &DeviceCode, now: Timestamp) -> Result<Option<User>> {
    let login = device_logins::find(tx, &code.hash())?.filter(|login| login.is_for_session);
    let state = login.as_ref().and_then(|login| login.state_at(now));
    let unusable = || {
        let message =
            "This device code is unknown, used or expired, or it is not for a session: start again";
        Error::refused(ErrorCode::DeviceCodeNotFound, message)
    };
    match (state, login.and_then(|login| login.user_key)) {
        (Some(LoginState::Approved), Some(user_key)) => {
            let user = users::find(tx, user_key)?.filter(|user| user.disabled_at.is_none());
            let user = user.ok_or_else(unusable)?;
            if device_logins::claim(tx, &code.hash())? { Ok(Some(user)) } else { Err(unusable()) }
        }
        (Some(LoginState::Pending | LoginState::EmailSent), _) => {
            let message = "The link in the mail is not confirmed yet: open it first";
            Err(Error::refused(ErrorCode::InvalidState, message))
        }
        _ => Err(unusable()),
    }
}

/// The link ends with the key or session of `maker`; the session that it begins ends with the key. Errors:
/// `invalid_api_key` if `maker` has ended since the request began.
pub fn create_link(
    store: &Store,
    user_key: UserKey,
    maker: Option<Credential>,
    now: Timestamp,
) -> Result<Pending<NewSessionLink>> {
    let token = SessionToken::from_random(random::bytes()?);
    let expires_at = saturating_add(now, LINK_LIFETIME);
    Ok(store.write_for(user_key, move |tx| {
        let (api_key_key, session_key) = match maker {
            Some(Credential::ApiKey { hash, .. }) => {
                (Some(users::find_owner(tx, &hash, now)?.ok_or_else(invalid_key)?.key), None)
            }
            Some(Credential::Session { hash, .. }) => {
                let maker = sessions::find_owner(tx, &hash, now)?.ok_or_else(not_stored)?;
                (maker.api_key_key, Some(maker.key))
            }
            None => (None, None),
        };
        let (kind, token_hash) = (LinkKind::Session, token.hash());
        let link = NewLink { kind, user_key, api_key_key, session_key, token_hash, expires_at };
        sessions::insert_link(tx, &link, MAX_LINKS)?;
        Ok(NewSessionLink { token, expires_at })
    }))
}

pub fn link_url(base: &str, link: &NewSessionLink) -> String {
    // In the fragment, which a browser sends to no server and no proxy logs.
    format!("{base}/#/enter/{}", link.token.expose())
}

pub fn record_seen(
    app: &App,
    user_key: UserKey,
    token_hash: [u8; 32],
    created_at: Timestamp,
    now: Timestamp,
) -> (Pending<()>, Timestamp) {
    let expires_at = expiry(created_at, now);
    let write = app
        .store
        .write_for(user_key, move |tx| sessions::record_seen(tx, &token_hash, now, expires_at));
    (write, expires_at)
}

pub fn list(app: &App, user_key: UserKey, now: Timestamp) -> Pending<Vec<Session>> {
    app.store.read(move |read: &ReadTx<'_>| sessions::list(read, user_key, now))
}

/// Ends one of a user's sessions. Errors: `session_not_found`.
pub fn end(app: &App, user_key: UserKey, id: String) -> Pending<()> {
    app.store.write_for(user_key, move |tx| {
        if sessions::delete(tx, user_key, &id)? { Ok(()) } else { Err(session_not_found()) }
    })
}

pub fn end_others(app: &App, caller: &Caller) -> Pending<usize> {
    let (user_key, kept) = (caller.user_key, caller.credential.session_id().map(str::to_owned));
    app.store.write_for(user_key, move |tx| {
        sessions::delete_links(tx, user_key, LinkKind::Session)?;
        device_logins::delete_approved(tx, user_key, Some(LoginPurpose::Session))?;
        sessions::delete_others(tx, user_key, kept.as_deref())
    })
}

pub fn session_not_found() -> Error {
    Error::refused(ErrorCode::SessionNotFound, "Session not found")
}

fn invalid_key() -> Error {
    Error::refused(
        ErrorCode::InvalidApiKey,
        "This API key is invalid, or was revoked; use another one",
    )
}

fn not_stored() -> Error {
    let message = "This session has ended: sign in again to make a link";
    Error::refused(ErrorCode::InvalidApiKey, message)
}

fn invalid_link() -> Error {
    let message =
        "This link is unknown, used or expired: get a new one with `cued open` or `cued user link`";
    Error::refused(ErrorCode::InvalidApiKey, message)
}

fn other_account() -> Error {
    let message = "This browser is signed in to another account than that of the link: sign out first, or send \
                   `switch_account` as true";
    Error::refused(ErrorCode::InvalidState, message)
}

fn all_disabled() -> Error {
    let message = "Every account of this server is disabled: enable one with `cued user enable`";
    Error::refused(ErrorCode::InvalidState, message)
}
