//! Accounts: registration, API keys, webhook secrets, and for operators plans and disabling.

use jiff::Timestamp;

use crate::app::{App, CallLimiter};
use crate::domain::account::credentials::{ApiKey, Email, new_webhook_secret, sha256};
use crate::domain::account::device_login::new_link_token;
use crate::domain::account::plan::PlanLimits;
use crate::domain::account::user::{
    ACCOUNT_DISABLED, Caller, Credential, FIRST_KEY, RegistrationPolicy, SECRET_OVERLAP, User,
};
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::mails::Credential as ReplacedCredential;
use crate::domain::row_keys::UserKey;
use crate::domain::secret::Secret;
use crate::domain::time::saturating_add;
use crate::error::{Error, Result};
use crate::mail::MailTransport;
use crate::service::finish::{fire_overdue_above_limit, pause_above_limit};
use crate::service::fire::CueFirer;
use crate::service::mails;
use crate::store::accounts::sessions::{self as stored_sessions, LinkKind};
use crate::store::accounts::users::{self, NewUser};
use crate::store::accounts::{api_keys, device_logins};
use crate::store::db::meta;
use crate::store::executions::{delivery_queue, policies};
use crate::store::{Pending, ReadTx, Store, WriteTx, channels, outbox};
use crate::system::random;

#[derive(Debug, Clone)]
pub struct NewAccount {
    pub id: String,
    pub email: String,
    pub api_key: ApiKey,
}

#[derive(Debug, Clone)]
pub struct NewApiKey {
    pub id: String,
    pub name: String,
    pub api_key: ApiKey,
    pub created_at: Timestamp,
}

/// `fixed` is the policy of the server's flags. The address of the first user is confirmed, a later one's is not. Errors: `registration_disabled`,
/// `duplicate_email`.
pub fn register(
    store: &Store,
    email: Email,
    plan: &str,
    fixed: Option<RegistrationPolicy>,
    now: Timestamp,
) -> Result<Pending<NewAccount>> {
    let new = new_user(email.as_str(), plan, now)?;
    let token = Some(new_link_token(random::bytes()?));
    let key_id = random_id()?;
    let api_key = ApiKey::from_random(random::bytes()?);
    Ok(store.write(move |tx| {
        // Checked in the transaction that inserts, so that two requests at once cannot both be the first user.
        let others_exist = users::any_exist(tx)?;
        if !meta::registration(tx, fixed)?.admits(others_exist) {
            let message = "Registration is closed: ask the operator for an account (cued user add)";
            return Err(Error::refused(ErrorCode::RegistrationDisabled, message));
        }
        let new = NewUser { confirmation_token: token.filter(|_| others_exist), ..new };
        insert_account(tx, new, key_id, api_key, now)
    }))
}

/// Adds a user with a first API key, for the operator, who vouches for the address. Errors: `duplicate_email`.
pub fn add_user(
    store: &Store,
    email: Email,
    plan: &str,
    now: Timestamp,
) -> Result<Pending<NewAccount>> {
    let (new, key_id) = (new_user(email.as_str(), plan, now)?, random_id()?);
    let api_key = ApiKey::from_random(random::bytes()?);
    Ok(store.write(move |tx| insert_account(tx, new, key_id, api_key, now)))
}

fn insert_account(
    tx: &WriteTx<'_>,
    new: NewUser,
    key_id: String,
    api_key: ApiKey,
    now: Timestamp,
) -> Result<NewAccount> {
    let Some(user_key) = users::insert(tx, &new)? else {
        return Err(Error::refused(
            ErrorCode::DuplicateEmail,
            "This email address is already registered",
        ));
    };
    api_keys::insert(tx, user_key, &key_id, FIRST_KEY, &api_key, now)?;
    Ok(NewAccount { id: new.id, email: new.email, api_key })
}

pub fn find_unconfirmed(read: &ReadTx<'_>, user_id: &str, token: &str) -> Result<Option<String>> {
    Ok(find_by_link(read, user_id, token)?.map(|user| user.email))
}

