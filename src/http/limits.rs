//! Limits per caller on shared resources (contract §11): memory, waiting requests, large work, connection time.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::Version;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::config::HttpLimits;
use crate::domain::account::rate_limit::rate_limit_address;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::row_keys::UserKey;
use crate::error::{Error, Result};
use crate::system::locks::Mutex;

/// Long polls and event streams that an account may have open. Each holds a connection, and every execution that
/// becomes claimable makes each poll read the database. A fleet of workers shares this number; with `--limits off` it
/// does not apply.
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
    pub waiting: CallerPermits,
    pub lists: WorkPermits,
    /// Lists of long histories, which have a reader thread of their own: others must not wait for it.
    pub slow_lists: WorkPermits,
    /// Large bodies of JSON. One thread checks them, so that the others answer small requests.
    pub large_bodies: WorkPermits,
}

impl Shares {
    pub fn new(max_buffered: usize) -> Arc<Self> {
        Arc::new(Self {
            budget: Arc::new(Budget::new(max_buffered)),
            waiting: CallerPermits::new(MAX_WAITING),
            lists: WorkPermits::new(LISTS),
            slow_lists: WorkPermits::new(1),
            large_bodies: WorkPermits::new(1),
        })
    }
}

/// Permits of each caller, `count` at a time.
#[derive(Debug)]
pub struct CallerPermits {
    count: usize,
    /// Callers that hold a permit or wait for one.
    callers: Mutex<HashMap<Owner, Arc<Semaphore>>>,
}

impl CallerPermits {
    fn new(count: usize) -> Self {
        Self { count, callers: Mutex::default() }
    }

    fn of(&self, owner: Owner) -> Arc<Semaphore> {
        let mut callers = self.callers.lock();
        callers.retain(|_, own| Arc::strong_count(own) > 1);
        Arc::clone(callers.entry(owner).or_insert_with(|| Arc::new(Semaphore::new(self.count))))
    }

    /// Takes a permit, which is free again once it is dropped; `None` if the caller has all of its own.
    pub fn take(&self, owner: Owner) -> Option<OwnedSemaphorePermit> {
        self.of(owner).try_acquire_owned().ok()
    }
}

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

/// The holder of a body or a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The row key of the user whose API key or session came with the request.
    Account(UserKey),
    /// The address of a client without either (IPv6: its /64).
    Address(IpAddr),
}

impl Owner {
    pub fn from_client(address: IpAddr) -> Self {
        Self::Address(rate_limit_address(address))
    }
}

#[derive(Debug)]
pub struct Budget {
    limit: usize,
    held: Mutex<Holdings>,
}

#[derive(Debug, Default)]
struct Holdings {
    total: usize,
    /// Callers that hold something; the budget bounds their number.
    by_owner: HashMap<Owner, usize>,
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
        Self { limit, held: Mutex::default() }
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
        let own = self.held.lock().by_owner.get(&owner).copied().unwrap_or(0);
        own + self.small_share() > self.limit / CALLER_FRACTION
    }

    fn small_share(&self) -> usize {
        SMALL_SHARE.min(self.limit / RESERVE_FRACTION / SMALL_SHARES)
    }

    /// Checks that `owner` may hold further `bytes`.
    fn check(&self, held: &Holdings, bytes: usize, owner: Owner) -> Result<()> {
        let own = held.by_owner.get(&owner).copied().unwrap_or(0);
        let wanted = own.saturating_add(bytes);
        if wanted > self.limit / CALLER_FRACTION {
            return Err(busy(
                "Your requests and unread responses hold too much memory; finish and read them, and try again in 1 s",
            ));
        }
        let of_all = self.limit - self.limit / RESERVE_FRACTION;
        let left_by_others = of_all.saturating_sub(held.total - own);
        let has_share = wanted <= (left_by_others / 2).max(self.small_share());
        if has_share && held.total.saturating_add(bytes) <= self.limit {
            Ok(())
        } else {
            Err(busy("The server is handling too many large requests; try again in 1 s"))
        }
    }
}

