//! A few turns for work whose memory or time is large. A caller waits for the others' turns, but no other caller waits
//! for more than one round of its own.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{Error, Result};
use crate::http::limits::budget::Owner;
use crate::locks::Mutex;

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
    /// Errors: [`Error::Fault`] on a bug.
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
}
