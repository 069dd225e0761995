//! The pages of the device login (contract §3.7, §9).

use crate::domain::account::device_login::{LinkStatus, OtherKeys};
use crate::domain::account::user::ApiKeyInfo;
use crate::domain::time::rfc3339;
use crate::http::pages::{Form, NoticeKind, Page, form_action};
use crate::service::device_login::LoginToConfirm;

/// The values of the login form, to show it again after an error.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoginFormState<'a> {
    /// `None` if the page was opened without a code; the form then asks for it.
    pub code: Option<&'a str>,
    pub email: &'a str,
    /// The error message for `email`.
    pub error: Option<&'a str>,
}

pub fn ask_email(public_url: &str, state: LoginFormState<'_>) -> Page {
    let form = Form::post(&form_action(public_url, "/auth/device"));
    let (page, form) = match state.code {
        Some(code) => {
            let page = Page::new("Connect your device").code("Code on your device", code);
            (page, form.hidden("code", code))
        }
        None => (Page::new("Connect your device"), form.device_code("Code on your device")),
    };
    let LoginFormState { email, error, .. } = state;
    let form = form.email("Your email address", email, error);
    page.text("We send a link to this address. Open it and confirm to sign in your device.")
        .form(&form.button("Send link"))
}

/// Must not reveal whether the address has an account.
pub fn mail_sent(code: &str, email: &str) -> Page {
    Page::new("Check your mail")
        .text(&format!("If {email} can sign in here, we have sent a link to it."))
        .text("Open the link on any device. Confirm only if the page there shows this code:")
        .code("Code on your device", code)
        .small("No mail after a few minutes? Check your spam folder, or go back and send the link again.")
}

pub fn ask_confirmation(public_url: &str, token: &str, login: &LoginToConfirm) -> Page {
    let LoginToConfirm { email, user_code, other_keys, proposed, .. } = login;
    let form = Form::post(&form_action(public_url, "/v1/auth/verify"))
        .hidden("token", token)
        .hidden("user_code", user_code);
    let page = Page::new("Is this your device?").code("Code on your device", user_code).text(&format!(
        "Confirm only if you started this login and saw this code. The device can then use the account {email}."
    ));
    let (page, form) = if other_keys.is_empty() {
        (page, form)
    } else {
        (show_keys(page, login), choose_keys(form, *proposed))
    };
    page.form(&form.button("Sign in this device"))
        .small("If you did not start this login, close this page. Nothing will happen.")
}

fn show_keys(page: Page, login: &LoginToConfirm) -> Page {
    let made = |key: &ApiKeyInfo| {
        let is_earlier = login.confirmed_at.is_some_and(|confirmed_at| key.created_at < confirmed_at);
        let note = if is_earlier { ", before this address was confirmed" } else { "" };
        format!("{}…, made {}{note}", key.prefix, rfc3339(key.created_at))
    };
    let rows: Vec<(&str, String)> =
        login.other_keys.iter().map(|key| (key.name.as_str(), made(key))).collect();
    let rows: Vec<(&str, &str)> = rows.iter().map(|(name, made)| (*name, made.as_str())).collect();
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

fn choose_keys(form: Form, proposed: OtherKeys) -> Form {
    let options = [
        (OtherKeys::Keep.as_str(), "Keep them: I know them all"),
        (OtherKeys::Revoke.as_str(), "Revoke them all, replace the secrets, pause all cues"),
    ];
    form.select("other_keys", "These API keys", &options, proposed.as_str())
}

pub fn ask_email_confirmation(public_url: &str, token: &str, user_id: &str, email: &str) -> Page {
    let form = Form::post(&form_action(public_url, "/v1/auth/verify"))
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
}

pub fn email_confirmed(email: &str) -> Page {
    Page::new("Your address is confirmed")
        .notice(NoticeKind::Success, &format!("Failures are mailed to {email} from now on."))
        .small("You can close this page.")
}

pub fn unusable_email_link() -> Page {
    Page::new("This link does not work")
        .notice(NoticeKind::Error, "It is incomplete, or the address is confirmed already.")
        .small("You can close this page.")
}

pub fn confirmed() -> Page {
    Page::new("Your device is signed in")
        .notice(NoticeKind::Success, "Confirmed. Your device continues in a few seconds.")
        .small("You can close this page.")
}

pub fn unusable_link(link: LinkStatus) -> Page {
    match link {
        LinkStatus::Used => Page::new("This link was already used")
            .text("It has signed in your device. Every link works only once.")
            .small("You can close this page. If you did not sign in, revoke the API key of the device."),
        LinkStatus::Expired => Page::new("This link has expired")
            .notice(NoticeKind::Error, "A link is valid for 15 minutes.")
            .text("Start again on your device to get a new code."),
        LinkStatus::Unknown | LinkStatus::Valid => Page::new("This link does not work")
            .notice(NoticeKind::Error, "It is incomplete, too old, or replaced by a newer mail.")
            .text("Open the link in the newest mail, or start again on your device."),
    }
}

/// For a code that is unknown, expired or used.
pub fn unusable_code(code: &str) -> Page {
    Page::new("This code does not work")
        .notice(NoticeKind::Error, "It is unknown, expired or already used.")
        .code("Code", code)
        .text("Start again on your device to get a new code.")
}
