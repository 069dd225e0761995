//! The owners of the API keys that requests use at this moment, in memory: the look-up was a sixth of a request that reads
//! one row.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::domain::account::user::month_of;
use crate::locks::Mutex;
use crate::store::Store;
use crate::store::accounts::api_keys::Owner;

/// The longest time that an owner is taken from memory. Every commit of this process ends it before; one of another process,
/// as of an administration command, does not. Such a process takes longer from its commit to its end: whoever has seen the
/// command end finds its change in effect.
const FRESH: Duration = Duration::from_millis(1);

/// Owners in memory. More keys than these are not in use within [`FRESH`].
const MAX_OWNERS: usize = 64;

/// The owners of API keys as they were read last, by the hash of the key.
#[derive(Debug, Default)]
pub struct KeyOwners(Mutex<HashMap<[u8; 32], ReadOwner>>);

#[derive(Debug)]
struct ReadOwner {
    owner: Owner,
    read_at: ReadAt,
}

/// The state of the file and the clocks right before an owner is read.
#[derive(Debug, Clone, Copy)]
pub struct ReadAt {
    commits: u64,
    month: i64,
    monotonic: Duration,
}

impl KeyOwners {
    /// The owner of the API key with this hash, if it was read recently enough for a read `now`.
    pub fn find(&self, hash: &[u8; 32], now: ReadAt) -> Option<Owner> {
        let owners = self.0.lock();
        owners.get(hash).filter(|known| known.read_at.holds(now)).map(|known| known.owner.clone())
    }

    /// Keeps an owner that was read at `read_at`.
    pub fn keep(&self, hash: [u8; 32], owner: Owner, read_at: ReadAt) {
        let mut owners = self.0.lock();
        if owners.len() >= MAX_OWNERS {
            owners.clear();
        }
        owners.insert(hash, ReadOwner { owner, read_at });
    }
}

impl ReadAt {
    /// `now` selects the month of the usage, and `monotonic` is the time of the clock that always moves.
    pub fn new(store: &Store, now: Timestamp, monotonic: Duration) -> Self {
        Self { commits: store.commits(), month: month_of(now), monotonic }
    }

    /// Returns whether what was read then is valid at `now`.
    fn holds(self, now: Self) -> bool {
        self.commits == now.commits
            && self.month == now.month
            && now.monotonic.checked_sub(self.monotonic).is_some_and(|age| age <= FRESH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(commits: u64, month: i64, milliseconds: u64) -> ReadAt {
        ReadAt { commits, month, monotonic: Duration::from_millis(milliseconds) }
    }

    fn owner(user_key: i64) -> Owner {
        Owner { key: 1, user_key, user_id: "ann".to_owned(), plan: "free".to_owned(), executions: 0 }
    }

    #[test]
    fn an_owner_is_read_again_after_a_commit_in_another_month_and_after_a_millisecond() {
        let owners = KeyOwners::default();
        owners.keep([1; 32], owner(7), at(5, 100, 10));
        for (now, is_known) in [
            (at(5, 100, 10), true),
            (at(5, 100, 11), true),
            (at(5, 100, 12), false),
            (at(5, 100, 9), false),
            (at(6, 100, 10), false),
            (at(5, 101, 10), false),
        ] {
            assert_eq!(owners.find(&[1; 32], now).is_some(), is_known, "{now:?}");
        }
        assert!(owners.find(&[2; 32], at(5, 100, 10)).is_none());
    }

    #[test]
    fn owners_in_memory_are_bounded() {
        let owners = KeyOwners::default();
        for key in 0..=u8::MAX {
            owners.keep([key; 32], owner(i64::from(key)), at(0, 0, 0));
            assert!(owners.0.lock().len() <= MAX_OWNERS);
            assert_eq!(owners.find(&[key; 32], at(0, 0, 0)), Some(owner(i64::from(key))));
        }
    }
}
