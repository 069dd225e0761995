//! What one caller may take of what all callers share (contract §11): memory for bodies and replies, places for requests
//! that wait, turns for large work, and the time of a connection.

pub(in crate::http) mod activity;
pub(in crate::http) mod budget;

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{Error, Result};
use crate::http::limits::budget::{Budget, Owner};
use crate::locks::Mutex;

/// Long polls and event streams that an account may have open. Each holds a connection, and every execution that becomes
/// claimable makes each poll read the database. A fleet of workers shares this number; with `--limits off` it does not
/// apply.
pub const MAX_WAITING: usize = 20;

/// Lists that are read and rendered at a time. Each takes up to three times 4 MiB until its response counts in the
/// budget, so that their number is part of the bound on memory; two are as many as there are threads that read.
const LISTS: usize = 2;

/// What the callers of one server share.
#[derive(Debug)]
pub struct Shares {
    /// Memory for bodies and replies under way.
    pub budget: Arc<Budget>,
    /// Long polls and event streams by account.
    pub waiting: WaitingPlaces,
    pub lists: Turns,
    /// Lists of long histories, which have a reader thread of their own: others must not wait for it.
    pub slow_lists: Turns,
    /// Large bodies of JSON. One thread checks them, so that the others answer small requests.
    pub large_bodies: Turns,
}

impl Shares {
    pub fn new(max_buffered: usize) -> Arc<Self> {
        Arc::new(Self {
            budget: Arc::new(Budget::new(max_buffered)),
            waiting: WaitingPlaces::default(),
            lists: Turns::new(LISTS),
            slow_lists: Turns::new(1),
            large_bodies: Turns::new(1),
        })
    }
}

/// The long polls and event streams that are open, by account.
#[derive(Debug, Default)]
pub struct WaitingPlaces(Mutex<HashMap<i64, Weak<()>>>);

impl WaitingPlaces {
    /// Takes a place of an account, which is free again once it is dropped; `None` if [`MAX_WAITING`] are taken.
    pub fn take(&self, user_key: i64) -> Option<Arc<()>> {
        let mut places = self.0.lock();
        places.retain(|_, taken| taken.strong_count() > 0);
        let place = places.get(&user_key).and_then(Weak::upgrade).unwrap_or_default();
        places.insert(user_key, Arc::downgrade(&place));
        (Arc::strong_count(&place) <= MAX_WAITING).then_some(place)
    }
}

/// The turns of all callers. They are given in the order of the requests, but a caller asks for as many as there are at a
/// time: its other requests wait for its own first.
#[derive(Debug)]
pub struct Turns {
    count: usize,
    all: Arc<Semaphore>,
    /// Callers that hold a turn or wait for one.
    own: Mutex<HashMap<Owner, Arc<Semaphore>>>,
}

/// The right to run. Dropping it passes it on.
#[derive(Debug)]
pub struct Turn {
    _turn: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
}

impl Turns {
    pub fn new(count: usize) -> Self {
        Self { count, all: Arc::new(Semaphore::new(count)), own: Mutex::default() }
    }

    /// Waits for a turn.
    pub async fn wait(&self, owner: Owner) -> Result<Turn> {
        let own = {
            let mut callers = self.own.lock();
            callers.retain(|_, own| Arc::strong_count(own) > 1);
            Arc::clone(callers.entry(owner).or_insert_with(|| Arc::new(Semaphore::new(self.count))))
        };
        let own = own.acquire_owned().await;
        let turn = Arc::clone(&self.all).acquire_owned().await;
        let lost = |error| Error::fault_from("a request lost its place in a queue", error);
        Ok(Turn { _own: own.map_err(lost)?, _turn: turn.map_err(lost)? })
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const ADA: Owner = Owner::Account(1);
    const BOB: Owner = Owner::Account(2);

    type Waiting<'a> = Pin<Box<dyn Future<Output = Result<Turn>> + 'a>>;

    fn poll(waiting: &mut Waiting<'_>) -> Option<Turn> {
        match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn.unwrap()),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn a_caller_with_many_requests_delays_another_by_one() {
        let turns = Turns::new(1);
        let held = turns.wait(ADA).await.unwrap();
        let wait = |owner| -> Waiting<'_> { Box::pin(turns.wait(owner)) };
        let mut ada: Vec<_> = (0..3).map(|_| wait(ADA)).collect();
        let mut bob = wait(BOB);
        assert!(ada.iter_mut().all(|waiting| poll(waiting).is_none()) && poll(&mut bob).is_none());
        drop(held);
        assert!(poll(&mut ada[0]).is_none(), "it is behind");
        let second = poll(&mut bob).unwrap();
        assert!(poll(&mut ada[1]).is_none());
        drop(second);
        // The other two are dropped while they wait, which loses no turn.
        drop(ada.split_off(1));
        drop(poll(&mut ada[0]).unwrap());
        drop(ada);
        drop(poll(&mut wait(BOB)).unwrap());
        assert_eq!((turns.all.available_permits(), turns.own.lock().len()), (1, 1));
    }

    #[test]
    fn an_account_has_a_limited_number_of_places() {
        let places = WaitingPlaces::default();
        let mut taken: Vec<_> = (0..MAX_WAITING).map(|_| places.take(1).unwrap()).collect();
        assert!(places.take(1).is_none() && places.take(2).is_some());
        taken.pop();
        taken.extend(places.take(1));
        assert_eq!(taken.len(), MAX_WAITING);
        assert!(places.take(1).is_none());
        taken.clear();
        assert!(places.take(2).is_some() && places.0.lock().len() == 1);
    }
}