pub fn confirm_email(app: &App, user_id: String, token: String) -> Pending<Option<String>> {
    let (now, calls) = (app.clock.now(), app.unconfirmed_calls.clone());
    app.store.write(move |tx| {
        let Some(user) = find_by_link(tx, &user_id, &token)? else { return Ok(None) };
        confirm(tx, user.key, calls, now)?;
        Ok(Some(user.email))
    })
}

pub(super) fn confirm(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    calls: Option<CallLimiter>,
    now: Timestamp,
) -> Result<()> {
    users::confirm(tx, user_key, now)?;
    delivery_queue::let_go(tx, user_key, now)?;
    if let Some(calls) = calls {
        tx.on_commit(move || calls.lock().forget(user_key));
    }
    Ok(())
}

fn find_by_link(read: &ReadTx<'_>, user_id: &str, token: &str) -> Result<Option<User>> {
    let Some(user) = users::find_by_id(read, user_id)? else { return Ok(None) };
    let expected = users::confirmation_token(read, user.key)?;
    // Hashes are compared, so that the time does not reveal how much of the token is right.
    let hash = |token: &str| sha256(token.as_bytes());
    let is_valid = expected.is_some_and(|expected| hash(expected.expose()) == hash(token));
    Ok(Some(user).filter(|user| is_valid && user.disabled_at.is_none()))
}

/// Creates another API key for a user, who may have `limit` of them; `None` is no limit. Errors: `key_limit_exceeded`.
pub fn create_key(
    store: &Store,
    user_key: UserKey,
    name: String,
    limit: Option<i64>,
    now: Timestamp,
) -> Result<Pending<NewApiKey>> {
    let id = random_id()?;
    let api_key = ApiKey::from_random(random::bytes()?);
    Ok(store.write_for(user_key, move |tx| {
        check_key_limit(tx, user_key, limit)?;
        api_keys::insert(tx, user_key, &id, &name, &api_key, now)?;
        Ok(NewApiKey { id, name, api_key, created_at: now })
    }))
}

/// Errors: `invalid_api_key` when the key was revoked in the meantime, `invalid_state` by a session.
pub fn regenerate_key(app: &App, caller: &Caller) -> Result<Pending<ApiKey>> {
    let Credential::ApiKey { hash: old, .. } = caller.credential else {
        let message = "A session has no API key to replace: make a key, and revoke the old one";
        return Err(Error::refused(ErrorCode::InvalidState, message));
    };
    let (now, id) = (app.clock.now(), random_id()?);
    let mail = replacement_mail(app, caller.user_key, now);
    let api_key = ApiKey::from_random(random::bytes()?);
    Ok(app.store.write_for(caller.user_key, move |tx| {
        stored_sessions::delete_of_key(tx, &old)?;
        if api_keys::replace(tx, &old, &id, &api_key, now)? {
            mail(tx, ReplacedCredential::ApiKey)?;
            Ok(api_key)
        } else {
            Err(Error::refused(ErrorCode::InvalidApiKey, "This API key was revoked"))
        }
    }))
}

/// Revokes one of a user's API keys, except the last. Errors: `key_not_found`, `last_key`.
pub fn revoke_key(store: &Store, user_key: UserKey, id: String) -> Pending<()> {
    store.write_for(user_key, move |tx| {
        if !api_keys::delete(tx, user_key, &id)? {
            return Err(Error::refused(ErrorCode::KeyNotFound, "API key not found"));
        }
        // The error rolls the deletion back.
        if !api_keys::has_at_least(tx, user_key, 1)? {
            let message = "This is the account's last API key: add another one first";
            return Err(Error::refused(ErrorCode::LastKey, message));
        }
        Ok(())
    })
}

