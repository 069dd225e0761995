//! `/v1/auth`: registration, account, API keys, and the secrets of webhooks and alerts (contract §3.2 to §3.7, §3.11).

use serde_json::{Value, json};

use crate::api::cue::check_url_of;
use crate::api::fields::JsonFields;
use crate::domain::account::credentials::Email;
use crate::domain::account::plan::limit_or_max;
use crate::domain::account::rate_limit::rate_limit_address;
use crate::domain::account::user::{
    ApiKeyInfo, Credential, CredentialKind, MAX_REGISTRATIONS, RegistrationPolicy,
};
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::time::instant;
use crate::error::{Error, Result};
use crate::http::list::ListBody;
use crate::http::message::{Request, Response};
use crate::service;
use crate::store::ReadTx;
use crate::store::accounts::{api_keys, users};
use crate::store::db::meta;

/// Reads the field `email`. Adds a validation error if it is not an address.
pub fn required_email(fields: &mut JsonFields<'_>) -> Option<Email> {
    let text = fields.required().string("email", 0..=1_000)?;
    match Email::parse(&text) {
        Ok(email) => Some(email),
        Err(error) => {
            fields.reject("email", &error.to_string());
            None
        }
    }
}

/// `POST /v1/auth/register {email}`
pub async fn register(request: Request) -> Result<Response> {
    let mut fields = request.fields()?;
    let email = required_email(&mut fields);
    let email = fields.finish_with(email)?;
    let (app, config) = (&request.app, &request.app.config);
    let fixed = config.registration;
    let registration = app.store.read_inline(move |read| meta::registration(read, fixed)).await?;
    let is_limited = registration == RegistrationPolicy::Open && config.plans.bounds_unconfirmed();
    let client = rate_limit_address(request.client_ip);
    if let (true, Some(seconds)) =
        (is_limited, app.registrations.lock().admit(client, app.clock.now_moving()))
    {
        return Err(too_many_registrations(seconds));
    }
    let plan = config.plans.default_plan();
    let account = service::accounts::register(&app.store, email, plan, fixed, request.now)?.await;
    if account.is_err() {
        app.registrations.lock().return_unused(client);
    }
    let account = account?;
    Ok(Response::created(
        &json!({"id": account.id, "email": account.email, "api_key": account.api_key.expose()}),
    ))
}

pub async fn me(request: Request) -> Result<Response> {
    let (caller, now) = (request.caller()?, request.now);
    let api_key = caller.credential.api_key();
    let find = move |read: &ReadTx<'_>, user_key| {
        let user = users::find(read, user_key)?;
        let executions = users::monthly_usage(read, user_key, now)?.executions;
        let key = api_key.map(|key| api_keys::id_and_prefix(read, user_key, key)).transpose()?;
        Ok((user, executions, key.flatten()))
    };
    let (user, executions, key) = request.read_own(find).await?;
    let user = user.ok_or_else(|| Error::fault("the user of a request does not exist"))?;
    let (key_id, prefix) = key.unzip();
    let auth = match &caller.credential {
        Credential::ApiKey { .. } => json!({"via": CredentialKind::Key.as_str(), "id": key_id}),
        Credential::Session { id, .. } => {
            json!({"via": CredentialKind::Session.as_str(), "id": id})
        }
    };
    let limits = request.app.config.plans.limits(&user.plan);
    Ok(Response::ok(&json!({
        "id": user.id,
        "email": user.email,
        "plan": user.plan,
        "is_operator": user.is_operator,
        "has_webhook_secret": true,
        "alert_webhook_url": user.alert_webhook_url,
        "active_cues": user.active_cues,
        "active_cue_limit": limit_or_max(limits.cues),
        "monthly_executions": executions,
        "executions_this_month": executions,
        "monthly_execution_limit": limit_or_max(limits.executions),
        "rate_limit_per_minute": limit_or_max(limits.requests_per_minute),
        "api_key_prefix": prefix,
        "created_at": instant(user.created_at),
        "auth": auth,
    })))
}

