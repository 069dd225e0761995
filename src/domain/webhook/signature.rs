//! The two signatures of a webhook delivery (contract §6), and their verification as by a receiver (§6.3), which says
//! why a delivery is not verified. Creating and storing secrets is not part of it.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use ring::hmac;

use crate::domain::secret::Secret;
use crate::domain::text::hex;

/// Signatures of one delivery that are tried. A rotation makes two; each costs a pass over the body.
const MAX_SIGNATURES: usize = 8;

/// The secrets of an account for its webhooks.
#[derive(Debug, Clone)]
pub struct WebhookSecrets {
    pub current: Secret,
    pub previous: Option<Secret>,
    /// The previous secret signs too until then.
    pub previous_expires_at: Option<Timestamp>,
}

impl WebhookSecrets {
    /// Those that sign at `now`.
    pub fn at(&self, now: Timestamp) -> SigningSecrets<'_> {
        let is_valid = self.previous_expires_at.is_some_and(|expires_at| now < expires_at);
        let previous = self.previous.as_ref().filter(|_| is_valid);
        SigningSecrets {
            current: self.current.expose(),
            previous: previous.map(|secret| secret.expose().as_str()),
        }
    }
}

/// The secrets that sign: two for 24 hours after a rotation.
#[derive(Clone, Copy)]
pub struct SigningSecrets<'a> {
    pub current: &'a str,
    pub previous: Option<&'a str>,
}

/// The headers of both signatures; `id` is the message id of Standard Webhooks.
pub fn signature_headers(
    secrets: SigningSecrets<'_>,
    id: &str,
    timestamp_secs: i64,
    body: &[u8],
) -> [(&'static str, String); 5] {
    [
        ("X-CueAPI-Timestamp", timestamp_secs.to_string()),
        ("X-CueAPI-Signature", signature_v1(secrets.current, timestamp_secs, body)),
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", timestamp_secs.to_string()),
        ("webhook-signature", standard_signature(secrets, id, timestamp_secs, body)),
    ]
}

/// `X-CueAPI-Signature`: `v1=HEX` over `TIMESTAMP.BODY`, with the whole text of the secret as the key.
pub fn signature_v1(secret: &str, timestamp_secs: i64, body: &[u8]) -> String {
    let timestamp = timestamp_secs.to_string();
    let tag = hmac_sha256(secret.as_bytes(), &[timestamp.as_bytes(), b".", body]);
    format!("v1={}", hex::encode(&tag))
}

pub fn verify_v1(secret: &str, timestamp: &str, signature: &str, body: &[u8]) -> bool {
    let Some(tag) = signature.strip_prefix("v1=").and_then(hex::decode) else { return false };
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    // `hmac::verify` compares in constant time.
    hmac::verify(&key, &[timestamp.as_bytes(), b".", body].concat(), &tag).is_ok()
}

/// `webhook-signature` of Standard Webhooks: `v1,BASE64` over `ID.TIMESTAMP.BODY` for each secret, the current one
/// first. A secret that is not base64 signs with its bytes, so that no delivery is unsigned.
pub fn standard_signature(
    secrets: SigningSecrets<'_>,
    id: &str,
    timestamp_secs: i64,
    body: &[u8],
) -> String {
    let timestamp = timestamp_secs.to_string();
    let message = [id.as_bytes(), b".", timestamp.as_bytes(), b".", body];
    let sign =
        |secret| format!("v1,{}", STANDARD.encode(hmac_sha256(&standard_key(secret), &message)));
    match secrets.previous {
        Some(previous) => format!("{} {}", sign(secrets.current), sign(previous)),
        None => sign(secrets.current),
    }
}

pub fn verify_standard(
    secret: &str,
    id: &str,
    timestamp: &str,
    signatures: &str,
    body: &[u8],
) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &standard_key(secret));
    let message = [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat();
    let tags = signatures.split(' ').filter_map(|signature| signature.strip_prefix("v1,"));
    let tags = tags.filter_map(|tag| STANDARD.decode(tag).ok()).take(MAX_SIGNATURES);
    tags.into_iter().any(|tag| hmac::verify(&key, &message, &tag).is_ok())
}

