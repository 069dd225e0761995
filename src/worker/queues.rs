//! The order in which tasks are polled and their executions claimed.
//!
//! A poll that finds work permits one claim. Each success permits two more, so that the number of concurrent
//! claims grows with the work, and the end of the work costs few claims that fail.

use std::collections::VecDeque;
use std::time::Duration;

/// The pause after a poll that found nothing although it did not wait, and the longest one after claims that found nothing.
const PAUSE: Duration = Duration::from_secs(1);

/// The pause after a claim that found nothing; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// One claim that may succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permit {
    /// Of the next execution of the task.
    Next,
    /// Of this execution.
    One(String),
}

#[derive(Debug, Default)]
struct Queue {
    permits: usize,
    /// Executions that a poll has found.
    found: VecDeque<String>,
    claiming: usize,
    is_polling: bool,
    /// The last poll found nothing.
    is_empty: bool,
    /// Polls in a row whose work other workers claimed.
    empty_claims: u32,
    poll_at: Duration,
    polled_at: Duration,
}

impl Queue {
    fn has_permit(&self) -> bool {
        self.permits > 0 || !self.found.is_empty()
    }

    fn may_be_polled(&self) -> bool {
        !self.has_permit() && self.claiming == 0 && !self.is_polling
    }
}

/// The tasks of a worker, by their places in its settings.
#[derive(Debug)]
pub struct Queues {
    queues: Vec<Queue>,
    /// The first place of the next search, so that the tasks take turns.
    turn: usize,
    jobs: usize,
    /// Executions are claimed by their ids: the next one of a task may be of another agent.
    is_by_id: bool,
}

impl Queues {
    #[must_use]
    pub fn new(tasks: usize, jobs: usize, is_by_id: bool) -> Self {
        Self { queues: (0..tasks).map(|_| Queue::default()).collect(), turn: 0, jobs, is_by_id }
    }

    /// The next claim, if one may succeed.
    pub fn take(&mut self) -> Option<(usize, Permit)> {
        let count = self.queues.len();
        let place =
            (0..count).map(|n| (self.turn + n) % count).find(|place| self.queues[*place].has_permit())?;
        self.turn = place + 1;
        let queue = &mut self.queues[place];
        queue.claiming += 1;
        let permit = match queue.found.pop_front() {
            Some(id) => Permit::One(id),
            None => {
                queue.permits -= 1;
                Permit::Next
            }
        };
        Some((place, permit))
    }

    /// A claim succeeded.
    pub fn claimed(&mut self, place: usize) {
        let (jobs, is_by_id) = (self.jobs, self.is_by_id);
        let queue = &mut self.queues[place];
        queue.claiming -= 1;
        queue.empty_claims = 0;
        queue.is_empty = false;
        if !is_by_id {
            queue.permits = (queue.permits + 2).min(jobs);
        }
    }

    /// A claim found nothing: other workers were faster, or there is no more work.
    pub fn found_nothing(&mut self, place: usize, now: Duration) {
        let queue = &mut self.queues[place];
        queue.claiming -= 1;
        queue.permits = 0;
        queue.poll_at = now + (FIRST_PAUSE * 2_u32.saturating_pow(queue.empty_claims.min(10))).min(PAUSE);
        queue.empty_claims += 1;
    }

    /// A claim failed. A poll shows when the server is back.
    pub fn failed(&mut self, place: usize) {
        let queue = &mut self.queues[place];
        queue.claiming -= 1;
        queue.permits = 0;
        queue.found.clear();
    }

    /// The task to poll now: that which was not polled for longest. Else the instant from which there is one, if it
    /// depends on time alone.
    ///
    /// # Errors
    /// If no task is to be polled now.
    pub fn begin_poll(&mut self, now: Duration) -> Result<usize, Option<Duration>> {
        let waiting = self.queues.iter_mut().enumerate().filter(|(_, queue)| queue.may_be_polled());
        let mut waiting: Vec<_> = waiting.collect();
        let due = waiting.iter_mut().filter(|(_, queue)| queue.poll_at <= now);
        if let Some((place, queue)) = due.min_by_key(|(_, queue)| queue.polled_at) {
            queue.is_polling = true;
            queue.polled_at = now;
            return Ok(*place);
        }
        Err(waiting.iter().map(|(_, queue)| queue.poll_at).min())
    }

