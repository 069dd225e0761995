//! Permits of callers. Of requests that wait, an account may have [`MAX_WAITING`] at a time: each holds a connection, and
//! a poll reads the database when there may be work. A caller without a permit is forgotten.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::limits::Owner;
use crate::system::locks::Mutex;

/// Long polls and event streams that an account may have open. Each holds a connection, and every execution that
/// becomes claimable makes each poll read the database. A fleet of workers shares this number; with `--limits off` it
/// does not apply.
pub const MAX_WAITING: usize = 20;

/// Permits of each caller, `count` at a time.
#[derive(Debug)]
pub struct CallerPermits {
    count: usize,
    /// Callers that hold a permit or wait for one.
    pub(super) callers: Mutex<HashMap<Owner, Arc<Semaphore>>>,
}

impl CallerPermits {
    pub(super) fn new(count: usize) -> Self {
        Self { count, callers: Mutex::default() }
    }

    pub(super) fn of(&self, owner: Owner) -> Arc<Semaphore> {
        let mut callers = self.callers.lock();
        callers.retain(|_, own| Arc::strong_count(own) > 1);
        Arc::clone(callers.entry(owner).or_insert_with(|| Arc::new(Semaphore::new(self.count))))
    }

    /// Takes a permit, which is free again once it is dropped; `None` if the caller has all of its own.
    pub fn take(&self, owner: Owner) -> Option<OwnedSemaphorePermit> {
        self.of(owner).try_acquire_owned().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::row_keys::UserKey;

    const ADA: Owner = Owner::Account(UserKey::new(1));
    const BOB: Owner = Owner::Account(UserKey::new(2));

    #[test]
    fn an_account_has_a_limited_number_of_places() {
        let places = CallerPermits::new(MAX_WAITING);
        let mut taken: Vec<_> = (0..MAX_WAITING).map(|_| places.take(ADA).unwrap()).collect();
        assert!(places.take(ADA).is_none() && places.take(BOB).is_some());
        taken.pop();
        taken.extend(places.take(ADA));
        assert_eq!(taken.len(), MAX_WAITING);
        assert!(places.take(ADA).is_none());
        taken.clear();
        assert!(places.take(BOB).is_some() && places.callers.lock().len() == 1);
    }
}
