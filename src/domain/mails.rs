//! Mails about an account, with their rate limit. The outbox stores the canonical JSON of their fields; text and links are
//! written when a mail is sent.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::domain::channel::message::Message;
use crate::domain::json::{self, JsonText};
use crate::domain::secret::{Secret, exposed};
use crate::domain::text::one_line;
use crate::domain::time::saturating_add;
use crate::domain::webhook::canonical_json::canonical;

/// Mails of an account in an hour above which a replacement is not mailed: failing cues alone cannot reach it.
pub const MAX_WITH_REPLACEMENTS: usize = MAX_MAILS + 5;

/// Characters of an error in a mail, which has one line for it.
const MAX_MAILED: usize = 500;

/// A mail as the outbox stores it, before its recipient is looked up. The names of the fields distinguish the kinds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StoredMail {
    /// Asks to confirm an address. An unconfirmed address gets it once, in place of its first failure mail, and no text
    /// that a caller has written (contract §3.10).
    Confirmation {
        user_id: String,
        #[serde(serialize_with = "exposed")]
        confirmation_token: Secret,
    },
    /// An API key or a secret was replaced (contract §3.9). The mail contains neither.
    Replacement { replaced: Credential, replaced_at: String },
    /// The message of a channel.
    Channel(Box<Message>),
    Failure {
        failure: FailureReport,
        /// Failures since the previous mail that were not mailed, because of the rate limit.
        #[serde(rename = "held")]
        suppressed: u32,
        /// Set on the last mail within the rate limit: the end of the silence.
        #[serde(rename = "held_until")]
        suppressed_until: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Credential {
    ApiKey,
    WebhookSecret,
    AlertWebhookSecret,
}

impl Credential {
    /// Its name, and the effect of the replacement.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::ApiKey => ("API key", "The previous key is invalid."),
            Self::WebhookSecret => (
                "webhook secret",
                "Deliveries are signed with both secrets for 24 hours, then with the new one alone.",
            ),
            Self::AlertWebhookSecret => ("alert webhook secret", "The previous secret is invalid."),
        }
    }
}

impl StoredMail {
    pub fn body(&self) -> String {
        canonical(JsonText::from(&json!(self)).get())
    }

    pub fn read(body: &str) -> Option<Self> {
        serde_json::from_value(json::read(body.as_bytes()).ok()?.get().to_value()).ok()
    }

    pub fn subject(&self) -> String {
        match self {
            Self::Confirmation { .. } => "Confirm your email address".to_owned(),
            Self::Replacement { replaced, .. } => {
                format!("Your {} was replaced", replaced.words().0)
            }
            Self::Channel(message) => message.title.clone(),
            Self::Failure { failure, .. } => {
                format!("Cue {} failed", one_line(&failure.cue_name, 100))
            }
        }
    }

    /// The page of the server at `base` that confirms the address or where a user signs in without a key, or the
    /// execution.
    pub fn link(&self, base: &str) -> String {
        match self {
            Self::Confirmation { user_id, confirmation_token } => {
                format!(
                    "{base}/v1/auth/verify?token={}&user={user_id}",
                    confirmation_token.expose()
                )
            }
            Self::Replacement { .. } => format!("{base}/auth/device"),
            Self::Channel(message) => message.link.clone().unwrap_or_default(),
            Self::Failure { failure, .. } => {
                format!("{base}/v1/executions/{}", failure.execution_id)
            }
        }
    }

    /// The link for the log of a server: a person opens it without a key, so it leads to the page if there is one.
    pub fn log_link(&self, base: &str, has_page: bool) -> String {
        match self {
            Self::Failure { failure, .. } if has_page => {
                format!("{base}/#/runs/{}", failure.execution_id)
            }
            _ => self.link(base),
        }
    }

