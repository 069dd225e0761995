//! The echo: requests posted to the echo path, kept in memory for five minutes, within limits (contract §8).

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

/// The path of echoes on this server; a token follows.
pub const FOLDER: &str = "/v1/echo/";
/// Bytes of a body.
pub const MAX_PAYLOAD: usize = 1 << 20;
/// The lifetime of an echo.
const RETENTION_TIME: SignedDuration = SignedDuration::from_mins(5);
/// Echoes at a time. With [`MAX_BYTES`] it bounds the memory that anonymous callers can fill.
const MAX_ECHOES: usize = 1_000;
/// Bytes of all echoes together.
const MAX_BYTES: usize = 8 << 20;
/// Parts of both of which an account has at most one, and all addresses without an account together: anybody may post from
/// many of them. Four accounts can still fill the store; then the largest sender gives way.
const SENDER_PART: usize = 4;
/// Approximate memory per header in addition to its text, and per echo in addition to its headers and payload.
const OVERHEAD: usize = 64;

/// The name of an echo: 16 to 128 characters of `A-Z a-z 0-9 - _`. It is the only access control of an echo, so it
/// should be hard to guess.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EchoToken(String);

/// A request to the echo path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Echo {
    /// The body, which is JSON.
    pub payload: Box<[u8]>,
    /// The headers in the order received, names in lower case.
    pub headers: Vec<(String, String)>,
    pub received_at: Timestamp,
}

/// Whose share of the memory an echo takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EchoSender {
    /// The row key of the account that posted it, or whose cue did.
    Account(i64),
    /// An address without an account.
    Address(IpAddr),
}

/// The echoes of the last five minutes, the newest of each token. At the limits the oldest are dropped, and only those
/// of the largest sender: no sender can drop the echoes of one that has less. Addresses share one part like that.
///
/// Anyone may post: rejecting requests at the limits would let one caller block the others for minutes.
#[derive(Debug, Default)]
pub struct EchoStore {
    /// In the order received.
    kept: VecDeque<Kept>,
}

#[derive(Debug)]
struct Kept {
    sender: EchoSender,
    token: EchoToken,
    echo: Arc<Echo>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Usage {
    echoes: usize,
    bytes: usize,
}

impl EchoToken {
    /// The form of a token, as a regular expression.
    pub const PATTERN: &str = "^[A-Za-z0-9_-]{16,128}$";

    /// `None` unless `text` has the form of a token.
    pub fn parse(text: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_token = (16..=128).contains(&text.len()) && text.bytes().all(plain);
        is_token.then(|| Self(text.to_owned()))
    }

    /// Returns `true` if a delivery to `callback_url` can arrive at the echo of this token.
    pub fn is_target_of(&self, callback_url: &str) -> bool {
        let path = callback_url.split(['?', '#']).next().unwrap_or_default();
        path.strip_suffix(self.0.as_str()).is_some_and(|rest| rest.ends_with(FOLDER))
    }
}

impl Echo {
    fn size(&self, token: &EchoToken) -> usize {
        let headers: usize =
            self.headers.iter().map(|(name, value)| name.len() + value.len() + OVERHEAD).sum();
        OVERHEAD + token.0.len() + self.payload.len() + headers
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
        self.kept.retain(|kept| kept.token != token && !kept.echo.is_expired(now));
        let new = Kept { sender, token, echo: Arc::new(echo) };
        self.make_room(&new, (MAX_ECHOES / SENDER_PART, MAX_BYTES / SENDER_PART), |other| {
            other == sender || (other.is_address() && sender.is_address())
        });
        self.make_room(&new, (MAX_ECHOES, MAX_BYTES), |_| true);
        self.kept.push_back(new);
    }

    /// The echo of a token, unless it has expired.
    pub fn find(&self, token: &EchoToken, now: Timestamp) -> Option<Arc<Echo>> {
        let kept = self.kept.iter().find(|kept| kept.token == *token)?;
        (!kept.echo.is_expired(now)).then(|| Arc::clone(&kept.echo))
    }