pub fn hmac_sha256(key: &[u8], message: &[&[u8]]) -> [u8; 32] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    for part in message {
        context.update(part);
    }
    let mut tag = [0; 32];
    tag.copy_from_slice(context.sign().as_ref());
    tag
}

fn standard_key(secret: &str) -> Vec<u8> {
    let text = secret.strip_prefix("whsec_").unwrap_or(secret);
    STANDARD.decode(text).unwrap_or_else(|_| text.as_bytes().to_vec())
}

/// Seconds that a recorded delivery may be sent again; five minutes cover every legitimate delay.
pub const TOLERANCE: i64 = 300;

/// More digits are no time that a clock shows.
const MAX_DIGITS: usize = 12;

const SIGNATURE: &str = "X-CueAPI-Signature";
const TIMESTAMP: &str = "X-CueAPI-Timestamp";
const STANDARD_SIGNATURE: &str = "webhook-signature";
const STANDARD_TIMESTAMP: &str = "webhook-timestamp";
const STANDARD_ID: &str = "webhook-id";

/// The finding of a receiver with the secret. Headers are named as they are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verification {
    Verified,
    NoSignature,
    NoSecret,
    MissingHeader(&'static str),
    InvalidTimestamp(&'static str),
    WrongSignature(&'static str),
    /// The signature is right, and older than [`TOLERANCE`] by its own time.
    TooOld {
        seconds: i64,
    },
    TooNew {
        seconds: i64,
    },
}

impl Verification {
    pub fn is_verified(self) -> bool {
        self == Self::Verified
    }

    pub fn code(self) -> Option<&'static str> {
        match self {
            Self::Verified => None,
            Self::NoSignature => Some("no_signature"),
            Self::NoSecret => Some("no_secret"),
            Self::MissingHeader(_) => Some("missing_header"),
            Self::InvalidTimestamp(_) => Some("invalid_timestamp"),
            Self::WrongSignature(_) => Some("wrong_signature"),
            Self::TooOld { .. } => Some("timestamp_too_old"),
            Self::TooNew { .. } => Some("timestamp_in_the_future"),
        }
    }
}

impl fmt::Display for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verified => f.write_str("verified"),
            Self::NoSignature => f.write_str("not verified: no signature header"),
            Self::NoSecret => f.write_str("not verified: no secret given"),
            Self::MissingHeader(name) => write!(f, "not verified: no {name} header"),
            Self::InvalidTimestamp(name) => write!(f, "not verified: {name} is no time"),
            Self::WrongSignature(name) => write!(f, "not verified: wrong {name}"),
            Self::TooOld { seconds } => {
                write!(
                    f,
                    "not verified: timestamp too old, {seconds} s; at most {TOLERANCE} s are usual"
                )
            }
            Self::TooNew { seconds } => {
                write!(f, "not verified: timestamp {seconds} s in the future")
            }
        }
    }
}

