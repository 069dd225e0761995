//! Requests of users: cues, runs by request, secrets and keys, reads.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::simulation::engine_steps::Room;
use crate::simulation::model::{
    Answer, Checked, Cue, DAY, HOUR, MINUTE, Model, Ms, Rule, RunRequest, SECOND, ensure,
};
use crate::simulation::receivers::{FIRST_SLOW, RECEIVERS, url};
use crate::simulation::runner::{Expected, Simulation};
use crate::simulation::steps::Action;

use Expected::{Done, Refused};

/// Periods with their cron expressions.
const PERIODS: [(Ms, &str); 5] = [
    (10 * MINUTE, "*/10 * * * *"),
    (HOUR, "0 * * * *"),
    (30 * MINUTE, "*/30 * * * *"),
    (DAY, "@daily"),
    (MINUTE, "* * * * *"),
];

const CATCH_UPS: [&str; 3] = ["latest", "all", "none"];
const MODES: [&str; 3] = ["none", "manual", "require_external_id"];

impl Simulation {
    pub fn request(&mut self, action: Action) -> Checked {
        match action {
            Action::Create => self.create(),
            Action::Repeat => self.repeat(),
            Action::RotateSecret => self.rotate_secret(),
            Action::RotateKey => self.rotate_key(),
            Action::AddKey => self.add_key(),
            Action::ClaimNext => self.claim_next(),
            Action::PauseAll | Action::ResumeAll => self.change_all(action),
            Action::Heartbeat => self.heartbeat(),
            Action::RemoveWorker => self.remove_worker(),
            Action::Patch
            | Action::Pause
            | Action::Resume
            | Action::Delete
            | Action::Fire
            | Action::FireLater => {
                let cues: Vec<usize> = (0..self.model.cues.len())
                    .filter(|cue| !self.model.cues[*cue].is_deleted)
                    .collect();
                if cues.is_empty() {
                    return Ok(());
                }
                let cue = cues[self.random.index(cues.len())];
                match action {
                    Action::Delete => self.delete(cue),
                    Action::Fire | Action::FireLater => self.fire(cue, action == Action::FireLater),
                    _ => self.patch(cue, action),
                }
            }
            Action::Read if self.random.below(2) == 0 => self.read_account(),
            _ => self.request_about_run(action),
        }
    }

    fn rule(&mut self) -> (Rule, Value) {
        if self.random.below(3) == 0 {
            let spans = [-MINUTE, 0, 1, MINUTE, 10 * MINUTE, 2 * HOUR, 30 * HOUR];
            let at = self.model.now + spans[self.random.index(spans.len())];
            (Rule::Once(at), json!({"type": "once", "at": Model::timestamp(at).to_string()}))
        } else {
            // Every minute is rare: its runs are many.
            let place = self.random.index(17) / 4;
            let (period, cron) = PERIODS[place];
            let (now, is_every) = (self.model.now, self.random.below(3) == 0);
            let starts = [-HOUR, -1, 0, MINUTE, HOUR];
            let from = if is_every { now + starts[self.random.index(5)] } else { 0 };
            let ends = [None, None, None, Some(5 * MINUTE), Some(HOUR), Some(5 * HOUR)];
            let end = ends[self.random.index(6)].map(|span| now.max(from) + span);
            let text = |at: Ms| Model::timestamp(at).to_string();
            let mut schedule = json!({"type": "recurring", "start": is_every.then(|| text(from)), "end": end.map(text)});
            match is_every {
                true => schedule["every"] = format!("{}s", period / SECOND).into(),
                false => schedule["cron"] = cron.into(),
            }
            (Rule::Every { period, from, end }, schedule)
        }
    }