    /// Drops the oldest echoes of the largest of the senders `among`, until theirs and the `new` one are within the limits:
    /// the largest has the most of what is scarce, the new one included; of several it is the one with the oldest echo.
    fn make_room(&mut self, new: &Kept, (echoes, bytes): (usize, usize), among: impl Fn(EchoSender) -> bool) {
        loop {
            let mut senders: HashMap<EchoSender, Usage> = HashMap::from([(new.sender, new.size())]);
            for kept in self.kept.iter().filter(|kept| among(kept.sender)) {
                let usage = senders.entry(kept.sender).or_default();
                *usage = usage.plus(kept.size());
            }
            let used = senders.values().copied().fold(Usage::default(), Usage::plus);
            if !used.exceeds(echoes, bytes) {
                return;
            }
            let amount = |sender: EchoSender| {
                let usage = senders.get(&sender).copied().unwrap_or_default();
                if used.echoes > echoes { usage.echoes } else { usage.bytes }
            };
            // The first of equals, from the newest to the oldest, is the last maximum.
            let kept = self.kept.iter().rev().map(|kept| kept.sender).filter(|sender| among(*sender));
            let Some(largest) = kept.max_by_key(|sender| amount(*sender)) else { return };
            self.drop_oldest(largest);
        }
    }

    fn drop_oldest(&mut self, sender: EchoSender) {
        if let Some(place) = self.kept.iter().position(|kept| kept.sender == sender) {
            self.kept.remove(place);
        }
    }
}

impl EchoSender {
    fn is_address(self) -> bool {
        matches!(self, Self::Address(_))
    }
}

impl Kept {
    fn size(&self) -> Usage {
        Usage { echoes: 1, bytes: self.echo.size(&self.token) }
    }
}

impl Usage {
    fn plus(self, other: Self) -> Self {
        Self { echoes: self.echoes + other.echoes, bytes: self.bytes + other.bytes }
    }

    fn exceeds(self, echoes: usize, bytes: usize) -> bool {
        self.echoes > echoes || self.bytes > bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: usize) -> EchoToken {
        EchoToken::parse(&format!("token-{number:010}")).unwrap()
    }

    fn echo(bytes: usize, second: i64) -> Echo {
        let received_at = Timestamp::from_second(second).unwrap();
        Echo { payload: vec![b' '; bytes].into(), headers: Vec::new(), received_at }
    }

    #[test]
    fn a_callback_url_leads_to_the_echo_of_its_last_segment() {
        let token = token(7);
        for url in ["http://h/v1/echo/token-0000000007", "https://h:1/a/v1/echo/token-0000000007?a=/b#c"] {
            assert!(token.is_target_of(url), "{url}");
        }
        for url in [
            "http://h/v1/echo/token-0000000008",
            "http://h/v1/echo/token-00000000070",
            "http://h/v1/echo/x-token-0000000007",
            "http://h/hook?to=/v1/echo/token-0000000007",
            "http://h/token-0000000007",
        ] {
            assert!(!token.is_target_of(url), "{url}");
        }
    }

    fn used(echoes: &EchoStore) -> Usage {
        echoes.kept.iter().map(Kept::size).fold(Usage::default(), Usage::plus)
    }

