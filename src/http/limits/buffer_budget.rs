//! The memory for requests and connections under way: one amount for all callers, of which each may hold a quarter
//! (contract §11.1).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::domain::account::client_ip::customer_network;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::error::{Error, Result};
use crate::locks::Mutex;

/// One caller holds at most this part of the budget, so that three quarters remain for the others.
const CALLER_FRACTION: usize = 4;

/// The room that a change needs before it is made, in bytes: a response without a large payload fits, so that a change is
/// seldom made whose response does not.
const MIN_ROOM: usize = 64 << 10;

/// Seconds for `Retry-After`. Most bodies and replies are gone after a second.
const RETRY_AFTER: u32 = 1;

/// Beyond this part of an amount, idle connections close: the rest is for requests until their memory is free.
const SCARCE: (usize, usize) = (7, 8);

/// Who holds a body, a reply or a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BufferOwner {
    /// The row key of the user whose API key came with the request.
    Account(i64),
    /// The network of a client without a valid key.
    Network(IpAddr),
}

impl BufferOwner {
    pub fn from_client(address: IpAddr) -> Self {
        Self::Network(customer_network(address))
    }
}

#[derive(Debug)]
pub struct BufferBudget {
    limit: usize,
    usage: Mutex<Usage>,
    became_scarce: Notify,
}

/// The memory of these is used up, or almost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scarcity {
    Everybody,
    Network(IpAddr),
}

#[derive(Debug, Default)]
struct Usage {
    total: usize,
    /// Not yet seen by [`BufferBudget::scarcity`].
    scarcity: Option<Scarcity>,
    /// Callers that hold something; the budget bounds their number.
    by_owner: HashMap<BufferOwner, usize>,
}

impl Usage {
    /// Returns who is short of memory once `owner` holds further `bytes`.
    fn scarcity_with(&self, bytes: usize, owner: BufferOwner, limit: usize) -> Option<Scarcity> {
        let is_scarce = |held: usize, limit: usize| held.saturating_add(bytes) > limit / SCARCE.1 * SCARCE.0;
        let held = self.by_owner.get(&owner).copied().unwrap_or(0);
        match owner {
            _ if is_scarce(self.total, limit) => Some(Scarcity::Everybody),
            BufferOwner::Network(network) if is_scarce(held, limit / CALLER_FRACTION) => {
                Some(Scarcity::Network(network))
            }
            _ => None,
        }
    }

    /// Returns what `owner` would hold with further `bytes`.
    fn with(&self, bytes: usize, owner: BufferOwner, limit: usize) -> Result<usize> {
        let held = self.by_owner.get(&owner).copied().unwrap_or(0).saturating_add(bytes);
        if held > limit / CALLER_FRACTION {
            return Err(caller_busy());
        }
        if self.total.saturating_add(bytes) > limit {
            return Err(busy("The server is handling too many large requests; try again in 1 s"));
        }
        Ok(held)
    }
}

/// Bytes that one caller holds of the budget. Dropping it returns them.
#[derive(Debug)]
pub struct BufferReservation {
    budget: Arc<BufferBudget>,
    owner: BufferOwner,
    bytes: usize,
}

impl BufferBudget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, usage: Mutex::default(), became_scarce: Notify::new() })
    }

    /// An empty reservation, to grow with a body that arrives.
    pub fn open(self: &Arc<Self>, owner: BufferOwner) -> BufferReservation {
        BufferReservation { budget: Arc::clone(self), owner, bytes: 0 }
    }

    /// Checks that the caller has room for [`MIN_ROOM`] more bytes, without reserving any.
    ///
    /// # Errors
    /// As [`BufferReservation::grow`].
    pub fn require_room(&self, owner: BufferOwner) -> Result<()> {
        let room = MIN_ROOM.min(self.limit / CALLER_FRACTION);
        self.usage.lock().with(room, owner, self.limit).map(|_| ())
    }

    /// Waits until memory is scarce. For one waiter.
    pub async fn scarcity(&self) -> Scarcity {
        loop {
            if let Some(scarcity) = self.usage.lock().scarcity.take() {
                return scarcity;
            }
            self.became_scarce.notified().await;
        }
    }

    /// Reserves `bytes` at once.
    ///
    /// # Errors
    /// As [`BufferReservation::grow`].
    pub fn reserve(self: &Arc<Self>, owner: BufferOwner, bytes: usize) -> Result<BufferReservation> {
        let mut reservation = self.open(owner);
        reservation.grow(bytes)?;
        Ok(reservation)
    }
}

