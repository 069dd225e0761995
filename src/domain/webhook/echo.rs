//! The echo: requests posted to the echo path, kept in memory for five minutes, within limits (contract §8).

use std::collections::VecDeque;
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
const MAX_BYTES: usize = 16 << 20;
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

/// The echoes of the last five minutes, the newest of each token. At the limits the oldest are dropped.
///
/// Anyone may post: rejecting requests at the limits would let one caller block the others for minutes.
#[derive(Debug, Default)]
pub struct EchoStore {
    /// In the order received.
    kept: VecDeque<(EchoToken, Arc<Echo>)>,
    bytes: usize,
}

impl EchoToken {
    /// The form of a token, as a regular expression.
    pub const PATTERN: &str = "^[A-Za-z0-9_-]{16,128}$";

    /// `None` unless `text` has the form of a token.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_token = (16..=128).contains(&text.len()) && text.bytes().all(plain);
        is_token.then(|| Self(text.to_owned()))
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
    /// Stores an echo, replacing an earlier one of the same token.
    pub fn put(&mut self, token: EchoToken, echo: Echo) {
        let now = echo.received_at;
        self.retain(|known, kept| *known != token && !kept.is_expired(now));
        self.bytes += echo.size(&token);
        self.kept.push_back((token, Arc::new(echo)));
        while self.kept.len() > MAX_ECHOES || self.bytes > MAX_BYTES {
            let Some((token, oldest)) = self.kept.pop_front() else { break };
            self.bytes -= oldest.size(&token);
        }
    }

    /// The echo of a token, unless it has expired.
    #[must_use]
    pub fn find(&self, token: &EchoToken, now: Timestamp) -> Option<Arc<Echo>> {
        let (_, echo) = self.kept.iter().find(|(known, _)| known == token)?;
        (!echo.is_expired(now)).then(|| Arc::clone(echo))
    }

    fn retain(&mut self, keep: impl Fn(&EchoToken, &Echo) -> bool) {
        let bytes = &mut self.bytes;
        self.kept.retain(|(token, echo)| {
            let keep = keep(token, echo);
            if !keep {
                *bytes -= echo.size(token);
            }
            keep
        });
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
        echoes.put(token(1), echo(1, 1_000));
        assert_eq!(echoes.find(&token(1), at(1_299)).unwrap().received_at, at(1_000));
        assert!(echoes.find(&token(1), at(1_300)).is_none());
        assert!(echoes.find(&token(1), at(700)).is_none());
        assert!(echoes.find(&token(2), at(1_000)).is_none());
        echoes.put(token(2), echo(1, 1_300));
        assert_eq!((echoes.kept.len(), echoes.bytes), (1, echo(1, 0).size(&token(2))), "it was let go");
    }

    #[test]
    fn the_newest_echo_of_a_token_replaces_the_others() {
        let mut echoes = EchoStore::default();
        echoes.put(token(1), echo(7, 1_000));
        echoes.put(token(1), echo(9, 1_200));
        assert_eq!(echoes.find(&token(1), at(1_400)).unwrap().payload.len(), 9);
        assert_eq!((echoes.kept.len(), echoes.bytes), (1, echo(9, 0).size(&token(1))));
    }

    #[test]
    fn the_oldest_echoes_are_dropped_beyond_the_limits() {
        let mut echoes = EchoStore::default();
        for number in 0..3 * MAX_ECHOES {
            echoes.put(token(number), echo(1, 1_000));
        }
        assert_eq!(echoes.kept.len(), MAX_ECHOES);
        assert!(echoes.find(&token(2 * MAX_ECHOES - 1), at(1_000)).is_none());
        assert!(echoes.find(&token(2 * MAX_ECHOES), at(1_000)).is_some());
        for number in 0..100 {
            let mut large = echo(MAX_PAYLOAD, 1_000);
            large.headers.push(("x-large".to_owned(), "v".repeat(16_000)));
            echoes.put(token(number), large);
            assert!(echoes.bytes <= MAX_BYTES);
            assert!(echoes.find(&token(number), at(1_000)).is_some(), "the newest is always kept");
        }
        let counted: usize = echoes.kept.iter().map(|(token, echo)| echo.size(token)).sum();
        assert_eq!(echoes.bytes, counted);
    }
}
