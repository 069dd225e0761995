//! Steps of the engine, of plans and of queues.

use std::mem::take;

use Expected::{Done, Refused};
use cued::domain::row_keys::UserKey;
use cued::domain::webhook::delivery::AttemptRef;
use cued::engine::NextPass;
use cued::engine::delivery::attempt::FinishedAttempt;
use cued::engine::delivery::dispatcher::{DispatcherMode, promote_batch};
use cued::engine::notifications;
use cued::engine::scheduler::reaper;
use cued::error::{Error, Result};
use cued::service::accounts::change_plan;
use cued::store::cues::due_cues;
use cued::store::executions::delivery_queue;
use cued::store::outbox::Notification;

use crate::simulation::machine::{Machine, STORAGE_MB};
use crate::simulation::model::{
    Checked, Cue, MINUTE, Model, Outcome, Queue, Rule, Run, SECOND, ensure,
};
use crate::simulation::receivers::{FIRST_SLOW, InFlight, Next, end_unsent};
use crate::simulation::runner::{Expected, Simulation};
use crate::simulation::steps::Action;
use crate::support::*;

/// An attempt whose result the dispatcher has and the disk does not.
#[derive(Debug, Clone)]
pub struct Unrecorded {
    key: i64,
    id: String,
    attempt: u32,
    next: Next,
    has_deadline: bool,
}

/// Repetitions of a pass that met a failing disk; a step refuses one commit.
const MAX_FAILURES: usize = 2;

/// Passes of the scheduler in which all due cues must fire.
const MAX_PASSES: usize = 50;

impl Model {
    /// Fails the runs that no worker has claimed in time (contract §7.6).
    fn fail_unclaimed(&mut self) {
        if self.now < self.looks_from {
            return;
        }
        for key in self.runs.keys().copied().collect::<Vec<_>>() {
            if self.claim_deadline(&self.runs[&key]).is_some_and(|deadline| deadline <= self.now) {
                self.change(key, |run| (run.status, run.queue) = ("failed", Queue::None));
                self.finish(key, false);
            }
        }
    }
}

impl Simulation {
    /// Everything that a turn of the scheduler's thread does, then deliveries and notifications.
    pub fn pass(&mut self) -> Checked {
        self.schedule()?;
        self.check(false)?;
        self.promote()?;
        self.reap()?;
        self.sweep()?;
        self.check(false)?;
        self.deliver(DispatcherMode::Running)?;
        self.notify()
    }

    pub fn schedule(&mut self) -> Checked {
        // A real delay of this process must not decide whether a jump counts as one.
        let passed = self.model.now - self.model.wall;
        if !self.model.is_test_clock && (MINUTE..MINUTE + 20 * SECOND).contains(&passed) {
            self.set_clock(self.model.now + 30 * SECOND);
        }
        self.model.read_clock();
        self.insist(|machine| {
            let app = machine.app().clone();
            let (scheduler, now) = (&mut machine.engine().scheduler, app.clock.now());
            for _ in 0..MAX_PASSES {
                scheduler.run_once(&app)?;
                let next = app.store.read_blocking(due_cues::next)?;
                let seen = app.engine_stats.last_seen();
                if next.is_none_or(|next| next.max(seen) > now) {
                    return Ok(());
                }
            }
            Err(Error::fault(format!("cues are due after {MAX_PASSES} passes")))
        })?;
        self.model.fire_due();
        Ok(())
    }

    pub fn promote(&mut self) -> Checked {
        self.insist(|machine| promote_batch(machine.app()))?;
        self.model.promote();
        Ok(())
    }

    pub fn reap(&mut self) -> Checked {
        self.insist(|machine| {
            let (store, now) = (&machine.app().store, machine.app().clock.now());
            while reaper::release_expired_claims(machine.app(), now)?.has_more {}
            while reaper::look_for_unclaimed(machine.app(), now)? {}
            while reaper::end_overdue(machine.app(), now)? {}
            while reaper::follow_changes(machine.app())? {}
            reaper::RESPONSES.delete_if_due(store, now)
        })?;
        self.model.reap();
        self.model.fail_unclaimed();
        self.check_deadlines()
    }

