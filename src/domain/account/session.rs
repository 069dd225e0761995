//! Sessions of browsers (contract §3.11): their token, their life, and those that are only in memory.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};

use crate::domain::account::credentials::{secret, sha256};
use crate::domain::text::word_enum::word_enum;
use crate::domain::time::saturating_add;

/// The life of a session after it was last seen.
pub const LIFETIME: SignedDuration = SignedDuration::from_hours(30 * 24);

/// The life of a session, however often it is seen.
pub const MAX_LIFETIME: SignedDuration = SignedDuration::from_hours(90 * 24);

/// The time between two updates of when a session was last seen. Each is a write.
pub const SEEN_INTERVAL: SignedDuration = SignedDuration::from_hours(24);

/// Sessions of a user: a person has a few browsers. The oldest gives way.
pub const MAX_SESSIONS: i64 = 20;

/// Requests by session in a minute, of all sessions of a user: a page makes some when it is opened and few after that.
pub const REQUESTS_PER_MINUTE: u32 = 240;

/// Failed sign-ins of a client address in [`SIGN_IN_WINDOW`].
pub const MAX_FAILED_SIGN_INS: u32 = 10;

/// The rate limit window of failed sign-ins.
pub const SIGN_IN_WINDOW: SignedDuration = SignedDuration::from_mins(15);

pub const LINK_LIFETIME: SignedDuration = SignedDuration::from_mins(5);

/// Unused links of a user. The oldest gives way.
pub const MAX_LINKS: i64 = 10;

/// The user that a sign-in without a credential makes if there is none (`cued serve --dev`).
pub const DEV_EMAIL: &str = "dev@example.com";

/// Sessions in memory, of about 300 bytes each: they exist while the file cannot be written.
const MAX_UNSTORED: usize = 100;

const DEVICE_CHARS: usize = 64;

const TOKEN_CHARS: usize = 43;

secret! {
    /// The secret of a session or of a one-time link: 32 random bytes in 43 characters of base64url. Only its hash may be
    /// stored: of a session [`SessionToken::hash_at`].
    SessionToken
}

impl SessionToken {
    pub fn from_random(random: [u8; 32]) -> Self {
        Self(URL_SAFE_NO_PAD.encode(random))
    }

    /// `None` unless `text` has the form of a token.
    pub fn parse(text: &str) -> Option<Self> {
        let is_token = text.len() == TOKEN_CHARS
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        is_token.then(|| Self(text.to_owned()))
    }

    /// The SHA-256 of a session that is stored and looked up. The token is of no use at another origin: a browser sends a
    /// cookie to all ports of a host.
    pub fn hash_at(&self, origin: &str) -> [u8; 32] {
        sha256(format!("{}\n{origin}", self.0).as_bytes())
    }
}

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SignInWay {
        Key = "key",
        Mail = "mail",
        Link = "link",
        /// Without a credential, in development mode.
        Dev = "dev",
    }
}

/// A session, as its user may see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub id: String,
    pub via: SignInWay,
    /// The browser, as it named itself at the sign-in.
    pub device: String,
    pub address: String,
    pub created_at: Timestamp,
    /// When it was last seen, less up to [`SEEN_INTERVAL`].
    pub seen_at: Timestamp,
    pub expires_at: Timestamp,
}

impl Session {
    /// The session without its expiry updated, seen for the first time at `now`.
    pub fn begin(id: String, via: SignInWay, device: String, address: String, now: Timestamp) -> Self {
        let expires_at = expiry(now, now);
        Self { id, via, device, address, created_at: now, seen_at: now, expires_at }
    }
}

/// The end of a session that was created and last seen at these instants.
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

/// A session in memory. It is valid as long as its API key is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnstoredSession {
    pub session: Session,
    pub user_key: i64,
    pub token_hash: [u8; 32],
    pub key_hash: [u8; 32],
}

/// The sessions that began while the file could not be written, oldest first: the page must open when the disk is full.
#[derive(Debug, Default)]
pub struct UnstoredSessions(Vec<UnstoredSession>);

