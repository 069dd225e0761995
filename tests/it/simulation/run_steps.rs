//! Requests about runs: workers claim, extend and report; users verify, replay and read.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::simulation::engine_steps::Room;
use crate::simulation::model::{Checked, LEASE, Outcome, Queue, Run, RunRequest, ensure};
use crate::simulation::runner::{Expected, Simulation};
use crate::simulation::steps::Action;

use Expected::{Done, Refused};

const WORKERS: [&str; 2] = ["worker-a", "worker-b"];

impl Simulation {
    fn worker(&mut self) -> String {
        WORKERS[self.random.index(2)].to_owned()
    }

    /// An action about a run: of any kind, but mostly one to which the action applies.
    pub fn request_about_run(&mut self, action: Action) -> Checked {
        let has_buffered = self.model.runs.values().any(Run::is_buffered);
        let applies = |key: &i64, run: &Run| match action {
            Action::Claim => run.queue == Queue::Ready && self.model.cue_of(*key).is_worker,
            Action::Extend => run.is_claimed(),
            Action::Report => run.is_claimed() || (run.outcome.is_none() && run.is_over()),
            Action::Verify | Action::Reopen | Action::Evidence => run.outcome.is_some(),
            Action::Replay => run.is_over(),
            Action::Retry => matches!(run.queue, Queue::Waiting(_)),
            // Rather one for whose end another one waits.
            Action::Cancel => {
                matches!(run.status, "pending" | "retrying")
                    && (!has_buffered || self.model.buffered(run.cue).is_some())
            }
            _ => true,
        };
        let all: Vec<i64> = self.model.runs.keys().copied().collect();
        let fitting: Vec<i64> = self
            .model
            .runs
            .iter()
            .filter(|(key, run)| applies(key, run))
            .map(|(key, _)| *key)
            .collect();
        let is_any = self.random.below(4) == 0;
        let from = if is_any || fitting.is_empty() { all } else { fitting };
        if from.is_empty() {
            return Ok(());
        }
        let key = from[self.random.index(from.len())];
        let (run, user) = (self.model.runs[&key].clone(), self.model.cue_of(key).user);
        let path = format!("/v1/executions/{}", run.id);
        match action {
            Action::Claim => self.claim(user, key, &run, &path),
            Action::Extend => self.extend(user, key, &run, &path),
            Action::Report => self.report(user, key, &run, &path),
            Action::Replay => self.replay(user, &run, &path),
            Action::Retry => self.retry(user, key, &run, &path),
            Action::Cancel => self.cancel(user, key, &run, &path),
            Action::Read => self.read_run(user, &run, &path),
            _ => self.judge(action, user, key, &run, &path),
        }
    }

    fn claim(&mut self, user: usize, key: i64, run: &Run, path: &str) -> Checked {
        let worker = self.worker();
        let is_worker = self.model.cues[run.cue].is_worker;
        let is_ready = is_worker && run.status == "pending" && run.queue == Queue::Ready;
        let is_ready = is_ready && !self.model.has_expired(run);
        if self.model.is_chain_due() {
            return Ok(());
        }
        let expected = if is_ready { Done(200) } else { Refused(409, "already_claimed") };
        let body = json!({"worker_id": worker});
        let claimed =
            self.call(user, ("POST", &format!("{path}/claim")), &[], Some(&body), expected)?;
        claimed.map_or(Ok(()), |claimed| self.claimed(key, worker, &claimed))
    }

    pub fn claim_next(&mut self) -> Checked {
        let (user, worker) = (self.user(), self.worker());
        if self.model.is_chain_due() {
            return Ok(());
        }
        let claimable = self.model.claimable(user);
        let first =
            claimable.into_iter().find(|key| !self.model.has_expired(&self.model.runs[key]));
        let expected = if first.is_some() { Done(200) } else { Refused(409, "claim_failed") };
        let body = json!({"worker_id": worker});
        let claimed =
            self.call(user, ("POST", "/v1/executions/claim"), &[], Some(&body), expected)?;
        match (claimed, first) {
            (Some(claimed), Some(key)) => self.claimed(key, worker, &claimed),
            _ => Ok(()),
        }
    }