pub fn rotate_secret(app: &App, caller: &Caller) -> Result<Pending<(Secret, Timestamp)>> {
    let (now, user_key) = (app.clock.now(), caller.user_key);
    let secret = new_webhook_secret(random::bytes()?);
    let expires = saturating_add(now, SECRET_OVERLAP);
    let mail = replacement_mail(app, user_key, now);
    Ok(app.store.write_for(user_key, move |tx| {
        users::rotate_secret(tx, user_key, &secret, expires)?;
        mail(tx, ReplacedCredential::WebhookSecret)?;
        Ok((secret, expires))
    }))
}

pub fn rotate_alert_secret(app: &App, caller: &Caller) -> Result<Pending<Secret>> {
    let user_key = caller.user_key;
    let secret = new_webhook_secret(random::bytes()?);
    let mail = replacement_mail(app, user_key, app.clock.now());
    Ok(app.store.write_for(user_key, move |tx| {
        users::set_alert_webhook_secret(tx, user_key, &secret)?;
        mail(tx, ReplacedCredential::AlertWebhookSecret)?;
        Ok(secret)
    }))
}

/// Without a mail server the mail would be a line in the log, which its user does not read.
fn replacement_mail(
    app: &App,
    user_key: UserKey,
    now: Timestamp,
) -> impl FnOnce(&WriteTx<'_>, ReplacedCredential) -> Result<()> + use<> {
    let has_server = matches!(app.config.mail, MailTransport::Smtp(_));
    move |tx, replaced| {
        if has_server { mails::mail_replacement(tx, user_key, replaced, now) } else { Ok(()) }
    }
}

/// Alerts raised before are still sent to the previous URL.
pub fn set_alert_url(app: &App, caller: &Caller, url: Option<String>) -> Pending<()> {
    let user_key = caller.user_key;
    app.store
        .write_for(user_key, move |tx| users::set_alert_webhook_url(tx, user_key, url.as_deref()))
}

/// Pauses the newest cues above the limit; their due runs fire before. Returns the number of paused cues.
pub fn change_plan(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    plan: &str,
    limits: PlanLimits,
    firer: &CueFirer,
) -> Result<usize> {
    fire_overdue_above_limit(tx, user_key, limits.cues, firer)?;
    users::set_plan(tx, user_key, plan)?;
    pause_above_limit(tx, user_key, limits.cues, firer.now())
}

/// A delivery in progress finishes but is not retried. Nothing of the account is due later: what waits is dropped now, and
/// an outcome that nobody can report is missing now. Nor does a login or a link that is not used yet work later.
pub fn disable(tx: &WriteTx<'_>, user_key: UserKey, now: Timestamp) -> Result<()> {
    users::disable(tx, user_key, now)?;
    device_logins::delete_approved(tx, user_key, None)?;
    stored_sessions::delete_links(tx, user_key, LinkKind::Session)?;
    pause_above_limit(tx, user_key, Some(0), now)?;
    delivery_queue::fail_all_for_user(tx, user_key, ACCOUNT_DISABLED, now)?;
    policies::miss_outcomes_of_user(tx, user_key, now)?;
    outbox::delete_waiting(tx, user_key)?;
    channels::silence(tx, user_key)
}

pub fn disabled() -> Refusal {
    Refusal::new(ErrorCode::InvalidApiKey, "This account is disabled")
}

pub(super) fn new_user(email: &str, plan: &str, now: Timestamp) -> Result<NewUser> {
    Ok(NewUser {
        id: random_id()?,
        email: email.to_owned(),
        plan: plan.to_owned(),
        webhook_secret: new_webhook_secret(random::bytes()?),
        alert_webhook_secret: new_webhook_secret(random::bytes()?),
        created_at: now,
        confirmation_token: None,
    })
}

pub(super) fn check_key_limit(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    limit: Option<i64>,
) -> Result<()> {
    let Some(limit) = limit else { return Ok(()) };
    if !api_keys::has_at_least(tx, user_key, limit)? {
        return Ok(());
    }
    let message = format!(
        "The account has {limit} API keys, which is the limit: revoke one that is no longer used"
    );
    Err(Error::refused(ErrorCode::KeyLimitExceeded, message))
}

pub(super) fn random_id() -> Result<String> {
    random::uuid()
}