impl UnstoredSessions {
    /// Adds a session. The oldest of its user gives way, or of all.
    pub fn add(&mut self, new: UnstoredSession) {
        let now = new.session.created_at;
        self.0.retain(|it| it.session.expires_at > now);
        let of_user = self.0.iter().filter(|it| it.user_key == new.user_key).count();
        let is_full_for_user = i64::try_from(of_user).is_ok_and(|count| count >= MAX_SESSIONS);
        let oldest = self.0.iter().position(|it| it.user_key == new.user_key);
        match oldest {
            Some(oldest) if is_full_for_user => drop(self.0.remove(oldest)),
            _ if self.0.len() >= MAX_UNSTORED => drop(self.0.remove(0)),
            _ => {}
        }
        self.0.push(new);
    }

    pub fn find(&self, token_hash: &[u8; 32], now: Timestamp) -> Option<&UnstoredSession> {
        self.0.iter().find(|it| it.token_hash == *token_hash && it.session.expires_at > now)
    }

    pub fn of_user(&self, user_key: i64, now: Timestamp) -> Vec<Session> {
        let own = self.0.iter().filter(|it| it.user_key == user_key && it.session.expires_at > now);
        own.map(|it| it.session.clone()).collect()
    }

    /// Ends the sessions of a user whose id `ends` accepts, and returns their number.
    pub fn end(&mut self, user_key: i64, ends: impl Fn(&str) -> bool) -> usize {
        let before = self.0.len();
        self.0.retain(|it| it.user_key != user_key || !ends(&it.session.id));
        before - self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(days: i64) -> Timestamp {
        Timestamp::from_second(1_900_000_000 + days * 86_400).unwrap()
    }

    fn unstored(user_key: i64, number: u8) -> UnstoredSession {
        let id = format!("{user_key}-{number}");
        let session = Session::begin(id, SignInWay::Key, String::new(), String::new(), at(0));
        let mut token_hash = [number; 32];
        token_hash[0] = u8::try_from(user_key).unwrap();
        UnstoredSession { session, user_key, token_hash, key_hash: [0; 32] }
    }

    #[test]
    fn a_token_has_43_characters_of_base64url() {
        let token = SessionToken::from_random([0xFB; 32]);
        assert_eq!((token.reveal().len(), &token.reveal()[..4]), (43, "-_v7"));
        assert_eq!(SessionToken::parse(token.reveal()), Some(token.clone()));
        assert_eq!(format!("{token:?}"), "SessionToken(…)");
        for (chars, end) in [(0, ""), (1, ""), (44, ""), (42, "="), (41, "ä")] {
            let text = "a".repeat(chars) + end;
            assert_eq!(SessionToken::parse(&text), None, "{text}");
        }
    }

    #[test]
    fn a_device_has_a_readable_name() {
        for (user_agent, name) in [
            ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox on Linux"),
            ("Mozilla/5.0 (Windows NT 10.0) Chrome/140.0 Safari/537.36 Edg/140.0", "Edge on Windows"),
            ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Safari/604.1", "Safari on iPhone"),
            ("curl/8.0\u{7}", "curl/8.0"),
            (&"ä".repeat(100), &"ä".repeat(64)),
        ] {
            assert_eq!(device_name(user_agent), name);
        }
    }

    #[test]
    fn unstored_sessions_are_bounded_per_user_and_in_all() {
        let mut sessions = UnstoredSessions::default();
        for number in 0..21 {
            sessions.add(unstored(1, number));
        }
        assert_eq!(sessions.of_user(1, at(0)).len(), 20);
        assert_eq!(sessions.find(&unstored(1, 0).token_hash, at(0)), None, "the oldest gave way");
        for user in 2..7 {
            for number in 0..20 {
                sessions.add(unstored(user, number));
            }
        }
        assert_eq!((sessions.0.len(), sessions.of_user(1, at(0)).len()), (100, 0));
        assert_eq!(sessions.end(2, |id| id != "2-3"), 19);
        assert!(sessions.find(&unstored(2, 3).token_hash, at(29)).is_some());
        assert_eq!(sessions.find(&unstored(2, 3).token_hash, at(30)), None, "it has expired");
    }
}
