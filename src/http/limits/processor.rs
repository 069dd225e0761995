//! The processor time of one client. Few of its tasks are ready to run at a time, and each of its others waits for one of
//! these, so that a task of another client runs soon, however many connections and streams this one has.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

use tokio::runtime::Handle;

use crate::locks::Mutex;

/// The tasks of one client.
#[derive(Debug)]
pub struct ProcessorShare {
    /// The most tasks that are ready.
    limit: usize,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    ready: usize,
    waiting: VecDeque<Arc<Task>>,
}

#[derive(Debug)]
struct Task {
    share: Arc<ProcessorShare>,
    /// Locked after the queue.
    state: Mutex<(Phase, Waker)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing to do.
    Idle,
    /// In the queue of its client.
    Waiting,
    /// In the queue of the runtime.
    Ready,
    Running,
    /// Running, and woken since it began.
    RunningAgain,
    Ended,
}

impl ProcessorShare {
    /// As many tasks are ready as there are threads, so that one client may use all of them.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { limit: Handle::current().metrics().num_workers(), queue: Mutex::default() })
    }

    /// Runs `future` with the other tasks of this client.
    pub async fn run<F: Future>(self: Arc<Self>, future: F) -> F::Output {
        let state = Mutex::new((Phase::Idle, Waker::noop().clone()));
        let task = Arc::new(Task { share: self, state });
        let waker = Waker::from(Arc::clone(&task));
        let _end = End(Arc::clone(&task));
        let mut future = pin!(future);
        poll_fn(|context| {
            if !task.begin(context.waker()) {
                return Poll::Pending;
            }
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            task.pause(false);
            polled
        })
        .await
    }
}

impl Queue {
    /// Makes the next task ready that waits, if there is room. The caller wakes it once the queue is unlocked.
    fn next(&mut self, limit: usize) -> Option<Waker> {
        while self.ready < limit {
            let next = self.waiting.pop_front()?;
            let mut state = next.state.lock();
            if state.0 == Phase::Waiting {
                state.0 = Phase::Ready;
                self.ready += 1;
                return Some(state.1.clone());
            }
        }
        None
    }
}

impl Task {
    /// Returns whether the task may run now. Otherwise it is woken when it may.
    fn begin(self: &Arc<Self>, waker: &Waker) -> bool {
        let mut state = self.state.lock();
        state.1.clone_from(waker);
        match state.0 {
            Phase::Ready => {
                state.0 = Phase::Running;
                return true;
            }
            // Its first poll: a new task waits for the earlier ones.
            Phase::Idle => {
                drop(state);
                self.wake_by_ref();
            }
            Phase::Waiting | Phase::Running | Phase::RunningAgain | Phase::Ended => {}
        }
        false
    }

    /// Records that the task has run for now or to its end, and lets another one run.
    fn pause(self: &Arc<Self>, has_ended: bool) {
        let mut queue = self.share.queue.lock();
        let mut state = self.state.lock();
        let before = state.0;
        state.0 = match before {
            _ if has_ended => Phase::Ended,
            Phase::RunningAgain => Phase::Waiting,
            _ => Phase::Idle,
        };
        if state.0 == Phase::Waiting {
            queue.waiting.push_back(Arc::clone(self));
        }
        drop(state);
        // Also a task that is aborted holds its place until here.
        if matches!(before, Phase::Ready | Phase::Running | Phase::RunningAgain) {
            queue.ready -= 1;
        }
        self.wake_next(queue);
    }

    fn wake_next(&self, mut queue: MutexGuard<'_, Queue>) {
        let next = queue.next(self.share.limit);
        drop(queue);
        next.into_iter().for_each(Waker::wake);
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut queue = self.share.queue.lock();
        let mut state = self.state.lock();
        match state.0 {
            Phase::Idle => {
                state.0 = Phase::Waiting;
                drop(state);
                queue.waiting.push_back(Arc::clone(self));
                self.wake_next(queue);
            }
            Phase::Running => state.0 = Phase::RunningAgain,
            Phase::Waiting | Phase::Ready | Phase::RunningAgain | Phase::Ended => {}
        }
    }
}

/// Ends a task, also one that is aborted or has panicked.
struct End(Arc<Task>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.pause(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets the other tasks of the runtime run.
    async fn give_way() {
        let mut has_waited = false;
        poll_fn(|context| {
            if std::mem::replace(&mut has_waited, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    #[tokio::test]
    async fn a_client_with_many_tasks_delays_another_by_a_few_of_them() {
        let (ada, bob) = (ProcessorShare::new(), ProcessorShare::new());
        let order = Arc::new(Mutex::new(Vec::new()));
        let start = |share: &Arc<ProcessorShare>, name: char| {
            let order = Arc::clone(&order);
            tokio::spawn(Arc::clone(share).run(async move {
                for _ in 0..3 {
                    order.lock().push(name);
                    give_way().await;
                }
            }))
        };
        let mut tasks: Vec<_> = (0..100).map(|_| start(&ada, 'a')).collect();
        tasks.push(start(&bob, 'b'));
        for task in tasks {
            task.await.unwrap();
        }
        let order = order.lock();
        assert_eq!(order.len(), 303, "each of them runs to its end");
        let last = order.iter().rposition(|name| *name == 'b').unwrap();
        assert!(last < 10, "{last}");
    }

    #[test]
    fn a_task_that_is_dropped_lets_the_next_one_run() {
        let share = Arc::new(ProcessorShare { limit: 1, queue: Mutex::default() });
        let mut context = Context::from_waker(Waker::noop());
        let mut tasks: Vec<_> = (0..4).map(|_| Box::pin(Arc::clone(&share).run(async {}))).collect();
        for task in &mut tasks {
            assert!(task.as_mut().poll(&mut context).is_pending(), "the first is ready, the others wait");
        }
        // One that waits, and the one that is ready.
        drop(tasks.remove(1));
        drop(tasks.remove(0));
        assert!(tasks[1].as_mut().poll(&mut context).is_pending());
        assert!(tasks.iter_mut().all(|task| task.as_mut().poll(&mut context).is_ready()));
        let queue = share.queue.lock();
        assert_eq!((queue.ready, queue.waiting.len()), (0, 0));
    }
}