    pub fn text(&self, base: &str) -> String {
        let link = self.link(base);
        match self {
            Self::Confirmation { .. } => format!(
                "This address was registered at {base}, and nobody has confirmed it yet. A job of the account has failed;\n\
                 failures are mailed to confirmed addresses only.\n\n\
                 If the account is yours, open this link and confirm:\n\n{link}\n\n\
                 If you did not register, do not open it: somebody else has the keys of this account. Ignore this mail, and you get\n\
                 no other one, unless somebody signs in with this address. Or take the account over: sign in a device with this\n\
                 address ({base}/auth/device), and choose there to revoke the other keys.\n"
            ),
            Self::Replacement { replaced, replaced_at } => {
                let (name, effect) = replaced.words();
                format!(
                    "The {name} of your account was replaced.\n\n\
                     Server:    {base}\n\
                     Time:      {replaced_at}\n\
                     Effect:    {effect}\n\n\
                     If it was you, there is nothing to do.\n\n\
                     If it was not you, somebody has a key of your account. Sign in a device with this address, and choose there\n\
                     to revoke the other keys:\n\n    {link}\n\n\
                     Then replace both secrets, with the new API key in KEY:\n\n    \
                     curl -X POST -H \"Authorization: Bearer $KEY\" {base}/v1/auth/webhook-secret/regenerate\n    \
                     curl -X POST -H \"Authorization: Bearer $KEY\" {base}/v1/auth/alert-webhook-secret/regenerate\n"
                )
            }
            Self::Channel(message) => {
                let Message { title, text, link, .. } = &**message;
                let parts = [Some(title.as_str()), Some(text.as_str()), link.as_deref()];
                let mut lines: Vec<&str> =
                    parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
                let page = format!("{base}/#/notifications");
                // Without a link nobody knows the address of the page; a test has that of the channels already.
                let ending = match link.as_deref() {
                    None => {
                        "A channel of your account has sent this. `cued channel list` shows your channels.\n"
                            .to_owned()
                    }
                    Some(link) if link == page => "A channel of your account has sent this.\n".to_owned(),
                    Some(_) => format!("A channel of your account has sent this. Your channels: {page}\n"),
                };
                lines.push(&ending);
                lines.join("\n\n")
            }
            Self::Failure { failure, suppressed, suppressed_until } => {
                failure_text(failure, *suppressed, suppressed_until.as_deref(), base, &link)
            }
        }
    }
}

fn failure_text(
    failure: &FailureReport,
    suppressed: u32,
    until: Option<&str>,
    base: &str,
    link: &str,
) -> String {
    let FailureReport { cue_id, cue_name, execution_id, attempts, failed_at, .. } = failure;
    let error = failure.last_error.as_deref().unwrap_or("none");
    let http_status =
        failure.last_http_status.map_or("none".to_owned(), |status| status.to_string());
    let mut text = format!(
        "An execution of your cue has failed and will not be retried.\n\n\
         Cue:                {} ({cue_id})\n\
         Execution:          {execution_id}\n\
         Failed at:          {failed_at}\n\
         Attempts:           {attempts}\n\
         Last HTTP status:   {http_status}\n\
         Last error:         {}\n\n\
         Show it, with your API key in KEY:\n\n    curl -H \"Authorization: Bearer $KEY\" {link}\n\n\
         Run it again:\n\n    curl -X POST -H \"Authorization: Bearer $KEY\" {link}/replay\n",
        one_line(cue_name, 255),
        one_line(error, MAX_MAILED),
    );
    if suppressed > 0 {
        text += &format!("\nFailures since the previous mail that were not mailed: {suppressed}\n");
    }
    if let Some(until) = until {
        text += &format!(
            "\nThe limit of {MAX_MAILS} mails an hour is reached: failures before {until} are not mailed.\n\
             All of them are at {base}/v1/executions?status=failed\n"
        );
    }
    text + "\nTo stop mails about this cue, PATCH it with {\"on_failure\": {\"email\": false}}\n"
}