    pub fn sweep(&mut self) -> Checked {
        self.insist(|machine| {
            let app = machine.app().clone();
            while machine.engine().sweeper.run_once(&app)? == NextPass::Again {}
            Ok(())
        })
    }

    pub fn notify(&mut self) -> Checked {
        let client = RecordingClient::default();
        let mut finished = Vec::new();
        loop {
            let posts = self.insist(|machine| {
                let app = machine.app().clone();
                machine.engine().notifications.run_once(
                    &app,
                    take(&mut finished),
                    DispatcherMode::Running,
                )
            })?;
            if posts.is_empty() {
                return Ok(());
            }
            let (now, mail) = (self.machine.app().clock.now(), &self.machine.app().config.mail);
            let send = |it: &Notification| {
                let sent = notifications::send(&client, mail, "http://cued", true, it, now);
                notifications::judge(it, &sent, now).0
            };
            finished = posts.iter().map(send).collect();
        }
    }

    /// Passes of the dispatcher until it rests. A draining one waits for every attempt and claims nothing.
    pub fn deliver(&mut self, mode: DispatcherMode) -> Checked {
        for attempt in &mut self.machine.in_flight {
            attempt.age += 1;
        }
        let mut bound = self.unfinished() + 3;
        let mut passes = 0;
        let mut finished = self.end_attempts(mode)?;
        loop {
            passes += 1;
            let claimed = self.insist(|machine| {
                let app = machine.app().clone();
                machine.engine().dispatcher.run_once(&app, take(&mut finished), mode)
            })?;
            self.record_attempts();
            let (is_empty, mut dropped) = (claimed.is_empty(), Vec::new());
            for delivery in claimed {
                let AttemptRef { key, attempt, destination, .. } = delivery.attempt_ref;
                let key = key.number();
                let store = &self.machine.app().store;
                let loaded =
                    store.read_blocking(|read| delivery_queue::load_request(read, delivery));
                let loaded =
                    loaded.map_err(|error| format!("run {key} cannot be read: {error}"))?;
                // The end of an attempt or of a maximum age may fire a cue or start a run that waits for it, and the same
                // write may claim it.
                if self.model.runs.get(&key).is_none_or(|run| run.queue != Queue::Ready) {
                    let known = self.model.runs.len();
                    self.adopt_created()?;
                    bound += self.model.runs.len() - known;
                }
                let Some(run) = self.model.runs.get(&key) else {
                    // Until the sweeper erases the runs of a deleted cue, they are in the queue.
                    dropped.push(end_unsent(loaded, self.model.now)?);
                    bound += 1;
                    continue;
                };
                let is_ready = run.queue == Queue::Ready && !self.model.cues[run.cue].is_worker;
                ensure!(is_ready && !self.model.has_expired(run), "run {key} is sent as {run:?}");
                let cue = run.cue;
                self.model.start_in_flow(cue, destination, &self.machine.in_flight)?;
                let run = self.model.runs.get_mut(&key).unwrap();
                let cue = &self.model.cues[cue];
                run.attempts += 1;
                ensure!(
                    run.attempts <= cue.max_attempts,
                    "run {key} is attempted {} times",
                    run.attempts
                );
                ensure!(attempt == run.attempts, "run {key} counts its attempts wrongly");
                (run.status, run.queue) = ("delivering", Queue::None);
                let secret = &self.model.accounts[cue.user].secret;
                self.machine.in_flight.push(InFlight::new(loaded, run, cue, secret));
            }
            finished = self.end_attempts(mode)?;
            finished.append(&mut dropped);
            // A pass that ends expired runs claims nothing.
            let before = (self.unfinished(), self.newest_run);
            self.adopt_created()?;
            if is_empty && finished.is_empty() && before == (self.unfinished(), self.newest_run) {
                break;
            }
            ensure!(passes <= bound, "the dispatcher does not rest after {passes} passes");
        }
        self.check_victims(mode)
    }

