//! An execution as the model knows it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::simulation::model::{Ms, Outcome};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    Waiting(Ms),
    Ready,
    /// A delivery is under way or a worker holds it; or it is over.
    None,
}

#[derive(Debug, Clone)]
pub struct Run {
    pub id: String,
    pub cue: usize,
    pub scheduled_for: Ms,
    pub trigger: &'static str,
    pub status: &'static str,
    pub queue: Queue,
    pub attempts: u32,
    /// Earlier attempts by number, and whether the end of the program cut them off; with their results.
    pub kept: BTreeMap<(u32, bool), &'static str>,
    pub worker: Option<String>,
    pub lease: Option<Ms>,
    /// Since when it is ready, for the last time.
    pub since: Ms,
    pub outcome: Option<Outcome>,
    /// Since when it waits for an outcome that has a deadline.
    pub delivered: Option<Ms>,
    /// Nobody has reported an outcome in time.
    pub is_missing: bool,
    pub payload: Value,
    /// As the file has it: it decides the order of claims only.
    pub is_catch_up: bool,
}

impl Run {
    pub fn is_over(&self) -> bool {
        matches!(self.status, "success" | "failed")
    }

    /// The list of its attempts: numbers and results, oldest first.
    pub fn listed_attempts(&self) -> Vec<(u32, Option<&'static str>)> {
        // What was cut off comes before the attempt that repeated it.
        let order =
            |((number, is_cut), result): (&(u32, bool), &&'static str)| (*number, !is_cut, *result);
        let mut kept: Vec<_> = self.kept.iter().map(order).collect();
        kept.sort_unstable();
        let mut listed: Vec<_> =
            kept.into_iter().map(|(number, _, result)| (number, Some(result))).collect();
        if self.attempts > 0 && !self.kept.contains_key(&(self.attempts, false)) {
            listed
                .push((self.attempts, Some(self.status).filter(|status| *status != "delivering")));
        }
        listed
    }

    pub fn is_claimed(&self) -> bool {
        self.status == "delivering" && self.lease.is_some()
    }
}
