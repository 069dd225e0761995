//! Device login: the three endpoints for the device, and the pages for its user.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::actions::device_login as actions;
use crate::domain::account::credentials::Email;
use crate::domain::account::device_login::{
    DeviceCode, DeviceLogin, LIFETIME, LinkStatus, LinkToken, LoginState, POLL_INTERVAL_SECS,
};
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::error::{Error, Result};
use crate::http::api::account::required_email;
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
        fields
            .reject("device_code", "device_code should contain only letters (A-Z, a-z), digits and hyphens");
    }
    fields.finish()?;
    let (app, client_ip) = (&request.app, request.client_ip);
    let code = actions::start(app, code, client_ip, request.now)?.await?;
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
    let email = required_email(&mut fields);
    fields.finish()?;
    let (Some(code), Some(email)) = (code, email) else {
        return Err(Error::fault("a field of a request is missing after validation"));
    };
    send_link(&request, &code, email).await?;
    Ok(Response::ok(&json!({"status": LoginState::EmailSent.as_str()})))
}

/// `POST /v1/auth/device-code/poll {device_code}`
pub async fn poll(request: Request) -> Result<Response> {
    let mut fields = request.fields()?;
    let text = fields.required_string("device_code", 0..=1_000);
    fields.finish()?;
    let Some(code) = text.as_deref().and_then(DeviceCode::parse) else { return Ok(poll_response(None)) };
    let Some(login) = find(&request, &code).await? else { return Ok(poll_response(None)) };
    let retry_after = request.app.polls.lock().admit(code.hash(), request.now);
    if let Some(seconds) = retry_after {
        let message = format!("Poll at most once every {POLL_INTERVAL_SECS} s; try again in {seconds} s");
        let refusal = Refusal::new(ErrorCode::RateLimitExceeded, message);
        return Err(Refusal { retry_after: Some(seconds), ..refusal }.into());
    }
    match login.state_at(request.now) {
        Some(LoginState::Approved) => {
            let claim = actions::claim(&request.app, code, request.now)?.await?;
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
    let login = match DeviceCode::parse(text) {
        Some(code) => find(&request, &code).await?,
        None => None,
    };
    Ok(if login.is_some_and(|login| login.accepts_email(request.now)) {
        pages::ask_email(url, LoginFormState { code: Some(text), ..LoginFormState::default() })
            .into_response(StatusCode::OK)
    } else {
        pages::unusable_code(text).into_response(StatusCode::NOT_FOUND)
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
    let page = pages::mail_sent(code, email.as_str());
    match send_link(&request, code, email).await {
        Err(Error::Refused(refusal)) if refusal.code == ErrorCode::DeviceCodeNotFound => {
            Ok(pages::unusable_code(code).into_response(StatusCode::NOT_FOUND))
        }
        result => result.map(|()| page.into_response(StatusCode::OK)),
    }
}

/// `GET /v1/auth/verify?token=…&device_code=…`: only asks, because mail scanners open links too
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
            Ok(pages::ask_confirmation(url, text, token, &email).into_response(StatusCode::OK))
        }
        _ => Ok(unusable_link(link)),
    }
}

/// `POST /v1/auth/verify`, sent by the form on that page, or with an empty body and the values in the query
pub async fn confirm(request: Request) -> Result<Response> {
    let (form, query) = (request.form(), request.query());
    let value = |name| form.raw(name).or_else(|| query.raw(name)).unwrap_or_default();
    let (token, text) = (value("token"), value("device_code"));
    let Some(code) = DeviceCode::parse(text) else { return Ok(unusable_link(LinkStatus::Unknown)) };
    match actions::approve(&request.app, &code, token, request.now)?.await? {
        LinkStatus::Valid => Ok(pages::confirmed(text).into_response(StatusCode::OK)),
        link => Ok(unusable_link(link)),
    }
}

/// Stores the address and queues the mail with the link, if the address may log in.
async fn send_link(request: &Request, code: &str, email: Email) -> Result<()> {
    let Some(code) = DeviceCode::parse(code) else {
        return Err(Error::refused(
            ErrorCode::DeviceCodeNotFound,
            "There is no such device code; start the login again on the device",
        ));
    };
    let app = std::sync::Arc::clone(&request.app);
    let pending = actions::submit_email(&app, code, email, request.now)?;
    // A separate task: the mail must be queued even if the client disconnects after the commit.
    let task = tokio::spawn(async move {
        app.login_mailer.enqueue(pending.await?);
        Ok(())
    });
    task.await.map_err(|error| Error::fault_from("a mail could not be queued", error))?
}

async fn find(request: &Request, code: &DeviceCode) -> Result<Option<DeviceLogin>> {
    let hash = code.hash();
    request.app.store.read(move |read| device_logins::find(read, &hash)).await
}

fn poll_response(state: Option<LoginState>) -> Response {
    // Never `approved`: that status is only returned together with the API key.
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
