//! Sessions of browsers (contract §3.11): their token and their life.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};

use crate::domain::account::credentials::sha256;
use crate::domain::secret::Secret;
use crate::domain::text::word_enum;
use crate::domain::time::saturating_add;

pub const LIFETIME: SignedDuration = SignedDuration::from_hours(30 * 24);

pub const MAX_LIFETIME: SignedDuration = SignedDuration::from_hours(90 * 24);

/// The time between two updates of when a session was last seen. Each is a write.
pub const SEEN_INTERVAL: SignedDuration = SignedDuration::from_hours(24);

/// Sessions of a user: a person has a few browsers. The oldest gives way.
pub const MAX_SESSIONS: i64 = 20;

/// Requests by session in a minute, of all sessions of a user: a page makes some when it is opened and few after that.
pub const REQUESTS_PER_MINUTE: u32 = 240;

pub const MAX_FAILED_SIGN_INS: u32 = 10;

pub const SIGN_IN_WINDOW: SignedDuration = SignedDuration::from_mins(15);

pub const LINK_LIFETIME: SignedDuration = SignedDuration::from_mins(5);

/// Unused links of a user. The oldest gives way.
pub const MAX_LINKS: i64 = 10;

/// The user that a sign-in without a credential makes if there is none (`cued serve --dev`).
pub const DEV_EMAIL: &str = "dev@example.com";

const DEVICE_CHARS: usize = 64;

const TOKEN_CHARS: usize = 43;

/// The secret of a session or of a one-time link: 32 random bytes in 43 characters of base64url. Only its hash may be
/// stored: of a session [`SessionToken::hash_at`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionToken(Secret);

impl SessionToken {
    pub fn from_random(random: [u8; 32]) -> Self {
        Self(URL_SAFE_NO_PAD.encode(random).into())
    }

    pub fn parse(text: &str) -> Option<Self> {
        let is_token = text.len() == TOKEN_CHARS
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        is_token.then(|| Self(text.to_owned().into()))
    }

    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    /// The SHA-256 of a link that is stored and looked up.
    pub fn hash(&self) -> [u8; 32] {
        sha256(self.expose().as_bytes())
    }

    /// The SHA-256 of a session that is stored and looked up. The token is of no use at another origin: a browser sends
    /// a cookie to all ports of a host.
    pub fn hash_at(&self, origin: &str) -> [u8; 32] {
        sha256(format!("{}\n{origin}", self.expose()).as_bytes())
    }
}

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SignInMethod {
        Key = "key",
        Mail = "mail",
        Link = "link",
        Dev = "dev",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub id: String,
    pub method: SignInMethod,
    pub device: String,
    pub address: String,
    pub created_at: Timestamp,
    /// When it was last seen, less up to [`SEEN_INTERVAL`].
    pub seen_at: Timestamp,
    pub expires_at: Timestamp,
}

impl Session {
    pub fn begin(
        id: String,
        method: SignInMethod,
        device: String,
        address: String,
        now: Timestamp,
    ) -> Self {
        let expires_at = expiry(now, now);
        Self { id, method, device, address, created_at: now, seen_at: now, expires_at }
    }
}

pub fn expiry(created_at: Timestamp, seen_at: Timestamp) -> Timestamp {
    saturating_add(seen_at, LIFETIME).min(saturating_add(created_at, MAX_LIFETIME))
}

/// Returns whether to record a request at `now` as the last one. A clock that was set back records nothing.
pub fn is_to_record(seen_at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(seen_at) >= SEEN_INTERVAL
}

/// A readable name for the device with this `User-Agent`: `Firefox on Linux`, or the beginning of an unknown one.
pub fn device_name(user_agent: &str) -> String {
    // Most browsers name others as well: the first that fits is the one.
    let named = |names: &[(&str, &'static str)]| {
        names.iter().find(|(part, _)| user_agent.contains(part)).map(|(_, name)| *name)
    };
    let browser = named(&[
        ("Edg", "Edge"),
        ("OPR/", "Opera"),
        ("SamsungBrowser/", "Samsung Internet"),
        ("Firefox/", "Firefox"),
        ("FxiOS/", "Firefox"),
        ("CriOS/", "Chrome"),
        ("Chrome/", "Chrome"),
        ("Safari/", "Safari"),
    ]);
    let system = named(&[
        ("Android", "Android"),
        ("iPhone", "iPhone"),
        ("iPad", "iPad"),
        ("Windows", "Windows"),
        ("CrOS", "ChromeOS"),
        ("Mac OS X", "macOS"),
        ("Linux", "Linux"),
    ]);
    match (browser, system) {
        (Some(browser), Some(system)) => format!("{browser} on {system}"),
        _ => user_agent.chars().filter(|char| !char.is_control()).take(DEVICE_CHARS).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_43_characters_of_base64url() {
        let token = SessionToken::from_random([0xFB; 32]);
        assert_eq!((token.expose().len(), &token.expose()[..4]), (43, "-_v7"));
        assert_eq!(SessionToken::parse(token.expose()), Some(token.clone()));
        assert_eq!(format!("{token:?}"), "SessionToken(***)");
        for (chars, end) in [(0, ""), (1, ""), (44, ""), (42, "="), (41, "ä")] {
            let text = "a".repeat(chars) + end;
            assert_eq!(SessionToken::parse(&text), None, "{text}");
        }
    }

    #[test]
    fn a_device_has_a_readable_name() {
        for (user_agent, name) in [
            (
                "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
                "Firefox on Linux",
            ),
            (
                "Mozilla/5.0 (Windows NT 10.0) Chrome/140.0 Safari/537.36 Edg/140.0",
                "Edge on Windows",
            ),
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Safari/604.1",
                "Safari on iPhone",
            ),
            ("curl/8.0\u{7}", "curl/8.0"),
            (&"ä".repeat(100), &"ä".repeat(64)),
        ] {
            assert_eq!(device_name(user_agent), name);
        }
    }
}