/// Verifies a delivery with any of `secrets`. If it has signatures of both schemes, both must be right: a receiver
/// checks only one of them. `header` finds a header by its name in any case.
pub fn verify<'a>(
    secrets: &[String],
    header: &dyn Fn(&str) -> Option<&'a str>,
    body: &[u8],
    now: Timestamp,
) -> Verification {
    let (v1, standard) = (header(SIGNATURE), header(STANDARD_SIGNATURE));
    if v1.is_none() && standard.is_none() {
        return Verification::NoSignature;
    }
    if secrets.is_empty() {
        return Verification::NoSecret;
    }
    let of_v1 = v1.map(|signature| {
        let (text, seconds) = timestamp(header, TIMESTAMP)?;
        let is_right = secrets.iter().any(|secret| verify_v1(secret, text, signature, body));
        if is_right { Ok(seconds) } else { Err(Verification::WrongSignature(SIGNATURE)) }
    });
    let of_standard = standard.map(|signature| {
        let id = header(STANDARD_ID).ok_or(Verification::MissingHeader(STANDARD_ID))?;
        let (text, seconds) = timestamp(header, STANDARD_TIMESTAMP)?;
        let is_right =
            secrets.iter().any(|secret| verify_standard(secret, id, text, signature, body));
        if is_right { Ok(seconds) } else { Err(Verification::WrongSignature(STANDARD_SIGNATURE)) }
    });
    for signed_at in [of_v1, of_standard].into_iter().flatten() {
        let found =
            signed_at.map_or_else(|reason| reason, |seconds| at_age(now.as_second() - seconds));
        if !found.is_verified() {
            return found;
        }
    }
    Verification::Verified
}

fn at_age(seconds: i64) -> Verification {
    match seconds {
        age if age > TOLERANCE => Verification::TooOld { seconds: age },
        age if age < -TOLERANCE => Verification::TooNew { seconds: -age },
        _ => Verification::Verified,
    }
}

