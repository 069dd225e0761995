//! Device login: the three doors of the device, and the pages of the person in front of it.

use std::sync::PoisonError;

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::actions::device_login as actions;
use crate::domain::account::credentials::Email;
use crate::domain::account::device_login::{
    DeviceCode, DeviceLogin, LIFETIME, LinkStatus, LinkToken, LoginState, POLL_INTERVAL_SECS,
};
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::error::{Error, Result};
use crate::http::pages::device_login as pages;
use crate::http::pages::device_login::LoginFormState;
use crate::http::request::Request;
use crate::http::response::Response;
use crate::store::accounts::device_logins;

/// `POST /v1/auth/device-code {device_code?}`
pub async fn start(request: Request) -> Result<Response> {
    let mut fields = request.optional_fields()?;
    let text = fields.string("device_code", 6..=128);
    let code = text.as_deref().and_then(DeviceCode::parse);
    if text.is_some() && code.is_none() {
        fields.refuse("device_code", "use letters, digits and hyphens only: A-Z a-z 0-9 -");
    }
    fields.finish()?;
    let (app, client) = (&request.app, request.client);
    let code = actions::start(app, code, client, request.now)?.await?;
    Ok(Response::created(&json!({
        "device_code": code.as_str(),
        "verification_url": format!("{}/auth/device?code={code}", app.config.public_url),
        "expires_in": LIFETIME.as_secs(),
        "interval": POLL_INTERVAL_SECS,
    })))
}

/// `POST /v1/auth/device-code/submit-email {device_code, email}`
pub async fn submit_email(request: Request) -> Result<Response> {
    let mut fields = request.fields()?;
    let code = fields.required_string("device_code", 0..=1_000);
    let text = fields.required_string("email", 0..=1_000);
    let email = text.as_deref().and_then(|text| match Email::parse(text) {
        Ok(email) => Some(email),
        Err(fault) => {
            fields.refuse("email", &fault.to_string());
            None
        }
    });
    fields.finish()?;
    let (Some(code), Some(email)) = (code, email) else {
        return Err(Error::fault("a field of a request is gone"));
    };
    send_link(&request, &code, email).await?;
    Ok(Response::ok(&json!({"status": LoginState::EmailSent.as_str()})))
}

/// `POST /v1/auth/device-code/poll {device_code}`
pub async fn poll(request: Request) -> Result<Response> {
    let mut fields = request.fields()?;
    let text = fields.required_string("device_code", 0..=1_000);
    fields.finish()?;
    let Some(code) = text.as_deref().and_then(DeviceCode::parse) else { return Ok(polled(None)) };
    let Some(login) = find(&request, &code).await? else { return Ok(polled(None)) };
    let waits =
        request.app.polls.lock().unwrap_or_else(PoisonError::into_inner).admit(code.hash(), request.now);
    if let Some(seconds) = waits {
        let message = format!("Poll once in {POLL_INTERVAL_SECS} s; try again in {seconds} s");
        let refusal = Refusal::new(ErrorCode::RateLimitExceeded, message);
        return Err(Refusal { retry_after: Some(seconds), ..refusal }.into());
    }
    match login.state_at(request.now) {
        Some(LoginState::Approved) => {
            let found = actions::claim(&request.app, code, request.now)?.await?;
            let Some((api_key, email)) = found.handed_out else { return Ok(polled(found.state)) };
            let status = LoginState::Approved.as_str();
            Ok(Response::ok(&json!({"status": status, "api_key": api_key.reveal(), "email": email})))
        }
        state => Ok(polled(state)),
    }
}

/// `GET /auth/device?code=…`
pub async fn device_page(request: Request) -> Result<Response> {
    let query = request.query();
    let url = &request.app.config.public_url;
    let Some(text) = query.raw("code").filter(|text| !text.is_empty()) else {
        return Ok(pages::ask_email(url, LoginFormState::default()).reply(StatusCode::OK));
    };
    let login = match DeviceCode::parse(text) {
        Some(code) => find(&request, &code).await?,
        None => None,
    };
    Ok(if login.is_some_and(|login| login.accepts_email(request.now)) {
        pages::ask_email(url, LoginFormState { code: Some(text), ..LoginFormState::default() })
            .reply(StatusCode::OK)
    } else {
        pages::dead_code(text).reply(StatusCode::NOT_FOUND)
    })
}