    fn create(&mut self) -> Checked {
        let user = self.user();
        let (rule, mut schedule) = self.rule();
        let catch_up = CATCH_UPS[self.random.index(3)];
        schedule["catch_up"] = catch_up.into();
        let is_worker = self.random.below(2) == 0;
        let receiver = match self.model.accounts[user].is_slow {
            true => FIRST_SLOW + self.random.index(RECEIVERS.len() - FIRST_SLOW),
            false => self.random.index(FIRST_SLOW),
        };
        let max_attempts = 1 + u32::try_from(self.random.below(3)).unwrap();
        let backoff_minutes = [vec![1], vec![1, 5]][self.random.index(2)].clone();
        let (pauses, mode) = (self.random.below(3) == 0, MODES[self.random.index(3)]);
        let takes_outcome = !is_worker && self.random.below(2) == 0;
        let claim_within = [None, Some(1), Some(20)][self.random.index(3)].filter(|_| is_worker);
        let (name, payload) = (format!("cue {}", self.model.cues.len()), self.payload());
        let room = self.room_for(user, &payload)?;
        if room == Room::Unknown {
            return Ok(());
        }
        let mut body = json!({
            "name": name, "schedule": schedule, "verification": {"mode": mode},
            "retry": {"max_attempts": max_attempts, "backoff_minutes": backoff_minutes},
            "on_failure": {"email": self.random.below(4) == 0, "pause": pauses},
            "payload": payload,
        });
        let policies = self.policies(is_worker);
        for (name, value) in policies.fields(is_worker).as_object().unwrap() {
            body[name] = value.clone();
        }
        match is_worker {
            true => {
                (body["transport"], body["claim_within_minutes"]) =
                    ("worker".into(), claim_within.into())
            }
            false => {
                body["callback"] = json!({
                    "url": url(receiver), "outcome_from_response": takes_outcome, "flow": policies.flow_field(),
                });
            }
        }
        let next_run = rule.next_after(self.model.now);
        let expected = match next_run {
            None => Refused(400, "invalid_schedule"),
            Some(_) if self.model.active_cues(user) >= self.model.cue_limit(user) => {
                Refused(403, "cue_limit_exceeded")
            }
            Some(_) if room == Room::TooLittle => Refused(403, "storage_limit_exceeded"),
            Some(_) => Done(201),
        };
        let Some(created) = self.send_once(user, "/v1/cues", body, expected)? else {
            return Ok(());
        };
        let id = created["id"].as_str().unwrap_or_default().to_owned();
        let key = self.key_of_cue(&id)?;
        self.model.cues.push(Cue {
            user,
            id,
            key,
            name,
            rule,
            catch_up,
            is_worker,
            receiver,
            status: "active",
            next_run,
            run_count: 0,
            missed_count: 0,
            max_attempts,
            backoff_minutes,
            pauses,
            claim_within: claim_within.map(|minutes: Ms| minutes * MINUTE),
            mode,
            takes_outcome,
            payload,
            policies,
            is_deleted: false,
        });
        Ok(())
    }

    /// A POST that may carry an `Idempotency-Key`, whose answer is kept.
    fn send_once(
        &mut self,
        user: usize,
        path: &str,
        body: Value,
        expected: Expected,
    ) -> Checked<Option<Value>> {
        let key = format!("key-{}", self.step.map_or(0, |step| step.number));
        let headers: &[(&str, &str)] = match self.random.below(3) {
            0 => &[("Idempotency-Key", &key)],
            _ => &[],
        };
        let done = self.call(user, ("POST", path), headers, Some(&body), expected)?;
        if let Some(text) = done.as_ref().filter(|_| !headers.is_empty()) {
            let (at, path) = (self.model.now, path.to_owned());
            let answer = Answer { path, body, at, text: text.clone() };
            self.model.accounts[user].answers.insert(key, answer);
        }
        Ok(done)
    }

    /// Sends a request again under its key, or another one under the same key.
    fn repeat(&mut self) -> Checked {
        let (user, now) = (self.user(), self.model.now);
        let kept: Vec<(String, Answer)> = self.model.accounts[user]
            .answers
            .iter()
            .map(|(key, answer)| (key.clone(), answer.clone()))
            .collect();
        if kept.is_empty() {
            return Ok(());
        }
        let (key, mut answer) = kept[self.random.index(kept.len())].clone();
        let gone = |cue: &Cue| {
            cue.is_deleted && (answer.path.contains(&cue.id) || answer.text["id"] == *cue.id)
        };
        // Without the answer, the request would be a new one.
        if answer.at <= now - DAY || self.model.cues.iter().any(gone) {
            return Ok(());
        }
        let status = if answer.path == "/v1/cues" { 201 } else { 200 };
        let expected = match self.random.below(4) {
            0 => {
                answer.body["payload_override"] = json!({"other": true});
                Refused(409, "idempotency_conflict")
            }
            _ => Done(status),
        };
        let headers = [("Idempotency-Key", key.as_str())];
        let again =
            self.call(user, ("POST", &answer.path), &headers, Some(&answer.body), expected)?;
        let is_same = again.as_ref().is_none_or(|again| {
            again["id"] == answer.text["id"] && again["execution_id"] == answer.text["execution_id"]
        });
        ensure!(is_same, "a repetition returns {again:?}, not {}", answer.text);
        Ok(())
    }

