//! Verifies a delivery as its receiver does (contract §6.3), and says why it is not verified.

use std::fmt;

use jiff::Timestamp;

use crate::domain::webhook::signature::{verify_standard, verify_v1};

/// Seconds by which the time of a signature may differ from the receiver's. A signature never expires, so a recorded
/// delivery could be sent again; five minutes cover every legitimate delay.
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
    /// Each signature of the delivery is right and recent.
    Verified,
    NoSignature,
    NoSecret,
    /// A header that its signature covers is missing.
    MissingHeader(&'static str),
    /// The header is not the number of a second.
    InvalidTimestamp(&'static str),
    WrongSignature(&'static str),
    /// The signature is right, and older than [`TOLERANCE`] by its own time.
    TooOld {
        seconds: i64,
    },
    /// The signature is right, and of a time in the future.
    TooNew {
        seconds: i64,
    },
}

impl Verification {
    pub fn is_verified(self) -> bool {
        self == Self::Verified
    }

    /// The reason as a word for programs; `None` if the delivery is verified.
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
                write!(f, "not verified: timestamp too old, {seconds} s; at most {TOLERANCE} s are usual")
            }
            Self::TooNew { seconds } => write!(f, "not verified: timestamp {seconds} s in the future"),
        }
    }
}

/// Verifies a delivery with any of `secrets`. If it has signatures of both schemes, both must be right: a receiver checks
/// only one of them. `header` finds a header by its name in any case.
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
        let is_right = secrets.iter().any(|secret| verify_standard(secret, id, text, signature, body));
        if is_right { Ok(seconds) } else { Err(Verification::WrongSignature(STANDARD_SIGNATURE)) }
    });
    for signed_at in [of_v1, of_standard].into_iter().flatten() {
        let found = signed_at.map_or_else(|reason| reason, |seconds| at_age(now.as_second() - seconds));
        if !found.is_verified() {
            return found;
        }
    }
    Verification::Verified
}

/// A right signature of this age in seconds.
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
    use crate::domain::webhook::signature::{SigningSecrets, signature_headers};

    const SECRET: &str = "whsec_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const OTHER: &str = "whsec_ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";
    const AT: i64 = 1_767_225_600;
    const BODY: &[u8] = b"{\"a\": 1}";

    /// The finding of a receiver `age` seconds after the signature; `change` changes the headers on their way.
    fn found(secrets: &[&str], age: i64, change: impl Fn(&mut Vec<(&'static str, String)>)) -> Verification {
        let signing = SigningSecrets { current: SECRET, previous: Some(OTHER) };
        let mut headers = signature_headers(signing, "id", AT, BODY).to_vec();
        change(&mut headers);
        let secrets: Vec<String> = secrets.iter().map(|it| (*it).to_owned()).collect();
        let header = |name: &str| headers.iter().find(|(it, _)| *it == name).map(|(_, value)| value.as_str());
        verify(&secrets, &header, BODY, Timestamp::from_second(AT + age).unwrap())
    }

    fn without(names: &'static [&str]) -> impl Fn(&mut Vec<(&'static str, String)>) {
        move |headers| headers.retain(|(name, _)| !names.contains(name))
    }

    #[test]
    fn right_and_recent_signatures_are_verified() {
        assert_eq!(found(&[SECRET], 0, |_| ()), Verification::Verified);
        assert_eq!(found(&[OTHER, SECRET], 300, |_| ()), Verification::Verified, "any of the secrets");
        assert_eq!(found(&[SECRET], -300, without(&[SIGNATURE])), Verification::Verified);
        assert_eq!(found(&[SECRET], 0, without(&[STANDARD_SIGNATURE, STANDARD_ID])), Verification::Verified);
        assert_eq!(
            found(&[OTHER], 0, without(&[SIGNATURE])),
            Verification::Verified,
            "the second of two signatures"
        );
    }

    #[test]
    fn each_defect_has_its_reason() {
        let all = |_: &mut Vec<(&'static str, String)>| ();
        assert_eq!(found(&[], 0, all), Verification::NoSecret);
        assert_eq!(found(&[], 0, |headers| headers.clear()), Verification::NoSignature);
        assert_eq!(found(&[OTHER], 0, all), Verification::WrongSignature(SIGNATURE));
        assert_eq!(
            found(&["another"], 0, without(&[SIGNATURE])),
            Verification::WrongSignature(STANDARD_SIGNATURE)
        );
        assert_eq!(found(&[SECRET], 301, all), Verification::TooOld { seconds: 301 });
        assert_eq!(found(&[SECRET], -301, all), Verification::TooNew { seconds: 301 });
        assert_eq!(found(&[SECRET], 0, without(&[TIMESTAMP])), Verification::MissingHeader(TIMESTAMP));
        assert_eq!(found(&[SECRET], 0, without(&[STANDARD_ID])), Verification::MissingHeader(STANDARD_ID));
        for no_time in ["", "1_0", "-1", "12345678901234567890", "\u{661}"] {
            let change = |headers: &mut Vec<(&'static str, String)>| headers[0].1 = no_time.to_owned();
            assert_eq!(found(&[SECRET], 0, change), Verification::InvalidTimestamp(TIMESTAMP), "{no_time}");
        }
    }
}
