//! The order of the waiting writes: which job the writer runs next, and when a batch ends.
//!
//! The engine's writes go first, so that a due run never waits behind the requests of callers. Callers take turns by
//! account, so that many writes of one account hold up those of another by one job each. A batch runs at least one
//! caller's write if one waits: a steady stream of the engine's writes cannot stop callers (contract §11.5).

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use crate::metrics::Stopwatch;
use crate::store::db::writer::WriteJob;

/// Jobs in one commit. Limits how long the first job of a batch waits for the last one; a smaller batch would pay for
/// more commits under load. Other values were not measured.
pub(in crate::store::db) const MAX_BATCH_JOBS: usize = 512;

/// Run time after which a batch takes no further job and commits. A due run waits for one batch at most, and has 100 ms
/// from its instant to its start (contract §11.5); the commit itself, on a slow disk, takes most of that.
const MAX_BATCH_TIME: Duration = Duration::from_millis(20);

/// Duration for which the idle writer polls for a job before it sleeps. Waking a thread takes longer than half a commit
/// on a fast disk. Measured with one client that creates cues: 2,700 creates a second without polling, 3,320 with it.
/// The cost is up to 0.2 ms of processor time per isolated write, yielded to any thread that is ready to run.
const LINGER: Duration = Duration::from_micros(200);

/// The share of a sync of the disk for which the writer gathers the callers that were in the last batch. They ask again
/// as soon as they have their results, one after the other: without it the first of sixteen starts a commit alone, and
/// the others wait for two.
const GATHER_SHARE: u32 = 4;

/// Limit on that time. On a disk that takes longer for a sync, a quarter of it is a wait of its own.
const MAX_GATHER: Duration = Duration::from_millis(5);

/// A shorter time is spent polling: to sleep and be woken takes about as long.
const MIN_SLEEP: Duration = Duration::from_micros(300);

type Job = Box<dyn WriteJob>;

/// The source of a write, which decides its place in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum WriteSource {
    /// The scheduler, deliveries and notifications.
    Engine,
    /// A request of this user; `None` if no user is known yet, as at a registration.
    Caller(Option<i64>),
}

pub(in crate::store::db) struct QueuedJob {
    pub source: WriteSource,
    pub job: Job,
}

pub(in crate::store::db) struct WriteQueue {
    submitted: Receiver<QueuedJob>,
    engine: VecDeque<Job>,
    callers: CallerQueue,
}

/// How far the present batch has come.
pub(in crate::store::db) struct BatchProgress {
    started: Stopwatch,
    jobs: usize,
    /// Callers' jobs that waited when the batch began and have not run yet. Later ones belong to the next batch:
    /// otherwise callers that write again at once would keep every batch open to its limit.
    callers_left: usize,
    has_run_caller: bool,
}

impl WriteQueue {
    pub fn new(submitted: Receiver<QueuedJob>) -> Self {
        Self { submitted, engine: VecDeque::new(), callers: CallerQueue::default() }
    }

    /// Waits for a job; returns false once all handles are dropped and every job has run. A caller that has just got a
    /// result often writes again at once, so the writer polls for [`LINGER`] before it sleeps.
    pub fn wait(&mut self) -> bool {
        self.receive();
        let stopwatch = Stopwatch::start();
        while self.is_empty() && stopwatch.elapsed() < LINGER {
            match self.submitted.try_recv() {
                Ok(next) => self.push(next),
                Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => std::thread::yield_now(),
            }
        }
        if self.is_empty() {
            let Ok(next) = self.submitted.recv() else { return false };
            self.push(next);
        }
        true
    }

    /// Waits until as many jobs wait as the last batch had, at most for a share of the time that a sync of the disk takes.
    pub fn gather(&mut self, last_batch: usize, sync: Duration) {
        let limit = (sync / GATHER_SHARE).min(MAX_GATHER);
        self.receive();
        let stopwatch = Stopwatch::start();
        while self.waiting() < last_batch {
            let Some(left) = limit.checked_sub(stopwatch.elapsed()) else { return };
            if limit < MIN_SLEEP {
                std::thread::yield_now();
                self.receive();
            } else if let Ok(next) = self.submitted.recv_timeout(left) {
                self.push(next);
            } else {
                return;
            }
        }
    }

    pub fn begin_batch(&mut self) -> BatchProgress {
        self.receive();
        BatchProgress {
            started: Stopwatch::start(),
            jobs: 0,
            callers_left: self.callers.count,
            has_run_caller: false,
        }
    }

    pub fn is_single(&self) -> bool {
        self.waiting() == 1
    }

    fn waiting(&self) -> usize {
        self.engine.len() + self.callers.count
    }

    /// The next job of the batch, or `None` if it ends here. An engine's job that arrives during the batch joins it.
    pub fn next(&mut self, batch: &mut BatchProgress) -> Option<Job> {
        self.receive();
        let is_over =
            batch.jobs >= MAX_BATCH_JOBS || (batch.jobs > 0 && batch.started.elapsed() >= MAX_BATCH_TIME);
        let owes_caller = batch.callers_left > 0 && !batch.has_run_caller;
        if is_over && !owes_caller {
            return None;
        }
        let is_callers_turn = owes_caller && (is_over || batch.jobs + 1 == MAX_BATCH_JOBS);
        let engine_job = if is_callers_turn { None } else { self.engine.pop_front() };
        let job = match engine_job {
            Some(job) => job,
            None if batch.callers_left > 0 => {
                batch.callers_left -= 1;
                batch.has_run_caller = true;
                self.callers.pop()?
            }
            None => return None,
        };
        batch.jobs += 1;
        Some(job)
    }

    fn is_empty(&self) -> bool {
        self.waiting() == 0
    }

    fn receive(&mut self) {
        while let Ok(next) = self.submitted.try_recv() {
            self.push(next);
        }
    }

    fn push(&mut self, QueuedJob { source, job }: QueuedJob) {
        match source {
            WriteSource::Engine => self.engine.push_back(job),
            WriteSource::Caller(user) => self.callers.push(user, job),
        }
    }
}

/// Callers' jobs, in turns by user and in the order of their arrival for each user.
#[derive(Default)]
struct CallerQueue {
    jobs: BTreeMap<Option<i64>, VecDeque<Job>>,
    /// The users that have jobs, each once, in the order of their turns.
    turns: VecDeque<Option<i64>>,
    count: usize,
}

impl CallerQueue {
    fn push(&mut self, user: Option<i64>, job: Job) {
        let jobs = self.jobs.entry(user).or_default();
        if jobs.is_empty() {
            self.turns.push_back(user);
        }
        jobs.push_back(job);
        self.count += 1;
    }

    fn pop(&mut self) -> Option<Job> {
        let user = self.turns.pop_front()?;
        let jobs = self.jobs.get_mut(&user)?;
        let job = jobs.pop_front()?;
        if jobs.is_empty() {
            self.jobs.remove(&user);
        } else {
            self.turns.push_back(user);
        }
        self.count -= 1;
        Some(job)
    }
}
