//! The delivery threads and the claimed attempts that wait for one. Destinations take turns, and each sends its oldest
//! first. The pool grows with the attempts that may run, and shrinks when idle.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use crate::engine::delivery::attempt::FinishedAttempt;
use crate::engine::delivery::fair_share::{AccountShares, DestinationKey};
use crate::metrics::Stopwatch;
use crate::store::executions::delivery_queue::ClaimedDelivery;
use crate::system::locks::{Condvar, Mutex};

/// Bytes of the bodies, custom headers and responses taken as outcomes of all attempts that run. An eighth of the
/// memory that the whole program may take under load: requests have half, and the rest of it is for the program itself
/// (contract §11.1). The largest body has 6 MiB, because a character of a payload takes up to six in the canonical
/// form.
pub const MAX_BYTES: usize = 16 << 20;

/// Attempts up to this size are not counted: 64 of them take 2 MiB. They never wait for large ones.
pub const SMALL: usize = 32 << 10;

/// Attempts that run for less than this use a processor: their receivers are near, or have not had the time to answer.
const BUSY: Duration = Duration::from_millis(2);

/// The attempts that use a processor at once, for each of them. More threads then do less: of a herd of 10,000 on two
/// processors, 28 threads sent 7,200 a second and 8 threads 10,500.
const BUSY_PER_CORE: usize = 4;

/// Threads that never end: the first deliveries after a quiet time need not wait for a thread to start.
const MIN_THREADS: usize = 2;

/// Idle time after which a thread above the minimum ends. Long enough to span the pause between two attempts of a busy
/// minute, short enough that a herd at the full hour costs memory for that minute only.
const IDLE: Duration = Duration::from_secs(30);

/// Stack size. A TLS handshake needs 64 to 128 KiB in a debug build; only touched pages occupy memory.
pub const STACK: usize = 512 * 1024;

struct AttemptQueue {
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
}

#[derive(Default)]
struct Destination {
    waiting: VecDeque<ClaimedDelivery>,
    running: usize,
    has_timed_out: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Next {
    Attempt(ClaimedDelivery),
    /// One may run after this time, or when another one has ended.
    After(Duration),
    None,
}

impl AttemptQueue {
    fn new(threads: usize, cores: usize) -> Self {
        Self {
            destinations: HashMap::new(),
            turns: VecDeque::new(),
            threads: AccountShares::new(threads),
            memory: AccountShares::new(MAX_BYTES),
            eighth: (threads / 8).max(1),
            busy: VecDeque::new(),
            max_busy: cores * BUSY_PER_CORE,
        }
    }

    fn push(&mut self, claimed: ClaimedDelivery) {
        let key = claimed.destination_key();
        let destination = self.destinations.entry(key).or_default();
        if destination.waiting.is_empty() {
            self.turns.push_back(key);
        }
        destination.waiting.push_back(claimed);
    }

    fn may_run(&self, key: DestinationKey) -> bool {
        let Some(Destination { waiting, running, has_timed_out }) = self.destinations.get(&key)
        else {
            return false;
        };
        let limit = if *has_timed_out { 1 } else { self.eighth };
        *running < limit
            && self.threads.has_room(key.0, 1)
            && waiting.front().is_some_and(|next| self.memory.has_room(key.0, counted_bytes(next)))
    }

    /// Returns whether an attempt may run, now or after the time that [`AttemptQueue::next`] names. Moves the
    /// destinations that must wait behind the first one that may send.
    fn is_ready(&mut self) -> bool {
        let turn = self.turns.iter().position(|key| self.may_run(*key));
        self.turns.rotate_left(turn.unwrap_or(0));
        turn.is_some()
    }

    fn next(&mut self, now: Duration) -> Next {
        if !self.is_ready() {
            return Next::None;
        }
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
        Next::Attempt(claimed)
    }

