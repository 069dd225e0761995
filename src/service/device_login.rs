//! Device login (contract §3.7): a device polls with a code while its user confirms a mailed link.

use std::net::IpAddr;

use jiff::Timestamp;

use crate::app::App;
use crate::domain::account::credentials::{ApiKey, Email, sha256};
use crate::domain::account::device_login::{
    DeviceCode, LIFETIME, LinkStatus, LoginPurpose, LoginState, MAX_CODES, MAX_MAILS,
    MAX_MAILS_PER_CODE, MAX_SHOWN_KEYS, OtherKeys, RATE_WINDOW, UserCode, new_link_token,
};
use crate::domain::account::rate_limit::rate_limit_address;
use crate::domain::account::user::{ApiKeyInfo, KEYS_REVOKED, RegistrationPolicy, User};
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::row_keys::UserKey;
use crate::domain::time::{instant, saturating_add, saturating_sub};
use crate::error::{Error, Result};
use crate::mail::Mail;
use crate::service::accounts::{check_key_limit, confirm, new_user, random_id};
use crate::service::finish::pause_above_limit;
use crate::store::accounts::sessions::{self, LinkKind};
use crate::store::accounts::users::{self, NewUser};
use crate::store::accounts::{api_keys, device_logins};
use crate::store::channels;
use crate::store::db::meta;
use crate::store::executions::delivery_queue;
use crate::store::outbox;
use crate::store::{Pending, ReadTx, WriteTx};
use crate::system::random;

