//! The memory for requests and connections under way: one amount for all callers, of which each may hold a share
//! (contract §11.1).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::domain::account::client_ip::{customer_network, rate_limit_site};
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::error::{Error, Result};
use crate::locks::Mutex;

/// One caller holds at most this part of the budget, so that three quarters remain for the others.
const CALLER_FRACTION: usize = 4;

/// This part of the budget is for the first [`SMALL_SHARE`] bytes of each caller, however much the others hold. The rest
/// is for larger amounts; of it a caller holds at most half of what the others leave, so that it is never used up.
const RESERVE_FRACTION: usize = 4;

/// The bytes that a caller may always hold, unless the budget itself is used up: the body and the response of an
/// ordinary request, or a list of twenty cues. The reserve of the default budget has room for 256 callers.
pub const SMALL_SHARE: usize = 64 << 10;

/// In a budget of less than 16 MiB the reserve has room for as many callers, each with less.
const SMALL_SHARES: usize = 256;

/// Seconds for `Retry-After`. Most bodies and replies are gone after a second.
const RETRY_AFTER: u32 = 1;

/// Beyond this part of an amount, idle connections close: the rest is for requests until their memory is free.
const SCARCE: (usize, usize) = (7, 8);

/// The holder of a body, a response or a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BufferOwner {
    /// The row key of the user whose API key came with the request.
    Account(i64),
    /// The network of a client without a valid key.
    Network(IpAddr),
    /// The IPv6 /48 of such networks. It counts beside each of them, as one caller: a site has 256 networks.
    Site(IpAddr),
}

impl BufferOwner {
    pub fn from_client(address: IpAddr) -> Self {
        Self::Network(customer_network(address))
    }

    /// All that what this caller holds counts for.
    fn holders(self) -> impl Iterator<Item = Self> {
        let site = if let Self::Network(address) = self { rate_limit_site(address) } else { None };
        std::iter::once(self).chain(site.map(Self::Site))
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
        match owner {
            _ if is_scarce(self.total, limit) => Some(Scarcity::Everybody),
            BufferOwner::Network(network) if is_scarce(self.held_by(owner), self.share(owner, limit)) => {
                Some(Scarcity::Network(network))
            }
            _ => None,
        }
    }

    fn held_by(&self, holder: BufferOwner) -> usize {
        self.by_owner.get(&holder).copied().unwrap_or(0)
    }

    /// The bytes that `holder` may hold, given what the others do.
    fn share(&self, holder: BufferOwner, limit: usize) -> usize {
        let others = self.total - self.held_by(holder);
        let left = (limit - limit / RESERVE_FRACTION).saturating_sub(others);
        (left / 2).max(small_share(limit)).min(limit / CALLER_FRACTION)
    }

    /// Checks that `owner` may hold further `bytes`.
    fn check(&self, bytes: usize, owner: BufferOwner, limit: usize) -> Result<()> {
        if self.total.saturating_add(bytes) > limit {
            return Err(full());
        }
        for holder in owner.holders() {
            let wanted = self.held_by(holder).saturating_add(bytes);
            if wanted > limit / CALLER_FRACTION {
                return Err(caller_busy());
            }
            if wanted > self.share(holder, limit) {
                return Err(full());
            }
        }
        Ok(())
    }

    fn add(&mut self, bytes: usize, owner: BufferOwner) {
        self.total += bytes;
        for holder in owner.holders() {
            *self.by_owner.entry(holder).or_default() += bytes;
        }
    }

    fn remove(&mut self, bytes: usize, owner: BufferOwner) {
        self.total -= bytes;
        for holder in owner.holders() {
            if let Some(held) = self.by_owner.get_mut(&holder) {
                *held -= bytes;
                if *held == 0 {
                    self.by_owner.remove(&holder);
                }
            }
        }
    }
}