impl BufferReservation {
    /// Adds `bytes`. Never waits: partly read bodies that wait for each other's bytes would block each other.
    ///
    /// # Errors
    /// 503 if the caller would hold more than its part, or all callers more than the budget.
    pub fn grow(&mut self, bytes: usize) -> Result<()> {
        let mut usage = self.budget.usage.lock();
        if let Some(scarcity) = usage.scarcity_with(bytes, self.owner, self.budget.limit)
            && usage.scarcity != Some(Scarcity::Everybody)
        {
            usage.scarcity = Some(scarcity);
            self.budget.became_scarce.notify_one();
        }
        let held = usage.with(bytes, self.owner, self.budget.limit)?;
        if bytes > 0 {
            usage.total += bytes;
            usage.by_owner.insert(self.owner, held);
            self.bytes += bytes;
        }
        Ok(())
    }

    /// Returns all bytes to the budget.
    pub fn release(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes == 0 {
            return;
        }
        let mut usage = self.budget.usage.lock();
        usage.total -= bytes;
        if let Some(held) = usage.by_owner.get_mut(&self.owner) {
            *held -= bytes;
            if *held == 0 {
                usage.by_owner.remove(&self.owner);
            }
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds what is missing to `bytes`.
    ///
    /// # Errors
    /// As [`BufferReservation::grow`].
    pub fn grow_to(&mut self, bytes: usize) -> Result<()> {
        match bytes.checked_sub(self.bytes) {
            None | Some(0) => Ok(()),
            Some(missing) => self.grow(missing),
        }
    }
}

impl Drop for BufferReservation {
    fn drop(&mut self) {
        self.release();
    }
}

/// The error of a caller that holds too much.
pub fn caller_busy() -> Error {
    busy(
        "Your connections, requests and unread responses hold too much memory; finish and read them, and try again in \
         1 s",
    )
}

fn busy(message: &'static str) -> Error {
    Error::Refused(Refusal { retry_after: Some(RETRY_AFTER), ..Refusal::new(ErrorCode::ServerBusy, message) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADA: BufferOwner = BufferOwner::Account(1);
    const BOB: BufferOwner = BufferOwner::Account(2);

    fn total(budget: &BufferBudget) -> usize {
        budget.usage.lock().total
    }

    #[test]
    fn a_caller_holds_at_most_a_quarter_of_the_budget() {
        let budget = BufferBudget::new(100);
        let mut body = budget.reserve(ADA, 20).unwrap();
        body.grow(5).unwrap();
        assert!(body.grow(1).is_err() && budget.reserve(ADA, 1).is_err());
        assert!(budget.require_room(ADA).is_err() && budget.require_room(BOB).is_ok());
        assert!(budget.reserve(ADA, 0).is_ok());
        let other = budget.reserve(BOB, 25).unwrap();
        assert_eq!(total(&budget), 50);
        drop(body);
        assert!(budget.reserve(ADA, 25).is_ok(), "returned bytes are free again");
        drop(other);
        assert_eq!(total(&budget), 0);
        assert!(budget.usage.lock().by_owner.is_empty(), "a caller that holds nothing needs no memory");
    }

    #[test]
    fn all_callers_together_hold_at_most_the_budget() {
        let budget = BufferBudget::new(100);
        let held: Vec<_> =
            (0..4).map(|user| budget.reserve(BufferOwner::Account(user), 25).unwrap()).collect();
        assert!(budget.reserve(BufferOwner::Account(4), 1).is_err());
        drop(held);
        assert!(budget.reserve(BufferOwner::Account(4), 1).is_ok());
    }

    #[test]
    fn the_addresses_of_one_customer_are_one_caller() {
        let owner = |text: &str| BufferOwner::from_client(text.parse().unwrap());
        assert_eq!(owner("2001:db8:0:1::1"), owner("2001:db8:0:ff::2"));
        assert_ne!(owner("2001:db8:0:1::1"), owner("2001:db8:0:100::1"));
        assert_ne!(owner("192.0.2.1"), owner("192.0.2.2"));
    }
}
