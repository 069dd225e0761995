//! Device login (contract §3): the states of a code, its limits and its text forms. Random bytes are arguments.
//!
//! `pending` → `email_sent` → `approved` → `claimed`; after 15 minutes whatever is not claimed is `expired`.

use std::fmt;

use jiff::{SignedDuration, Timestamp};

use crate::domain::account::credentials::sha256;
use crate::domain::ids::hex;

/// How long a code, and any link that was mailed for it, can be used.
pub const LIFETIME: SignedDuration = SignedDuration::from_mins(15);

/// Seconds that a device should wait between two polls.
pub const POLL_INTERVAL_SECS: u32 = 2;

/// The span that codes and mails are counted in; a code is known for that long.
pub const RATE_WINDOW: SignedDuration = SignedDuration::from_hours(1);

/// Codes per client address in [`RATE_WINDOW`].
pub const MAX_CODES: usize = 5;

/// Mails per e-mail address in [`RATE_WINDOW`].
pub const MAX_MAILS: usize = 3;

/// Mails for one code, whoever they go to: no code is a means to write to many.
pub const MAX_MAILS_PER_CODE: i64 = 10;

/// Polls per code in 60 seconds.
pub const MAX_POLLS: u32 = 30;

const CODE_CHARS: std::ops::RangeInclusive<usize> = 6..=128;
const GROUPS: usize = 3;
const GROUP_CHARS: usize = 4;
/// No letter that is taken for a digit or for another letter.
const ALPHABET: &[u8; 30] = b"23456789ABCDEFGHJKMNPQRSTVWXYZ";

/// The code that a device shows and polls with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DeviceCode(String);

impl DeviceCode {
    /// A new code, three groups of four, every one as likely as any other: 58 bits, since who knows it can poll.
    ///
    /// # Errors
    /// Those of the source that fills a buffer with random bytes.
    pub fn generate<E>(mut fill: impl FnMut(&mut [u8]) -> Result<(), E>) -> Result<Self, E> {
        // The largest multiple of 30 in a byte: what is above would make the first characters more likely.
        const FAIR: u8 = 240;
        let mut chars = Vec::with_capacity(GROUPS * GROUP_CHARS);
        while chars.len() < GROUPS * GROUP_CHARS {
            let mut bytes = [0; GROUPS * GROUP_CHARS];
            fill(&mut bytes)?;
            let fair = bytes.into_iter().filter(|&byte| byte < FAIR);
            chars.extend(fair.map(|byte| char::from(ALPHABET[usize::from(byte % 30)])));
        }
        chars.truncate(GROUPS * GROUP_CHARS);
        let groups: Vec<String> = chars.chunks(GROUP_CHARS).map(|group| group.iter().collect()).collect();
        Ok(Self(groups.join("-")))
    }

    /// The code in this text: 6 to 128 of `A-Z a-z 0-9 -`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_code = CODE_CHARS.contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        is_code.then(|| Self(text.to_owned()))
    }

    /// The code's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What is stored of the code and looked up by it: while it is approved, the code is worth a key.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        sha256(self.0.as_bytes())
    }

    /// The name of the key that the device gets.
    #[must_use]
    pub fn key_name(&self) -> String {
        format!("Device {}", self.0)
    }
}

impl fmt::Display for DeviceCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The secret in a mailed link: 64 hexadecimal digits. Only its hash may be stored.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkToken(String);

impl LinkToken {
    /// The token made of 32 random bytes.
    #[must_use]
    pub fn from_random(random: [u8; 32]) -> Self {
        Self(hex(&random))
    }

    /// The whole token, for the link.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What is stored of it.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        Self::hash_of(&self.0)
    }

    /// The hash of what a link brought, whatever that is.
    #[must_use]
    pub fn hash_of(text: &str) -> [u8; 32] {
        sha256(text.as_bytes())
    }
}

impl fmt::Debug for LinkToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkToken(…)")
    }
}

/// How far a stored login came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginState {
    /// Nobody has given an address.
    Pending,
    /// An address was given.
    EmailSent,
    /// The link was followed and confirmed; the key waits for the next poll.
    Approved,
    /// The key was handed out.
    Claimed,
}

impl LoginState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Pending, Self::EmailSent, Self::Approved, Self::Claimed];

    /// The state as a poll answers it and as it is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::EmailSent => "email_sent",
            Self::Approved => "approved",
            Self::Claimed => "claimed",
        }
    }

    /// The state of this word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// A stored login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceLogin {
    /// How far it came.
    pub state: LoginState,
    /// When its code was made.
    pub created_at: Timestamp,
    /// The address that the newest link was mailed to.
    pub email: Option<String>,
    /// The hash of that link's token.
    pub token_hash: Option<[u8; 32]>,
    /// Mails that it caused.
    pub mails: i64,
    /// The user who approved it.
    pub user_key: Option<i64>,
}