    /// A run of an account whose receivers answer at once never waits for those that do not.
    fn check_victims(&mut self, mode: DispatcherMode) -> Checked {
        let left = self.ready_to_send();
        let is_victim = |cue: &Cue| {
            !self.model.accounts[cue.user].is_slow
                && !self.model.waits_for_turn(cue, &self.machine.in_flight)
        };
        let victim = left.iter().find(|key| is_victim(self.model.cue_of(**key)));
        let is_claiming = mode == DispatcherMode::Running;
        ensure!(
            !is_claiming || victim.is_none(),
            "run {victim:?} waits for receivers of another account"
        );
        let unfinished = self.machine.engine().dispatcher.unfinished();
        let in_flight = self.machine.in_flight.len();
        ensure!(
            unfinished == in_flight,
            "{unfinished} deliveries are unfinished, {in_flight} are under way"
        );
        ensure!(
            self.machine.in_flight.iter().all(|it| it.receiver >= FIRST_SLOW),
            "an answer is not taken"
        );
        Ok(())
    }

    fn unfinished(&self) -> usize {
        self.model.runs.values().filter(|run| !run.is_over()).count()
    }

    fn ready_to_send(&self) -> Vec<i64> {
        let ready = |key: &i64| {
            self.model.runs[key].queue == Queue::Ready && !self.model.cue_of(*key).is_worker
        };
        self.model.runs.keys().copied().filter(ready).collect()
    }

    fn end_attempts(&mut self, mode: DispatcherMode) -> Checked<Vec<FinishedAttempt>> {
        let is_over = |it: &InFlight| mode == DispatcherMode::Draining || it.has_ended();
        let (ended, left) = take(&mut self.machine.in_flight).into_iter().partition(is_over);
        self.machine.in_flight = left;
        let ended: Vec<InFlight> = ended;
        let mut finished = Vec::new();
        for it in ended {
            let (key, id, attempt, has_deadline) =
                (it.key, it.id.clone(), it.attempt, it.has_deadline);
            let (end, next) = it.end(self.model.now)?;
            self.unrecorded.push(Unrecorded { key, id, attempt, next, has_deadline });
            finished.push(end);
        }
        Ok(finished)
    }

    fn record_attempts(&mut self) {
        for Unrecorded { key, id, attempt, next, has_deadline } in take(&mut self.unrecorded) {
            let Some(run) = self.model.runs.get_mut(&key) else { continue };
            // The cue was deleted, or a crash has made the attempt again.
            if run.id != id || run.status != "delivering" || run.attempts != attempt {
                continue;
            }
            (run.status, run.queue) = match next {
                Next::Success(_) => ("success", Queue::None),
                Next::Failed => ("failed", Queue::None),
                Next::RetryAt(at) => ("retrying", Queue::Waiting(at)),
            };
            if run.status == "retrying" {
                run.kept.insert((attempt, false), "retrying");
            }
            if run.is_over() {
                self.model.finish(key, matches!(next, Next::Success(_)));
            }
            if let Next::Success(Some(success)) = next {
                let mode = self.model.cue_of(key).mode;
                let outcome = Outcome::reported(mode, success, false);
                // A report that came during the delivery counts.
                self.model.change(key, |run| run.outcome = run.outcome.take().or(Some(outcome)));
            }
            let (now, has_deadline) = (
                self.model.now,
                has_deadline && self.model.cue_of(key).policies.deadline.is_some(),
            );
            let waits =
                |run: &Run| has_deadline && run.status == "success" && run.outcome.is_none();
            self.model.change(key, |run| run.delivered = waits(run).then_some(now));
        }
    }

    /// Repeats work of the engine that a failing disk has ended.
    fn insist<T>(&mut self, mut work: impl FnMut(&mut Machine) -> Result<T>) -> Checked<T> {
        for _ in 0..MAX_FAILURES {
            match work(&mut self.machine) {
                Ok(done) => return Ok(done),
                Err(Error::Storage(_)) => {}
                Err(error) => return Err(format!("the engine fails: {error}")),
            }
        }
        Err("the engine fails more often than the disk".to_owned())
    }
}

/// The length of a large payload's only string.
const LARGE: usize = 300_000;

/// Bytes of headers, results and kept responses whose number the model does not know.
const UNKNOWN: i64 = 50_000;

/// What a payload of a known size does to the storage of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    Enough,
    TooLittle,
    /// It depends on bytes that the model does not know.
    Unknown,
}