    pub fn patch(&mut self, cue: usize, action: Action) -> Checked {
        let (now, it) = (self.model.now, self.model.cues[cue].clone());
        let is_due = it.next_run.is_some_and(|next_run| next_run <= now);
        let fails_first =
            is_due && matches!(it.rule, Rule::Once(_)) && !self.model.has_quota(it.user);
        if fails_first || self.model.may_end_first(cue) {
            // The run fails in the same write, before the change: the answer depends on the order of the two.
            return Ok(());
        }
        let (mut body, mut changed) = (json!({}), it.clone());
        let mut rescheduled = false;
        let mut room = Room::Enough;
        match (action, self.random.below(7)) {
            (Action::Patch, 4..) => {
                self.change_policy(&mut changed.policies, it.is_worker);
                body = changed.policies.fields(it.is_worker);
                if changed.policies.flow != it.policies.flow {
                    body["callback"] = json!({"flow": changed.policies.flow_field()});
                }
            }
            (Action::Patch, 3) => {
                changed.payload = self.payload();
                // The payload before it is deleted unless runs have it.
                room = self.room_for(it.user, &changed.payload)?;
                body["payload"] = changed.payload.clone();
            }
            (Action::Patch, 0) if it.is_worker => {
                let minutes = [None, Some(1), Some(30)][self.random.index(3)];
                changed.claim_within = minutes.map(|minutes: Ms| minutes * MINUTE);
                body["claim_within_minutes"] = minutes.into();
            }
            (Action::Patch, 0) => {
                changed.name =
                    format!("renamed in step {}", self.step.map_or(0, |step| step.number));
                body["name"] = changed.name.clone().into();
            }
            (Action::Patch, 1) => {
                changed.catch_up = CATCH_UPS[self.random.index(3)];
                body["schedule"] = json!({"catch_up": changed.catch_up});
                rescheduled = true;
            }
            (Action::Patch, _) => {
                let (rule, schedule) = self.rule();
                changed.rule = rule;
                body["schedule"] = schedule;
                rescheduled = true;
            }
            (Action::Pause, _) => body["status"] = "paused".into(),
            _ => body["status"] = "active".into(),
        }
        let has_ended = matches!(it.status, "completed" | "failed");
        let activates = match action {
            Action::Pause => false,
            Action::Patch => rescheduled && it.status != "paused",
            _ => it.status != "active",
        };
        if room != Room::Enough {
            return Ok(());
        }
        let is_set = |name: &str| body["schedule"][name].is_string();
        let is_past = is_set("at") || is_set("end") || activates;
        let next_run = changed.rule.next_after(now);
        let is_full = self.model.active_cues(it.user) >= self.model.cue_limit(it.user);
        let expected = match action {
            Action::Pause if has_ended => Refused(409, "invalid_state"),
            _ if is_past && next_run.is_none() => Refused(400, "invalid_schedule"),
            _ if activates && it.status != "active" && is_full => {
                Refused(403, "cue_limit_exceeded")
            }
            _ => Done(200),
        };
        let path = format!("/v1/cues/{}", it.id);
        if self.call(it.user, ("PATCH", &path), &[], Some(&body), expected)?.is_none() {
            return Ok(());
        }
        if activates {
            // The due instants of the old schedule are accounted for before the new one begins.
            self.model.settle(cue, next_run);
            changed.status = "active";
        } else if action == Action::Pause {
            self.model.settle(cue, None);
            changed.status = "paused";
        }
        let next_run = self.model.cues[cue].next_run;
        self.model.cues[cue] = Cue { next_run, ..changed };
        self.model.follow_change(cue, &it.policies);
        Ok(())
    }

    fn delete(&mut self, cue: usize) -> Checked {
        let it = self.model.cues[cue].clone();
        let path = format!("/v1/cues/{}", it.id);
        if self.call(it.user, ("DELETE", &path), &[], None, Done(204))?.is_some() {
            self.model.cues[cue].is_deleted = true;
            self.model.leave_flow(cue, &it.policies);
            self.ended.delete_cue(&self.model, cue);
            self.model.runs.retain(|_, run| run.cue != cue);
            self.call(it.user, ("GET", &path), &[], None, Refused(404, "cue_not_found"))?;
        }
        Ok(())
    }

    fn fire(&mut self, cue: usize, is_later: bool) -> Checked {
        let it = self.model.cues[cue].clone();
        let (mut at, mut body) = (self.model.now, Self::nothing());
        if is_later {
            let spans = [-HOUR, SECOND, MINUTE, 45 * MINUTE, 5 * HOUR];
            let send_at = at + spans[self.random.index(spans.len())];
            body["send_at"] = Model::timestamp(send_at).to_string().into();
            at = at.max(send_at);
        }
        let mut payload = it.payload.clone();
        if self.random.below(3) == 0 {
            let other = self.payload();
            if self.room_for(it.user, &other)? == Room::Enough {
                body["payload_override"] = other.clone();
                payload = other;
            }
        }
        let is_allowed = self.model.has_quota(it.user);
        let expected =
            if is_allowed { Done(200) } else { Refused(403, "execution_limit_exceeded") };
        if self.send_once(it.user, &format!("/v1/cues/{}/fire", it.id), body, expected)?.is_some() {
            self.model.requested.push(RunRequest { cue, trigger: "manual_fire", at, payload });
            self.model.cues[cue].run_count += 1;
        }
        Ok(())
    }