/// Failure emails per user in [`RATE_WINDOW`] (contract §6).
pub const MAX_MAILS: usize = 10;

pub const RATE_WINDOW: SignedDuration = SignedDuration::from_hours(1);

const MAX_POSTED: usize = 2_000;

/// The failure. Serializes to the body of the POST (contract §6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureReport {
    pub event: String,
    pub cue_id: String,
    pub cue_name: String,
    pub execution_id: String,
    pub attempts: u32,
    pub last_http_status: Option<u16>,
    pub last_error: Option<String>,
    pub failed_at: String,
}

impl FailureReport {
    pub const EVENT: &'static str = "cue.failed";

    pub fn body(&self) -> String {
        canonical(JsonText::from(&json!(self)).get())
    }
}

/// An error truncated for a POST: a reported error may have 64 KiB.
pub fn truncated(error: &str) -> String {
    error.chars().take(MAX_POSTED).collect()
}

/// The end of the silence that the rate limit imposes at `now`. `tenth` is the creation time of the user's tenth
/// newest mail.
pub fn suppressed_until(tenth: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    let until = saturating_add(tenth?, RATE_WINDOW);
    (now < until).then_some(until)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::channel::message::Mood;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn failure(suppressed: u32, suppressed_until: Option<&str>) -> StoredMail {
        let failure = FailureReport {
            event: FailureReport::EVENT.to_owned(),
            cue_id: "cue_abcdefghijkl".to_owned(),
            cue_name: "nightly\r\nBcc: x@example.com".to_owned(),
            execution_id: "0190a5c0-0000-7000-8000-000000000001".to_owned(),
            attempts: 4,
            last_http_status: Some(500),
            last_error: None,
            failed_at: "2026-01-01T10:00:00Z".to_owned(),
        };
        StoredMail::Failure {
            failure,
            suppressed,
            suppressed_until: suppressed_until.map(str::to_owned),
        }
    }

    #[test]
    fn a_stored_mail_is_read_back() {
        let confirmation = StoredMail::Confirmation {
            user_id: "u".to_owned(),
            confirmation_token: "t".to_owned().into(),
        };
        let replaced_at = "2026-01-01T10:00:00Z".to_owned();
        let replacement =
            StoredMail::Replacement { replaced: Credential::WebhookSecret, replaced_at };
        assert!(
            confirmation
                .text("http://cued")
                .contains("\nhttp://cued/v1/auth/verify?token=t&user=u\n")
        );
        assert!(replacement.text("http://cued").contains("\n    http://cued/auth/device\n"));
        for mail in
            [confirmation, replacement, failure(0, None), failure(3, Some("2026-01-01T11:00:00Z"))]
        {
            assert_eq!(StoredMail::read(&mail.body()), Some(mail));
        }
        assert_eq!(StoredMail::read("{}"), None);
    }

    #[test]
    fn a_mail_of_a_channel_ends_with_where_the_channels_are() {
        for (link, ending) in [
            (
                None,
                "\n\nA channel of your account has sent this. `cued channel list` shows your channels.\n",
            ),
            (
                Some("http://cued/#/runs/1"),
                "\n\nhttp://cued/#/runs/1\n\nA channel of your account has sent this. Your channels: \
                 http://cued/#/notifications\n",
            ),
            (
                Some("http://cued/#/notifications"),
                "\n\nhttp://cued/#/notifications\n\nA channel of your account has sent this.\n",
            ),
        ] {
            let now = at("2026-01-01T10:00:00Z");
            let message = Message::new("id".to_owned(), "x", Mood::Info, "backup failed", now);
            let mail =
                StoredMail::Channel(Box::new(Message { link: link.map(str::to_owned), ..message }));
            assert_eq!(StoredMail::read(&mail.body()).as_ref(), Some(&mail));
            assert_eq!(mail.text("http://cued"), format!("backup failed{ending}"));
        }
    }
}