impl Simulation {
    /// A payload: mostly small, sometimes large.
    pub fn payload(&mut self) -> Value {
        let number = self.step.map_or(0, |step| step.number);
        match self.random.below(8) {
            0 => json!({"n": number, "text": "x".repeat(LARGE)}),
            _ => json!({"n": number, "text": "é\n\"\u{7f}"}),
        }
    }

    /// Whether the account may store `payload` as well.
    pub fn room_for(&self, user: usize, payload: &Value) -> Checked<Room> {
        let size = i64::try_from(payload.to_string().len()).unwrap();
        let stored = self.stored_bytes(user)?;
        let limit = STORAGE_MB << 20;
        Ok(match () {
            () if stored + size + UNKNOWN < limit => Room::Enough,
            () if stored + size > limit + UNKNOWN => Room::TooLittle,
            () => Room::Unknown,
        })
    }

    pub fn check_storage(&self) -> Checked {
        for user in 0..self.model.accounts.len() {
            let stored = self.stored_bytes(user)?;
            ensure!(
                (0..=STORAGE_MB << 20).contains(&stored),
                "account {user} stores {stored} bytes"
            );
        }
        Ok(())
    }

    fn stored_bytes(&self, user: usize) -> Checked<i64> {
        let sql = "SELECT stored_bytes FROM users WHERE key = ?1";
        let stored = self.machine.file().prepare_cached(sql);
        let stored = stored
            .and_then(|mut it| it.query_row([self.model.accounts[user].key], |row| row.get(0)));
        stored.map_err(|error| error.to_string())
    }

    /// The plan with more active cues, or back. A downgrade pauses the newest cues above its limit; a `once` cue that
    /// is due runs first.
    pub fn change_plan(&mut self) -> Checked {
        let (user, now) = (self.user(), self.model.now);
        let may_end =
            |cue: usize| self.model.cues[cue].user == user && self.model.may_end_first(cue);
        if (0..self.model.cues.len()).any(may_end) {
            return Ok(());
        }
        let is_pro = !self.model.accounts[user].is_pro;
        let plan = if is_pro { "pro" } else { "free" };
        let app = self.machine.app().clone();
        let key = UserKey::new(self.model.accounts[user].key);
        let limits = app.config.plans.limits(plan);
        let firer = cued::service::fire::CueFirer::new(&app, app.clock.now());
        let change = app.store.write(move |tx| change_plan(tx, key, plan, limits, &firer));
        let paused = match change.wait() {
            Ok(paused) => paused,
            Err(Error::Storage(_)) => return Ok(()),
            Err(error) => return Err(format!("the plan cannot be changed: {error}")),
        };
        self.note(&format!("account {user} is on {plan}"));
        self.model.accounts[user].is_pro = is_pro;
        let active = |it: &usize| {
            let cue = &self.model.cues[*it];
            cue.user == user && !cue.is_deleted && cue.status == "active"
        };
        let active: Vec<usize> = (0..self.model.cues.len()).filter(active).collect();
        let above = active.iter().skip(self.model.cue_limit(user));
        let is_due = |it: &&usize| {
            let cue = &self.model.cues[**it];
            matches!(cue.rule, Rule::Once(_))
                && cue.next_run.is_some_and(|next_run| next_run <= now)
        };
        let pausing: Vec<usize> = above.filter(|it| !is_due(it)).copied().collect();
        ensure!(paused == pausing.len(), "{paused} cues are paused, expected {pausing:?}");
        for cue in pausing {
            self.model.settle(cue, None);
            self.model.cues[cue].status = "paused";
        }
        self.model.accounts[user].most_active = self.model.active_cues(user);
        Ok(())
    }
}

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
            self.model.start_waiting_if_free(run.cue);
            self.model.end_once_by(key, false);
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
        let is_unsure = |cue: &usize| is_due_once(cue) || self.model.may_end_first(*cue);
        if cues.is_empty() || cues.iter().any(is_unsure) {
            return Ok(());
        }
        let (mut active, limit) = (self.model.active_cues(user), self.model.cue_limit(user));
        let mut codes = Vec::new();
        for cue in &cues {
            let it = &self.model.cues[*cue];
            let (is_active, has_ended) =
                (it.status == "active", matches!(it.status, "completed" | "failed"));
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