/// `PATCH /v1/auth/me {alert_webhook_url}`: `null` or `""` removes the URL. Returns the same as `GET`.
pub async fn update_me(request: Request) -> Result<Response> {
    let caller = request.caller()?;
    let mut fields = request.fields()?;
    let url = fields
        .nullable("alert_webhook_url", |fields| fields.string("alert_webhook_url", 0..=usize::MAX));
    fields.forbid_unknown();
    fields.finish()?;
    let check =
        |url: String| check_url_of("alert_webhook_url", &url, &request.app.config.callbacks);
    if let Some(url) = url {
        let url = url.filter(|url| !url.is_empty()).map(check).transpose()?;
        service::accounts::set_alert_url(&request.app, &caller, url).await?;
    }
    me(request).await
}

pub async fn regenerate_key(request: Request) -> Result<Response> {
    let caller = request.caller()?;
    let api_key = service::accounts::regenerate_key(&request.app, &caller)?.await?;
    Ok(Response::ok(&json!({
        "api_key": api_key.expose(),
        "message": "Store this key now: it is not shown again. The previous key is revoked.",
        "previous_key_revoked": true,
    })))
}

pub async fn list_keys(request: Request) -> Result<Response> {
    let current = match request.caller()?.credential {
        Credential::ApiKey { key, .. } => Some(key),
        Credential::Session { .. } => None,
    };
    let keys = request.read_own(api_keys::list).await?;
    let list =
        ListBody::new("keys", keys.iter().map(|key| render_key(key, Some(key.key) == current)))?;
    Ok(list.with_more(false).into_response())
}

/// `POST /v1/auth/keys {name}`
pub async fn create_key(request: Request) -> Result<Response> {
    let user_key = request.user_key()?;
    let mut fields = request.fields()?;
    let name = fields.required().string("name", 1..=255);
    let name = fields.finish_with(name)?;
    let app = &request.app;
    let key = service::accounts::create_key(
        &app.store,
        user_key,
        name,
        app.config.plans.max_keys(),
        request.now,
    )?
    .await?;
    Ok(Response::created(&json!({
        "id": key.id,
        "name": key.name,
        "prefix": key.api_key.prefix(),
        "created_at": instant(key.created_at),
        "current": false,
        "api_key": key.api_key.expose(),
    })))
}

pub async fn revoke_key(request: Request) -> Result<Response> {
    let user_key = request.user_key()?;
    service::accounts::revoke_key(&request.app.store, user_key, request.param("key_id").to_owned())
        .await?;
    Ok(Response::no_content())
}

pub async fn webhook_secret(request: Request) -> Result<Response> {
    let secret = request.read_own(users::webhook_secret).await?;
    Ok(Response::ok(&json!({"webhook_secret": secret.expose()})))
}

pub async fn rotate_secret(request: Request) -> Result<Response> {
    let caller = request.caller()?;
    let (secret, expires) = service::accounts::rotate_secret(&request.app, &caller)?.await?;
    Ok(Response::ok(&json!({
        "webhook_secret": secret.expose(),
        "previous_secret_expires_at": instant(expires),
    })))
}

pub async fn alert_secret(request: Request) -> Result<Response> {
    let secret = request.read_own(users::alert_webhook_secret).await?;
    Ok(Response::ok(&json!({"alert_webhook_secret": secret.expose()})))
}

pub async fn rotate_alert_secret(request: Request) -> Result<Response> {
    let caller = request.caller()?;
    let secret = service::accounts::rotate_alert_secret(&request.app, &caller)?.await?;
    Ok(Response::ok(
        &json!({"alert_webhook_secret": secret.expose(), "previous_secret_revoked": true}),
    ))
}

fn too_many_registrations(seconds: u32) -> Error {
    let message = format!(
        "{MAX_REGISTRATIONS} accounts were registered from this client address within an hour: try again in {seconds} s, \
         or ask the operator for an account (cued user add)"
    );
    Refusal::new(ErrorCode::RateLimitExceeded, message).retry_after(seconds).into()
}

fn render_key(key: &ApiKeyInfo, current: bool) -> Value {
    json!({
        "id": key.id,
        "name": key.name,
        "prefix": key.prefix,
        "created_at": instant(key.created_at),
        "current": current,
    })
}
