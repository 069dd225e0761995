//! Device login: the three endpoints for the device, and the pages for its user.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::domain::account::client_ip::rate_limit_address;
use crate::domain::account::credentials::Email;
use crate::domain::account::device_login::{
    DeviceCode, DeviceLogin, LIFETIME, LinkStatus, LoginPurpose, LoginState, OtherKeys, POLL_INTERVAL_SECS,
};
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::error::{Error, Result};
use crate::http::api::account::required_email;
use crate::http::pages::device_login as pages;
use crate::http::pages::device_login::LoginFormState;
use crate::http::request::Request;
use crate::http::response::Response;
use crate::service;
use crate::service::accounts;
use crate::service::device_login::{StartedLogin, SubmittedEmail};
use crate::store::ReadTx;
use crate::store::accounts::device_logins;

/// `POST /v1/auth/device-code {device_code?, for?}`
pub async fn start(request: Request) -> Result<Response> {
    let mut fields = request.optional_fields()?;
    let text = fields.string("device_code", 6..=128);
    let code = text.as_deref().and_then(DeviceCode::parse);
    if text.is_some() && code.is_none() {
        fields
            .reject("device_code", "device_code should contain only letters (A-Z, a-z), digits and hyphens");
    }
    let purpose = fields.one_of("for", &LoginPurpose::WORDS).and_then(LoginPurpose::parse);
    let purpose = purpose.unwrap_or(LoginPurpose::Key);
    fields.finish()?;
    let (app, client_ip) = (&request.app, request.client_ip);
    let StartedLogin { device_code, user_code } =
        service::device_login::start(app, code, purpose, client_ip, request.now)?.await?;
    let user_code = user_code.as_str();
    Ok(Response::created(&json!({
        "device_code": device_code.as_str(),
        "user_code": user_code,
        "verification_url": format!("{}/auth/device?code={user_code}", app.config.public_url),
        "expires_in": LIFETIME.as_secs(),
        "interval": POLL_INTERVAL_SECS,
    })))
}

/// `POST /v1/auth/device-code/submit-email {device_code, email}`
pub async fn submit_email(request: Request) -> Result<Response> {
    let mut fields = request.fields()?;
    let code = fields.required_string("device_code", 0..=1_000);
    let email = required_email(&mut fields);
    fields.finish()?;
    let (Some(code), Some(email)) = (code, email) else {
        return Err(Error::fault("a field of a request is missing after validation"));
    };
    send_link(&request, code, email).await?;
    Ok(Response::ok(&json!({"status": LoginState::EmailSent.as_str()})))
}

/// `POST /v1/auth/device-code/poll {device_code}`
pub async fn poll(request: Request) -> Result<Response> {
    let mut fields = request.fields()?;
    let text = fields.required_string("device_code", 0..=1_000);
    fields.finish()?;
    let Some(code) = text.as_deref().and_then(DeviceCode::parse) else { return Ok(poll_response(None)) };
    let Some(login) = find(&request, &code).await? else { return Ok(poll_response(None)) };
    // The code has its own limit. Without a known code a request guesses, and counts for its address.
    request.exempt_from_rate_limit();
    let retry_after = request.app.polls.lock().admit(code.hash(), request.now);
    if let Some(seconds) = retry_after {
        let message = format!("Poll at most once every {POLL_INTERVAL_SECS} s; try again in {seconds} s");
        return Err(Refusal::new(ErrorCode::RateLimitExceeded, message).retry_after(seconds).into());
    }
    match login.state_at(request.now) {
        // The session begins with POST /v1/auth/session, which sets the cookie.
        Some(state @ LoginState::Approved) if login.is_for_session => {
            Ok(Response::ok(&json!({"status": state.as_str(), "email": login.email})))
        }
        Some(LoginState::Approved) => {
            let claim = service::device_login::claim(&request.app, code, request.now)?.await?;
            let Some((api_key, email)) = claim.handed_out else { return Ok(poll_response(claim.state)) };
            let status = LoginState::Approved.as_str();
            Ok(Response::ok(&json!({"status": status, "api_key": api_key.reveal(), "email": email})))
        }
        state => Ok(poll_response(state)),
    }
}

/// `GET /auth/device?code=…`
pub async fn device_page(request: Request) -> Result<Response> {
    let query = request.query();
    let url = &request.app.config.public_url;
    let Some(text) = query.raw("code").filter(|text| !text.is_empty()) else {
        return Ok(pages::ask_email(url, LoginFormState::default()).into_response(StatusCode::OK));
    };
    let code = text.to_owned();
    let find = move |read: &ReadTx<'_>| device_logins::find_by_text(read, &code);
    let login = request.app.store.read(find).await?.filter(|login| login.accepts_email(request.now));
    Ok(match login {
        Some(login) => {
            let code = login.user_code.as_deref().unwrap_or(text);
            pages::ask_email(url, LoginFormState { code: Some(code), ..LoginFormState::default() })
                .into_response(StatusCode::OK)
        }
        None => pages::unusable_code(text).into_response(StatusCode::NOT_FOUND),
    })
}

