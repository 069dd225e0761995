//! Which events are shown, and which the server is asked for.

use std::collections::BTreeSet;

use crate::cli::client::commands::tail::event::TailEvent;

/// The usual events: results, and what needs attention.
const USUAL: &[&str] = &[
    "execution.retrying",
    "execution.succeeded",
    "execution.failed",
    "execution.cancelled",
    "execution.claim_lost",
    "execution.outcome",
    "missed",
    "alert",
    "quota",
    "cue.paused",
    "cue.failed",
    "server",
];

const FAILURES: &[&str] = &[
    "execution.retrying",
    "execution.failed",
    "execution.claim_lost",
    "execution.outcome",
    "missed",
    "alert",
    "quota.exceeded",
    "cue.failed",
];

#[derive(Debug, Clone)]
pub struct Selection {
    /// Types of events, or their first words.
    words: Vec<String>,
    is_by_hand: bool,
    only_failures: bool,
}

impl Selection {
    /// The events of `types`, if any are named.
    #[must_use]
    pub fn new(types: &[String], only_failures: bool) -> Self {
        let words: Vec<String> = types.iter().map(|word| word.trim().to_owned()).collect();
        let is_by_hand = !words.is_empty();
        let usual = if only_failures { FAILURES } else { USUAL };
        let words = if is_by_hand { words } else { usual.iter().map(|word| (*word).to_owned()).collect() };
        Self { words, is_by_hand, only_failures }
    }

    /// The types for the server. Of runs all events are read, so that those under way are known after a gap.
    #[must_use]
    pub fn wire(&self) -> String {
        let of_runs = |word: &str| word.starts_with("execution.");
        let word = |word: &String| if of_runs(word) { "execution".to_owned() } else { word.clone() };
        let words: BTreeSet<String> = self.words.iter().map(word).collect();
        words.into_iter().collect::<Vec<_>>().join(",")
    }

    #[must_use]
    pub fn has_runs(&self) -> bool {
        self.words.iter().any(|word| word.split('.').next() == Some("execution"))
    }

    #[must_use]
    pub fn has_alerts(&self) -> bool {
        self.has_type("alert.created")
    }

    #[must_use]
    pub fn has_type(&self, event: &str) -> bool {
        let group = event.split('.').next();
        self.words.iter().any(|word| word == event || Some(word.as_str()) == group)
    }

    #[must_use]
    pub fn admits(&self, event: &TailEvent) -> bool {
        match event.event.as_str() {
            "burst" => event.data["counts"]
                .as_object()
                .is_some_and(|counts| counts.keys().any(|it| self.has_type(it))),
            // The result of a worker's run is its outcome, and is shown as that of the run.
            "execution.outcome" if !self.is_by_hand => {
                let is_failure = event.is_failed_outcome();
                event.data["worker_id"].is_null() && (is_failure || !self.only_failures)
            }
            word => self.has_type(word),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selection(types: &str, only_failures: bool) -> Selection {
        let types: Vec<String> =
            types.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        Selection::new(&types, only_failures)
    }

    #[test]
    fn types_and_their_first_words_select_events() {
        let event = |word: &str| TailEvent::listed(word, json!({"worker_id": null}));
        let admitted = |selection: &Selection, words: &[&str]| {
            words.iter().map(|word| selection.admits(&event(word))).collect::<Vec<_>>()
        };
        let words =
            ["execution.created", "execution.failed", "execution.succeeded", "alert.created", "cue.updated"];
        assert_eq!(admitted(&selection("", false), &words), [false, true, true, true, false]);
        assert_eq!(admitted(&selection("", true), &words), [false, true, false, true, false]);
        assert_eq!(
            admitted(&selection("execution.created,cue", false), &words),
            [true, false, false, false, true]
        );
    }

    #[test]
    fn the_server_is_asked_for_all_events_of_runs_or_for_none() {
        assert_eq!(selection("execution.failed,alert", false).wire(), "alert,execution");
        assert_eq!(selection("alert,cue.paused", false).wire(), "alert,cue.paused");
        assert!(!selection("alert", false).has_runs() && selection("alert", false).has_alerts());
    }

    #[test]
    fn outcomes_are_shown_of_deliveries_and_bursts_by_what_they_count() {
        let outcome = |worker: Option<&str>, state: &str| {
            TailEvent::listed("execution.outcome", json!({"worker_id": worker, "outcome_state": state}))
        };
        let failures = selection("", true);
        assert!(failures.admits(&outcome(None, "reported_failure")));
        assert!(!failures.admits(&outcome(None, "reported_success")));
        assert!(!failures.admits(&outcome(Some("w"), "reported_failure")));
        let burst = |word: &str| TailEvent::listed("burst", json!({"counts": {word: 3}}));
        assert!(failures.admits(&burst("execution.failed")) && !failures.admits(&burst("execution.created")));
    }
}