    fn claimed(&mut self, key: i64, worker: String, claimed: &Value) -> Checked {
        let now = self.model.now;
        let id = self.model.runs[&key].id.clone();
        ensure!(claimed["execution_id"] == *id, "the claim is of {claimed}, expected {id}");
        let payload = &self.model.runs[&key].payload;
        ensure!(claimed["payload"] == *payload, "the payload of {id} is {}", claimed["payload"]);
        self.model.change(key, |run| {
            (run.status, run.queue) = ("delivering", Queue::None);
            run.attempts += 1;
            (run.worker, run.lease) = (Some(worker), Some(now + LEASE));
        });
        let (attempts, most) =
            (self.model.runs[&key].attempts, self.model.cue_of(key).max_attempts);
        ensure!(
            claimed["attempt"] == attempts && attempts <= most,
            "the attempt is {}",
            claimed["attempt"]
        );
        Ok(())
    }

    fn extend(&mut self, user: usize, key: i64, run: &Run, path: &str) -> Checked {
        let worker = self.worker();
        let expected = match &run.worker {
            Some(holder) if run.is_claimed() && *holder == worker => Done(200),
            Some(_) if run.is_claimed() => Refused(403, "not_execution_owner"),
            _ => Refused(409, "execution_not_claiming"),
        };
        let headers = [("X-Worker-Id", worker.as_str())];
        let path = format!("{path}/heartbeat");
        if self.call(user, ("POST", &path), &headers, Some(&Self::nothing()), expected)?.is_some() {
            let lease = Some(self.model.now + LEASE);
            self.model.change(key, |run| run.lease = lease);
        }
        Ok(())
    }

    fn report(&mut self, user: usize, key: i64, run: &Run, path: &str) -> Checked {
        let (success, has_proof) = (self.random.below(3) > 0, self.random.below(2) == 0);
        let mut body = json!({"success": success, "result": "done"});
        if has_proof {
            body["external_id"] = "order-1".into();
        }
        let is_first = run.outcome.is_none();
        let expected = if is_first { Done(200) } else { Refused(409, "outcome_already_reported") };
        let path = format!("{path}/outcome");
        if self.call(user, ("POST", &path), &[], Some(&body), expected)?.is_none() {
            return Ok(());
        }
        let cue = &self.model.cues[run.cue];
        let outcome = Outcome::reported(cue.mode, success, has_proof);
        let is_worker = cue.is_worker;
        let status = match (is_worker, success) {
            (false, _) => run.status,
            (true, true) => "success",
            (true, false) => "failed",
        };
        self.model.change(key, |run| {
            (run.outcome, run.delivered, run.is_missing) = (Some(outcome), None, false);
            if is_worker {
                (run.status, run.queue, run.lease) = (status, Queue::None, None);
            }
        });
        if status != run.status {
            // What an earlier end has started does not start again.
            match run.is_over() {
                true => self.model.end_once_by(key, success),
                false => self.model.finish(key, success),
            }
        }
        Ok(())
    }

    /// Ends the runs of workers.
    pub fn finish_claims(&mut self) -> Checked {
        for key in self.model.runs.keys().copied().collect::<Vec<_>>() {
            let (run, user) = (self.model.runs[&key].clone(), self.model.cue_of(key).user);
            let path = format!("/v1/executions/{}", run.id);
            if run.queue == Queue::Ready && self.model.cue_of(key).is_worker {
                self.claim(user, key, &run, &path)?;
            } else if run.is_claimed() {
                self.report(user, key, &run, &path)?;
            }
        }
        Ok(())
    }

