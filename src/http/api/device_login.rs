//! Device login (contract §3.7, §9): the three endpoints for the device, and the pages for its user.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::json;

use crate::domain::account::credentials::Email;
use crate::domain::account::device_login::{
    DeviceCode, LIFETIME, LinkStatus, LoginPurpose, LoginState, OtherKeys, POLL_INTERVAL_SECS,
};
use crate::domain::account::rate_limit::customer_network;
use crate::domain::account::user::ApiKeyInfo;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::time::instant;
use crate::error::{Error, Result};
use crate::http::api::account::required_email;
use crate::http::message::{Request, Response};
use crate::http::pages::{Form, NoticeKind, Page, form_action};
use crate::service::device_login::{LoginToConfirm, StartedLogin, SubmittedEmail};
use crate::service::{accounts, device_login};
use crate::store::ReadTx;
use crate::store::accounts::device_logins;

/// `POST /v1/auth/device-code {device_code?, for?}`
pub async fn start(request: Request) -> Result<Response> {
    let mut fields = request.optional_fields()?;
    let text = fields.string("device_code", 6..=128);
    let code = text.as_deref().and_then(DeviceCode::parse);
    if text.is_some() && code.is_none() {
        fields.reject("device_code", "must contain only letters (A-Z, a-z), digits and hyphens");
    }
    let purpose = fields.one_of("for", &LoginPurpose::WORDS).and_then(LoginPurpose::parse);
    let purpose = purpose.unwrap_or(LoginPurpose::Key);
    fields.finish()?;
    let (app, client_ip) = (&request.app, request.client_ip);
    let StartedLogin { device_code, user_code } =
        device_login::start(app, code, purpose, client_ip, request.now)?.await?;
    let user_code = user_code.as_str();
    Ok(Response::created(&json!({
        "device_code": device_code.expose(),
        "user_code": user_code,
        "verification_url": format!("{}/auth/device?code={user_code}", app.config.public_url),
        "expires_in": LIFETIME.as_secs(),
        "interval": POLL_INTERVAL_SECS,
    })))
}

/// `POST /v1/auth/device-code/submit-email {device_code, email}`
pub async fn submit_email(request: Request) -> Result<Response> {
    let mut fields = request.fields()?;
    let code = fields.required().string("device_code", 0..=1_000);
    let email = required_email(&mut fields);
    let (code, email) = fields.finish_with(code.zip(email))?;
    send_link(&request, code, email).await?;
    Ok(Response::ok(&json!({"status": LoginState::EmailSent.as_str()})))
}

/// `POST /v1/auth/device-code/poll {device_code}`
pub async fn poll(request: Request) -> Result<Response> {
    let mut fields = request.fields()?;
    let text = fields.required().string("device_code", 0..=1_000);
    let Some(code) = DeviceCode::parse(&fields.finish_with(text)?) else {
        return Ok(poll_response(None));
    };
    let hash = code.hash();
    let login = request.app.store.read(move |read| device_logins::find(read, &hash)).await?;
    let Some(login) = login else { return Ok(poll_response(None)) };
    // The code has its own limit. Without a known code a request guesses, and counts for its address.
    request.exempt_from_rate_limit();
    let retry_after = request.app.polls.lock().admit(code.hash(), request.now);
    if let Some(seconds) = retry_after {
        let message =
            format!("Poll at most once every {POLL_INTERVAL_SECS} s; try again in {seconds} s");
        return Err(Refusal::new(ErrorCode::RateLimitExceeded, message)
            .retry_after(seconds)
            .into());
    }
    let status = LoginState::Approved.as_str();
    match login.state_at(request.now) {
        // The session begins with POST /v1/auth/session, which sets the cookie.
        Some(LoginState::Approved) if login.is_for_session => {
            Ok(Response::ok(&json!({"status": status, "email": login.email})))
        }
        Some(LoginState::Approved) => {
            let claim = device_login::claim(&request.app, code, request.now)?.await?;
            let Some((api_key, email)) = claim.handed_out else {
                return Ok(poll_response(claim.state));
            };
            Ok(Response::ok(
                &json!({"status": status, "api_key": api_key.expose(), "email": email}),
            ))
        }
        state => Ok(poll_response(state)),
    }
}

/// Never with the state `approved`, which comes only with the API key, or for a session.
fn poll_response(state: Option<LoginState>) -> Response {
    Response::ok(&json!({"status": state.map_or("expired", LoginState::as_str)}))
}

/// `GET /auth/device?code=…`
pub async fn device_page(request: Request) -> Result<Response> {
    let query = request.query();
    let Some(text) = query.raw("code").filter(|text| !text.is_empty()) else {
        return Ok(email_form(&request, None, "", None).into_response(StatusCode::OK));
    };
    let code = text.to_owned();
    let find = move |read: &ReadTx<'_>| device_logins::find_by_text(read, &code);
    let login =
        request.app.store.read(find).await?.filter(|login| login.accepts_email(request.now));
    Ok(match login {
        Some(login) => {
            let code = login.user_code.as_deref().unwrap_or(text);
            email_form(&request, Some(code), "", None).into_response(StatusCode::OK)
        }
        None => unusable_code(text),
    })
}

