//! The claimed attempts that wait for a thread: destinations take turns, and each sends its oldest first.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::engine::delivery::attempt::FinishedAttempt;
use crate::engine::delivery::fair_share::{AccountShares, DestinationKey};
use crate::engine::delivery::thread_pool::{JobQueue, Next};
use crate::engine::webhook_client::address_guard::Monotonic;
use crate::store::executions::delivery_queue::ClaimedDelivery;

/// Bytes of the bodies, custom headers and responses taken as outcomes of all attempts that run. An eighth of the memory
/// that the whole program may take under load: requests have half, and the rest of it is for the program itself (contract
/// §11.1). The largest body has 6 MiB, because a character of a payload takes up to six in the canonical form.
pub const MAX_BYTES: usize = 16 << 20;

/// Attempts up to this size are not counted: 64 of them take 2 MiB. They never wait for large ones.
pub const SMALL: usize = 32 << 10;

/// Attempts that run for less than this use a processor: their receivers are near, or have not had the time to answer.
const BUSY: Duration = Duration::from_millis(2);

/// The attempts that use a processor at once, for each of them. More threads then do less: of a herd of 10,000 on two
/// processors, 28 threads sent 7,200 a second and 8 threads 10,500.
const BUSY_PER_CORE: usize = 4;

pub struct AttemptQueue {
    /// Those with attempts that wait or run.
    destinations: HashMap<DestinationKey, Destination>,
    /// Those with attempts that wait.
    turns: VecDeque<DestinationKey>,
    threads: AccountShares,
    memory: AccountShares,
    /// Threads of a destination.
    eighth: usize,
    /// When the busy attempts began, oldest first.
    busy: VecDeque<Duration>,
    max_busy: usize,
    monotonic: Monotonic,
}

#[derive(Default)]
struct Destination {
    waiting: VecDeque<ClaimedDelivery>,
    running: usize,
    has_timed_out: bool,
}

impl AttemptQueue {
    pub fn new(threads: usize, cores: usize, monotonic: Monotonic) -> Self {
        Self {
            destinations: HashMap::new(),
            turns: VecDeque::new(),
            threads: AccountShares::new(threads),
            memory: AccountShares::new(MAX_BYTES),
            eighth: (threads / 8).max(1),
            busy: VecDeque::new(),
            max_busy: cores * BUSY_PER_CORE,
            monotonic,
        }
    }

    fn may_run(&self, key: DestinationKey) -> bool {
        let Some(Destination { waiting, running, has_timed_out }) = self.destinations.get(&key) else {
            return false;
        };
        let limit = if *has_timed_out { 1 } else { self.eighth };
        *running < limit
            && self.threads.has_room(key.0, 1)
            && waiting.front().is_some_and(|next| self.memory.has_room(key.0, counted_bytes(next)))
    }
}

impl JobQueue<FinishedAttempt> for AttemptQueue {
    type Job = ClaimedDelivery;

    fn push(&mut self, claimed: ClaimedDelivery) {
        let key = claimed.destination_key();
        let destination = self.destinations.entry(key).or_default();
        if destination.waiting.is_empty() {
            self.turns.push_back(key);
        }
        destination.waiting.push_back(claimed);
    }

    /// Moves the destinations that must wait behind the first one that may send.
    fn is_ready(&mut self) -> bool {
        let turn = self.turns.iter().position(|key| self.may_run(*key));
        self.turns.rotate_left(turn.unwrap_or(0));
        turn.is_some()
    }

    fn next(&mut self) -> Next<ClaimedDelivery> {
        if !self.is_ready() {
            return Next::None;
        }
        let now = (self.monotonic)();
        while self.busy.front().is_some_and(|since| now >= *since + BUSY) {
            self.busy.pop_front();
        }
        if let Some(since) = self.busy.front().filter(|_| self.busy.len() >= self.max_busy) {
            return Next::After(*since + BUSY - now);
        }
        let Some(key) = self.turns.pop_front() else { return Next::None };
        let Some(destination) = self.destinations.get_mut(&key) else { return Next::None };
        let Some(claimed) = destination.waiting.pop_front() else { return Next::None };
        destination.running += 1;
        if !destination.waiting.is_empty() {
            self.turns.push_back(key);
        }
        self.busy.push_back(now);
        self.threads.take(key.0, 1);
        self.memory.take(key.0, counted_bytes(&claimed));
        Next::Job(claimed)
    }

    fn end(&mut self, ended: &FinishedAttempt) {
        let key = ended.claimed.destination_key();
        let Some(destination) = self.destinations.get_mut(&key) else { return };
        destination.running -= 1;
        destination.has_timed_out = ended.timed_out;
        if destination.running == 0 && destination.waiting.is_empty() {
            self.destinations.remove(&key);
        }
        if Duration::try_from(ended.record.duration).is_ok_and(|took| took < BUSY) {
            self.busy.pop_front();
        }
        self.threads.release(key.0, 1);
        self.memory.release(key.0, counted_bytes(&ended.claimed));
    }
}

fn counted_bytes(claimed: &ClaimedDelivery) -> usize {
    Some(claimed.memory()).filter(|bytes| *bytes > SMALL).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use jiff::Timestamp;

    use super::*;
    use crate::domain::ids::ExecutionId;
    use crate::domain::webhook::request::AttemptRef;

    fn claimed(key: i64, user_key: i64, destination: i64) -> ClaimedDelivery {
        let (id, scheduled_for) = (ExecutionId::from_bytes([0; 16]), Timestamp::UNIX_EPOCH);
        let (cue_key, attempt, by_schedule, started_at) = (1, 1, true, scheduled_for);
        let attempt_ref = AttemptRef {
            key,
            id,
            cue_key,
            user_key,
            destination,
            attempt,
            scheduled_for,
            by_schedule,
            started_at,
        };
        ClaimedDelivery { attempt_ref, bytes: 0, takes_outcome: false }
    }

    #[test]
    fn destinations_take_turns_and_few_attempts_use_a_processor_at_once() {
        let time = Arc::new(AtomicU64::new(0));
        let now = Arc::clone(&time);
        let monotonic = Arc::new(move || Duration::from_millis(now.load(Ordering::SeqCst)));
        let mut queue = AttemptQueue::new(64, 1, monotonic);
        for key in 0..12 {
            queue.push(claimed(key, 1 + key / 8, if key < 6 { 1 } else { key }));
        }
        let mut take = || match queue.next() {
            Next::Job(claimed) => Ok(claimed.attempt_ref.key),
            Next::After(time) => Err(Some(time)),
            Next::None => Err(None),
        };
        assert_eq!([take(), take(), take(), take()], [Ok(0), Ok(6), Ok(7), Ok(8)]);
        assert_eq!(take(), Err(Some(BUSY)));
        time.store(2, Ordering::SeqCst);
        assert_eq!([take(), take(), take(), take()], [Ok(9), Ok(10), Ok(11), Ok(1)]);
        time.store(4, Ordering::SeqCst);
        assert_eq!([take(), take(), take(), take()], [Ok(2), Ok(3), Ok(4), Ok(5)]);
        assert_eq!(take(), Err(None));
    }
}