impl Holdings {
    fn add(&mut self, bytes: usize, owner: Owner) {
        self.total += bytes;
        *self.by_owner.entry(owner).or_default() += bytes;
    }

    fn remove(&mut self, bytes: usize, owner: Owner) {
        self.total -= bytes;
        if let Some(held) = self.by_owner.get_mut(&owner) {
            *held -= bytes;
            if *held == 0 {
                self.by_owner.remove(&owner);
            }
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
        held.add(more, self.owner);
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
        held.add(bytes, self.owner);
        held.remove(self.bytes, self.owner);
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
            self.budget.held.lock().remove(self.bytes, self.owner);
        }
    }
}

fn busy(message: &'static str) -> Error {
    Refusal::new(ErrorCode::ServerBusy, message).retry_after(RETRY_AFTER).into()
}

/// The activity of one connection; shared by its socket, its requests, and the task that drives it.
#[derive(Debug, Clone)]
pub struct Activity {
    state: Arc<Mutex<State>>,
    eviction: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    /// The time when the connection was opened, or when its last request ended.
    idle_since: Instant,
    /// The time of the first byte of an incomplete head (HTTP/1.1 only).
    head_since: Option<Instant>,
    /// The time since which the socket accepts no more bytes, because the peer does not read.
    blocked_since: Option<Instant>,
    /// The connection has not received a request yet.
    is_new: bool,
    is_http2: bool,
    /// Requests whose response is not yet passed to the socket completely.
    open: usize,
    /// Requests whose bodies have arrived.
    running: usize,
    /// The responses under way, each with the deadline for its client to take a part of it.
    replies: BTreeMap<u64, Instant>,
    next_reply: u64,
    /// The last body was not read to its end.
    has_unread_body: bool,
    /// The connection was asked to close, and has received no request since.
    is_evicted: bool,
    /// The connection ends, whatever it receives.
    must_close: bool,
}

/// The reason to close a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// No request for too long.
    Idle,
    /// The head of a request takes too long.
    Head,
    /// The peer reads no more of a response.
    Stuck,
    /// Another connection needs its place.
    Evicted,
}

/// A request under way. Dropped when its response is passed to the socket completely, or when it is aborted.
#[derive(Debug)]
pub struct RequestGuard {
    activity: Activity,
    began: Instant,
    has_unread_body: bool,
    is_running: bool,
    reply: Option<(u64, Duration)>,
}

impl Activity {
    pub fn new() -> Self {
        let state = State {
            idle_since: Instant::now(),
            head_since: None,
            blocked_since: None,
            is_new: true,
            is_http2: false,
            open: 0,
            running: 0,
            replies: BTreeMap::new(),
            next_reply: 0,
            has_unread_body: false,
            is_evicted: false,
            must_close: false,
        };
        Self { state: Arc::new(Mutex::new(state)), eviction: Arc::default() }
    }

    /// The time at which the connection is closed if nothing changes; `None` while a request runs.
    pub fn close_at(&self, limits: &HttpLimits) -> Option<(Instant, CloseReason)> {
        let state = self.state.lock();
        let blocked_until = state.blocked_since.map(|since| since + limits.response_time);
        if let Some(stuck_at) = state.replies.values().copied().chain(blocked_until).min() {
            Some((stuck_at, CloseReason::Stuck))
        } else if state.open > 0 {
            None
        } else if let Some(since) = state.head_since {
            Some((since + limits.header_time, CloseReason::Head))
        } else {
            let time = if state.is_new { limits.header_time } else { limits.idle_time };
            Some((state.idle_since + time, CloseReason::Idle))
        }
    }

    /// The reason to close the connection, if its time is over.
    pub fn overdue(&self, limits: &HttpLimits) -> Option<CloseReason> {
        self.close_at(limits).filter(|(at, _)| *at <= Instant::now()).map(|(_, reason)| reason)
    }

    /// Idle since this time; `None` while a request runs, or after the connection was asked to close.
    pub fn idle_since(&self) -> Option<Instant> {
        let state = self.state.lock();
        (state.running == 0 && !state.is_evicted).then_some(state.idle_since)
    }

