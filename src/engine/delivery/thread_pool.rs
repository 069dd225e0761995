//! A thread pool for jobs that wait for the network. It grows with the jobs that may run, and shrinks when idle.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use crate::locks::{Condvar, Mutex};

/// Threads that never end: the first deliveries after a quiet time need not wait for a thread to start.
const MIN_THREADS: usize = 2;

/// Idle time after which a thread above the minimum ends. Long enough to span the pause between two attempts of a busy
/// minute, short enough that a herd at the full hour costs memory for that minute only.
const IDLE: Duration = Duration::from_secs(30);

/// Stack size. A TLS handshake needs 64 to 128 KiB in a debug build; only touched pages occupy memory.
const STACK: usize = 512 * 1024;

/// The jobs that wait for a thread, in the order of their turns, and have results `R`.
pub trait JobQueue<R>: Send + 'static {
    type Job: Send;

    fn push(&mut self, job: Self::Job);

    /// Takes the job whose turn it is.
    fn next(&mut self) -> Next<Self::Job>;

    /// Returns whether a job may run, now or after the time that [`JobQueue::next`] names.
    fn is_ready(&mut self) -> bool;

    /// Counts the end of a job.
    fn end(&mut self, _result: &R) {}
}

pub enum Next<J> {
    Job(J),
    /// One may run after this time, or when another one has ended.
    After(Duration),
    None,
}

/// Jobs that may all run at once.
impl<J: Send + 'static, R> JobQueue<R> for VecDeque<J> {
    type Job = J;

    fn push(&mut self, job: J) {
        self.push_back(job);
    }

    fn next(&mut self) -> Next<J> {
        self.pop_front().map_or(Next::None, Next::Job)
    }

    fn is_ready(&mut self) -> bool {
        !self.is_empty()
    }
}

/// Dropping the pool lets submitted jobs end; no thread is joined.
pub struct ThreadPool<Q: JobQueue<R>, R>(Arc<PoolShared<Q, R>>);

struct PoolShared<Q: JobQueue<R>, R> {
    state: Mutex<PoolState<Q, R>>,
    changed: Condvar,
    max_threads: usize,
    run_job: Box<dyn Fn(Q::Job) -> Option<R> + Send + Sync>,
    notify: Box<dyn Fn() + Send + Sync>,
}

struct PoolState<Q, R> {
    queue: Q,
    finished: Vec<R>,
    threads: usize,
    idle: usize,
    /// An idle thread waits for the time that the queue has named.
    is_watched: bool,
    is_closed: bool,
}

impl<Q: JobQueue<R>, R: Send + 'static> ThreadPool<Q, R> {
    /// Starts a pool of at most `max_threads` threads, that call `run_job` for one job after another, and
    /// `notify` when there are results again. Neither may panic.
    pub fn start(
        queue: Q,
        max_threads: usize,
        run_job: impl Fn(Q::Job) -> Option<R> + Send + Sync + 'static,
        notify: impl Fn() + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let state = PoolState {
            queue,
            finished: Vec::new(),
            threads: 0,
            idle: 0,
            is_watched: false,
            is_closed: false,
        };
        let shared = Arc::new(PoolShared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            max_threads: max_threads.max(1),
            run_job: Box::new(run_job),
            notify: Box::new(notify),
        });
        for _ in 0..MIN_THREADS.min(shared.max_threads) {
            shared.grow(&mut shared.state.lock())?;
        }
        Ok(Self(shared))
    }

    /// Queues `jobs` and wakes a thread, which wakes the next one if it leaves some.
    pub fn submit(&self, jobs: impl IntoIterator<Item = Q::Job>) {
        let mut state = self.0.state.lock();
        jobs.into_iter().for_each(|job| state.queue.push(job));
        if state.queue.is_ready() {
            self.0.wake_one(&mut state);
        }
    }

    /// Takes the results of the jobs that have ended.
    pub fn take_finished(&self) -> Vec<R> {
        std::mem::take(&mut self.0.state.lock().finished)
    }
}

