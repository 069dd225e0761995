//! Threads for deliveries that know the shares: attempts that were claimed ahead wait for the threads of their own
//! destination, and can be taken back.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::engine::delivery::thread_pool::ThreadPool;
use crate::locks::Mutex;

/// An account and one of its destinations.
pub type DestinationKey = (i64, i64);

/// A job for a thread of its destination.
pub struct Submission<J> {
    pub destination: DestinationKey,
    /// The threads that the destination holds now: that many of its jobs may run.
    pub threads: usize,
    pub job: J,
}

/// A destination whose jobs take less than this is CPU-bound, and few threads call it at once: jobs that hardly wait
/// compete for the processors, and more threads then do less (a herd of 10,000 on two cores: 28 threads 7,200/s, 8 threads
/// 10,500/s). It stays so until its jobs take twice as long, since they take longer where more run, or until others behind
/// them are taken back: then all its threads are used until it has no job.
const CPU_BOUND: Duration = Duration::from_millis(1);

/// The state of a destination that a job has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// The next job follows on the same thread. This one took that long.
    Answers(Duration),
    /// No further job is started by this thread. The caller takes the waiting ones back.
    Hangs,
}

/// Dropping the pool lets the started jobs end, and those that wait for their threads; no thread is joined.
pub struct DeliveryPool<J> {
    queues: Arc<Mutex<Queues<J>>>,
    threads: ThreadPool<(DestinationKey, J)>,
}

/// The destinations with jobs. A job waits only behind a running one, whose thread takes it, or until it is taken back
/// because the destination hangs.
struct Queues<J> {
    of: HashMap<DestinationKey, Queue<J>>,
    /// Jobs of a CPU-bound destination that run at once.
    cpu_bound_limit: usize,
}

struct Queue<J> {
    running: usize,
    /// The threads that the destination held at the last submission.
    threads: usize,
    /// The duration of its last jobs, the newer ones with more weight.
    took: Option<Duration>,
    is_cpu_bound: bool,
    /// Its jobs have waited too long once: the few that ran do not answer, although others might.
    has_waited: bool,
    /// With the time since which each waits.
    waiting: VecDeque<(J, Duration)>,
}

impl<J: Send + 'static> DeliveryPool<J> {
    /// Starts a pool of at most `max_threads` threads, of which a CPU-bound destination uses `cpu_bound_limit`. Each calls
    /// `run` for one job after another, and `record` with its result. Neither may panic.
    /// Errors: the system cannot start a thread.
    pub fn start<R>(
        max_threads: usize,
        cpu_bound_limit: usize,
        run: impl Fn(J) -> (R, Destination) + Send + Sync + 'static,
        record: impl Fn(R) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let queues = Arc::new(Mutex::new(Queues { of: HashMap::new(), cpu_bound_limit }));
        let shared = Arc::clone(&queues);
        let threads = ThreadPool::start_chained(max_threads, move |(destination, job)| {
            let (result, state) = run(job);
            // Before the result is recorded: whoever has seen it finds this thread free.
            let next = shared.lock().end(destination, state);
            record(result);
            next.map(|job| (destination, job))
        })?;
        Ok(Self { queues, threads })
    }

    /// Starts the jobs whose destinations have a thread left; the others wait from `now` on.
    pub fn submit(&self, jobs: impl IntoIterator<Item = Submission<J>>, now: Duration) {
        let started: Vec<_> = {
            let mut queues = self.queues.lock();
            jobs.into_iter().flat_map(|job| queues.begin(job, now)).collect()
        };
        self.threads.submit_all(started);
    }

    /// Takes back the waiting jobs of the destinations that `is_meant` names, with the time since which the oldest waits.
    pub fn take_back(&self, mut is_meant: impl FnMut(DestinationKey, Duration) -> bool) -> Vec<J> {
        let mut taken = Vec::new();
        self.queues.lock().of.retain(|destination, queue| {
            let oldest = queue.waiting.front().map(|(_, since)| *since);
            if oldest.is_some_and(|since| is_meant(*destination, since)) {
                queue.has_waited = true;
                taken.extend(queue.waiting.drain(..).map(|(job, _)| job));
            }
            queue.is_in_use()
        });
        taken
    }

    /// The time since which the oldest waiting job waits.
    pub fn oldest(&self) -> Option<Duration> {
        let queues = self.queues.lock();
        queues.of.values().filter_map(|queue| queue.waiting.front()).map(|(_, since)| *since).min()
    }
}

impl<J> Queue<J> {
    fn new() -> Self {
        Self {
            running: 0,
            threads: 0,
            took: None,
            is_cpu_bound: false,
            has_waited: false,
            waiting: VecDeque::new(),
        }
    }

