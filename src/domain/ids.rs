//! The ids of cues and executions. Random bytes are arguments.

use std::fmt;

use jiff::Timestamp;
use uuid::Uuid;

const CUE_CHARS: usize = 12;
const CUE_ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// The first characters stand for the minute of creation, the others are random: ids of one minute are neighbours in
/// the index. With random ids each create changed another page of it, and a million cues made creates slower by a
/// fifth.
const MINUTE_CHARS: usize = 2;

/// Minutes after which these characters begin again, as many as they have values.
const MINUTES: i64 = 36 * 36;

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CueId(String);

impl CueId {
    pub const PREFIX: &str = "cue_";

    /// In place of the id of a cue that does not exist.
    pub const NONE: &str = "cue_000000000000";

    /// A new id of a cue that is created at this instant. `fill` fills a buffer with random bytes.
    pub fn generate<E>(
        at: Timestamp,
        mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        // The largest multiple of 36 in a byte: higher values would make the first characters more likely.
        const LIMIT: u8 = 252;
        const LEN: usize = CueId::PREFIX.len() + CUE_CHARS;
        let mut text = String::with_capacity(LEN);
        text.push_str(Self::PREFIX);
        let minute = at.as_second().div_euclid(60).rem_euclid(MINUTES);
        text.extend([minute / 36, minute % 36].map(|digit| char_of(digit.unsigned_abs() as usize)));
        while text.len() < LEN {
            let mut bytes = [0; CUE_CHARS - MINUTE_CHARS];
            fill(&mut bytes)?;
            let unbiased = bytes.into_iter().filter(|&byte| byte < LIMIT).take(LEN - text.len());
            text.extend(unbiased.map(|byte| char_of(byte.into())));
        }
        Ok(Self(text))
    }

