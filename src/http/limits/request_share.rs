//! The shares of its caller that one request may take: memory until its response is written, and turns for large
//! work.

use std::sync::Arc;

use crate::error::Result;
use crate::http::limits::buffer_budget::{BufferBudget, BufferOwner, BufferReservation};
use crate::http::limits::fair_semaphore::{FairPermit, FairSemaphore};
use crate::locks::Mutex;

/// Lists that are read and rendered at a time. Each takes up to three times 4 MiB until its response counts in the
/// budget, so that their number is part of the bound on memory; two are as many as there are threads that read.
const LISTS: usize = 2;

/// Turns for work whose memory or time is large, taken by caller.
#[derive(Debug)]
pub struct Turns {
    /// Lists.
    lists: Arc<FairSemaphore>,
    /// Lists of long histories, which have a reader thread of their own: others must not wait for it.
    slow_lists: Arc<FairSemaphore>,
    /// Large bodies of JSON.
    large_bodies: Arc<FairSemaphore>,
}

impl Default for Turns {
    fn default() -> Self {
        // One thread checks large bodies, so that the others answer small requests meanwhile.
        Self {
            lists: FairSemaphore::new(LISTS),
            slow_lists: FairSemaphore::new(1),
            large_bodies: FairSemaphore::new(1),
        }
    }
}

/// The share of one request.
#[derive(Debug, Clone)]
pub struct RequestShare {
    turns: Arc<Turns>,
    owner: BufferOwner,
    reserved: Arc<Mutex<BufferReservation>>,
}

impl RequestShare {
    pub fn new(turns: &Arc<Turns>, buffers: &Arc<BufferBudget>, owner: BufferOwner) -> Self {
        let reserved = Arc::new(Mutex::new(buffers.open(owner)));
        Self { turns: Arc::clone(turns), owner, reserved }
    }

    /// Reserves memory until the response is written, for the response and for what the request holds until then. A
    /// second call replaces the first if it wants more.
    /// Errors: 503 if the caller has no room.
    pub fn reserve(&self, bytes: usize) -> Result<()> {
        let mut reserved = self.reserved.lock();
        let more = bytes.saturating_sub(reserved.bytes());
        reserved.grow(more)
    }

    /// Takes what [`RequestShare::reserve`] has reserved.
    pub fn take_reservation(&self, buffers: &Arc<BufferBudget>) -> BufferReservation {
        std::mem::replace(&mut *self.reserved.lock(), buffers.open(self.owner))
    }

    /// Waits for the caller's turn to read a list. The permit is to be held until the response is rendered.
    pub async fn list_turn(&self) -> Result<FairPermit> {
        self.turns.lists.acquire(self.owner).await
    }

    /// As [`RequestShare::list_turn`], for a list of a long history.
    pub async fn slow_list_turn(&self) -> Result<FairPermit> {
        self.turns.slow_lists.acquire(self.owner).await
    }

    /// Waits for the caller's turn to have a large body checked.
    pub async fn large_body_turn(&self) -> Result<FairPermit> {
        self.turns.large_bodies.acquire(self.owner).await
    }
}