fn small_share(limit: usize) -> usize {
    SMALL_SHARE.min(limit / RESERVE_FRACTION / SMALL_SHARES)
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

    /// Checks that the caller has room for [`SMALL_SHARE`] more bytes, without reserving any.
    pub fn require_room(&self, owner: BufferOwner) -> Result<()> {
        self.usage.lock().check(small_share(self.limit), owner, self.limit)
    }

    /// True if all callers together leave less than [`SMALL_SHARE`].
    pub fn is_used_up(&self) -> bool {
        self.usage.lock().total.saturating_add(small_share(self.limit)) > self.limit
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
    pub fn reserve(self: &Arc<Self>, owner: BufferOwner, bytes: usize) -> Result<BufferReservation> {
        let mut reservation = self.open(owner);
        reservation.grow(bytes)?;
        Ok(reservation)
    }
}

impl BufferReservation {
    /// Adds `bytes`. Never waits: partly read bodies that wait for each other's bytes would block each other.
    /// Errors: 503 if the caller would hold more than its share, or all callers more than the budget.
    pub fn grow(&mut self, bytes: usize) -> Result<()> {
        let mut usage = self.budget.usage.lock();
        if let Some(scarcity) = usage.scarcity_with(bytes, self.owner, self.budget.limit)
            && usage.scarcity != Some(Scarcity::Everybody)
        {
            usage.scarcity = Some(scarcity);
            self.budget.became_scarce.notify_one();
        }
        usage.check(bytes, self.owner, self.budget.limit)?;
        if bytes > 0 {
            usage.add(bytes, self.owner);
            self.bytes += bytes;
        }
        Ok(())
    }

    /// Makes the reservation `bytes` large. Up to [`SMALL_SHARE`] more are added even if there is no room: for the
    /// response to a change that was made after [`BufferBudget::require_room`].
    pub fn resize(&mut self, bytes: usize) -> Result<()> {
        let more = bytes.saturating_sub(self.bytes);
        if more > SMALL_SHARE {
            return self.grow(more);
        }
        let mut usage = self.budget.usage.lock();
        usage.add(more, self.owner);
        usage.remove(self.bytes.saturating_sub(bytes), self.owner);
        self.bytes = bytes;
        Ok(())
    }

    /// Returns all bytes to the budget.
    pub fn release(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes > 0 {
            self.budget.usage.lock().remove(bytes, self.owner);
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds what is missing to `bytes`.
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

fn full() -> Error {
    busy("The server is handling too many large requests; try again in 1 s")
}

fn busy(message: &'static str) -> Error {
    Error::Refused(Refusal { retry_after: Some(RETRY_AFTER), ..Refusal::new(ErrorCode::ServerBusy, message) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADA: BufferOwner = BufferOwner::Account(1);
    const BOB: BufferOwner = BufferOwner::Account(2);

    /// The reserve is 16 MiB, with 64 KiB for a caller.
    const LIMIT: usize = 64 << 20;

    fn total(budget: &BufferBudget) -> usize {
        budget.usage.lock().total
    }

    fn owner(text: &str) -> BufferOwner {
        BufferOwner::from_client(text.parse().unwrap())
    }

    /// As much as `owner` gets, in pieces of 1 KiB.
    fn as_much_as_possible(budget: &Arc<BufferBudget>, owner: BufferOwner) -> BufferReservation {
        let mut held = budget.open(owner);
        while held.grow(1 << 10).is_ok() {}
        held
    }

    #[test]
    fn a_caller_holds_at_most_a_quarter_of_the_budget() {
        let budget = BufferBudget::new(100);
        let mut body = budget.reserve(ADA, 20).unwrap();
        body.grow(5).unwrap();
        assert!(body.grow(1).is_err() && budget.reserve(ADA, 1).is_err());
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
    fn a_caller_holds_at_most_half_of_what_the_others_leave() {
        let budget = BufferBudget::new(LIMIT);
        let held: Vec<_> =
            (0..30).map(|user| as_much_as_possible(&budget, BufferOwner::Account(user))).collect();
        let mib: Vec<_> = held.iter().take(6).map(|it| it.bytes >> 20).collect();
        assert_eq!(mib, [16, 16, 8, 4, 2, 1]);
        assert!(held.iter().all(|it| it.bytes >= SMALL_SHARE));
        assert!(total(&budget) <= LIMIT);
    }

    #[test]
    fn a_caller_that_holds_nothing_has_room_however_much_the_others_hold() {
        let budget = BufferBudget::new(LIMIT);
        let held: Vec<_> =
            (10..200).map(|user| as_much_as_possible(&budget, BufferOwner::Account(user))).collect();
        assert!(held.iter().all(|it| it.bytes >= SMALL_SHARE));
        budget.require_room(ADA).unwrap();
        let mut request = budget.reserve(ADA, SMALL_SHARE).unwrap();
        assert!(request.grow(1 << 20).is_err(), "but not for a large request");
        assert!(budget.require_room(ADA).is_err() && budget.require_room(BOB).is_ok());
    }

    #[test]
    fn all_callers_together_hold_at_most_the_budget() {
        let budget = BufferBudget::new(LIMIT);
        let held: Vec<_> =
            (0..300).map(|user| as_much_as_possible(&budget, BufferOwner::Account(user))).collect();
        assert!(total(&budget) <= LIMIT);
        assert!(budget.reserve(BufferOwner::Account(300), SMALL_SHARE).is_err());
        drop(held);
        assert_eq!(total(&budget), 0);
    }

    #[test]
    fn the_networks_of_one_site_are_one_caller() {
        let budget = BufferBudget::new(LIMIT);
        let held: Vec<_> = (0..16)
            .map(|network| as_much_as_possible(&budget, owner(&format!("2001:db8:0:{network:x}00::1"))))
            .collect();
        assert_eq!(total(&budget), LIMIT / CALLER_FRACTION);
        assert!(budget.require_room(owner("2001:db8:0:2000::1")).is_err());
        assert!(budget.require_room(owner("2001:db8:1::1")).is_ok());
        drop(held);
        assert!(budget.usage.lock().by_owner.is_empty());
    }

    #[test]
    fn a_reservation_gets_the_size_of_its_response() {
        let budget = BufferBudget::new(LIMIT);
        let mut reply = budget.reserve(ADA, 10 << 20).unwrap();
        reply.resize(1 << 20).unwrap();
        assert_eq!(total(&budget), 1 << 20);
        let _other = as_much_as_possible(&budget, ADA);
        assert!(reply.grow(1).is_err());
        reply.resize((1 << 20) + SMALL_SHARE).unwrap();
        assert!(reply.resize(3 << 20).is_err());
        assert_eq!((reply.bytes(), total(&budget)), ((1 << 20) + SMALL_SHARE, LIMIT / 4 + SMALL_SHARE));
    }

    #[test]
    fn the_addresses_of_one_customer_are_one_caller() {
        assert_eq!(owner("2001:db8:0:1::1"), owner("2001:db8:0:ff::2"));
        assert_ne!(owner("2001:db8:0:1::1"), owner("2001:db8:0:100::1"));
        assert_ne!(owner("192.0.2.1"), owner("192.0.2.2"));
    }
}
