//! Secrets: values that no log line or error contains, and the masked forms that users see (contract §3).

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// What stands for a value that must not be shown.
pub const MASK: &str = "***";

/// A value that `Debug`, `Display` and `Serialize` show as [`MASK`], so that no log line, error or view of a struct
/// contains it. Only what is named `expose` shows it.
#[derive(Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(transparent)]
pub struct Secret<T = String>(T);

impl<T> Secret<T> {
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    pub const fn expose(&self) -> &T {
        &self.0
    }

    pub const fn expose_mut(&mut self) -> &mut T {
        &mut self.0
    }

    /// As [`Secret::expose`], without a copy of what may have megabytes.
    pub fn into_exposed(self) -> T {
        self.0
    }
}

impl<T> From<T> for Secret<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl<T> fmt::Display for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl<T> Serialize for Secret<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(MASK)
    }
}

/// Writes the secret itself: for `serialize_with`, into what only the program or its user reads.
pub fn exposed<T: Serialize, S: Serializer>(secret: &Secret<T>, to: S) -> Result<S::Ok, S::Error> {
    secret.0.serialize(to)
}

/// Shorter secrets show none of their characters.
const MIN_SHOWN_SECRET: usize = 12;

const SHOWN: usize = 4;

/// The masked form of a secret: its last characters, so that its owner recognizes it.
pub fn masked(secret: &str) -> String {
    let chars = secret.chars().count();
    let shown = if chars < MIN_SHOWN_SECRET { 0 } else { SHOWN };
    let end: String = secret.chars().skip(chars - shown).collect();
    format!("…{end}")
}

/// The masked form of a secret URL: its scheme and host, and the end of its path.
pub fn masked_url(url: &str) -> String {
    let rest = url.find("://").map_or(0, |at| at + "://".len());
    let path = url[rest..].find(['/', '?']).map_or(url.len(), |at| rest + at);
    format!("{}/{}", &url[..path], masked(&url[path..]))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::domain::account::credentials::{ApiKey, new_webhook_secret};
    use crate::domain::account::device_login::{DeviceCode, new_link_token};
    use crate::domain::account::session::SessionToken;
    use crate::domain::channel::Settings;
    use crate::domain::channel::services::ServiceRequest;
    use crate::domain::ids::ExecutionId;
    use crate::domain::mails::StoredMail;
    use crate::domain::test_call::TestCall;
    use crate::domain::webhook::callback::Callback;
    use crate::domain::webhook::delivery::{DeliverySpec, SignedRequest};
    use crate::domain::webhook::echo::EchoToken;
    use crate::domain::webhook::signature::WebhookSecrets;

    #[test]
    fn a_secret_is_masked_by_all_that_prints_and_written_where_it_is_exposed() {
        #[derive(Debug, Serialize, Deserialize)]
        struct Stored {
            masked: Secret,
            #[serde(serialize_with = "exposed")]
            written: Secret<Vec<u8>>,
        }
        let mut stored: Stored =
            serde_json::from_str(r#"{"masked": "hidden", "written": [104]}"#).unwrap();
        let text = format!("{stored:?} {:#?} {}", stored, stored.masked);
        assert!(!text.contains("hidden") && !text.contains("104"), "{text}");
        assert_eq!(stored.masked.to_string(), MASK);
        let json = serde_json::to_string(&stored).unwrap();
        assert_eq!(json, r#"{"masked":"***","written":[104]}"#);
        stored.masked.expose_mut().push('!');
        assert_eq!(
            (stored.masked.expose().as_str(), stored.written.into_exposed()),
            ("hidden!", vec![104])
        );
    }

    /// All types of the rules that have a secret.
    #[derive(Debug)]
    #[expect(dead_code, reason = "only `Debug` reads them")]
    struct Everything {
        api_key: ApiKey,
        webhook_secret: Secret,
        link_token: Secret,
        session: SessionToken,
        device_code: DeviceCode,
        echo: EchoToken,
        settings: Settings,
        mail: StoredMail,
        call: TestCall,
        request: SignedRequest,
        message: ServiceRequest,
    }

    #[test]
    fn debug_of_a_struct_with_every_secret_shows_none() {
        // Also in base64url and in hexadecimal digits.
        let (hidden, random) = ("hidden-0123456789-hidden", [0xAB; 32]);
        let secret = || Secret::new(hidden.to_owned());
        let headers = || Secret::new(vec![("Authorization".to_owned(), hidden.to_owned())]);
        let mut settings = Settings::default();
        settings.set("token", Some(hidden.to_owned()));
        let secrets = WebhookSecrets {
            current: secret(),
            previous: Some(secret()),
            previous_expires_at: Some(Timestamp::MAX),
        };
        let spec = DeliverySpec {
            cue_id: "cue_1".to_owned(),
            callback: Callback { headers: headers(), ..Callback::default() },
            payload: Some(secret()),
            secrets,
        };
        let call = || TestCall {
            id: ExecutionId::from_bytes([0; 16]),
            started_at: Timestamp::UNIX_EPOCH,
            spec: spec.clone(),
        };
        let all = Everything {
            api_key: ApiKey::from_random([0xAB; 16]),
            webhook_secret: new_webhook_secret(random),
            link_token: new_link_token(random),
            session: SessionToken::from_random(random),
            device_code: DeviceCode::parse("HIDD-EN23-4567").unwrap(),
            echo: EchoToken::parse(hidden).unwrap(),
            settings,
            mail: StoredMail::Confirmation {
                user_id: "u".to_owned(),
                confirmation_token: secret(),
            },
            call: call(),
            request: call().into_request(),
            message: ServiceRequest { url: secret(), headers: headers(), body: secret() },
        };
        let shown = format!("{all:?}{all:#?}");
        for part in ["idden", "HIDD", "abab", "q6ur", "v1="] {
            assert!(!shown.contains(part), "{part}: {shown}");
        }
    }

    #[test]
    fn a_secret_shows_its_end_alone() {
        for (secret, shown) in
            [("", "…"), ("elevenchars", "…"), ("twelve_chars", "…hars"), ("ключ-от-дома", "…дома")]
        {
            assert_eq!(masked(secret), shown);
        }
        for (url, shown) in [
            ("https://hooks.slack.com/services/T0/B0/x7Qz", "https://hooks.slack.com/…x7Qz"),
            ("https://a.example:8443/hooks/x", "https://a.example:8443/…"),
            ("https://a.example", "https://a.example/…"),
        ] {
            assert_eq!(masked_url(url), shown);
        }
    }
}
