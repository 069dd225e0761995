//! The echo: requests posted to the echo path, kept in memory for five minutes, within limits (contract §8).

use crate::domain::row_keys::UserKey;
use crate::domain::secret::Secret;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

pub const FOLDER: &str = "/v1/echo/";
pub const MAX_PAYLOAD: usize = 1 << 20;
const RETENTION_TIME: SignedDuration = SignedDuration::from_mins(5);
/// Bytes of all echoes together: it bounds the memory that anonymous callers can fill.
const MAX_BYTES: usize = 8 << 20;
/// The least that an echo counts, so that there are at most a thousand.
const MIN_SIZE: usize = MAX_BYTES / 1_000;
/// An account has at most this part of it, and so have all addresses without an account together: anybody may post from
/// many of them. Four accounts can still fill the store; then the largest sender gives way.
const SENDER_PART: usize = 4;
/// Approximate memory per header in addition to its text, and per echo in addition to its headers and payload.
const OVERHEAD: usize = 64;

/// The name of an echo: 16 to 128 characters of `A-Z a-z 0-9 - _`. It is the only access control of an echo, so it
/// should be hard to guess.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EchoToken(Secret);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Echo {
    pub payload: Box<[u8]>,
    pub headers: Vec<(String, String)>,
    pub received_at: Timestamp,
}

/// Whose share of the memory an echo takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EchoSender {
    /// The row key of the account that posted it, or whose cue did.
    Account(UserKey),
    Address(IpAddr),
}

/// The newest echo of each token. At the limits the oldest of the largest sender is dropped, because rejecting requests
/// would let one caller block the others for minutes.
#[derive(Debug, Default)]
pub struct EchoStore {
    echoes: VecDeque<StoredEcho>,
}

#[derive(Debug)]
struct StoredEcho {
    sender: EchoSender,
    token: EchoToken,
    echo: Arc<Echo>,
    size: usize,
}

impl EchoToken {
    /// The form of a token, as a regular expression.
    pub const PATTERN: &str = "^[A-Za-z0-9_-]{16,128}$";

    pub fn parse(text: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_token = (16..=128).contains(&text.len()) && text.bytes().all(plain);
        is_token.then(|| Self(text.to_owned().into()))
    }

    /// Returns `true` if a delivery to `callback_url` can arrive at the echo of this token.
    pub fn is_target_of(&self, callback_url: &str) -> bool {
        let path = callback_url.split(['?', '#']).next().unwrap_or_default();
        path.strip_suffix(self.0.expose()).is_some_and(|rest| rest.ends_with(FOLDER))
    }
}

impl Echo {
    fn size(&self, token: &EchoToken) -> usize {
        let headers: usize =
            self.headers.iter().map(|(name, value)| name.len() + value.len() + OVERHEAD).sum();
        MIN_SIZE.max(OVERHEAD + token.0.expose().len() + self.payload.len() + headers)
    }

    /// Also expired when received in the future: a clock that was set back must not extend the lifetime.
    fn is_expired(&self, now: Timestamp) -> bool {
        now.duration_since(self.received_at).abs() >= RETENTION_TIME
    }
}

impl EchoStore {
    /// Stores an echo, replacing an earlier one of the same token. The newest echo is always kept.
    pub fn put(&mut self, sender: EchoSender, token: EchoToken, echo: Echo) {
        let now = echo.received_at;
        self.echoes.retain(|stored| stored.token != token && !stored.echo.is_expired(now));
        let new = StoredEcho { sender, size: echo.size(&token), token, echo: Arc::new(echo) };
        self.make_room(&new, MAX_BYTES / SENDER_PART, |other| {
            other == sender || (other.is_address() && sender.is_address())
        });
        self.make_room(&new, MAX_BYTES, |_| true);
        self.echoes.push_back(new);
    }

    pub fn clear(&mut self) {
        self.echoes.clear();
    }

    pub fn find(&self, token: &EchoToken, now: Timestamp) -> Option<Arc<Echo>> {
        let stored = self.echoes.iter().find(|stored| stored.token == *token)?;
        (!stored.echo.is_expired(now)).then(|| Arc::clone(&stored.echo))
    }

    /// Drops the oldest echoes of the largest of the senders `among` until theirs and the new one are within `limit`.
    fn make_room(&mut self, new: &StoredEcho, limit: usize, among: impl Fn(EchoSender) -> bool) {
        let mut sizes: HashMap<EchoSender, usize> = HashMap::from([(new.sender, new.size)]);
        for stored in self.echoes.iter().filter(|stored| among(stored.sender)) {
            *sizes.entry(stored.sender).or_default() += stored.size;
        }
        let mut used: usize = sizes.values().sum();
        while used > limit {
            let senders = self
                .echoes
                .iter()
                .rev()
                .map(|stored| stored.sender)
                .filter(|sender| among(*sender));
            // The last maximum from the newest to the oldest.
            let largest = senders.max_by_key(|sender| sizes.get(sender).copied());
            let place = self.echoes.iter().position(|stored| Some(stored.sender) == largest);
            let Some(dropped) = place.and_then(|place| self.echoes.remove(place)) else { return };
            used -= dropped.size;
            sizes.entry(dropped.sender).and_modify(|size| *size -= dropped.size);
        }
    }
}

impl EchoSender {
    fn is_address(self) -> bool {
        matches!(self, Self::Address(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: usize) -> EchoToken {
        EchoToken::parse(&format!("token-{number:010}")).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn put(store: &mut EchoStore, account: usize, number: usize, bytes: usize, second: i64) {
        let echo = Echo {
            payload: vec![b' '; bytes].into(),
            headers: Vec::new(),
            received_at: at(second),
        };
        store.put(
            EchoSender::Account(UserKey::new(i64::try_from(account).unwrap())),
            token(number),
            echo,
        );
    }

    fn used(store: &EchoStore) -> (usize, usize) {
        (store.echoes.len(), store.echoes.iter().map(|stored| stored.size).sum())
    }

    #[test]
    fn an_echo_lasts_five_minutes_even_when_the_clock_moves_back() {
        let mut echoes = EchoStore::default();
        put(&mut echoes, 1, 1, 1, 1_000);
        let is_found =
            [1_299, 1_300, 700].map(|second| echoes.find(&token(1), at(second)).is_some());
        assert_eq!((is_found, echoes.find(&token(2), at(1_000))), ([true, false, false], None));
        put(&mut echoes, 2, 2, 1, 1_300);
        assert_eq!(used(&echoes), (1, MIN_SIZE), "the first was dropped");
    }

    #[test]
    fn the_oldest_echoes_of_the_largest_senders_are_dropped_beyond_the_limits() {
        let mut echoes = EchoStore::default();
        (0..1_500).for_each(|number| put(&mut echoes, number % 100, number, 1, 1_000));
        let is_found = [499, 500].map(|number| echoes.find(&token(number), at(1_000)).is_some());
        assert_eq!((used(&echoes).0, is_found), (1_000, [false, true]));
        let mut echoes = EchoStore::default();
        put(&mut echoes, 0, 0, 3 * MAX_PAYLOAD / 4, 1_000);
        for (bytes, numbers) in [(MAX_PAYLOAD, 1..200), (1, 200..1_800)] {
            for number in numbers {
                put(&mut echoes, 1 + number % 9, number, bytes, 1_001);
                assert!(used(&echoes).1 <= MAX_BYTES);
                assert!(
                    echoes.find(&token(number), at(1_002)).is_some(),
                    "the newest is always kept"
                );
            }
            assert!(echoes.find(&token(0), at(1_002)).is_some(), "that of a smaller sender");
        }
    }
}
