//! Requests that send waiting runs now or cancel them, and that pause or resume all cues of a user at once.

use serde_json::{Value, json};

use crate::simulation::model::{Checked, Queue, Rule, Run, ensure};
use crate::simulation::runner::{Expected, Simulation};
use crate::simulation::steps::Action;

use Expected::{Done, Refused};

impl Simulation {
    pub fn retry(&mut self, user: usize, key: i64, run: &Run, path: &str) -> Checked {
        let is_waiting = matches!(run.queue, Queue::Waiting(_));
        let expected = match run.status {
            "delivering" => Refused(409, "execution_in_flight"),
            "retrying" => Done(200),
            "pending" if is_waiting => Done(200),
            _ => Refused(409, "invalid_state"),
        };
        let path = format!("{path}/retry");
        if self.call(user, ("POST", &path), &[], Some(&Self::nothing()), expected)?.is_some() {
            let now = self.model.now;
            self.model.change(key, |run| {
                (run.queue, run.since) = (Queue::Ready, now);
                if run.status == "pending" {
                    run.scheduled_for = run.scheduled_for.min(now);
                }
            });
        }
        Ok(())
    }

    pub fn cancel(&mut self, user: usize, key: i64, run: &Run, path: &str) -> Checked {
        let expected = match run.status {
            "delivering" => Refused(409, "execution_in_flight"),
            "pending" | "retrying" => Done(200),
            _ => Refused(409, "invalid_state"),
        };
        let path = format!("{path}/cancel");
        if self.call(user, ("POST", &path), &[], Some(&Self::nothing()), expected)?.is_some() {
            self.model.change(key, |run| (run.status, run.queue) = ("failed", Queue::None));
            if run.trigger == "schedule" {
                self.model.end_once(run.cue, run.scheduled_for, false);
            }
        }
        Ok(())
    }

    pub fn change_all(&mut self, action: Action) -> Checked {
        let (user, now, pauses) = (self.user(), self.model.now, action == Action::PauseAll);
        let cues: Vec<usize> =
            (0..self.model.cues.len()).filter(|cue| self.model.cues[*cue].user == user).collect();
        let is_due_once = |cue: &usize| {
            let it = &self.model.cues[*cue];
            matches!(it.rule, Rule::Once(_)) && it.next_run.is_some_and(|next_run| next_run <= now)
        };
        // The runs that fire first may use up the quota, and then a `once` cue fails in the same write.
        if cues.is_empty() || cues.iter().any(is_due_once) {
            return Ok(());
        }
        let (mut active, limit) = (self.model.active_cues(user), self.model.cue_limit(user));
        let mut codes = Vec::new();
        for cue in &cues {
            let it = &self.model.cues[*cue];
            let (is_active, has_ended) = (it.status == "active", matches!(it.status, "completed" | "failed"));
            codes.push(match pauses {
                _ if it.is_deleted => Some("cue_not_found"),
                true if has_ended => Some("invalid_state"),
                true => {
                    active -= usize::from(is_active);
                    None
                }
                false if is_active => None,
                false if it.rule.next_after(now).is_none() => Some("invalid_schedule"),
                false if active >= limit => Some("cue_limit_exceeded"),
                false => {
                    active += 1;
                    None
                }
            });
        }
        let ids: Vec<&str> = cues.iter().map(|cue| self.model.cues[*cue].id.as_str()).collect();
        let body = json!({"ids": ids, "action": if pauses { "pause" } else { "resume" }});
        let done = self.call(user, ("POST", "/v1/cues/bulk"), &[], Some(&body), Done(200))?;
        let Some(done) = done else { return Ok(()) };
        let refused: Vec<Value> =
            done["failed"].as_array().into_iter().flatten().map(|it| it["code"].clone()).collect();
        let expected: Vec<&str> = codes.iter().flatten().copied().collect();
        ensure!(refused == expected, "the refused cues are {done}, expected {expected:?}");
        for (cue, _) in cues.iter().zip(&codes).filter(|(_, code)| code.is_none()) {
            let next_run = self.model.cues[*cue].rule.next_after(now).filter(|_| !pauses);
            if pauses || self.model.cues[*cue].status != "active" {
                self.model.settle(*cue, next_run);
                self.model.cues[*cue].status = if pauses { "paused" } else { "active" };
            }
        }
        Ok(())
    }
}
