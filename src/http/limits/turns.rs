//! Turns for large work: so many at a time, in order of request, and a caller with many requests delays another by so many.
//! A request that goes away while it waits loses nobody's turn.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{Error, Result};
use crate::http::limits::Owner;
use crate::http::limits::waiting::CallerPermits;

/// Permits, granted in order of request. A caller holds or awaits at most `count` at a time; its further requests queue
/// behind them.
#[derive(Debug)]
pub struct WorkPermits {
    all: Arc<Semaphore>,
    own: CallerPermits,
}

/// The right to run. Dropping it passes it on.
#[derive(Debug)]
pub struct Turn {
    _turn: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
}

impl WorkPermits {
    pub fn new(count: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(count)), own: CallerPermits::new(count) }
    }

    /// Waits for a permit.
    pub async fn wait(&self, owner: Owner) -> Result<Turn> {
        let own = self.own.of(owner).acquire_owned().await;
        let turn = Arc::clone(&self.all).acquire_owned().await;
        let lost = |error| Error::fault_from("a request lost its place in a queue", error);
        Ok(Turn { _own: own.map_err(lost)?, _turn: turn.map_err(lost)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use crate::domain::row_keys::UserKey;

    const ADA: Owner = Owner::Account(UserKey::new(1));
    const BOB: Owner = Owner::Account(UserKey::new(2));

    type Waiting<'a> = Pin<Box<dyn Future<Output = Result<Turn>> + 'a>>;

    fn poll(waiting: &mut Waiting<'_>) -> Option<Turn> {
        match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn.unwrap()),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn a_caller_with_many_requests_delays_another_by_one() {
        let turns = WorkPermits::new(1);
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
        assert_eq!((turns.all.available_permits(), turns.own.callers.lock().len()), (1, 1));
    }
}