/// What a mailed link is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkStatus {
    /// It may be confirmed.
    Valid,
    /// It was confirmed before.
    Used,
    /// Its time is over.
    Expired,
    /// It is not one of ours, or a newer mail has replaced it.
    Unknown,
}

impl DeviceLogin {
    /// When the code and its link can no longer be used.
    #[must_use]
    pub fn expires_at(&self) -> Timestamp {
        self.created_at.checked_add(LIFETIME).unwrap_or(Timestamp::MAX)
    }

    /// The state at `now`; `None` when it has expired. What was claimed stays so.
    #[must_use]
    pub fn state_at(&self, now: Timestamp) -> Option<LoginState> {
        (self.state == LoginState::Claimed || now < self.expires_at()).then_some(self.state)
    }

    /// Whether an address may be given at `now`: again, too, when the first mail did not arrive.
    #[must_use]
    pub fn takes_email(&self, now: Timestamp) -> bool {
        matches!(self.state_at(now), Some(LoginState::Pending | LoginState::EmailSent))
    }

    /// What a link with a token of this hash is worth at `now`.
    #[must_use]
    pub fn link(&self, token_hash: &[u8; 32], now: Timestamp) -> LinkStatus {
        if self.token_hash.as_ref() != Some(token_hash) {
            return LinkStatus::Unknown;
        }
        match self.state_at(now) {
            _ if matches!(self.state, LoginState::Approved | LoginState::Claimed) => LinkStatus::Used,
            None => LinkStatus::Expired,
            Some(_) => LinkStatus::Valid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: [u8; 32] = [7; 32];

    fn login(state: LoginState) -> (DeviceLogin, Timestamp) {
        let created_at = "2026-01-01T10:00:00Z".parse().unwrap();
        let token_hash = (state != LoginState::Pending).then_some(TOKEN);
        (DeviceLogin { state, created_at, email: None, token_hash, mails: 0, user_key: None }, created_at)
    }

    #[test]
    fn every_state_behaves_as_specified_before_and_after_expiry() {
        use LoginState::{Approved, Claimed, EmailSent, Pending};
        // State; then before its end and from it on: what a poll says, whether it takes an address, its link.
        let table = [
            (Pending, Some(Pending), true, LinkStatus::Unknown, None, LinkStatus::Unknown),
            (EmailSent, Some(EmailSent), true, LinkStatus::Valid, None, LinkStatus::Expired),
            (Approved, Some(Approved), false, LinkStatus::Used, None, LinkStatus::Used),
            (Claimed, Some(Claimed), false, LinkStatus::Used, Some(Claimed), LinkStatus::Used),
        ];
        for (state, polled, takes, link, polled_late, link_late) in table {
            let (login, begin) = login(state);
            let last = begin + LIFETIME - SignedDuration::from_millis(1);
            let late = begin + LIFETIME;
            for now in [begin, last] {
                assert_eq!(login.state_at(now), polled, "{state:?}");
                assert_eq!(login.takes_email(now), takes, "{state:?}");
                assert_eq!(login.link(&TOKEN, now), link, "{state:?}");
            }
            assert_eq!(login.state_at(late), polled_late, "{state:?}");
            assert!(!login.takes_email(late), "{state:?}");
            assert_eq!(login.link(&TOKEN, late), link_late, "{state:?}");
            assert_eq!(login.link(&[8; 32], begin), LinkStatus::Unknown, "{state:?}");
        }
    }

    #[test]
    fn states_round_trip_through_text() {
        for state in LoginState::ALL {
            assert_eq!(LoginState::parse(state.as_str()), Some(state));
        }
        assert_eq!(LoginState::parse("expired"), None);
    }

    #[test]
    fn a_generated_code_is_easy_to_read() {
        let mut next = 0_u8;
        let code = DeviceCode::generate(|bytes| {
            // Counts down from 255, so that unfair bytes come first.
            bytes.iter_mut().for_each(|byte| {
                next = next.wrapping_sub(1);
                *byte = next;
            });
            Ok::<(), ()>(())
        });
        // 239 and on downwards: the last of the alphabet first.
        assert_eq!(code.as_ref().unwrap().as_str(), "ZYXW-VTSR-QPNM");
        assert_eq!(DeviceCode::parse(code.as_ref().unwrap().as_str()), code.ok());
    }

    #[test]
    fn codes_have_6_to_128_letters_digits_and_hyphens() {
        for good in ["abc-12", "------", &"Z".repeat(128)] {
            assert!(DeviceCode::parse(good).is_some(), "{good}");
        }
        for bad in ["", "abc12", "abc 12", "abc_12", "ábc-12", "<b>abc", &"Z".repeat(129)] {
            assert_eq!(DeviceCode::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_token_has_64_digits_and_is_hidden_in_debug_output() {
        let token = LinkToken::from_random([0xA5; 32]);
        assert_eq!(token.reveal(), "a5".repeat(32));
        assert_eq!(token.hash(), LinkToken::hash_of(token.reveal()));
        assert_eq!(format!("{token:?}"), "LinkToken(…)");
    }
}
