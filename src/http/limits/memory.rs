//! Memory for bodies and replies under way: together they hold at most the budget, and a caller about a quarter of it.
//! However much a few callers hold, there is room for an ordinary request of the others.

use std::sync::Arc;

use crate::domain::account::holdings::Holdings;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::error::{Error, Result};
use crate::http::limits::Owner;
use crate::system::locks::Mutex;

/// Largest share of the budget for one caller: a quarter, so that three quarters remain for the others.
const CALLER_FRACTION: usize = 4;

/// This part of the budget is for the first [`SMALL_SHARE`] bytes of each caller, however much the others hold. The
/// rest is for larger amounts; of it a caller holds at most half of what the others leave, so that it is never used up.
const RESERVE_FRACTION: usize = 4;

/// The bytes that a caller may always hold, unless the budget itself is used up: the body and the response of an
/// ordinary request, or a list of twenty cues. The reserve of the default budget has room for 256 callers.
const SMALL_SHARE: usize = 64 << 10;

/// In a budget of less than 64 MiB the reserve has room for as many callers, each with less.
const SMALL_SHARES: usize = 256;

/// Seconds for `Retry-After`. Most bodies and replies are gone after a second.
const RETRY_AFTER: u32 = 1;

#[derive(Debug)]
pub struct Budget {
    limit: usize,
    held: Mutex<Holdings<Owner>>,
}

/// Bytes that one caller holds of the budget. Dropping it returns them.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<Budget>,
    owner: Owner,
    bytes: usize,
}

impl Budget {
    pub fn new(limit: usize) -> Self {
        Self { limit, held: Mutex::new(Holdings::none()) }
    }

    /// An empty reservation, to grow with a body that arrives.
    pub fn open(self: &Arc<Self>, owner: Owner) -> Reservation {
        Reservation { budget: Arc::clone(self), owner, bytes: 0 }
    }

    pub fn reserve(self: &Arc<Self>, owner: Owner, bytes: usize) -> Result<Reservation> {
        let mut reservation = self.open(owner);
        reservation.grow_to(bytes)?;
        Ok(reservation)
    }

    /// Checks that the caller has room for an ordinary request and its response, without reserving any.
    pub fn require_room(&self, owner: Owner) -> Result<()> {
        self.check(&self.held.lock(), self.small_share(), owner)
    }

    /// Whether the caller holds its part of the budget, without room for an ordinary request.
    pub fn is_used_up_by(&self, owner: Owner) -> bool {
        self.held.lock().of(owner) + self.small_share() > self.limit / CALLER_FRACTION
    }

    fn small_share(&self) -> usize {
        SMALL_SHARE.min(self.limit / RESERVE_FRACTION / SMALL_SHARES)
    }

    /// Checks that `owner` may hold further `bytes`.
    fn check(&self, held: &Holdings<Owner>, bytes: usize, owner: Owner) -> Result<()> {
        let own = held.of(owner);
        let wanted = own.saturating_add(bytes);
        if wanted > self.limit / CALLER_FRACTION {
            return Err(busy(
                "Your requests and unread responses hold too much memory; finish and read them, and try again in 1 s",
            ));
        }
        let of_all = self.limit - self.limit / RESERVE_FRACTION;
        let left_by_others = of_all.saturating_sub(held.total() - own);
        let has_share = wanted <= (left_by_others / 2).max(self.small_share());
        if has_share && held.total().saturating_add(bytes) <= self.limit {
            Ok(())
        } else {
            Err(busy("The server is handling too many large requests; try again in 1 s"))
        }
    }
}

impl Reservation {
    /// Makes the reservation at least `bytes` large. Never waits: partly read bodies that wait for each other's bytes
    /// would block each other.
    /// Errors: 503 if the caller would hold more than its share, or all callers more than the budget.
    pub fn grow_to(&mut self, bytes: usize) -> Result<()> {
        let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) else {
            return Ok(());
        };
        let mut held = self.budget.held.lock();
        self.budget.check(&held, more, self.owner)?;
        held.add(self.owner, more);
        self.bytes = bytes;
        Ok(())
    }

    /// Makes the reservation `bytes` large, for a response to a change that was made after [`Budget::require_room`]: up
    /// to [`SMALL_SHARE`] more are added even if there is no room.
    pub fn resize(&mut self, bytes: usize) -> Result<()> {
        if bytes.saturating_sub(self.bytes) > SMALL_SHARE {
            return self.grow_to(bytes);
        }
        let mut held = self.budget.held.lock();
        held.add(self.owner, bytes);
        held.remove(self.owner, self.bytes);
        self.bytes = bytes;
        Ok(())
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.held.lock().remove(self.owner, self.bytes);
        }
    }
}

fn busy(message: &'static str) -> Error {
    Refusal::new(ErrorCode::ServerBusy, message).retry_after(RETRY_AFTER).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::domain::row_keys::UserKey;

    /// The reserve is 16 MiB, with 64 KiB for a caller.
    const LIMIT: usize = 64 << 20;

    fn total(budget: &Budget) -> usize {
        budget.held.lock().total()
    }

    /// As much as each of these users gets, in pieces of 1 KiB.
    fn as_much_as_possible(budget: &Arc<Budget>, users: std::ops::Range<i64>) -> Vec<Reservation> {
        let fill = |user| {
            let mut held = budget.open(Owner::Account(UserKey::new(user)));
            while held.grow_to(held.bytes + (1 << 10)).is_ok() {}
            held
        };
        users.map(fill).collect()
    }

    #[test]
    fn callers_share_the_budget_and_return_what_they_held() {
        let budget = Arc::new(Budget::new(LIMIT));
        let held = as_much_as_possible(&budget, 0..300);
        let mib: Vec<_> = held.iter().take(6).map(|it| it.bytes >> 20).collect();
        assert_eq!(mib, [16, 16, 8, 4, 2, 1]);
        assert!(held.iter().take(200).all(|it| it.bytes >= SMALL_SHARE));
        assert!(
            total(&budget) <= LIMIT
                && budget.reserve(Owner::Account(UserKey::new(300)), SMALL_SHARE).is_err()
        );
        drop(held);
        assert_eq!((total(&budget), budget.held.lock().holders()), (0, 0));
    }

    #[test]
    fn a_caller_that_holds_nothing_has_room_for_an_ordinary_request() {
        let budget = Arc::new(Budget::new(LIMIT));
        let (ada, bob) = (Owner::Account(UserKey::new(1)), Owner::Account(UserKey::new(2)));
        let _held = as_much_as_possible(&budget, 10..200);
        budget.require_room(ada).unwrap();
        let mut request = budget.reserve(ada, SMALL_SHARE).unwrap();
        assert!(request.grow_to(1 << 20).is_err(), "but not for a large request");
        assert!(budget.require_room(ada).is_err() && budget.require_room(bob).is_ok());
    }

    #[test]
    fn the_response_to_a_change_gets_a_little_more_than_there_is_room_for() {
        let budget = Arc::new(Budget::new(LIMIT));
        let mut reply = budget.reserve(Owner::Account(UserKey::new(1)), 10 << 20).unwrap();
        reply.resize(1 << 20).unwrap();
        assert_eq!(total(&budget), 1 << 20);
        let _other = as_much_as_possible(&budget, 1..2);
        assert!(reply.grow_to((1 << 20) + 1).is_err());
        reply.resize((1 << 20) + SMALL_SHARE).unwrap();
        assert!(reply.resize(3 << 20).is_err());
        assert_eq!(total(&budget), LIMIT / 4 + SMALL_SHARE);
    }
}