/// `POST /auth/device`, sent by the form on that page
pub async fn submit_device_form(request: Request) -> Result<Response> {
    let form = request.form();
    let (code, text) =
        (form.raw("code").unwrap_or_default().trim(), form.raw("email").unwrap_or_default());
    let email = match Email::parse(text) {
        Ok(email) => email,
        Err(error) => {
            let reason = format!("The email address {error}");
            let page = email_form(&request, Some(code), text, Some(&reason));
            return Ok(page.into_response(StatusCode::UNPROCESSABLE_ENTITY));
        }
    };
    match send_link(&request, code.to_owned(), email.clone()).await {
        Err(Error::Refused(refusal)) if refusal.code == ErrorCode::DeviceCodeNotFound => {
            Ok(unusable_code(code))
        }
        result => Ok(mail_sent(&result?, email.as_str())),
    }
}

/// Asks for the address to which the link goes, and for the code of the device if it is `None`. `error` is about
/// `email`.
fn email_form(request: &Request, code: Option<&str>, email: &str, error: Option<&str>) -> Page {
    let form = Form::post(&form_action(&request.app.config.public_url, "/auth/device"));
    let page = Page::new("Connect your device");
    let (page, form) = match code {
        Some(code) => (page.code("Code on your device", code), form.hidden("code", code)),
        None => (page, form.device_code("Code on your device")),
    };
    let form = form.email("Your email address", email, error).button("Send link");
    page.text("We send a link to this address. Open it and confirm to sign in your device.")
        .form(&form)
}

/// Must not reveal whether the address has an account.
fn mail_sent(code: &str, email: &str) -> Response {
    Page::new("Check your mail")
        .text(&format!("If {email} can sign in here, we have sent a link to it."))
        .text("Open the link on any device. Confirm only if the page there shows this code:")
        .code("Code on your device", code)
        .small("No mail after a few minutes? Check your spam folder, or go back and send the link again.")
        .into_response(StatusCode::OK)
}

/// For a code that is unknown, expired or used.
fn unusable_code(code: &str) -> Response {
    Page::new("This code does not work")
        .notice(NoticeKind::Error, "It is unknown, expired or already used.")
        .code("Code", code)
        .text("Start again on your device to get a new code.")
        .into_response(StatusCode::NOT_FOUND)
}

/// `GET /v1/auth/verify?token=…&user_code=…` for a login, `?token=…&user=…` for an address: only asks, because mail
/// scanners open links too
pub async fn verify_page(request: Request) -> Result<Response> {
    let query = request.query();
    let value = |name| query.raw(name).unwrap_or_default().to_owned();
    let token = value("token");
    let secret = token.clone();
    if let Some(user_id) = query.raw("user") {
        let user = user_id.to_owned();
        let find = move |read: &ReadTx<'_>| accounts::find_unconfirmed(read, &user, &secret);
        return Ok(match request.app.store.read(find).await? {
            Some(email) => ask_email_confirmation(&request, &token, user_id, &email),
            None => unusable_email_link(),
        });
    }
    // Links of earlier versions have the device code.
    let code = query.raw("user_code").map_or_else(|| value("device_code"), str::to_owned);
    let now = request.now;
    let find = move |read: &ReadTx<'_>| device_login::find_to_confirm(read, &code, &secret, now);
    Ok(match request.app.store.read(find).await? {
        Ok(login) => ask_confirmation(&request, &token, &login),
        Err(link) => unusable_link(link),
    })
}

/// `POST /v1/auth/verify`, sent by the form on that page, or with an empty body and the values in the query
pub async fn confirm(request: Request) -> Result<Response> {
    let (form, query) = (request.form(), request.query());
    let value = |name| form.raw(name).or_else(|| query.raw(name));
    let token = value("token").unwrap_or_default();
    if let Some(user_id) = value("user") {
        let confirmed =
            accounts::confirm_email(&request.app, user_id.to_owned(), token.to_owned()).await?;
        return Ok(confirmed.map_or_else(unusable_email_link, |email| {
            let notice = format!("Failures are mailed to {email} from now on.");
            let page = Page::new("Your address is confirmed").notice(NoticeKind::Success, &notice);
            page.small("You can close this page.").into_response(StatusCode::OK)
        }));
    }
    let code = value("user_code").or_else(|| value("device_code")).unwrap_or_default().to_owned();
    let other_keys = value("other_keys").and_then(OtherKeys::parse);
    match device_login::approve(&request.app, code, token, other_keys, request.now)?.await? {
        LinkStatus::Valid => Ok(Page::new("Your device is signed in")
            .notice(NoticeKind::Success, "Confirmed. Your device continues in a few seconds.")
            .small("You can close this page.")
            .into_response(StatusCode::OK)),
        link => Ok(unusable_link(link)),
    }
}