    fn rotate_secret(&mut self) -> Checked {
        let user = self.user();
        let path = "/v1/auth/webhook-secret";
        let rotate = format!("{path}/regenerate");
        let done = self.call(user, ("POST", &rotate), &[], Some(&Self::nothing()), Done(200))?;
        if let Some(secret) = done.as_ref().and_then(|it| it["webhook_secret"].as_str()) {
            secret.clone_into(&mut self.model.accounts[user].secret);
        }
        let shown = self.call(user, ("GET", path), &[], None, Done(200))?.unwrap_or_default();
        ensure!(
            shown["webhook_secret"] == *self.model.accounts[user].secret,
            "the secret of {user} is lost"
        );
        Ok(())
    }

    fn rotate_key(&mut self) -> Checked {
        let user = self.user();
        let path = "/v1/auth/key/regenerate";
        let done = self.call(user, ("POST", path), &[], Some(&Self::nothing()), Done(200))?;
        if let Some(key) = done.as_ref().and_then(|it| it["api_key"].as_str()) {
            let new = self.machine.client().with_key(key);
            let old = std::mem::replace(&mut self.machine.clients[user], new);
            ensure!(old.get("/v1/auth/me").status == 401, "the old key of account {user} is valid");
        }
        self.call(user, ("GET", "/v1/auth/me"), &[], None, Done(200)).map(|_| ())
    }

    /// Goes on with a second key, and revokes the first.
    fn add_key(&mut self) -> Checked {
        let user = self.user();
        let listed =
            self.call(user, ("GET", "/v1/auth/keys"), &[], None, Done(200))?.unwrap_or_default();
        let current = listed["keys"]
            .as_array()
            .and_then(|keys| keys.iter().find(|key| key["current"] == true))
            .cloned();
        let body = json!({"name": "second"});
        let Some(added) =
            self.call(user, ("POST", "/v1/auth/keys"), &[], Some(&body), Done(201))?
        else {
            return Ok(());
        };
        let (key, old) =
            (added["api_key"].as_str().unwrap_or_default(), current.unwrap_or_default());
        self.machine.clients[user] = self.machine.client().with_key(key);
        let path = format!("/v1/auth/keys/{}", old["id"].as_str().unwrap_or_default());
        self.call(user, ("DELETE", &path), &[], None, Done(204)).map(|_| ())
    }

    /// The public figures of an account and one of its cues.
    fn read_account(&mut self) -> Checked {
        let user = self.user();
        let (active, used) = (self.model.active_cues(user), self.model.quota(user).used);
        let usage =
            self.call(user, ("GET", "/v1/usage"), &[], None, Done(200))?.unwrap_or_default();
        let is_right = usage["cues"]["active"] == active && usage["executions"]["used"] == used;
        ensure!(is_right, "the usage is {usage}, expected {active} cues and {used} runs");
        let mut cues =
            self.model.cues.iter().rev().filter(|cue| cue.user == user && !cue.is_deleted);
        let Some(cue) = cues.next().cloned() else { return Ok(()) };
        let found = self
            .call(user, ("GET", &format!("/v1/cues/{}", cue.id)), &[], None, Done(200))?
            .unwrap_or_default();
        let next_run =
            found["next_run"].as_str().map(|it| it.parse::<Timestamp>().unwrap().as_millisecond());
        ensure!(next_run == cue.next_run, "the next run of {cue:?} is {}", found["next_run"]);
        let is_right = found["status"] == cue.status
            && found["run_count"] == cue.run_count
            && found["missed_count"] == cue.missed_count
            && found["name"] == *cue.name;
        ensure!(is_right, "the cue is {found}, expected {cue:?}");
        let claimable = self.model.claimable(user);
        let claimable: Vec<String> =
            claimable.iter().take(50).map(|key| self.model.runs[key].id.clone()).collect();
        let listed = self
            .call(user, ("GET", "/v1/executions/claimable"), &[], None, Done(200))?
            .unwrap_or_default();
        // A list of large payloads is shorter.
        let has_more = listed["has_more"] == true;
        let listed: Vec<&str> = listed["executions"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|it| it["id"].as_str())
            .collect();
        let is_right = claimable.iter().zip(&listed).all(|(id, listed)| id == listed)
            && (listed.len() == claimable.len() || (has_more && !listed.is_empty()));
        ensure!(is_right, "claimable are {listed:?}, expected {claimable:?}");
        Ok(())
    }
}
