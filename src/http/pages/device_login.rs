//! The pages of the device login: give an address, confirm a link, and what else may be found there.

use crate::domain::account::device_login::LinkStatus;
use crate::http::pages::{Form, FormField, FormFieldKind, NoticeKind, Page, action};

/// What a form with the address holds when it is shown again.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoginFormState<'a> {
    /// The device's code: asked for where the page was opened without one.
    pub code: Option<&'a str>,
    /// The address.
    pub email: &'a str,
    /// What is wrong with the address.
    pub fault: Option<&'a str>,
}

/// Asks for the address, and for the code if it is not known yet.
#[must_use]
pub fn ask_email(public_url: &str, entered: LoginFormState<'_>) -> Page {
    let form = Form::post(&action(public_url, "/auth/device"));
    let (page, form) = match entered.code {
        Some(code) => {
            let page = Page::new("Connect your device").code("The code of your device", code);
            (page, form.hidden("code", code))
        }
        None => {
            let label = "The code that your device shows";
            let field = FormField { name: "code", label, kind: FormFieldKind::Code, value: "", fault: None };
            (Page::new("Connect your device"), form.field(&field))
        }
    };
    let LoginFormState { email, fault, .. } = entered;
    let label = "Your e-mail address";
    let form =
        form.field(&FormField { name: "email", label, kind: FormFieldKind::Email, value: email, fault });
    page.text("Enter your e-mail address to get a link by mail. Open it and confirm: your device is then signed in.")
        .form(&form.button("Send the link"))
}

/// Says that there may be a mail, and no more than that.
#[must_use]
pub fn mail_sent(code: &str, email: &str) -> Page {
    Page::new("Check your mail")
        .text(&format!("If {email} can sign in here, a mail with a link is on its way."))
        .text("Open the link on any device, and confirm if it shows this code:")
        .code("The code of your device", code)
        .small("No mail after a few minutes? Look in the spam folder, or go back and send the link again.")
}

/// Shows the code and asks to confirm.
#[must_use]
pub fn ask_confirmation(public_url: &str, code: &str, token: &str, email: &str) -> Page {
    let form = Form::post(&action(public_url, "/v1/auth/verify"))
        .hidden("token", token)
        .hidden("device_code", code)
        .button("Sign in this device");
    Page::new("Is this your device?")
        .code("Your device shows", code)
        .text(&format!("Confirm only if you see this code on your device. It can then act as {email}."))
        .form(&form)
        .small("If you did not start this, close this page: nothing happens.")
}

/// After the confirmation.
#[must_use]
pub fn confirmed(code: &str) -> Page {
    Page::new("Your device is signed in")
        .notice(NoticeKind::Good, "Confirmed. The device goes on by itself in a few seconds.")
        .code("The code of your device", code)
        .small("You can close this page.")
}

/// For a link that cannot be confirmed.
#[must_use]
pub fn dead_link(link: LinkStatus) -> Page {
    match link {
        LinkStatus::Used => Page::new("This link was used")
            .text("Your device was confirmed with it already. A link works once.")
            .small("You can close this page. If that was not you, revoke the key that the device got."),
        LinkStatus::Expired => Page::new("This link has expired")
            .notice(NoticeKind::Bad, "A link works for 15 minutes at most.")
            .text("Start again on your device: it shows a new code."),
        LinkStatus::Unknown | LinkStatus::Valid => Page::new("This link does not work")
            .notice(
                NoticeKind::Bad,
                "It is incomplete, a newer mail has replaced it, or it is too old to be known.",
            )
            .text("Open the newest mail, or start again on your device."),
    }
}

/// For a code that takes no address.
#[must_use]
pub fn dead_code(code: &str) -> Page {
    Page::new("This code does not work")
        .notice(NoticeKind::Bad, "It is not known here, its time is over, or it was used.")
        .code("The code", code)
        .text("Start again on your device: it shows a new code.")
}