impl<Q: JobQueue<R>, R> Drop for ThreadPool<Q, R> {
    fn drop(&mut self) {
        self.0.state.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl<Q: JobQueue<R>, R: Send + 'static> PoolShared<Q, R> {
    fn run(self: &Arc<Self>) {
        let mut result = None;
        while let Some(job) = self.next(result) {
            result = (self.run_job)(job);
        }
    }

    /// Adds the result of the last job, and returns the next one. Waits until there is one; returns `None` when the
    /// calling thread must end.
    fn next(self: &Arc<Self>, result: Option<R>) -> Option<Q::Job> {
        let mut state = self.state.lock();
        let mut is_news = false;
        if let Some(result) = result {
            state.queue.end(&result);
            // The first result after the others were taken announces all that follow.
            is_news = state.finished.is_empty();
            state.finished.push(result);
        }
        loop {
            let next = state.queue.next();
            if let Next::Job(job) = next {
                if !state.is_watched && state.queue.is_ready() {
                    self.wake_one(&mut state);
                }
                drop(state);
                if is_news {
                    (self.notify)();
                }
                return Some(job);
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

    /// Waits for a job, at most for the time `after`. Returns `None` when the calling thread must end.
    fn wait<'a>(
        &self,
        mut state: MutexGuard<'a, PoolState<Q, R>>,
        after: Option<Duration>,
    ) -> Option<MutexGuard<'a, PoolState<Q, R>>> {
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
            must_end = timed_out && may_end && state.threads > MIN_THREADS && !state.queue.is_ready();
        }
        state.threads -= usize::from(must_end);
        (!must_end).then_some(state)
    }

    /// Wakes an idle thread, or starts one.
    fn wake_one(self: &Arc<Self>, state: &mut PoolState<Q, R>) {
        if state.idle > 0 {
            self.changed.notify_one();
        } else if state.threads < self.max_threads
            && let Err(error) = self.grow(state)
        {
            // The jobs then wait for one of the threads that run.
            tracing::warn!(%error, threads = state.threads, "cannot start another delivery thread");
        }
    }

    fn grow(self: &Arc<Self>, state: &mut PoolState<Q, R>) -> std::io::Result<()> {
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name("delivery".to_owned()).stack_size(STACK);
        thread.spawn(move || shared.run())?;
        state.threads += 1;
        Ok(())
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
        let run = move |job: u32| {
            all.wait();
            done.send(job).unwrap();
            None::<()>
        };
        let pool = ThreadPool::start(VecDeque::new(), 9, run, || ()).unwrap();
        (0..9).for_each(|job| pool.submit([job]));
        let mut ended: Vec<_> = ends.iter().take(9).collect();
        ended.sort_unstable();
        assert_eq!(ended, (0..9).collect::<Vec<_>>());
    }

    #[test]
    fn jobs_above_the_maximum_of_threads_wait_and_each_result_is_announced() {
        let (notify, news) = channel();
        let pool =
            ThreadPool::start(VecDeque::new(), 1, |job: u32| Some(job), move || notify.send(()).unwrap());
        let pool = pool.unwrap();
        pool.submit(0..100);
        let mut finished = Vec::new();
        while finished.len() < 100 {
            news.recv().unwrap();
            finished.extend(pool.take_finished());
        }
        assert_eq!(finished, (0..100).collect::<Vec<_>>());
        assert_eq!(pool.0.state.lock().threads, 1);
    }

    #[test]
    fn threads_end_when_the_pool_is_dropped() {
        let (done, ends) = channel();
        let run = move |job: u32| {
            done.send(job).unwrap();
            None::<()>
        };
        let pool = ThreadPool::start(VecDeque::new(), 4, run, || ()).unwrap();
        pool.submit([7]);
        drop(pool);
        // The submitted job runs; then the channel closes with the last thread.
        assert_eq!(ends.iter().collect::<Vec<_>>(), [7]);
    }
}
