//! The events that were shown, and the runs under way: both bounded, however long the command runs.

use std::collections::{BTreeSet, HashSet, VecDeque};

/// Events whose repetition is noticed. A list that is read after a gap reaches back a few seconds.
const MAX_SEEN: usize = 16_384;

/// Runs under way that are looked up after a gap.
const MAX_OPEN: usize = 1_000;

/// The latest events, by their keys.
#[derive(Debug, Default)]
pub struct Seen {
    keys: HashSet<u64>,
    order: VecDeque<u64>,
}

impl Seen {
    #[must_use]
    pub fn contains(&self, key: Option<u64>) -> bool {
        key.is_some_and(|key| self.keys.contains(&key))
    }

    /// Returns whether the event is new. One without a key always is.
    pub fn insert(&mut self, key: Option<u64>) -> bool {
        let Some(key) = key else { return true };
        if !self.keys.insert(key) {
            return false;
        }
        self.order.push_back(key);
        if self.order.len() > MAX_SEEN
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
        true
    }
}

/// Runs that have not ended, by their ids, which sort by time.
#[derive(Debug, Default)]
pub struct OpenRuns {
    ids: BTreeSet<String>,
}

impl OpenRuns {
    /// Records an event of a run.
    pub fn record(&mut self, event: &str, id: &str) {
        match event {
            "execution.succeeded" | "execution.failed" | "execution.cancelled" => {
                self.ids.remove(id);
            }
            "execution.created"
            | "execution.started"
            | "execution.retrying"
            | "execution.claimed"
            | "execution.claim_lost" => self.add(id),
            _ => {}
        }
    }

    pub fn add(&mut self, id: &str) {
        if !self.ids.contains(id) {
            self.ids.insert(id.to_owned());
        }
        if self.ids.len() > MAX_OPEN {
            self.ids.pop_first();
        }
    }

    pub fn remove(&mut self, id: &str) {
        self.ids.remove(id);
    }

    #[must_use]
    pub fn ids(&self) -> Vec<String> {
        self.ids.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_new_once_and_the_memory_is_bounded() {
        let mut seen = Seen::default();
        assert!(seen.insert(Some(7)) && !seen.insert(Some(7)));
        assert!(seen.insert(None) && seen.insert(None));
        for key in 0..3 * MAX_SEEN as u64 {
            seen.insert(Some(100 + key));
        }
        assert_eq!((seen.keys.len(), seen.order.len()), (MAX_SEEN, MAX_SEEN));
        assert!(seen.insert(Some(7)), "the oldest are forgotten");
    }

    #[test]
    fn runs_are_open_until_they_end_and_the_newest_are_kept() {
        let mut open = OpenRuns::default();
        open.record("execution.created", "b");
        open.record("execution.started", "a");
        open.record("execution.outcome", "c");
        open.record("execution.succeeded", "b");
        assert_eq!(open.ids(), ["a"]);
        for number in 0..2 * MAX_OPEN {
            open.record("execution.created", &format!("b{number:05}"));
        }
        assert_eq!((open.ids().len(), open.ids()[0].as_str()), (MAX_OPEN, "b01000"));
    }
}