/// `POST /auth/device`, sent by the form on that page
pub async fn submit_device_form(request: Request) -> Result<Response> {
    let form = request.form();
    let (code, text) = (form.raw("code").unwrap_or_default().trim(), form.raw("email").unwrap_or_default());
    let email = match Email::parse(text) {
        Ok(email) => email,
        Err(error) => {
            let error = error.to_string();
            let state = LoginFormState { code: Some(code), email: text, error: Some(&error) };
            let page = pages::ask_email(&request.app.config.public_url, state);
            return Ok(page.into_response(StatusCode::UNPROCESSABLE_ENTITY));
        }
    };
    match send_link(&request, code.to_owned(), email.clone()).await {
        Err(Error::Refused(refusal)) if refusal.code == ErrorCode::DeviceCodeNotFound => {
            Ok(pages::unusable_code(code).into_response(StatusCode::NOT_FOUND))
        }
        result => result.map(|code| pages::mail_sent(&code, email.as_str()).into_response(StatusCode::OK)),
    }
}

/// `GET /v1/auth/verify?token=…&user_code=…` for a login, `?token=…&user=…` for an address: only asks, because mail scanners
/// open links too
pub async fn verify_page(request: Request) -> Result<Response> {
    let query = request.query();
    let value = |name| query.raw(name).unwrap_or_default().to_owned();
    let (token, url) = (value("token"), &request.app.config.public_url);
    if let Some(user_id) = query.raw("user") {
        let (user, secret) = (user_id.to_owned(), token.clone());
        let find = move |read: &ReadTx<'_>| accounts::find_unconfirmed(read, &user, &secret);
        return Ok(match request.app.store.read(find).await? {
            Some(email) => {
                pages::ask_email_confirmation(url, &token, user_id, &email).into_response(StatusCode::OK)
            }
            None => pages::unusable_email_link().into_response(StatusCode::NOT_FOUND),
        });
    }
    // Links of earlier versions have the device code.
    let code = query.raw("user_code").map_or_else(|| value("device_code"), str::to_owned);
    let (secret, now) = (token.clone(), request.now);
    let find = move |read: &ReadTx<'_>| service::device_login::find_to_confirm(read, &code, &secret, now);
    Ok(match request.app.store.read(find).await? {
        Ok(login) => pages::ask_confirmation(url, &token, &login).into_response(StatusCode::OK),
        Err(link) => unusable_link(link),
    })
}

/// `POST /v1/auth/verify`, sent by the form on that page, or with an empty body and the values in the query
pub async fn confirm(request: Request) -> Result<Response> {
    let (form, query) = (request.form(), request.query());
    let value = |name| form.raw(name).or_else(|| query.raw(name));
    let token = value("token").unwrap_or_default();
    if let Some(user_id) = value("user") {
        let confirmed = accounts::confirm_email(&request.app, user_id.to_owned(), token.to_owned()).await?;
        return Ok(match confirmed {
            Some(email) => pages::email_confirmed(&email).into_response(StatusCode::OK),
            None => pages::unusable_email_link().into_response(StatusCode::NOT_FOUND),
        });
    }
    let code = value("user_code").or_else(|| value("device_code")).unwrap_or_default();
    let other_keys = value("other_keys").and_then(OtherKeys::parse);
    match service::device_login::approve(&request.app, code.to_owned(), token, other_keys, request.now)?
        .await?
    {
        LinkStatus::Valid => Ok(pages::confirmed().into_response(StatusCode::OK)),
        link => Ok(unusable_link(link)),
    }
}

/// Stores the address and queues the mail with the link, if the address may log in. Returns the code that the mail shows.
async fn send_link(request: &Request, code: String, email: Email) -> Result<String> {
    let app = std::sync::Arc::clone(&request.app);
    // Counted for every address alike, and before the login changes: a mail is refused or sent, never lost.
    let client = rate_limit_address(request.client_ip);
    app.mail_limits.take_sign_in(client, request.now).map_err(too_many_mails)?;
    let pending = service::device_login::submit_email(&app, code, email, request.client_ip, request.now)?;
    // A separate task: the mail must be queued even if the client disconnects after the commit.
    let task = tokio::spawn(async move {
        let submitted = pending.await;
        if !submitted.as_ref().is_ok_and(|submitted| submitted.mail.is_some()) {
            app.mail_limits.give_back_sign_in();
        }
        let SubmittedEmail { mail, user_code } = submitted?;
        app.login_mailer.enqueue(mail);
        Ok(user_code)
    });
    task.await.map_err(|error| Error::fault_from("a mail could not be queued", error))?
}

fn too_many_mails(seconds: u32) -> Refusal {
    let message = format!(
        "This server has sent its hourly number of sign-in mails, or its share for this client address: try again in \
         {seconds} s"
    );
    Refusal::new(ErrorCode::RateLimitExceeded, message).retry_after(seconds)
}

async fn find(request: &Request, code: &DeviceCode) -> Result<Option<DeviceLogin>> {
    let hash = code.hash();
    request.app.store.read(move |read| device_logins::find(read, &hash)).await
}

fn poll_response(state: Option<LoginState>) -> Response {
    // Never `approved`: that status is only returned together with the API key, or for a session.
    let status: Value = state.map_or("expired", LoginState::as_str).into();
    Response::ok(&json!({"status": status}))
}

fn unusable_link(link: LinkStatus) -> Response {
    let status = match link {
        LinkStatus::Used | LinkStatus::Expired => StatusCode::GONE,
        LinkStatus::Unknown | LinkStatus::Valid => StatusCode::NOT_FOUND,
    };
    pages::unusable_link(link).into_response(status)
}
