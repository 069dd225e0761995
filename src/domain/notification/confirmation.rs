//! The mail that asks to confirm an address. An unconfirmed address gets it once, in place of its first failure mail, and
//! no text that a caller has written (contract §3.10).

use serde::{Deserialize, Serialize};

use crate::domain::notification::stored_mail::StoredMail;

/// The mail as stored in the outbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfirmationMail {
    pub user_id: String,
    pub confirmation_token: String,
}

impl StoredMail for ConfirmationMail {}

impl ConfirmationMail {
    pub const SUBJECT: &'static str = "Confirm your email address";

    /// The link to the page of the server at `base` that confirms the address.
    pub fn link(&self, base: &str) -> String {
        format!("{base}/v1/auth/verify?token={}&user={}", self.confirmation_token, self.user_id)
    }

    pub fn text(&self, base: &str) -> String {
        format!(
            "This address was registered at {base}, and nobody has confirmed it yet. A job of the account has failed;\n\
             failures are mailed to confirmed addresses only.\n\n\
             If the account is yours, open this link and confirm:\n\n{}\n\n\
             If you did not register, do not open it: somebody else has the keys of this account. Ignore this mail, and you get\n\
             no other one, unless somebody signs in with this address. Or take the account over: sign in a device with this\n\
             address ({base}/auth/device), and choose there to revoke the other keys.\n",
            self.link(base)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::notification::failure_report::FailureMail;

    #[test]
    fn a_stored_mail_is_read_back_and_is_no_failure_mail() {
        let mail = ConfirmationMail { user_id: "u".to_owned(), confirmation_token: "t".to_owned() };
        assert_eq!(ConfirmationMail::read(&mail.body()), Some(mail.clone()));
        assert_eq!(FailureMail::read(&mail.body()), None);
        assert!(mail.text("http://cued").contains("\nhttp://cued/v1/auth/verify?token=t&user=u\n"));
    }
}