/// `POST /auth/device` by the form of that page
pub async fn device_form(request: Request) -> Result<Response> {
    let form = request.form();
    let (code, text) = (form.raw("code").unwrap_or_default().trim(), form.raw("email").unwrap_or_default());
    let email = match Email::parse(text) {
        Ok(email) => email,
        Err(fault) => {
            let fault = fault.to_string();
            let entered = LoginFormState { code: Some(code), email: text, fault: Some(&fault) };
            let page = pages::ask_email(&request.app.config.public_url, entered);
            return Ok(page.reply(StatusCode::UNPROCESSABLE_ENTITY));
        }
    };
    let page = pages::mail_sent(code, email.as_str());
    match send_link(&request, code, email).await {
        Err(Error::Refused(refusal)) if refusal.code == ErrorCode::DeviceCodeNotFound => {
            Ok(pages::dead_code(code).reply(StatusCode::NOT_FOUND))
        }
        sent => sent.map(|()| page.reply(StatusCode::OK)),
    }
}

/// `GET /v1/auth/verify?token=…&device_code=…`: only shows, so that a mail scanner that opens links confirms nothing
pub async fn verify_page(request: Request) -> Result<Response> {
    let query = request.query();
    let (token, text) =
        (query.raw("token").unwrap_or_default(), query.raw("device_code").unwrap_or_default());
    let login = match DeviceCode::parse(text) {
        Some(code) => find(&request, &code).await?,
        None => None,
    };
    let hash = LinkToken::hash_of(token);
    let link = login.as_ref().map_or(LinkStatus::Unknown, |login| login.link_status(&hash, request.now));
    match (link, login.and_then(|login| login.email)) {
        (LinkStatus::Valid, Some(email)) => {
            let url = &request.app.config.public_url;
            Ok(pages::ask_confirmation(url, text, token, &email).reply(StatusCode::OK))
        }
        _ => Ok(dead_link(link)),
    }
}

/// `POST /v1/auth/verify` by the form of that page; or with an empty body, and the values in the query
pub async fn confirm(request: Request) -> Result<Response> {
    let (form, query) = (request.form(), request.query());
    let value = |name| form.raw(name).or_else(|| query.raw(name)).unwrap_or_default();
    let (token, text) = (value("token"), value("device_code"));
    let Some(code) = DeviceCode::parse(text) else { return Ok(dead_link(LinkStatus::Unknown)) };
    match actions::approve(&request.app, &code, token, request.now)?.await? {
        LinkStatus::Valid => Ok(pages::confirmed(text).reply(StatusCode::OK)),
        link => Ok(dead_link(link)),
    }
}

/// Takes the address and hands the mail over, if there is one.
async fn send_link(request: &Request, code: &str, email: Email) -> Result<()> {
    let Some(code) = DeviceCode::parse(code) else {
        return Err(Error::refused(ErrorCode::DeviceCodeNotFound, "There is no such device code"));
    };
    let app = std::sync::Arc::clone(&request.app);
    let pending = actions::submit_email(&app, code, email, request.now)?;
    // A task of its own: a caller that hangs up between the commit and the hand-over must not cost the mail.
    let sent = tokio::spawn(async move {
        app.post.hand_over(pending.await?);
        Ok(())
    });
    sent.await.map_err(|error| Error::fault_from("a mail was not handed over", error))?
}

async fn find(request: &Request, code: &DeviceCode) -> Result<Option<DeviceLogin>> {
    let hash = code.hash();
    request.app.store.read(move |read| device_logins::find(read, &hash)).await
}

fn polled(state: Option<LoginState>) -> Response {
    // An approved login is told with its key, or not at all.
    let status: Value = state.map_or("expired", LoginState::as_str).into();
    Response::ok(&json!({"status": status}))
}

fn dead_link(link: LinkStatus) -> Response {
    let status = match link {
        LinkStatus::Used | LinkStatus::Expired => StatusCode::GONE,
        LinkStatus::Unknown | LinkStatus::Valid => StatusCode::NOT_FOUND,
    };
    pages::dead_link(link).reply(status)
}
