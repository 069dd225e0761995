//! Device login: a code is asked for, an address is given, the mailed link confirms, the device's poll gets the key.

use std::net::IpAddr;

use jiff::Timestamp;

use crate::actions::accounts::{insert_key, new_user, random_id};
use crate::app::App;
use crate::domain::account::client_ip::shared;
use crate::domain::account::credentials::{ApiKey, Email};
use crate::domain::account::device_login::{
    DeviceCode, LIFETIME, LinkStatus, LinkToken, LoginState, MAX_CODES, MAX_MAILS, MAX_MAILS_PER_CODE,
    RATE_WINDOW,
};
use crate::domain::account::user::{RegistrationPolicy, User};
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::schedule::instant::saturating_sub;
use crate::error::{Error, Result};
use crate::mail::Mail;
use crate::random;
use crate::store::accounts::device_logins;
use crate::store::accounts::users;
use crate::store::accounts::users::NewUser;
use crate::store::db::hold;
use crate::store::{Pending, WriteTx};

/// What a poll finds, with the only sight of the key.
#[derive(Debug, Clone)]
pub struct PollResult {
    /// How far the login came; `None` when it has expired.
    pub state: Option<LoginState>,
    /// The key and the address of its user, for the one poll that finds the login approved.
    pub handed_out: Option<(ApiKey, String)>,
}

/// Starts a login under the device's own code or a new one.
///
/// # Errors
/// `rate_limit_exceeded`, `device_code_exists`.
pub fn start(
    app: &App,
    code: Option<DeviceCode>,
    client: IpAddr,
    now: Timestamp,
) -> Result<Pending<DeviceCode>> {
    let code = match code {
        Some(code) => code,
        None => DeviceCode::generate(random::fill)?,
    };
    let client = shared(client).to_string();
    Ok(app.store.write(move |tx| {
        let recent = device_logins::codes_of(tx, &client, saturating_sub(now, RATE_WINDOW), MAX_CODES)?;
        if let (true, Some(oldest)) = (recent.len() >= MAX_CODES, recent.last()) {
            return Err(too_many_codes(*oldest, now).into());
        }
        if !device_logins::insert(tx, &code.hash(), &client, now)? {
            let message = "This device code is taken: use another one, or none to have one made";
            return Err(Error::refused(ErrorCode::DeviceCodeExists, message));
        }
        Ok(code)
    }))
}

/// Takes the address of who wants to log in. Whether there is a mail to send is not for the caller to know.
///
/// # Errors
/// `device_code_not_found` when the code is unknown, has expired or was approved already.
pub fn submit_email(
    app: &App,
    code: DeviceCode,
    email: Email,
    now: Timestamp,
) -> Result<Pending<Option<Mail>>> {
    let token = LinkToken::from_random(random::bytes()?);
    let registration = app.config.registration;
    let mail = link_mail(&app.config.public_url, &code, &email, &token, now);
    Ok(app.store.write(move |tx| {
        let hash = code.hash();
        let Some(login) = device_logins::find(tx, &hash)?.filter(|login| login.takes_email(now)) else {
            return Err(not_found());
        };
        // The same steps for an address that is known and for one that is not.
        let admitted = is_admitted(tx, registration, email.as_str())?;
        let recent =
            device_logins::mails_to(tx, email.as_str(), saturating_sub(now, RATE_WINDOW), MAX_MAILS)?;
        if recent.len() >= MAX_MAILS || login.mails >= MAX_MAILS_PER_CODE {
            device_logins::mark_email_sent(tx, &hash)?;
            return Ok(None);
        }
        device_logins::save_link(tx, &hash, email.as_str(), &token.hash(), now)?;
        let stays = hold::is_held(tx)?;
        Ok(admitted.then_some(Mail { stays, ..mail }))
    }))
}