    /// The jobs that may run at once: one at least, whose thread takes those that wait.
    fn limit(&self, cpu_bound_limit: usize) -> usize {
        let threads = self.threads.max(1);
        if self.is_cpu_bound && !self.has_waited { threads.min(cpu_bound_limit) } else { threads }
    }

    fn count(&mut self, took: Duration) {
        // A single job that takes long, as beside a checkpoint, does not count for more than a few.
        let took = took.min(CPU_BOUND * 4);
        let took = self.took.map_or(took, |before| (before * 7 + took) / 8);
        self.took = Some(took);
        self.is_cpu_bound = took < if self.is_cpu_bound { CPU_BOUND * 2 } else { CPU_BOUND };
    }

    fn is_in_use(&self) -> bool {
        self.running > 0 || !self.waiting.is_empty()
    }
}

impl<J> Queues<J> {
    /// Lets the job wait behind the others of its destination, and returns those that may start now.
    fn begin(&mut self, submission: Submission<J>, now: Duration) -> Vec<(DestinationKey, J)> {
        let Submission { destination, threads, job } = submission;
        let queue = self.of.entry(destination).or_insert_with(Queue::new);
        queue.threads = threads;
        queue.waiting.push_back((job, now));
        let limit = queue.limit(self.cpu_bound_limit);
        let mut started = Vec::new();
        while queue.running < limit
            && let Some((job, _)) = queue.waiting.pop_front()
        {
            queue.running += 1;
            started.push((destination, job));
        }
        started
    }