    /// Asks the connection to close, unless it has received a request that its task has not seen yet.
    pub fn evict(&self) {
        self.state.lock().is_evicted = true;
        self.eviction.notify_one();
    }

    /// Waits until the connection is asked to end. Returns whether it may: no request has come since, or it must.
    pub async fn evicted(&self) -> bool {
        self.eviction.notified().await;
        let state = self.state.lock();
        state.is_evicted || state.must_close
    }

    /// Returns whether the peer may still be sending a body that is not read.
    pub fn has_unread_body(&self) -> bool {
        self.state.lock().has_unread_body
    }

    pub fn record_read(&self, bytes: &[u8]) {
        let mut state = self.state.lock();
        // No method of HTTP/1.1 begins like the preface of HTTP/2.
        state.is_http2 |= state.is_new && state.head_since.is_none() && bytes.starts_with(b"PRI ");
        if !bytes.is_empty() && state.open == 0 && !state.is_http2 && !state.has_unread_body {
            state.head_since.get_or_insert_with(Instant::now);
        }
    }

    pub fn record_write(&self, is_blocked: bool) {
        let mut state = self.state.lock();
        if is_blocked {
            state.blocked_since.get_or_insert_with(Instant::now);
        } else {
            state.blocked_since = None;
        }
    }

    /// Records a request with a complete head.
    pub fn begin_request(&self, version: Version, has_body: bool) -> RequestGuard {
        let mut state = self.state.lock();
        if state.open == 0 {
            state.idle_since = Instant::now();
        }
        state.open += 1;
        (state.is_new, state.is_evicted, state.has_unread_body) = (false, false, false);
        state.is_http2 = version == Version::HTTP_2;
        let began = state.head_since.take().unwrap_or_else(Instant::now);
        RequestGuard {
            activity: self.clone(),
            began,
            has_unread_body: has_body,
            is_running: false,
            reply: None,
        }
    }
}

impl RequestGuard {
    /// The arrival of the first byte of its head.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Ends the connection, with the other requests on it.
    pub fn close_connection(&self) {
        self.activity.state.lock().must_close = true;
        self.activity.eviction.notify_one();
    }

    /// Records that the body has arrived: from now on the connection is not closed for another.
    pub fn body_arrived(&mut self) {
        (self.has_unread_body, self.is_running) = (false, true);
        let mut state = self.activity.state.lock();
        state.running += 1;
        state.is_evicted = false;
    }

    /// Records that the response begins. The client must take a part of it within `patience`, and again after each.
    pub fn reply_begins(&mut self, patience: Duration) {
        let mut state = self.activity.state.lock();
        self.reply = Some((state.next_reply, patience));
        state.replies.insert(self.reply.map_or(0, |(number, _)| number), Instant::now() + patience);
        state.next_reply += 1;
        state.has_unread_body |= self.has_unread_body;
    }

    /// Records that a part of the response was asked for, taken or written.
    pub fn reply_moves(&self) {
        if let Some((number, patience)) = self.reply {
            self.activity.state.lock().replies.insert(number, Instant::now() + patience);
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut state = self.activity.state.lock();
        state.open -= 1;
        state.running -= usize::from(self.is_running);
        if let Some((number, _)) = self.reply {
            state.replies.remove(&number);
        }
        if state.open == 0 {
            state.idle_since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

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

    /// The reserve is 16 MiB, with 64 KiB for a caller.
    const LIMIT: usize = 64 << 20;

    fn total(budget: &Budget) -> usize {
        budget.held.lock().total
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
        assert_eq!((total(&budget), budget.held.lock().by_owner.len()), (0, 0));
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

    #[test]
    fn the_addresses_of_an_ipv6_network_are_one_caller() {
        let owner = |text: &str| Owner::from_client(text.parse().unwrap());
        assert_eq!(owner("2001:db8:0:1::1"), owner("2001:db8:0:1:f::2"));
        assert_ne!(owner("2001:db8:0:1::1"), owner("2001:db8:0:2::1"));
        assert_ne!(owner("192.0.2.1"), owner("192.0.2.2"));
    }
}