/// Confirms the link with this token: its reader becomes a user, where registration admits one, and the device's
/// next poll gets a key. Answers what the link was worth.
///
/// # Errors
/// `registration_disabled`, when it was closed after the mail.
pub fn approve(app: &App, code: &DeviceCode, token: &str, now: Timestamp) -> Result<Pending<LinkStatus>> {
    let (hash, token_hash) = (code.hash(), LinkToken::hash_of(token));
    let (registration, plan) = (app.config.registration, app.config.plans.default_plan());
    // Random bytes are read before the write; the address is known only in it.
    let new = new_user("", plan, now)?;
    Ok(app.store.write(move |tx| {
        let login = device_logins::find(tx, &hash)?;
        let link = login.as_ref().map_or(LinkStatus::Unknown, |login| login.link(&token_hash, now));
        let (LinkStatus::Valid, Some(email)) = (link, login.and_then(|login| login.email)) else {
            return Ok(link);
        };
        if !is_admitted(tx, registration, &email)? {
            let message = "This address cannot log in here: ask the operator for an account";
            return Err(Error::refused(ErrorCode::RegistrationDisabled, message));
        }
        let user_key = match users::find_by_email(tx, &email)? {
            Some(user) => Some(user.key),
            None => users::insert(tx, &NewUser { email, ..new })?,
        };
        let user_key = user_key.ok_or_else(|| Error::Fault("a new user's address is taken".to_owned()))?;
        Ok(if device_logins::approve(tx, &hash, user_key)? { LinkStatus::Valid } else { LinkStatus::Used })
    }))
}

/// Hands the key of an approved login out, to the first who asks: it is made here and shown once.
///
/// # Errors
/// When there are no random bytes.
pub fn claim(app: &App, code: DeviceCode, now: Timestamp) -> Result<Pending<PollResult>> {
    let (api_key, key_id) = (ApiKey::from_random(random::bytes()?), random_id()?);
    Ok(app.store.write(move |tx| {
        let login = device_logins::find(tx, &code.hash())?;
        let state = login.as_ref().and_then(|login| login.state_at(now));
        let (Some(LoginState::Approved), Some(user_key)) = (state, login.and_then(|login| login.user_key))
        else {
            return Ok(PollResult { state, handed_out: None });
        };
        let user = users::find(tx, user_key)?.filter(|user| user.disabled_at.is_none());
        let Some(User { email, .. }) = user else { return Ok(PollResult { state: None, handed_out: None }) };
        if !device_logins::claim(tx, &code.hash())? {
            return Ok(PollResult { state: Some(LoginState::Claimed), handed_out: None });
        }
        insert_key(tx, user_key, key_id, code.key_name(), &api_key, now)?;
        Ok(PollResult { state, handed_out: Some((api_key, email)) })
    }))
}

/// Whether whoever reads this address may log in: a user that is not disabled, or one that may register.
fn is_admitted(tx: &WriteTx<'_>, registration: RegistrationPolicy, email: &str) -> Result<bool> {
    let known = users::find_by_email(tx, email)?;
    let admits = registration.admits(users::exist(tx)?);
    Ok(known.map_or(admits, |user| user.disabled_at.is_none()))
}

fn too_many_codes(oldest: Timestamp, now: Timestamp) -> Refusal {
    let free = oldest.checked_add(RATE_WINDOW).unwrap_or(Timestamp::MAX);
    let seconds = (free.duration_since(now).as_millis() + 999) / 1000;
    let message = format!("More than {MAX_CODES} device codes in an hour from this address");
    let refusal = Refusal::new(ErrorCode::RateLimitExceeded, message);
    Refusal { retry_after: Some(u32::try_from(seconds).unwrap_or(1).max(1)), ..refusal }
}

fn not_found() -> Error {
    Error::refused(
        ErrorCode::DeviceCodeNotFound,
        "There is no such device code, or its time is over: start again",
    )
}

fn link_mail(base: &str, code: &DeviceCode, email: &Email, token: &LinkToken, now: Timestamp) -> Mail {
    let link = format!("{base}/v1/auth/verify?token={}&device_code={code}", token.reveal());
    let minutes = LIFETIME.as_mins();
    Mail {
        to: email.as_str().to_owned(),
        subject: "Confirm your device".to_owned(),
        text: format!(
            "Somebody, most likely you, wants to sign in a device with this code:\n\n    {code}\n\n\
             If this is the code that your device shows, open this link and confirm:\n\n{link}\n\n\
             The link works once, and until {minutes} minutes after the code was made.\n\n\
             If you did not ask for this, do nothing: without your confirmation nobody gets in.\n"
        ),
        gist: link,
        at: now,
        stays: false,
    }
}
