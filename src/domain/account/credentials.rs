//! The text forms of API keys, webhook secrets and email addresses (contract §3).
//!
//! Random bytes are arguments.

use std::fmt;

use ring::digest;

use crate::domain::secret::Secret;
use crate::domain::text::hex;

const KEY_PREFIX: &str = "cue_sk_";
const KEY_DIGITS: usize = 32;
const PREFIX_CHARS: usize = 12;
const SECRET_PREFIX: &str = "whsec_";
const MAX_EMAIL_BYTES: usize = 254;

/// Returns whether `text` may contain an API key or a webhook secret and must not be shown.
pub fn may_contain_secret(text: &str) -> bool {
    [KEY_PREFIX, SECRET_PREFIX].iter().any(|prefix| text.contains(prefix))
}

/// An API key: `cue_sk_` and 32 hexadecimal digits. Only its hash may be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey(Secret);

impl ApiKey {
    pub fn from_random(random: [u8; 16]) -> Self {
        Self(format!("{KEY_PREFIX}{}", hex::encode(&random)).into())
    }

    /// `None` unless `text` has the form of a key.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(KEY_PREFIX)?.as_bytes();
        let is_key = digits.len() == KEY_DIGITS
            && digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        is_key.then(|| Self(text.to_owned().into()))
    }

    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    pub fn hash(&self) -> [u8; 32] {
        sha256(self.expose().as_bytes())
    }

    /// The first 12 characters: they identify the key to its user.
    pub fn prefix(&self) -> &str {
        &self.expose()[..PREFIX_CHARS]
    }
}

/// A new secret that signs webhooks: `whsec_` and 64 hexadecimal digits.
pub fn new_webhook_secret(random: [u8; 32]) -> Secret {
    format!("{SECRET_PREFIX}{}", hex::encode(&random)).into()
}

/// An email address, trimmed and lower-cased. Only its form is checked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Email(String);

/// Why a text is no email address, as the end of a sentence about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EmailError(&'static str);

impl Email {
    pub fn parse(text: &str) -> Result<Self, EmailError> {
        let address = text.trim().to_lowercase();
        let (local, domain) = address.split_once('@').unwrap_or_default();
        let problem = if address.is_empty() {
            "is empty"
        } else if address.len() > MAX_EMAIL_BYTES {
            "is longer than 254 bytes"
        } else if address.contains(is_forbidden) {
            "contains a character that is not allowed"
        } else if address.matches('@').count() != 1 {
            "must have exactly one @"
        } else if local.is_empty() {
            "has nothing before the @"
        } else if domain.split('.').any(str::is_empty) {
            "has no valid domain after the @"
        } else {
            return Ok(Self(address));
        };
        Err(EmailError(problem))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// White space, a control character, or a character with a meaning in mail headers.
fn is_forbidden(char: char) -> bool {
    char.is_whitespace() || char.is_control() || "<>()[],;:\"\\".contains(char)
}

impl fmt::Display for Email {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_prefix_and_32_digits_and_stored_as_its_sha256() {
        let text = "cue_sk_000102030405060708090a0b0c0d0e0f";
        let key = ApiKey::from_random(std::array::from_fn(|index| u8::try_from(index).unwrap()));
        assert_eq!(
            (key.expose(), key.prefix(), ApiKey::parse(text)),
            (text, "cue_sk_00010", Some(key.clone()))
        );
        // Computed with Python's hashlib.
        let expected = "795d1941197e206fa28c388260b9337689734f8722701492007e6d76907f23c0";
        assert_eq!(hex::encode(&key.hash()), expected);
        let others = [text.replace('f', "F"), text.replace("0f", "é"), format!("{text}0")];
        for text in
            others.iter().map(String::as_str).chain(["", "cue_sk_", &text[..38], &text[7..]])
        {
            assert_eq!(ApiKey::parse(text), None, "{text}");
        }
        assert_eq!(format!("{key:?}"), "ApiKey(***)");
    }

    #[test]
    fn an_address_is_trimmed_and_lower_cased_or_refused_with_a_reason() {
        let longest = format!("{}@example.com", "a".repeat(242));
        for (text, address) in [
            (" \tAnn@Example.COM\n", "ann@example.com"),
            ("a+b.c'd@sub.example.co.uk", "a+b.c'd@sub.example.co.uk"),
            ("me@localhost", "me@localhost"),
            ("JÖRG@BÜCHER.de", "jörg@bücher.de"),
            (&longest, &longest),
        ] {
            assert_eq!(Email::parse(text).unwrap().as_str(), address);
        }
        let too_long = format!("a{longest}");
        for (texts, reason) in [
            (["", " \t "].as_slice(), "empty"),
            (&["ann", "a@b@c.com"], "one @"),
            (&["@example.com"], "before the @"),
            (&["ann@", "ann@b..com", "ann@.com", "ann@b.com."], "domain"),
            (&["a nn@b.com", "ann@b.com\r\nBcc: x@y.com", "a\0@b.com"], "not allowed"),
            (&["a\u{a0}b@c.com", "Ann <ann@b.com>", "a@b.com,c@d.com"], "not allowed"),
            (&[&too_long], "254 bytes"),
        ] {
            for text in texts {
                assert!(Email::parse(text).unwrap_err().0.contains(reason), "{text:?}");
            }
        }
    }
}