    pub fn parse(text: &str) -> Option<Self> {
        let chars = text.strip_prefix(Self::PREFIX)?.as_bytes();
        let is_id =
            chars.len() == CUE_CHARS && chars.iter().all(|char| CUE_ALPHABET.contains(char));
        is_id.then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn char_of(number: usize) -> char {
    char::from(CUE_ALPHABET[number % CUE_ALPHABET.len()])
}

impl fmt::Display for CueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id of an execution: a UUID of version 7, so that ids sort by creation time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExecutionId(Uuid);

impl ExecutionId {
    /// `None` unless `text` is a UUID with hyphens, in either case.
    pub fn parse(text: &str) -> Option<Self> {
        // `try_parse` also accepts braces, `urn:uuid:` and 32 digits, each of another length.
        if text.len() != uuid::fmt::Hyphenated::LENGTH {
            return None;
        }
        Uuid::try_parse(text).ok().map(Self)
    }

    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// The lowest id of the millisecond `at`. Instants before 1970 have the ids of the first millisecond.
    pub fn lowest_at(at: Timestamp) -> Self {
        Self(with_tail(millis_of_id(at), 0))
    }

    pub fn bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Display for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

/// Generates execution ids. Ids generated in sequence for the same millisecond sort in that sequence.
#[derive(Debug, Default)]
pub struct ExecutionIdGenerator {
    last_millis: Option<u64>,
    /// The 74 bits of the last id besides time, version and variant.
    last_tail: u128,
}

impl ExecutionIdGenerator {
    /// The next id, from an instant, which may be earlier than the previous one, and ten random bytes.
    pub fn generate(&mut self, at: Timestamp, random: [u8; 10]) -> ExecutionId {
        const TAIL: u128 = (1 << 74) - 1;
        let millis = millis_of_id(at);
        let random = random.iter().fold(0, |number, &byte| number << 8 | u128::from(byte));
        self.last_tail = if self.last_millis == Some(millis) {
            // A random step of up to 2^32 keeps the next id hard to guess.
            (self.last_tail + 1 + (random & 0xFFFF_FFFF)) & TAIL
        } else {
            // The top bit stays 0, which leaves room for 2^41 steps.
            random & (TAIL >> 1)
        };
        self.last_millis = Some(millis);
        ExecutionId(with_tail(millis, self.last_tail))
    }
}

fn millis_of_id(at: Timestamp) -> u64 {
    u64::try_from(at.as_millisecond()).unwrap_or(0)
}

/// A UUIDv7: 12 bits of the tail follow the version, 62 follow the variant.
fn with_tail(millis: u64, tail: u128) -> Uuid {
    let spread = (tail >> 62) << 64 | tail & ((1 << 62) - 1);
    let mut bytes = [0; 10];
    bytes.copy_from_slice(&spread.to_be_bytes()[6..]);
    uuid::Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).unwrap()
    }

    fn cue_id(second: i64, mut first: u8) -> String {
        let id = CueId::generate(at(second * 1_000), |bytes| {
            bytes.fill_with(|| {
                first = first.wrapping_add(1);
                first.wrapping_sub(1)
            });
            Ok::<(), Infallible>(())
        });
        id.unwrap().to_string()
    }

    #[test]
    fn a_cue_id_begins_with_its_minute_and_has_unbiased_characters() {
        for (second, minute) in [
            (0, "aa"),
            (60, "ab"),
            (119, "ab"),
            (120, "ac"),
            (77_700, "99"),
            (77_760, "aa"),
            (-1, "99"),
            (-61, "98"),
        ] {
            let id = cue_id(second, 0);
            assert_eq!(id, format!("cue_{minute}abcdefghij"));
            assert_eq!(CueId::parse(&id).unwrap().as_str(), id);
        }
        // Bytes from 252 on are drawn again.
        assert_eq!(cue_id(0, 247), "cue_aa56789abcde");
        let others =
            "cue_ cue_abcdefghijk cue_abcdefghijklm cue_ABCDEFGHIJKL abcdefghijkl cue_éabcdefghij";
        assert!(others.split(' ').chain([""]).all(|text| CueId::parse(text).is_none()));
    }

    #[test]
    fn execution_ids_are_uuids_of_version_7_that_sort_by_creation() {
        let first = |millis, random| ExecutionIdGenerator::default().generate(at(millis), random);
        let id = first(0x0123_4567_89AB, [0xFF; 10]);
        assert_eq!(
            (id.to_string().as_str(), id.0.get_version_num()),
            ("01234567-89ab-77ff-bfff-ffffffffffff", 7)
        );
        assert_eq!(first(0, [0; 10]).to_string(), "00000000-0000-7000-8000-000000000000");
        let mut ids = ExecutionIdGenerator::default();
        let mut last = ids.generate(at(1), [0xFF; 10]);
        for round in 0..10_000_u32 {
            let mut random = [0; 10];
            random[6..].copy_from_slice(&round.wrapping_mul(0x9E37_79B9).to_be_bytes());
            let next = ids.generate(at(1), random);
            assert!(next > last && next.to_string() > last.to_string(), "{next} after {last}");
            last = next;
        }
        assert!(ids.generate(at(2), [0; 10]) > last);
        let lowest = ExecutionId::lowest_at(at(5));
        assert!(first(4, [0xFF; 10]) < lowest && lowest <= first(5, [0; 10]));
        assert_eq!(ExecutionId::lowest_at(at(-1)), ExecutionId::lowest_at(at(0)));
    }

    #[test]
    fn only_uuids_with_hyphens_are_execution_ids() {
        let text = "0190a5c0-0000-7000-8000-00000000000f";
        let id = ExecutionId::parse(text).unwrap();
        assert_eq!(id.to_string(), text);
        assert_eq!(ExecutionId::parse(&text.to_uppercase()), Some(id));
        let forms = ["", "x", "0190a5c00000700080000000000000000f"].map(str::to_owned);
        let changed = [text.replace('f', "g"), text.replace('-', "0"), format!("{{{text}}}")];
        for text in forms.into_iter().chain(changed).chain([format!("urn:uuid:{text}")]) {
            assert_eq!(ExecutionId::parse(&text), None, "{text}");
        }
    }
}
