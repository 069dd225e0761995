//! The mail about an API key or a secret that was replaced (contract §3.9). It contains neither.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::domain::notification::failure_report::MAX_MAILS;
use crate::domain::notification::stored_mail::StoredMail;
use crate::domain::time::rfc3339;

/// Mails of an account in an hour, failure mails included, above which a replacement is not mailed. More than of failures
/// alone, so that failing cues cannot suppress these.
pub const MAX_WITH_REPLACEMENTS: usize = MAX_MAILS + 5;

/// The kind of secret that was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Credential {
    ApiKey,
    WebhookSecret,
    AlertWebhookSecret,
}

impl Credential {
    fn name(self) -> &'static str {
        match self {
            Self::ApiKey => "API key",
            Self::WebhookSecret => "webhook secret",
            Self::AlertWebhookSecret => "alert webhook secret",
        }
    }

    fn effect(self) -> &'static str {
        match self {
            Self::ApiKey => "The previous key is invalid.",
            Self::WebhookSecret => {
                "Deliveries are signed with both secrets for 24 hours, then with the new one alone."
            }
            Self::AlertWebhookSecret => "The previous secret is invalid.",
        }
    }
}

/// The mail as stored in the outbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplacementMail {
    replaced: Credential,
    replaced_at: String,
}

impl StoredMail for ReplacementMail {}

impl ReplacementMail {
    pub fn new(replaced: Credential, at: Timestamp) -> Self {
        Self { replaced, replaced_at: rfc3339(at) }
    }

    pub fn subject(&self) -> String {
        format!("Your {} was replaced", self.replaced.name())
    }

    /// The page of the server at `base` where a user signs in without a key.
    pub fn link(&self, base: &str) -> String {
        format!("{base}/auth/device")
    }

    pub fn text(&self, base: &str) -> String {
        let (name, effect) = (self.replaced.name(), self.replaced.effect());
        let (at, link) = (&self.replaced_at, self.link(base));
        format!(
            "The {name} of your account was replaced.\n\n\
             Server:    {base}\n\
             Time:      {at}\n\
             Effect:    {effect}\n\n\
             If it was you, there is nothing to do.\n\n\
             If it was not you, somebody has a key of your account. Sign in a device with this address, and choose there\n\
             to revoke the other keys:\n\n    {link}\n\n\
             Then replace both secrets, with the new API key in KEY:\n\n    \
             curl -X POST -H \"Authorization: Bearer $KEY\" {base}/v1/auth/webhook-secret/regenerate\n    \
             curl -X POST -H \"Authorization: Bearer $KEY\" {base}/v1/auth/alert-webhook-secret/regenerate\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::notification::confirmation::ConfirmationMail;
    use crate::domain::notification::failure_report::FailureMail;

    #[test]
    fn a_stored_mail_is_read_back_and_is_no_other_mail() {
        for credential in [Credential::ApiKey, Credential::WebhookSecret, Credential::AlertWebhookSecret] {
            let mail = ReplacementMail::new(credential, "2026-01-01T10:00:00Z".parse().unwrap());
            assert_eq!(ReplacementMail::read(&mail.body()), Some(mail.clone()));
            assert_eq!((FailureMail::read(&mail.body()), ConfirmationMail::read(&mail.body())), (None, None));
            assert!(mail.text("http://cued").contains("\n    http://cued/auth/device\n"));
        }
        let other = ConfirmationMail { user_id: "u".to_owned(), confirmation_token: "t".to_owned() };
        assert_eq!(ReplacementMail::read(&other.body()), None);
    }
}