/// The text of a header, which is signed, and the second that it is.
fn timestamp<'a>(
    header: &dyn Fn(&str) -> Option<&'a str>,
    name: &'static str,
) -> Result<(&'a str, i64), Verification> {
    let text = header(name).ok_or(Verification::MissingHeader(name))?;
    let is_number = text.len() <= MAX_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = text.parse().ok().filter(|_| is_number);
    Ok((text, seconds.ok_or(Verification::InvalidTimestamp(name))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    // The expected values were computed with Python's hmac, hashlib and base64.
    const CURRENT: &str = "whsec_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const PREVIOUS: &str = "whsec_ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";
    const ID: &str = "0190a5c0-0000-7000-8000-000000000001";
    const AT: i64 = 1_767_225_600;
    const BODY: &[u8] = b"{\"a\": 1}";

    fn standard(current: &str, previous: Option<&str>) -> String {
        standard_signature(SigningSecrets { current, previous }, ID, AT, BODY)
    }

    #[test]
    fn v1_is_keyed_with_the_whole_text_of_the_secret_and_verified_for_the_same_time_and_body() {
        let (at, signed) = (AT.to_string(), signature_v1(CURRENT, AT, BODY));
        assert_eq!(signed, "v1=bb8d5493c3c781c7232f2b2f4a8ee8e323213f17aa4ed65fe5e2d68ee1f3e5af");
        assert!(verify_v1(CURRENT, &at, &signed, BODY));
        assert!(!verify_v1(PREVIOUS, &at, &signed, BODY));
        assert!(!verify_v1(CURRENT, "1767225601", &signed, BODY));
        assert!(!verify_v1(CURRENT, &at, &signed, b"{}"));
        for other in ["", "v1=", "v1=00", &signed[3..], &signed.replace("v1=", "v2=")] {
            assert!(!verify_v1(CURRENT, &at, other, BODY), "{other}");
        }
    }

    #[test]
    fn standard_is_keyed_with_the_decoded_secrets_and_verified_by_each_of_them() {
        let (current, previous) = (
            "v1,gfiQxYpPhg0l4G16Tnholwi0vwWP4w5/suw21UZ8VJ4=",
            "v1,PAJLiJe41f2W3A5YuU+UUrqmsy9vkd7Ylp31YWVL7ec=",
        );
        let (at, signed) = (AT.to_string(), standard(CURRENT, Some(PREVIOUS)));
        assert_eq!(
            (standard(CURRENT, None).as_str(), signed),
            (current, format!("{current} {previous}"))
        );
        let signed = standard(CURRENT, Some(PREVIOUS));
        assert!(
            [CURRENT, PREVIOUS]
                .iter()
                .all(|secret| verify_standard(secret, ID, &at, &signed, BODY))
        );
        assert!(!verify_standard("another", ID, &at, &signed, BODY));
        assert!(!verify_standard(CURRENT, "another", &at, &signed, BODY));
        assert!(!verify_standard(CURRENT, ID, "1767225601", &signed, BODY));
        assert!(!verify_standard(CURRENT, ID, &at, &signed, b"{}"));
        for other in ["", "v1,", "v1,AA==", &signed[3..47], &signed.replace("v1,", "v2,")] {
            assert!(!verify_standard(CURRENT, ID, &at, other, BODY), "{other}");
        }
    }

    #[test]
    fn a_secret_that_is_not_base64_signs_with_its_bytes() {
        let expected = "v1,T7P360qC/JD72EhK6nmHl5prYuYsCL7LBtc5C0/ofdE=";
        assert_eq!(standard("whsec_not base64!", None), expected);
        assert_eq!(standard("not base64!", None), expected);
        assert_eq!(standard("", None), "v1,xaiWfAUf/QZJ1yjCrQtCxx2e7ps36umru/QYrA+hg/I=");
    }

    /// The finding of a receiver `age` seconds after the signature; `change` changes the headers on their way.
    fn found(
        secrets: &[&str],
        age: i64,
        change: impl Fn(&mut Vec<(&str, String)>),
    ) -> Verification {
        let signing = SigningSecrets { current: CURRENT, previous: Some(PREVIOUS) };
        let mut headers = signature_headers(signing, "id", AT, BODY).to_vec();
        change(&mut headers);
        let secrets: Vec<String> = secrets.iter().map(|it| (*it).to_owned()).collect();
        let header = |name: &str| {
            headers.iter().find(|(it, _)| *it == name).map(|(_, value)| value.as_str())
        };
        verify(&secrets, &header, BODY, Timestamp::from_second(AT + age).unwrap())
    }

    #[test]
    fn right_and_recent_signatures_are_verified_and_each_defect_has_its_reason() {
        use Verification as V;
        let (v1, ids) = (&["X-CueAPI-Signature"], &["webhook-signature", "webhook-id"]);
        for (secrets, age, removed, finding) in [
            (&[CURRENT][..], 0, &[][..], V::Verified),
            (&[PREVIOUS, CURRENT], 300, &[], V::Verified),
            (&[CURRENT], -300, v1, V::Verified),
            (&[CURRENT], 0, ids, V::Verified),
            // The second of two signatures.
            (&[PREVIOUS], 0, v1, V::Verified),
            (&[], 0, &[], V::NoSecret),
            (&[PREVIOUS], 0, &[], V::WrongSignature(SIGNATURE)),
            (&["another"], 0, v1, V::WrongSignature(STANDARD_SIGNATURE)),
            (&[CURRENT], 301, &[], V::TooOld { seconds: 301 }),
            (&[CURRENT], -301, &[], V::TooNew { seconds: 301 }),
            (&[CURRENT], 0, &[TIMESTAMP], V::MissingHeader(TIMESTAMP)),
            (&[CURRENT], 0, &[STANDARD_ID], V::MissingHeader(STANDARD_ID)),
            (&[CURRENT], 0, &[SIGNATURE, STANDARD_SIGNATURE], V::NoSignature),
        ] {
            let remove = |headers: &mut Vec<(&str, String)>| {
                headers.retain(|(name, _)| !removed.contains(name))
            };
            assert_eq!(
                found(secrets, age, remove),
                finding,
                "{secrets:?}, {age} s, without {removed:?}"
            );
        }
        for no_time in ["", "1_0", "-1", "12345678901234567890", "\u{661}"] {
            let change = |headers: &mut Vec<(&str, String)>| headers[0].1 = no_time.to_owned();
            assert_eq!(found(&[CURRENT], 0, change), V::InvalidTimestamp(TIMESTAMP), "{no_time}");
        }
    }
}