#[derive(Debug, Clone)]
pub struct PollResult {
    pub state: Option<LoginState>,
    /// The API key and the email address of its user, for the one poll that finds the login approved.
    pub handed_out: Option<(ApiKey, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedLogin {
    pub device_code: DeviceCode,
    pub user_code: UserCode,
}

/// Starts a login with the device's own code or a generated one. Errors: `rate_limit_exceeded`, `device_code_exists`.
pub fn start(
    app: &App,
    code: Option<DeviceCode>,
    purpose: LoginPurpose,
    client: IpAddr,
    now: Timestamp,
) -> Result<Pending<StartedLogin>> {
    let device_code = match code {
        Some(code) => code,
        None => DeviceCode::generate(random::fill)?,
    };
    let user_code = UserCode::generate(random::fill)?;
    let client = rate_limit_address(client).to_string();
    Ok(app.store.write(move |tx| {
        let recent = device_logins::code_times(tx, &client, saturating_sub(now, RATE_WINDOW), MAX_CODES)?;
        if let (true, Some(oldest)) = (recent.len() >= MAX_CODES, recent.last()) {
            return Err(too_many_codes(*oldest, now).into());
        }
        if !device_logins::insert(tx, &device_code, &user_code, purpose, &client, now)? {
            let message =
                "This device code is already in use: send another one, or none to get a generated code";
            return Err(Error::refused(ErrorCode::DeviceCodeExists, message));
        }
        Ok(StartedLogin { device_code, user_code })
    }))
}

#[derive(Debug, Clone)]
pub struct SubmittedEmail {
    pub mail: Option<Mail>,
    /// The address is that of an account, and confirmed.
    pub is_confirmed: bool,
    pub user_code: String,
}

/// The response must not depend on the mail: that would reveal whether the address is registered. Errors:
/// `device_code_not_found`.
pub fn submit_email(
    app: &App,
    text: String,
    email: Email,
    client: IpAddr,
    now: Timestamp,
) -> Result<Pending<SubmittedEmail>> {
    let token = new_link_token(random::bytes()?);
    let fixed = app.config.registration;
    let base = app.config.public_url.clone();
    Ok(app.store.write(move |tx| {
        let Some(login) =
            device_logins::find_by_text(tx, &text)?.filter(|login| login.accepts_email(now))
        else {
            return Err(not_found());
        };
        let (hash, user_code) = (login.code_hash, login.user_code.unwrap_or(text));
        // The same steps for known and unknown addresses, so that timing does not distinguish them.
        let admitted = is_admitted(tx, fixed, email.as_str())?;
        let known = users::find_by_email(tx, email.as_str())?;
        let is_confirmed = known.is_some_and(|user| user.confirmed_at.is_some());
        let recent = device_logins::mail_times(
            tx,
            email.as_str(),
            saturating_sub(now, RATE_WINDOW),
            MAX_MAILS,
        )?;
        if recent.len() >= MAX_MAILS || login.mail_count >= MAX_MAILS_PER_CODE {
            device_logins::mark_email_sent(tx, &hash)?;
            return Ok(SubmittedEmail { mail: None, is_confirmed, user_code });
        }
        device_logins::save_link(
            tx,
            &hash,
            email.as_str(),
            &sha256(token.expose().as_bytes()),
            now,
        )?;
        let link = format!("{base}/v1/auth/verify?token={}&user_code={user_code}", token.expose());
        let mail = Mail {
            to: email.as_str().to_owned().into(),
            subject: "Confirm your device".to_owned().into(),
            text: mail_text(&user_code, &link, client, now).into(),
            log_line: link.into(),
            at: now,
            log_only: meta::is_held(tx)?,
        };
        Ok(SubmittedEmail { mail: admitted.then_some(mail), is_confirmed, user_code })
    }))
}

#[derive(Debug, Clone)]
pub struct LoginToConfirm {
    pub email: String,
    pub user_code: String,
    /// The other API keys of the account, newest first; not all of them if there are many.
    pub other_keys: Vec<ApiKeyInfo>,
    pub proposed: OtherKeys,
    /// The address has no account yet.
    pub is_new: bool,
    /// When the address was confirmed: keys from before may be those of whoever registered it.
    pub confirmed_at: Option<Timestamp>,
}

pub fn find_to_confirm(
    read: &ReadTx<'_>,
    text: &str,
    token: &str,
    now: Timestamp,
) -> Result<std::result::Result<LoginToConfirm, LinkStatus>> {
    let Some(login) = device_logins::find_by_text(read, text)? else {
        return Ok(Err(LinkStatus::Unknown));
    };
    let link = login.link_status(&sha256(token.as_bytes()), now);
    let (LinkStatus::Valid, Some(email)) = (link, login.email) else { return Ok(Err(link)) };
    let user = users::find_by_email(read, &email)?;
    let other_keys = match &user {
        Some(user) => api_keys::newest(read, user.key, MAX_SHOWN_KEYS)?,
        None => Vec::new(),
    };
    let is_new = user.is_none();
    let confirmed_at = user.and_then(|user| user.confirmed_at);
    let proposed = OtherKeys::proposed(confirmed_at);
    let user_code = login.user_code.unwrap_or_else(|| text.to_owned());
    Ok(Ok(LoginToConfirm { email, user_code, other_keys, proposed, is_new, confirmed_at }))
}

/// Registers an unknown address if registration allows it. `other_keys` says what happens to the account's keys so far.
/// Errors: `registration_disabled` when registration was closed after the mail was sent, `key_limit_exceeded`.
pub fn approve(
    app: &App,
    text: String,
    token: &str,
    other_keys: Option<OtherKeys>,
    now: Timestamp,
) -> Result<Pending<LinkStatus>> {
    let token_hash = sha256(token.as_bytes());
    let (fixed, plan) = (app.config.registration, app.config.plans.default_plan());
    let (max_keys, calls) = (app.config.plans.max_keys(), app.unconfirmed_calls.clone());
    // Random bytes are read outside the write transaction; the email address is known only inside it.
    let new = new_user("", plan, now)?;
    Ok(app.store.write(move |tx| {
        let login = device_logins::find_by_text(tx, &text)?;
        let hash = login.as_ref().map_or([0; 32], |login| login.code_hash);
        let link =
            login.as_ref().map_or(LinkStatus::Unknown, |login| login.link_status(&token_hash, now));
        let needs_key = login.as_ref().is_some_and(|login| !login.is_for_session);
        let (LinkStatus::Valid, Some(email)) = (link, login.and_then(|login| login.email)) else {
            return Ok(link);
        };
        if !is_admitted(tx, fixed, &email)? {
            let message = "This email address cannot sign in: ask the operator for an account";
            return Err(Error::refused(ErrorCode::RegistrationDisabled, message));
        }
        let user_key = match users::find_by_email(tx, &email)? {
            Some(user) => {
                if other_keys.unwrap_or(OtherKeys::proposed(user.confirmed_at)) == OtherKeys::Revoke
                {
                    revoke_other_keys(tx, user.key, &new, now)?;
                }
                if needs_key {
                    check_key_limit(tx, user.key, max_keys)?;
                }
                confirm(tx, user.key, calls, now)?;
                Some(user.key)
            }
            None => users::insert(tx, &NewUser { email, ..new })?,
        };
        let user_key = user_key
            .ok_or_else(|| Error::fault("the email address of a new user is already taken"))?;
        Ok(if device_logins::approve(tx, &hash, user_key)? {
            LinkStatus::Valid
        } else {
            LinkStatus::Used
        })
    }))
}

/// Whoever had a key may have read the secrets, and the URLs and cues may be theirs.
fn revoke_other_keys(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    fresh: &NewUser,
    now: Timestamp,
) -> Result<()> {
    api_keys::delete_all(tx, user_key)?;
    device_logins::delete_approved(tx, user_key, None)?;
    sessions::delete_others(tx, user_key, None)?;
    sessions::delete_links(tx, user_key, LinkKind::Session)?;
    sessions::delete_links(tx, user_key, LinkKind::Plan)?;
    users::replace_secrets(tx, user_key, &fresh.webhook_secret, &fresh.alert_webhook_secret)?;
    channels::delete_all(tx, user_key)?;
    pause_above_limit(tx, user_key, Some(0), now)?;
    delivery_queue::fail_all_for_user(tx, user_key, KEYS_REVOKED, now)?;
    // Many of these may not be sent yet.
    delivery_queue::fail_delivering(tx, user_key, KEYS_REVOKED, now)?;
    outbox::delete_posts(tx, user_key)
}

/// Creates the API key of an approved login for the first poll that asks; it is returned only once.
pub fn claim(app: &App, code: DeviceCode, now: Timestamp) -> Result<Pending<PollResult>> {
    let (api_key, key_id) = (ApiKey::from_random(random::bytes()?), random_id()?);
    let max_keys = app.config.plans.max_keys();
    Ok(app.store.write(move |tx| {
        let login = device_logins::find(tx, &code.hash())?;
        let state = login.as_ref().and_then(|login| login.state_at(now));
        let (Some(LoginState::Approved), Some(user_key)) =
            (state, login.and_then(|login| login.user_key))
        else {
            return Ok(PollResult { state, handed_out: None });
        };
        let user = users::find(tx, user_key)?.filter(|user| user.disabled_at.is_none());
        let Some(User { email, .. }) = user else {
            return Ok(PollResult { state: None, handed_out: None });
        };
        if !device_logins::claim(tx, &code.hash())? {
            return Ok(PollResult { state: Some(LoginState::Claimed), handed_out: None });
        }
        check_key_limit(tx, user_key, max_keys)?;
        api_keys::insert(tx, user_key, &key_id, &code.key_name(), &api_key, now)?;
        Ok(PollResult { state, handed_out: Some((api_key, email)) })
    }))
}

/// Returns whether this email address may sign in: an enabled user, or an unknown address that may register.
fn is_admitted(tx: &WriteTx<'_>, fixed: Option<RegistrationPolicy>, email: &str) -> Result<bool> {
    let known = users::find_by_email(tx, email)?;
    let admits = meta::registration(tx, fixed)?.admits(users::any_exist(tx)?);
    Ok(known.map_or(admits, |user| user.disabled_at.is_none()))
}

fn too_many_codes(oldest: Timestamp, now: Timestamp) -> Refusal {
    let free = saturating_add(oldest, RATE_WINDOW);
    let seconds = (free.duration_since(now).as_millis() + 999) / 1000;
    let message = format!(
        "More than {MAX_CODES} device codes per hour from this client address: try again later"
    );
    let refusal = Refusal::new(ErrorCode::RateLimitExceeded, message);
    Refusal { retry_after: Some(u32::try_from(seconds).unwrap_or(1).max(1)), ..refusal }
}

fn not_found() -> Error {
    Error::refused(
        ErrorCode::DeviceCodeNotFound,
        "This device code is unknown or has expired: start again",
    )
}

fn mail_text(user_code: &str, link: &str, client: IpAddr, now: Timestamp) -> String {
    let (minutes, at) = (LIFETIME.as_mins(), instant(now));
    format!(
        "Someone, probably you, is signing in a device with this code:\n\n    {user_code}\n\n\
         Requested from the address {client} at {at}.\n\n\
         If you started this login and saw this code, open this link and confirm:\n\n{link}\n\n\
         The link works once and expires {minutes} minutes after the code was created.\n\n\
         If you did not request this, ignore this mail: without your confirmation nobody can sign in.\n"
    )
}