    /// The account with this row key.
    fn account(key: usize) -> EchoSender {
        EchoSender::Account(i64::try_from(key).unwrap())
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_token_is_16_to_128_plain_characters() {
        for good in ["qs-0123456789abcdef", "ABCDEFGHIJ-KLM_09", &"a".repeat(16), &"a".repeat(128)] {
            assert!(EchoToken::parse(good).is_some(), "{good}");
        }
        for bad in [
            "",
            &"a".repeat(15),
            &"a".repeat(129),
            "0123456789abcde/",
            "0123456789abcde.",
            "0123456789abcdeé",
        ] {
            assert!(EchoToken::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn an_echo_lasts_five_minutes_even_when_the_clock_moves_back() {
        let mut echoes = EchoStore::default();
        echoes.put(account(1), token(1), echo(1, 1_000));
        assert_eq!(echoes.find(&token(1), at(1_299)).unwrap().received_at, at(1_000));
        assert!(echoes.find(&token(1), at(1_300)).is_none());
        assert!(echoes.find(&token(1), at(700)).is_none());
        assert!(echoes.find(&token(2), at(1_000)).is_none());
        echoes.put(account(2), token(2), echo(1, 1_300));
        assert_eq!(used(&echoes), Usage { echoes: 1, bytes: echo(1, 0).size(&token(2)) }, "it was let go");
    }

    #[test]
    fn the_newest_echo_of_a_token_replaces_the_others() {
        let mut echoes = EchoStore::default();
        echoes.put(account(1), token(1), echo(7, 1_000));
        echoes.put(account(2), token(1), echo(9, 1_200));
        assert_eq!(echoes.find(&token(1), at(1_400)).unwrap().payload.len(), 9);
        assert_eq!(used(&echoes), Usage { echoes: 1, bytes: echo(9, 0).size(&token(1)) });
    }

    #[test]
    fn the_oldest_echoes_are_dropped_beyond_the_limits() {
        let mut echoes = EchoStore::default();
        for number in 0..3 * MAX_ECHOES {
            echoes.put(account(number % 100), token(number), echo(1, 1_000));
        }
        assert_eq!(used(&echoes).echoes, MAX_ECHOES);
        assert!(echoes.find(&token(2 * MAX_ECHOES - 1), at(1_000)).is_none());
        assert!(echoes.find(&token(2 * MAX_ECHOES), at(1_000)).is_some());
        for number in 0..100 {
            let mut large = echo(MAX_PAYLOAD, 1_000);
            large.headers.push(("x-large".to_owned(), "v".repeat(16_000)));
            echoes.put(account(number), token(number), large);
            assert!(used(&echoes).bytes <= MAX_BYTES);
            assert!(echoes.find(&token(number), at(1_000)).is_some(), "the newest is always kept");
        }
    }

    #[test]
    fn a_sender_has_at_most_a_quarter_of_the_memory() {
        let mut echoes = EchoStore::default();
        let address = EchoSender::Address([192, 0, 2, 1].into());
        for number in 0..100 {
            echoes.put(address, token(number), echo(MAX_PAYLOAD / 2, 1_000));
        }
        assert_eq!(used(&echoes).echoes, 3, "beyond its payload an echo has a token and overhead");
        assert!(echoes.find(&token(96), at(1_000)).is_none() && echoes.find(&token(97), at(1_000)).is_some());
        for number in 100..2_000 {
            echoes.put(address, token(number), echo(1, 1_000));
        }
        assert_eq!(used(&echoes).echoes, MAX_ECHOES / 4);
    }

    #[test]
    fn senders_that_fill_the_memory_do_not_drop_the_echoes_of_smaller_ones() {
        let mut echoes = EchoStore::default();
        echoes.put(account(0), token(0), echo(3 * MAX_PAYLOAD / 4, 1_000));
        for number in 1..200 {
            echoes.put(account(1 + number % 9), token(number), echo(MAX_PAYLOAD, 1_001));
        }
        assert!(echoes.find(&token(0), at(1_002)).is_some(), "by bytes");
        for number in 200..5_000 {
            echoes.put(account(20 + number % 9), token(number), echo(1, 1_002));
        }
        assert!(echoes.find(&token(0), at(1_002)).is_some(), "by number");
        assert!(used(&echoes).echoes <= MAX_ECHOES && used(&echoes).bytes <= MAX_BYTES);
    }

    #[test]
    fn addresses_share_a_quarter_in_which_none_drops_the_echoes_of_one_that_has_less() {
        let mut echoes = EchoStore::default();
        let address = |number: u8| EchoSender::Address([192, 0, 2, number].into());
        for number in 0..3 {
            echoes.put(account(number), token(number), echo(MAX_PAYLOAD, 1_000));
        }
        echoes.put(address(0), token(10), echo(MAX_PAYLOAD / 2, 1_001));
        for number in 0..40 {
            let sender = address(1 + u8::try_from(number % 2).unwrap());
            echoes.put(sender, token(100 + number), echo(MAX_PAYLOAD / 2, 1_002));
        }
        for kept in [0, 1, 2, 10, 138, 139] {
            assert!(echoes.find(&token(kept), at(1_003)).is_some(), "{kept} by bytes");
        }
        assert_eq!(used(&echoes).echoes, 6, "a quarter has room for three of these");
        for number in 0..1_000 {
            let sender = address(3 + u8::try_from(number % 100).unwrap());
            echoes.put(sender, token(1_000 + number), echo(1, 1_004));
        }
        assert_eq!(used(&echoes).echoes, 3 + MAX_ECHOES / 4);
        assert!(echoes.find(&token(10), at(1_005)).is_some(), "by number");
    }
}
