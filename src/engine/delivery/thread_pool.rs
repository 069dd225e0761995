//! A thread pool for jobs that wait for the network. It grows with the number of jobs and shrinks when idle.
//!
//! The caller bounds the number of submitted jobs.

use std::collections::VecDeque;

use crate::locks::{Condvar, Mutex};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// Threads that never end: the first deliveries after a quiet time need not wait for a thread to start.
const MIN_THREADS: usize = 2;

/// Idle time after which a thread above the minimum ends. Long enough to span the pause between two attempts of a busy
/// minute, short enough that a herd at the full hour costs memory for that minute only.
const IDLE: Duration = Duration::from_secs(30);

/// Stack size. A TLS handshake needs 64 to 128 KiB in a debug build; only touched pages occupy memory.
const STACK: usize = 512 * 1024;

/// Dropping the pool lets submitted jobs end; no thread is joined.
pub struct ThreadPool<J> {
    shared: Arc<PoolShared<J>>,
    max_threads: usize,
}

struct PoolShared<J> {
    state: Mutex<PoolState<J>>,
    changed: Condvar,
    /// Returns the job that follows, if there is one.
    run_job: Box<dyn Fn(J) -> Option<J> + Send + Sync>,
}

struct PoolState<J> {
    jobs: VecDeque<J>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl<J: Send + 'static> ThreadPool<J> {
    /// Starts a pool of at most `max_threads` threads, each of which calls `run_job` for one job after another.
    /// `run_job` must not panic.
    /// Errors: the system cannot start another thread.
    pub fn start(max_threads: usize, run_job: impl Fn(J) + Send + Sync + 'static) -> std::io::Result<Self> {
        Self::start_chained(max_threads, move |job| {
            run_job(job);
            None
        })
    }

    /// As [`ThreadPool::start`], but a job may return another one that follows it. That one runs on the same thread, unless
    /// others wait for a thread: they come first.
    /// Errors: the system cannot start another thread.
    pub fn start_chained(
        max_threads: usize,
        run_job: impl Fn(J) -> Option<J> + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let state = PoolState { jobs: VecDeque::new(), threads: 0, idle: 0, closed: false };
        let shared =
            PoolShared { state: Mutex::new(state), changed: Condvar::new(), run_job: Box::new(run_job) };
        let pool = Self { shared: Arc::new(shared), max_threads: max_threads.max(1) };
        for _ in 0..MIN_THREADS.min(pool.max_threads) {
            pool.grow(&mut pool.shared.lock())?;
        }
        Ok(pool)
    }

    /// Queues `job` for a free thread, and starts one if all are busy.
    pub fn submit(&self, job: J) {
        self.submit_all([job]);
    }

    /// Queues `jobs` for free threads, and starts others if there are not enough.
    pub fn submit_all(&self, jobs: impl IntoIterator<Item = J>) {
        let mut state = self.shared.lock();
        let before = state.jobs.len();
        state.jobs.extend(jobs);
        // Threads that are not idle look for jobs before they wait: only idle ones are woken.
        let woken = state.idle.min(state.jobs.len() - before);
        let missing = state.jobs.len().saturating_sub(state.idle).min(self.max_threads - state.threads);
        for _ in 0..missing {
            // The jobs then wait for one of the existing threads.
            if let Err(error) = self.grow(&mut state) {
                tracing::warn!(%error, threads = state.threads, "cannot start another delivery thread");
                break;
            }
        }
        // A thread that wakes up needs the lock.
        drop(state);
        (0..woken).for_each(|_| self.shared.changed.notify_one());
    }

    fn grow(&self, state: &mut PoolState<J>) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("delivery".to_owned()).stack_size(STACK);
        thread.spawn(move || shared.run())?;
        state.threads += 1;
        Ok(())
    }
}

impl<J> Drop for ThreadPool<J> {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

impl<J> PoolShared<J> {
    fn run(&self) {
        let mut following = None;
        while let Some(job) = self.next(following) {
            following = (self.run_job)(job);
        }
    }

    /// The next job: `following` if no other one waits, which then waits behind them. Waits until there is one. Returns
    /// `None` when the calling thread must end.
    fn next(&self, following: Option<J>) -> Option<J> {
        let mut state = self.lock();
        state.jobs.extend(following);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            let may_end = state.threads > MIN_THREADS;
            if state.closed {
                break;
            }
            state.idle += 1;
            let timed_out;
            (state, timed_out) = self.wait(state, may_end);
            state.idle -= 1;
            if timed_out && state.jobs.is_empty() && state.threads > MIN_THREADS {
                break;
            }
        }
        state.threads -= 1;
        None
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, PoolState<J>>,
        may_end: bool,
    ) -> (MutexGuard<'a, PoolState<J>>, bool) {
        if may_end { self.changed.wait_timeout(state, IDLE) } else { (self.changed.wait(state), false) }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState<J>> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn the_pool_grows_to_one_thread_per_waiting_job() {
        let (done, ends) = channel();
        let all = Barrier::new(9);
        // Nine jobs that wait for each other end only if each has its own thread.
        let pool = ThreadPool::start(9, move |job: u32| {
            all.wait();
            done.send(job).unwrap();
        })
        .unwrap();
        (0..9).for_each(|job| pool.submit(job));
        let mut ended: Vec<_> = ends.iter().take(9).collect();
        ended.sort_unstable();
        assert_eq!(ended, (0..9).collect::<Vec<_>>());
    }

    #[test]
    fn jobs_above_the_maximum_of_threads_wait() {
        let (done, ends) = channel();
        let pool = ThreadPool::start(1, move |job: u32| done.send(job).unwrap()).unwrap();
        (0..100).for_each(|job| pool.submit(job));
        assert_eq!(ends.iter().take(100).collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
        assert_eq!(pool.shared.lock().threads, 1);
    }

    #[test]
    fn threads_end_when_the_pool_is_dropped() {
        let (done, ends) = channel();
        let pool = ThreadPool::start(4, move |job: u32| done.send(job).unwrap()).unwrap();
        pool.submit(7);
        drop(pool);
        // The submitted job runs; then the channel closes with the last thread.
        assert_eq!(ends.iter().collect::<Vec<_>>(), [7]);
    }
}
