//! Threads that carry jobs which wait for the network: as many as there is work, a few when there is none.
//!
//! What a job is, and how many there may be, is decided by whoever submits them.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Threads that stay.
const MIN_THREADS: usize = 2;

/// How long a thread beyond those waits for another job before it ends.
const IDLE: Duration = Duration::from_secs(30);

/// A handshake with certificates needs 64 to 128 KiB in a debug build; only the pages that are touched count.
const STACK: usize = 512 * 1024;

/// A pool of threads for jobs of one kind. Dropping it lets running jobs end by themselves.
pub struct ThreadPool<J> {
    shared: Arc<PoolShared<J>>,
    most: usize,
}

struct PoolShared<J> {
    state: Mutex<PoolState<J>>,
    changed: Condvar,
    carry: Box<dyn Fn(J) + Send + Sync>,
}

struct PoolState<J> {
    jobs: VecDeque<J>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl<J: Send + 'static> ThreadPool<J> {
    /// Starts the first threads of at most `most`; each carries one job after the other. `carry` must not panic.
    ///
    /// # Errors
    /// When the system starts no more threads.
    pub fn start(most: usize, carry: impl Fn(J) + Send + Sync + 'static) -> std::io::Result<Self> {
        let state = PoolState { jobs: VecDeque::new(), threads: 0, idle: 0, closed: false };
        let shared = PoolShared { state: Mutex::new(state), changed: Condvar::new(), carry: Box::new(carry) };
        let pool = Self { shared: Arc::new(shared), most: most.max(1) };
        for _ in 0..MIN_THREADS.min(pool.most) {
            pool.grow(&mut pool.shared.lock())?;
        }
        Ok(pool)
    }

    /// Hands `job` to a thread.
    pub fn submit(&self, job: J) {
        let mut state = self.shared.lock();
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() && state.threads < self.most {
            // Without the thread the job waits for one of those that are there.
            if let Err(error) = self.grow(&mut state) {
                tracing::warn!("no further delivery thread beyond {}: {error}", state.threads);
            }
        }
        self.shared.changed.notify_one();
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
        while let Some(job) = self.next() {
            (self.carry)(job);
        }
    }

    /// The next job; none when this thread is to end.
    fn next(&self) -> Option<J> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            let spare = state.threads > MIN_THREADS;
            if state.closed {
                break;
            }
            state.idle += 1;
            let (woken, waited_long) = self.wait(state, spare);
            state = woken;
            state.idle -= 1;
            if waited_long && state.jobs.is_empty() && state.threads > MIN_THREADS {
                break;
            }
        }
        state.threads -= 1;
        None
    }

    fn wait<'a>(
        &'a self,
        state: MutexGuard<'a, PoolState<J>>,
        spare: bool,
    ) -> (MutexGuard<'a, PoolState<J>>, bool) {
        if !spare {
            return (self.changed.wait(state).unwrap_or_else(PoisonError::into_inner), false);
        }
        let (state, waited) = self.changed.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
        (state, waited.timed_out())
    }

    fn lock(&self) -> MutexGuard<'_, PoolState<J>> {
        // Nothing that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn the_pool_grows_with_waiting_jobs() {
        let (done, ends) = channel();
        let all = Barrier::new(9);
        // Nine jobs that wait for each other end only if each has a thread of its own.
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
    fn jobs_beyond_the_maximum_wait_for_a_thread() {
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
        // What was submitted is carried; then the channel closes with the last thread.
        assert_eq!(ends.iter().collect::<Vec<_>>(), [7]);
    }
}