    /// A poll has its answer.
    pub fn polled(&mut self, place: usize, found: Vec<String>, now: Duration) {
        let is_by_id = self.is_by_id;
        let queue = &mut self.queues[place];
        queue.is_polling = false;
        queue.is_empty = found.is_empty();
        if queue.is_empty {
            // A server that holds the poll is asked again at once.
            queue.empty_claims = 0;
            queue.poll_at = (queue.polled_at + PAUSE).max(now);
        } else if is_by_id {
            queue.found = found.into();
        } else {
            queue.permits = 1;
        }
    }

    pub fn poll_failed(&mut self, place: usize) {
        self.queues[place].is_polling = false;
    }

    /// Nothing was found since the last run ended.
    #[must_use]
    pub fn are_empty(&self) -> bool {
        self.queues.iter().all(|queue| queue.is_empty && queue.may_be_polled())
    }

    /// A run has ended, and may have made new work.
    pub fn expect_work(&mut self) {
        for queue in &mut self.queues {
            queue.is_empty = false;
            queue.poll_at = Duration::ZERO;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn found(place: usize) -> Queues {
        let mut queues = Queues::new(2, 4, false);
        assert_eq!((queues.begin_poll(NOW), queues.begin_poll(NOW)), (Ok(0), Ok(1)));
        queues.polled(place, vec!["e".to_owned()], NOW);
        queues
    }

    #[test]
    fn a_success_permits_two_more_claims_up_to_the_number_of_jobs() {
        let mut queues = found(1);
        let next = Some((1, Permit::Next));
        assert_eq!((queues.take(), queues.take()), (next.clone(), None));
        queues.claimed(1);
        assert_eq!((queues.take(), queues.take(), queues.take()), (next.clone(), next, None));
        for _ in 0..2 {
            queues.claimed(1);
        }
        assert_eq!(std::iter::from_fn(|| queues.take()).count(), 4);
    }

    #[test]
    fn a_claim_that_finds_nothing_leads_to_a_poll_after_a_growing_pause() {
        let mut queues = found(0);
        for millis in [50, 100, 200, 400, 800, 1000, 1000] {
            assert!(queues.take().is_some());
            queues.found_nothing(0, NOW);
            let poll_at = NOW + Duration::from_millis(millis);
            assert_eq!(queues.begin_poll(NOW), Err(Some(poll_at)));
            assert_eq!(queues.begin_poll(poll_at), Ok(0));
            queues.polled(0, vec!["e".to_owned()], NOW);
        }
        assert!(queues.take().is_some());
        queues.claimed(0);
        assert!(queues.take().is_some());
        queues.found_nothing(0, NOW);
        assert_eq!(queues.begin_poll(NOW), Err(Some(NOW + FIRST_PAUSE)));
    }

    #[test]
    fn tasks_take_turns() {
        let mut queues = found(0);
        queues.polled(1, vec!["e".to_owned()], NOW);
        let places: Vec<usize> = (0..4)
            .map(|_| {
                let (place, _) = queues.take().unwrap();
                queues.claimed(place);
                place
            })
            .collect();
        assert_eq!(places, [0, 1, 0, 1]);
    }

    #[test]
    fn executions_of_an_agent_are_claimed_by_their_ids() {
        let mut queues = Queues::new(1, 4, true);
        assert_eq!(queues.begin_poll(NOW), Ok(0));
        queues.polled(0, vec!["a".to_owned(), "b".to_owned()], NOW);
        let taken: Vec<_> = std::iter::from_fn(|| queues.take()).map(|(_, permit)| permit).collect();
        assert_eq!(taken, [Permit::One("a".to_owned()), Permit::One("b".to_owned())]);
        queues.claimed(0);
        assert_eq!((queues.take(), queues.begin_poll(NOW)), (None, Err(None)));
        queues.claimed(0);
        assert_eq!(queues.begin_poll(NOW), Ok(0));
    }

    #[test]
    fn queues_are_empty_after_polls_without_work_and_no_claims() {
        let mut queues = found(0);
        queues.polled(1, Vec::new(), NOW);
        assert!(!queues.are_empty());
        assert!(queues.take().is_some());
        queues.found_nothing(0, NOW);
        assert!(!queues.are_empty());
        assert_eq!(queues.begin_poll(NOW + PAUSE), Ok(0));
        queues.polled(0, Vec::new(), NOW + PAUSE);
        assert!(queues.are_empty());
        queues.expect_work();
        assert!(!queues.are_empty());
    }
}
