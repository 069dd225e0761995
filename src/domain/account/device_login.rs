//! Device login (contract §3): the states of a code, its limits and its text forms. Random bytes are arguments.
//!
//! `pending` → `email_sent` → `approved` → `claimed`; after 15 minutes an unclaimed code is `expired`.

use jiff::{SignedDuration, Timestamp};

use crate::domain::account::credentials::sha256;
use crate::domain::row_keys::UserKey;
use crate::domain::secret::Secret;
use crate::domain::text::{hex, word_enum};
use crate::domain::time::saturating_add;

pub const LIFETIME: SignedDuration = SignedDuration::from_mins(15);

pub const POLL_INTERVAL_SECS: u32 = 2;

/// The rate limit window of codes and mails; a code is kept for that long.
pub const RATE_WINDOW: SignedDuration = SignedDuration::from_hours(1);

pub const MAX_CODES: usize = 5;

pub const MAX_MAILS: usize = 3;

/// Mails for one code, to any address, so that a code cannot be used to mail many people.
pub const MAX_MAILS_PER_CODE: i64 = 10;

pub const MAX_POLLS: u32 = 30;

pub const MAX_SHOWN_KEYS: i64 = 100;

const CODE_CHARS: std::ops::RangeInclusive<usize> = 6..=128;
const DEVICE_CODE_GROUPS: usize = 3;
const USER_CODE_GROUPS: usize = 2;
const GROUP_CHARS: usize = 4;
/// No letters that look like digits or like other letters.
const ALPHABET: &[u8; 30] = b"23456789ABCDEFGHJKMNPQRSTVWXYZ";

/// The code that a device polls with. It is a secret of the device: pages and mails show the [`UserCode`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DeviceCode(Secret);

impl DeviceCode {
    /// 58 bits, because the code alone allows polling.
    pub fn generate<E>(fill: impl FnMut(&mut [u8]) -> Result<(), E>) -> Result<Self, E> {
        Ok(Self(random_groups(DEVICE_CODE_GROUPS, fill)?.into()))
    }

    pub fn parse(text: &str) -> Option<Self> {
        let is_code = CODE_CHARS.contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        is_code.then(|| Self(text.to_owned().into()))
    }

    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    /// The hash that is stored and looked up: while it is approved, a code is worth an API key.
    pub fn hash(&self) -> [u8; 32] {
        sha256(self.expose().as_bytes())
    }

    pub fn key_name(&self) -> String {
        format!("Device {}", self.expose())
    }
}

/// The code that people read. Whoever sees it cannot poll with it, and a caller never chooses it: no login can pass for
/// another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserCode(String);

impl UserCode {
    /// 39 bits: a guess has to hit one of the logins of the last 15 minutes, and gains no key.
    pub fn generate<E>(fill: impl FnMut(&mut [u8]) -> Result<(), E>) -> Result<Self, E> {
        Ok(Self(random_groups(USER_CODE_GROUPS, fill)?))
    }

    pub fn typed(text: &str) -> Self {
        Self(text.trim().to_ascii_uppercase())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn random_groups<E>(
    groups: usize,
    mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
) -> Result<String, E> {
    // The largest multiple of 30 in a byte: higher values would make the first characters more likely.
    const LIMIT: u8 = 240;
    let mut chars = Vec::with_capacity(groups * GROUP_CHARS);
    while chars.len() < groups * GROUP_CHARS {
        let mut bytes = [0; DEVICE_CODE_GROUPS * GROUP_CHARS];
        fill(&mut bytes)?;
        let unbiased = bytes.into_iter().filter(|&byte| byte < LIMIT);
        chars.extend(unbiased.map(|byte| char::from(ALPHABET[usize::from(byte % 30)])));
    }
    chars.truncate(groups * GROUP_CHARS);
    let groups: Vec<String> =
        chars.chunks(GROUP_CHARS).map(|group| group.iter().collect()).collect();
    Ok(groups.join("-"))
}

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum OtherKeys {
        Keep = "keep",
        Revoke = "revoke",
    }
}

impl OtherKeys {
    /// Default choice of the page, and the choice if none is sent. The account may have been registered by someone
    /// else, so its owner must not share it unknowingly.
    pub fn proposed(confirmed_at: Option<Timestamp>) -> Self {
        if confirmed_at.is_some() { Self::Keep } else { Self::Revoke }
    }
}

/// The secret in a mailed link: 64 hexadecimal digits. Only its hash may be stored.
pub fn new_link_token(random: [u8; 32]) -> Secret {
    hex::encode(&random).into()
}

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum LoginPurpose {
        Key = "key",
        Session = "session",
    }
}

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum LoginState {
        Pending = "pending",
        /// An address was given, and a link mailed if it may log in.
        EmailSent = "email_sent",
        /// The link was confirmed; the next poll returns the key.
        Approved = "approved",
        Claimed = "claimed",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceLogin {
    pub code_hash: [u8; 32],
    pub user_code: Option<String>,
    pub state: LoginState,
    pub created_at: Timestamp,
    pub email: Option<String>,
    pub token_hash: Option<[u8; 32]>,
    pub mail_count: i64,
    pub user_key: Option<UserKey>,
    pub is_for_session: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkStatus {
    Valid,
    Used,
    Expired,
    /// Not issued by this server, or replaced by a newer mail.
    Unknown,
}

impl DeviceLogin {
    pub fn expires_at(&self) -> Timestamp {
        saturating_add(self.created_at, LIFETIME)
    }

    /// The state at `now`; `None` after the expiry. A claimed login stays claimed.
    pub fn state_at(&self, now: Timestamp) -> Option<LoginState> {
        (self.state == LoginState::Claimed || now < self.expires_at()).then_some(self.state)
    }

    /// An address may be given again, in case the first mail did not arrive.
    pub fn accepts_email(&self, now: Timestamp) -> bool {
        matches!(self.state_at(now), Some(LoginState::Pending | LoginState::EmailSent))
    }

    pub fn link_status(&self, token_hash: &[u8; 32], now: Timestamp) -> LinkStatus {
        if self.token_hash.as_ref() != Some(token_hash) {
            return LinkStatus::Unknown;
        }
        match self.state_at(now) {
            _ if matches!(self.state, LoginState::Approved | LoginState::Claimed) => {
                LinkStatus::Used
            }
            None => LinkStatus::Expired,
            Some(_) => LinkStatus::Valid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_readable_and_a_token_is_hidden_in_debug_output() {
        let mut next = 0_u8;
        // Counts down from 255: the bytes above 239 are drawn again, and 239 is the last of the alphabet.
        let mut fill = |bytes: &mut [u8]| {
            bytes.fill_with(|| {
                next = next.wrapping_sub(1);
                next
            });
            Ok::<(), ()>(())
        };
        let code = DeviceCode::generate(&mut fill).unwrap();
        assert_eq!(
            (code.expose(), DeviceCode::parse(code.expose())),
            ("ZYXW-VTSR-QPNM", Some(code.clone()))
        );
        let zeros = |bytes: &mut [u8]| {
            bytes.fill(0);
            Ok::<(), ()>(())
        };
        let user_code = UserCode::generate(zeros).unwrap();
        assert_eq!(
            (user_code.as_str(), UserCode::typed(" abcd-2345 ").as_str()),
            ("2222-2222", "ABCD-2345")
        );
        assert_eq!(*new_link_token([0xA5; 32]).expose(), "a5".repeat(32));
        assert_eq!(format!("{code:?}"), "DeviceCode(***)");
    }
}