fn ask_confirmation(request: &Request, token: &str, login: &LoginToConfirm) -> Response {
    let LoginToConfirm { email, user_code, other_keys, proposed, is_new, .. } = login;
    let account = if *is_new {
        format!("This creates a new account for {email}, which the device can then use.")
    } else {
        format!("The device can then use the account {email}.")
    };
    let mut form = Form::post(&form_action(&request.app.config.public_url, "/v1/auth/verify"))
        .hidden("token", token)
        .hidden("user_code", user_code);
    let mut page = Page::new("Is this your device?")
        .code("Code on your device", user_code)
        .text(&format!("Confirm only if you started this login and saw this code. {account}"));
    if !other_keys.is_empty() {
        page = show_keys(page, login);
        let options = [
            (OtherKeys::Keep.as_str(), "Keep them: I know them all"),
            (OtherKeys::Revoke.as_str(), "Revoke them all, replace the secrets, pause all cues"),
        ];
        form = form.select("other_keys", "These API keys", &options, proposed.as_str());
    }
    page.form(&form.button("Sign in this device"))
        .small("If you did not start this login, close this page. Nothing will happen.")
        .into_response(StatusCode::OK)
}

fn show_keys(page: Page, login: &LoginToConfirm) -> Page {
    let created = |key: &ApiKeyInfo| {
        let is_earlier =
            login.confirmed_at.is_some_and(|confirmed_at| key.created_at < confirmed_at);
        let note = if is_earlier { ", before this address was confirmed" } else { "" };
        format!("{}…, made {}{note}", key.prefix, instant(key.created_at))
    };
    let rows: Vec<_> =
        login.other_keys.iter().map(|key| (key.name.as_str(), created(key))).collect();
    let page = match login.proposed {
        OtherKeys::Keep => page.text("These API keys can use the account, too:"),
        OtherKeys::Revoke => page.notice(
            NoticeKind::Error,
            "Somebody registered this address, and it was never confirmed. If that was not you, revoke these API keys:",
        ),
    };
    page.facts(&rows).text(
        "Whoever has one of them may have read the secrets of the account. Revoking them also replaces both webhook \
         secrets at once, removes the URL of alerts, pauses all cues and ends what is queued.",
    )
}

fn ask_email_confirmation(request: &Request, token: &str, user_id: &str, email: &str) -> Response {
    let form = Form::post(&form_action(&request.app.config.public_url, "/v1/auth/verify"))
        .hidden("token", token)
        .hidden("user", user_id)
        .button("Confirm this address");
    Page::new("Is this your account?")
        .text(&format!(
            "An account was registered with {email}. Confirm only if it is yours: failures of its jobs are then mailed \
             to you."
        ))
        .form(&form)
        .small(
            "If you did not register, do not confirm: somebody else has the keys of this account. Close this page, or take \
             the account over: sign in a device with this address, and choose to revoke the other keys.",
        )
        .into_response(StatusCode::OK)
}

fn unusable_email_link() -> Response {
    Page::new("This link does not work")
        .notice(NoticeKind::Error, "It is incomplete, or the address is confirmed already.")
        .small("You can close this page.")
        .into_response(StatusCode::NOT_FOUND)
}

fn unusable_link(link: LinkStatus) -> Response {
    match link {
        LinkStatus::Used => Page::new("This link was already used")
            .text("It has signed in your device. Every link works only once.")
            .small("You can close this page. If you did not sign in, revoke the API key of the device.")
            .into_response(StatusCode::GONE),
        LinkStatus::Expired => Page::new("This link has expired")
            .notice(NoticeKind::Error, "A link is valid for 15 minutes.")
            .text("Start again on your device to get a new code.")
            .into_response(StatusCode::GONE),
        LinkStatus::Unknown | LinkStatus::Valid => Page::new("This link does not work")
            .notice(NoticeKind::Error, "It is incomplete, too old, or replaced by a newer mail.")
            .text("Open the link in the newest mail, or start again on your device.")
            .into_response(StatusCode::NOT_FOUND),
    }
}

/// Stores the address and queues the mail with the link, if the address may log in. Returns the code that the mail
/// shows.
async fn send_link(request: &Request, code: String, email: Email) -> Result<String> {
    let app = Arc::clone(&request.app);
    // Counted for every address alike, and before the login changes: a mail is refused or sent.
    let (client, now) = (customer_network(request.client_ip), request.now);
    app.mail_limits.take_sign_in(client, now).map_err(too_many_mails)?;
    let pending = device_login::submit_email(&app, code, email, request.client_ip, now)?;
    // A separate task: the mail must be queued even if the client disconnects after the commit.
    let task = tokio::spawn(async move {
        let submitted = pending.await;
        let has_room =
            |it: &SubmittedEmail| it.is_confirmed || app.mail_limits.take_unconfirmed_sign_in(now);
        let mail = submitted.as_ref().ok().filter(|it| it.mail.is_some() && has_room(it));
        let mail = mail.and_then(|submitted| submitted.mail.clone());
        if mail.is_none() {
            app.mail_limits.return_unused_sign_in();
        }
        // A refusal here would show who has an account: the response is the same, as above the limit of a recipient.
        app.login_mailer.enqueue(mail);
        Ok(submitted?.user_code)
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