    fn judge(&mut self, action: Action, user: usize, key: i64, run: &Run, path: &str) -> Checked {
        let valid = self.random.below(2) == 0;
        let is_decided = |state| matches!(state, "verified_success" | "verification_failed");
        let expected = match &run.outcome {
            None => Refused(409, "invalid_state"),
            Some(outcome) if action == Action::Verify && is_decided(outcome.state) => {
                Refused(409, "invalid_state")
            }
            Some(_) => Done(200),
        };
        let (method, path, body) = match action {
            Action::Verify => ("POST", format!("{path}/verify"), json!({"valid": valid})),
            Action::Reopen => ("POST", format!("{path}/verification-pending"), json!({})),
            _ => ("PATCH", format!("{path}/evidence"), json!({"external_id": "order-2"})),
        };
        if self.call(user, (method, &path), &[], Some(&body), expected)?.is_none() {
            return Ok(());
        }
        let needs_proof = self.model.cues[run.cue].mode == "require_external_id";
        let Some(mut outcome) = run.outcome.clone() else { return Ok(()) };
        match action {
            Action::Verify => {
                outcome.state = if valid { "verified_success" } else { "verification_failed" };
                outcome.is_judged = true;
            }
            Action::Reopen => (outcome.state, outcome.is_judged) = ("verification_pending", false),
            _ => {
                let proves =
                    needs_proof && !outcome.has_proof && outcome.success && !outcome.is_judged;
                if proves && outcome.state != "reported_failure" {
                    outcome.state = "verified_success";
                }
                outcome.has_proof = true;
            }
        }
        self.model.change(key, |run| run.outcome = Some(outcome));
        Ok(())
    }

    fn replay(&mut self, user: usize, run: &Run, path: &str) -> Checked {
        // A replay copies the payload of an override.
        if self.room_for(user, &run.payload)? != Room::Enough {
            return Ok(());
        }
        let expected = match () {
            () if !run.is_over() => Refused(409, "execution_in_flight"),
            () if !self.model.has_quota(user) => Refused(403, "execution_limit_exceeded"),
            () => Done(200),
        };
        let path = format!("{path}/replay");
        if self.call(user, ("POST", &path), &[], Some(&Self::nothing()), expected)?.is_some() {
            let (cue, at, payload) = (run.cue, self.model.now, run.payload.clone());
            self.model.requested.push(RunRequest { cue, trigger: "replay", at, payload });
        }
        Ok(())
    }

    fn read_run(&mut self, user: usize, run: &Run, path: &str) -> Checked {
        let found = self.call(user, ("GET", path), &[], None, Done(200))?.unwrap_or_default();
        let instant = |name: &str| {
            found[name].as_str().map(|it| it.parse::<Timestamp>().unwrap().as_millisecond())
        };
        let is_right = found["status"] == run.status
            && found["attempts"] == run.attempts
            && found["outcome_state"] == json!(run.outcome_state())
            && instant("outcome_due_at") == self.model.outcome_due(run)
            && (!run.is_queued() || instant("expires_at") == self.model.expires_at(run))
            && (found["waits_for"]["reason"] == "overlap") == run.is_buffered()
            && found["triggered_by"] == run.trigger;
        ensure!(is_right, "the run is {found}, expected {run:?}");
        let path = format!("{path}/attempts");
        let found = self.call(user, ("GET", &path), &[], None, Done(200))?.unwrap_or_default();
        let listed: Vec<Value> =
            run.listed_attempts().iter().map(|(number, result)| json!([number, result])).collect();
        let parts = |it: &Value| json!([it["attempt"], it["result"]]);
        let found: Vec<Value> =
            found["attempts"].as_array().into_iter().flatten().map(parts).collect();
        ensure!(found == listed, "the attempts are {found:?}, expected {listed:?}");
        Ok(())
    }

    pub fn heartbeat(&mut self) -> Checked {
        let (user, worker) = (self.user(), self.worker());
        let body = json!({"worker_id": worker, "handlers": ["resize"]});
        if self.call(user, ("POST", "/v1/worker/heartbeat"), &[], Some(&body), Done(200))?.is_some()
        {
            let now = self.model.now;
            self.model.accounts[user].heartbeats.insert(worker, now);
        }
        Ok(())
    }

    pub fn remove_worker(&mut self) -> Checked {
        let (user, worker) = (self.user(), self.worker());
        let is_known = self.model.accounts[user].heartbeats.contains_key(&worker);
        let expected = if is_known { Done(204) } else { Refused(404, "worker_not_found") };
        if self
            .call(user, ("DELETE", &format!("/v1/workers/{worker}")), &[], None, expected)?
            .is_some()
        {
            self.model.accounts[user].heartbeats.remove(&worker);
        }
        Ok(())
    }
}