    /// Ends a job. Returns the next one for its thread.
    fn end(&mut self, destination: DestinationKey, state: Destination) -> Option<J> {
        let queue = self.of.get_mut(&destination)?;
        let next = match state {
            Destination::Answers(took) => {
                queue.count(took);
                let may_follow = queue.running <= queue.limit(self.cpu_bound_limit);
                if may_follow { queue.waiting.pop_front() } else { None }
            }
            Destination::Hangs => None,
        };
        if next.is_none() {
            queue.running -= 1;
            if !queue.is_in_use() {
                self.of.remove(&destination);
            }
        }
        next.map(|(job, _)| job)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const NOW: Duration = Duration::from_secs(1);
    const SLOW: Destination = Destination::Answers(Duration::from_millis(10));

    fn jobs(
        destination: i64,
        threads: usize,
        jobs: std::ops::Range<u32>,
    ) -> impl Iterator<Item = Submission<u32>> {
        jobs.map(move |job| Submission { destination: (1, destination), threads, job })
    }

    /// A pool whose jobs tell their start and wait for their end. A job from 1,000 on shows that its destination hangs,
    /// and one from 500 on that it is CPU-bound.
    fn gated(max_threads: usize) -> (DeliveryPool<u32>, Receiver<u32>, Sender<()>, Receiver<u32>) {
        let ((start, starts), (end, ends), (result, results)) = (channel(), channel(), channel());
        let gate = Mutex::new(ends);
        let run = move |job| {
            start.send(job).unwrap();
            gate.lock().recv().unwrap();
            let state = match job {
                ..500 => SLOW,
                500..1_000 => Destination::Answers(Duration::ZERO),
                _ => Destination::Hangs,
            };
            (job, state)
        };
        let pool = DeliveryPool::start(max_threads, 2, run, move |job| result.send(job).unwrap()).unwrap();
        (pool, starts, end, results)
    }

    #[test]
    fn jobs_above_the_threads_of_their_destination_follow_in_order_and_hold_up_no_other() {
        let (pool, starts, end, results) = gated(4);
        pool.submit(jobs(1, 1, 0..10), NOW);
        pool.submit(jobs(2, 1, 100..101), NOW);
        let mut first: Vec<_> = starts.iter().take(2).collect();
        first.sort_unstable();
        assert_eq!(first, [0, 100]);
        assert_eq!(pool.oldest(), Some(NOW));
        (0..11).for_each(|_| end.send(()).unwrap());
        assert_eq!(starts.iter().take(9).collect::<Vec<_>>(), (1..10).collect::<Vec<_>>());
        assert_eq!(results.iter().take(11).count(), 11);
        assert!(pool.queues.lock().of.is_empty());
    }

    #[test]
    fn a_job_that_shows_a_hanging_destination_starts_no_other() {
        let (pool, starts, end, results) = gated(4);
        pool.submit(jobs(1, 1, 1_001..1_006), NOW);
        assert_eq!(starts.recv(), Ok(1_001));
        end.send(()).unwrap();
        assert_eq!(results.recv(), Ok(1_001));
        assert_eq!(pool.take_back(|_, _| true), [1_002, 1_003, 1_004, 1_005]);
        assert!(pool.queues.lock().of.is_empty() && starts.try_recv().is_err());
        pool.submit(jobs(1, 1, 5..6), NOW);
        assert_eq!(starts.recv(), Ok(5), "the destination is not blocked for ever");
        end.send(()).unwrap();
    }

    #[test]
    fn only_jobs_that_wait_are_taken_back() {
        let (pool, starts, end, results) = gated(4);
        pool.submit(jobs(1, 1, 0..3).chain(jobs(2, 2, 10..14)), NOW);
        assert_eq!(starts.iter().take(3).count(), 3);
        assert_eq!(pool.take_back(|(_, destination), since| destination == 1 && since == NOW), [1, 2]);
        (0..5).for_each(|_| end.send(()).unwrap());
        let mut ended: Vec<_> = results.iter().take(5).collect();
        ended.sort_unstable();
        assert_eq!(ended, [0, 10, 11, 12, 13]);
        assert!(pool.take_back(|_, _| true).is_empty());
    }

    #[test]
    fn a_cpu_bound_destination_is_called_by_few_threads_until_its_jobs_take_longer() {
        let (pool, _starts, end, results) = gated(8);
        let counts = |pool: &DeliveryPool<u32>| {
            let queues = pool.queues.lock();
            let queue = &queues.of[&(1, 1)];
            (queue.running, queue.waiting.len())
        };
        let end_some = |count| {
            for _ in 0..count {
                end.send(()).unwrap();
                results.recv().unwrap();
            }
        };
        pool.submit(jobs(1, 8, 500..504), NOW);
        assert_eq!(counts(&pool), (4, 0), "not known to be CPU-bound yet");
        end_some(3);
        pool.submit(jobs(1, 8, 0..12), NOW);
        assert_eq!(counts(&pool), (2, 11));
        end_some(8);
        assert_eq!(counts(&pool), (2, 3));
        pool.submit(jobs(1, 8, 12..13), NOW);
        assert_eq!(counts(&pool), (6, 0), "those that waited start too");
        end_some(6);
    }

    #[test]
    fn a_cpu_bound_destination_uses_all_its_threads_after_its_jobs_were_taken_back() {
        let (pool, starts, end, results) = gated(8);
        pool.submit(jobs(1, 8, 500..503), NOW);
        end.send(()).unwrap();
        results.recv().unwrap();
        pool.submit(jobs(1, 8, 503..509), NOW);
        let taken = pool.take_back(|_, _| true);
        assert_eq!(taken, (503..509).collect::<Vec<_>>(), "two run");
        pool.submit(jobs(1, 8, 503..509), NOW);
        // They start although those that run have not ended.
        let mut started: Vec<_> = (0..9).map(|_| starts.recv().unwrap()).collect();
        started.sort_unstable();
        assert_eq!(started, (500..509).collect::<Vec<_>>());
        (0..8).for_each(|_| end.send(()).unwrap());
    }

    #[test]
    fn under_concurrent_submissions_every_job_runs_once_or_is_taken_back() {
        const JOBS: usize = 20_000;
        let seen: Arc<Vec<AtomicUsize>> = Arc::new((0..JOBS).map(|_| AtomicUsize::new(0)).collect());
        let (running, (result, results)) = (Arc::new([const { AtomicUsize::new(0) }; 3]), channel());
        let (counts, now_running) = (Arc::clone(&seen), Arc::clone(&running));
        let run = move |job: usize| {
            let of = &now_running[job % 3];
            assert!(of.fetch_add(1, Ordering::SeqCst) < 2, "more than the threads of its destination");
            counts[job].fetch_add(1, Ordering::SeqCst);
            of.fetch_sub(1, Ordering::SeqCst);
            ((), if job.is_multiple_of(50) { Destination::Hangs } else { SLOW })
        };
        let pool = DeliveryPool::start(6, 6, run, move |()| result.send(()).unwrap()).unwrap();
        let taken = AtomicUsize::new(0);
        let take_back = |pool: &DeliveryPool<usize>| {
            for job in pool.take_back(|_, _| true) {
                seen[job].fetch_add(1, Ordering::SeqCst);
                taken.fetch_add(1, Ordering::SeqCst);
            }
        };
        std::thread::scope(|scope| {
            for part in 0..4 {
                let pool = &pool;
                scope.spawn(move || {
                    for first in (part * 5..JOBS).step_by(20) {
                        let of = |job| Submission { destination: (1, job as i64 % 3), threads: 2, job };
                        pool.submit((first..first + 5).map(of), NOW);
                    }
                });
            }
            (0..100).for_each(|_| take_back(&pool));
        });
        let mut recorded = 0;
        while recorded + taken.load(Ordering::SeqCst) < JOBS {
            // Those behind one that has shown that its destination hangs.
            take_back(&pool);
            recorded += results.try_iter().count();
        }
        assert!(seen.iter().all(|count| count.load(Ordering::SeqCst) == 1));
        assert!(pool.queues.lock().of.is_empty());
    }
}
