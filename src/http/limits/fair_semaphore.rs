//! A semaphore whose waiting callers take turns, so that a caller with many requests delays another by one of them.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::http::limits::buffer_budget::BufferOwner;
use crate::locks::Mutex;

#[derive(Debug)]
pub struct FairSemaphore {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Above 0 only while nobody waits.
    free: usize,
    /// The requests that wait, by caller; the first caller is the next one.
    waiting: VecDeque<(BufferOwner, VecDeque<oneshot::Sender<FairPermit>>)>,
}

/// The right to run. Dropping it passes it on.
#[derive(Debug)]
pub struct FairPermit {
    /// `None` after it was passed on.
    semaphore: Option<Arc<FairSemaphore>>,
}

impl FairSemaphore {
    /// A semaphore for `permits` requests at a time.
    pub fn new(permits: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { free: permits, waiting: VecDeque::new() }) })
    }

    /// Waits for a permit.
    /// Errors: [`Error::Fault`] if the semaphore has lost the waiting request, which is a bug.
    pub async fn acquire(self: &Arc<Self>, owner: BufferOwner) -> Result<FairPermit> {
        let receiver = {
            let mut state = self.state.lock();
            if state.free > 0 {
                state.free -= 1;
                return Ok(self.permit());
            }
            let (sender, receiver) = oneshot::channel();
            match state.waiting.iter_mut().find(|(known, _)| *known == owner) {
                Some((_, requests)) => requests.push_back(sender),
                None => state.waiting.push_back((owner, VecDeque::from([sender]))),
            }
            receiver
        };
        receiver.await.map_err(|error| Error::fault_from("a request lost its place in a queue", error))
    }

    fn permit(self: &Arc<Self>) -> FairPermit {
        FairPermit { semaphore: Some(Arc::clone(self)) }
    }

    /// Gives a free permit to the next caller.
    fn release(self: &Arc<Self>) {
        let mut state = self.state.lock();
        while let Some((owner, mut requests)) = state.waiting.pop_front() {
            let request = requests.pop_front();
            if !requests.is_empty() {
                state.waiting.push_back((owner, requests));
            }
            match request.map(|request| request.send(self.permit())) {
                Some(Ok(())) => return,
                // The request has been dropped. Without this, dropping its permit would lock the state again.
                Some(Err(mut permit)) => permit.semaphore = None,
                None => {}
            }
        }
        state.free += 1;
    }
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        if let Some(semaphore) = self.semaphore.take() {
            semaphore.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const ADA: BufferOwner = BufferOwner::Account(1);
    const BOB: BufferOwner = BufferOwner::Account(2);

    type Waiting = Pin<Box<dyn Future<Output = Result<FairPermit>>>>;

    fn waiting(semaphore: &Arc<FairSemaphore>, owner: BufferOwner) -> Waiting {
        let semaphore = Arc::clone(semaphore);
        let mut waiting: Waiting = Box::pin(async move { semaphore.acquire(owner).await });
        assert!(poll(&mut waiting).is_none());
        waiting
    }

    fn poll(waiting: &mut Waiting) -> Option<FairPermit> {
        match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => Some(permit.unwrap()),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn waiting_callers_take_turns() {
        let semaphore = FairSemaphore::new(1);
        let held = semaphore.acquire(ADA).await.unwrap();
        let mut ada: Vec<_> = (0..3).map(|_| waiting(&semaphore, ADA)).collect();
        let mut bob = waiting(&semaphore, BOB);
        drop(held);
        let first = poll(&mut ada[0]).unwrap();
        assert!(poll(&mut ada[1]).is_none() && poll(&mut bob).is_none());
        drop(first);
        let second = poll(&mut bob).unwrap();
        assert!(poll(&mut ada[1]).is_none());
        drop(second);
        drop(poll(&mut ada[1]).unwrap());
        drop(poll(&mut ada[2]).unwrap());
        assert!(semaphore.state.lock().waiting.is_empty());
        assert_eq!(semaphore.state.lock().free, 1);
    }

    #[tokio::test]
    async fn a_request_that_is_dropped_loses_no_permit() {
        let semaphore = FairSemaphore::new(1);
        let held = semaphore.acquire(ADA).await.unwrap();
        let (dropped, mut bob) = (waiting(&semaphore, ADA), waiting(&semaphore, BOB));
        drop(dropped);
        drop(held);
        let held = poll(&mut bob).unwrap();
        // It has its permit already, but has not seen it.
        let dropped = waiting(&semaphore, ADA);
        drop(held);
        drop(dropped);
        assert_eq!(semaphore.state.lock().free, 1);
    }
}