    fn end(&mut self, ended: &FinishedAttempt) {
        let key = ended.claimed.destination_key();
        let Some(destination) = self.destinations.get_mut(&key) else { return };
        destination.running -= 1;
        destination.has_timed_out = ended.has_timed_out();
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

/// Dropping the pool lets submitted attempts end; no thread is joined.
pub struct DeliveryThreads(Arc<Pool>);

struct Pool {
    state: Mutex<PoolState>,
    changed: Condvar,
    clock: Stopwatch,
    max_threads: usize,
    make_attempt: Box<dyn Fn(ClaimedDelivery) -> Option<FinishedAttempt> + Send + Sync>,
    notify: Box<dyn Fn() + Send + Sync>,
}

struct PoolState {
    queue: AttemptQueue,
    finished: Vec<FinishedAttempt>,
    threads: usize,
    idle: usize,
    /// An idle thread waits for the time that the queue has named.
    is_watched: bool,
    is_closed: bool,
}

impl DeliveryThreads {
    /// Starts a pool of at most `max_threads` threads, which call `make_attempt` for one attempt after another, and
    /// `notify` when there are results again. Neither may panic.
    pub fn start(
        max_threads: usize,
        cores: usize,
        make_attempt: impl Fn(ClaimedDelivery) -> Option<FinishedAttempt> + Send + Sync + 'static,
        notify: impl Fn() + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let state = PoolState {
            queue: AttemptQueue::new(max_threads, cores),
            finished: Vec::new(),
            threads: 0,
            idle: 0,
            is_watched: false,
            is_closed: false,
        };
        let pool = Arc::new(Pool {
            state: Mutex::new(state),
            changed: Condvar::new(),
            clock: Stopwatch::start(),
            max_threads: max_threads.max(1),
            make_attempt: Box::new(make_attempt),
            notify: Box::new(notify),
        });
        for _ in 0..MIN_THREADS.min(pool.max_threads) {
            pool.grow(&mut pool.state.lock())?;
        }
        Ok(Self(pool))
    }

    /// Queues `attempts` and wakes a thread, which wakes the next one if it leaves some.
    pub fn submit(&self, attempts: impl IntoIterator<Item = ClaimedDelivery>) {
        let mut state = self.0.state.lock();
        attempts.into_iter().for_each(|claimed| state.queue.push(claimed));
        if state.queue.is_ready() {
            self.0.wake_one(&mut state);
        }
    }

    pub fn take_finished(&self) -> Vec<FinishedAttempt> {
        std::mem::take(&mut self.0.state.lock().finished)
    }
}

impl Drop for DeliveryThreads {
    fn drop(&mut self) {
        self.0.state.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl Pool {
    fn run(self: &Arc<Self>) {
        let mut result = None;
        while let Some(claimed) = self.next(result) {
            result = (self.make_attempt)(claimed);
        }
    }

    /// Adds the result of the last attempt, and returns the next one. Waits until there is one; returns `None` when the
    /// calling thread must end.
    fn next(self: &Arc<Self>, result: Option<FinishedAttempt>) -> Option<ClaimedDelivery> {
        let mut state = self.state.lock();
        let mut is_news = false;
        if let Some(result) = result {
            state.queue.end(&result);
            // The first result after the others were taken announces all that follow.
            is_news = state.finished.is_empty();
            state.finished.push(result);
        }
        loop {
            let next = state.queue.next(self.clock.elapsed());
            if let Next::Attempt(claimed) = next {
                if !state.is_watched && state.queue.is_ready() {
                    self.wake_one(&mut state);
                }
                drop(state);
                if is_news {
                    (self.notify)();
                }
                return Some(claimed);
            }
            if std::mem::take(&mut is_news) {
                drop(state);
                (self.notify)();
                state = self.state.lock();
                continue;
            }
            let after = match next {
                Next::After(time) if !state.is_watched => Some(time),
                _ => None,
            };
            state = self.wait(state, after)?;
        }
    }

    /// Waits for an attempt, at most for the time `after`. Returns `None` when the calling thread must end.
    fn wait<'a>(
        &self,
        mut state: MutexGuard<'a, PoolState>,
        after: Option<Duration>,
    ) -> Option<MutexGuard<'a, PoolState>> {
        let may_end = state.threads > MIN_THREADS && after.is_none();
        let mut must_end = state.is_closed;
        if !must_end {
            state.idle += 1;
            state.is_watched |= after.is_some();
            let timed_out;
            (state, timed_out) = match after.or(may_end.then_some(IDLE)) {
                Some(time) => self.changed.wait_timeout(state, time),
                None => (self.changed.wait(state), false),
            };
            state.idle -= 1;
            state.is_watched &= after.is_none();
            must_end =
                timed_out && may_end && state.threads > MIN_THREADS && !state.queue.is_ready();
        }
        state.threads -= usize::from(must_end);
        (!must_end).then_some(state)
    }

    fn wake_one(self: &Arc<Self>, state: &mut PoolState) {
        if state.idle > 0 {
            self.changed.notify_one();
        } else if state.threads < self.max_threads
            && let Err(error) = self.grow(state)
        {
            // The attempts then wait for one of the threads that run.
            tracing::warn!(%error, threads = state.threads, "cannot start another delivery thread");
        }
    }

    fn grow(self: &Arc<Self>, state: &mut PoolState) -> std::io::Result<()> {
        let pool = Arc::clone(self);
        let thread = std::thread::Builder::new().name("delivery".to_owned()).stack_size(STACK);
        thread.spawn(move || pool.run())?;
        state.threads += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    use jiff::Timestamp;

    use super::*;
    use crate::domain::ids::ExecutionId;
    use crate::domain::row_keys::{CueKey, ExecutionKey, UserKey};
    use crate::domain::webhook::delivery::AttemptRef;

    fn claimed(key: i64, user_key: i64, destination: i64) -> ClaimedDelivery {
        let (id, scheduled_for) = (ExecutionId::from_bytes([0; 16]), Timestamp::UNIX_EPOCH);
        let (attempt, by_schedule, started_at) = (1, true, scheduled_for);
        let attempt_ref = AttemptRef {
            key: ExecutionKey::new(key),
            id,
            cue_key: CueKey::new(1),
            user_key: UserKey::new(user_key),
            destination,
            attempt,
            scheduled_for,
            by_schedule,
            started_at,
        };
        ClaimedDelivery {
            attempt_ref,
            bytes: 0,
            takes_outcome: false,
            has_outcome_deadline: false,
            expires_at: None,
            max_age_seconds: None,
        }
    }

    #[test]
    fn destinations_take_turns_and_few_attempts_use_a_processor_at_once() {
        let mut queue = AttemptQueue::new(64, 1);
        for key in 0..12 {
            queue.push(claimed(key, 1 + key / 8, if key < 6 { 1 } else { key }));
        }
        let mut take_at = |millis: u64| match queue.next(Duration::from_millis(millis)) {
            Next::Attempt(claimed) => Ok(claimed.attempt_ref.key.number()),
            Next::After(time) => Err(Some(time)),
            Next::None => Err(None),
        };
        assert_eq!([0; 4].map(&mut take_at), [Ok(0), Ok(6), Ok(7), Ok(8)]);
        assert_eq!(take_at(0), Err(Some(BUSY)));
        assert_eq!([2; 4].map(&mut take_at), [Ok(9), Ok(10), Ok(11), Ok(1)]);
        assert_eq!([4; 4].map(&mut take_at), [Ok(2), Ok(3), Ok(4), Ok(5)]);
        assert_eq!(take_at(4), Err(None));
    }

    #[test]
    fn the_pool_grows_to_one_thread_per_attempt_and_ends_when_it_is_dropped() {
        let (done, ends) = channel();
        let all = Barrier::new(9);
        // Nine attempts that wait for each other end only if each has its own thread.
        let run = move |claimed: ClaimedDelivery| {
            all.wait();
            done.send(claimed.attempt_ref.key.number()).unwrap();
            None
        };
        let pool = DeliveryThreads::start(9, 9, run, || ()).unwrap();
        (0..9).for_each(|key| pool.submit([claimed(key, key, key)]));
        drop(pool);
        // The channel closes with the last thread.
        let mut ended: Vec<_> = ends.iter().collect();
        ended.sort_unstable();
        assert_eq!(ended, (0..9).collect::<Vec<_>>());
    }
}
