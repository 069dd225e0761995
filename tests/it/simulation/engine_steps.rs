//! The engine in a simulation: passes of scheduler, dispatcher, reaper, sweeper and notifications, one at a time.

use std::mem::take;

use cued::domain::webhook::request::AttemptRef;
use cued::engine::delivery::attempt::FinishedAttempt;
use cued::engine::delivery::dispatcher::{DispatcherMode, promote_batch};
use cued::engine::notifications;
use cued::engine::scheduler::reaper;
use cued::engine::scheduler::retention_sweeper::SweepOutcome;
use cued::error::{Error, Result};
use cued::store::executions::delivery_request;
use cued::store::notifications::outbox::Notification;

use crate::simulation::machine::Machine;
use crate::simulation::model::{Checked, MINUTE, Model, Outcome, Queue, SECOND, ensure};
use crate::simulation::receivers::{FIRST_SLOW, InFlight, Next, end_unsent};
use crate::simulation::runner::Simulation;
use crate::support::delivery_fixture::RecordingClient;

/// An attempt whose result the dispatcher has and the disk does not.
#[derive(Debug, Clone)]
pub struct Unrecorded {
    key: i64,
    id: String,
    attempt: u32,
    next: Next,
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
                if scheduler.deadline(&app)?.is_none_or(|next| next > now) {
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
            reaper::delete_expired_responses(store, now)
        })?;
        self.model.reap();
        self.model.fail_unclaimed();
        Ok(())
    }

    pub fn sweep(&mut self) -> Checked {
        self.insist(|machine| {
            let app = machine.app().clone();
            while machine.engine().sweeper.run_once(&app)? == SweepOutcome::Again {}
            Ok(())
        })
    }

    pub fn notify(&mut self) -> Checked {
        let client = RecordingClient::default();
        let mut finished = Vec::new();
        loop {
            let posts = self.insist(|machine| {
                let app = machine.app().clone();
                machine.engine().notifications.run_once(&app, take(&mut finished), DispatcherMode::Running)
            })?;
            if posts.is_empty() {
                return Ok(());
            }
            let (now, mail) = (self.machine.app().clock.now(), &self.machine.app().config.mail);
            let send = |it: &Notification| match it.url {
                None => {
                    notifications::result_of_mail(it, &notifications::send_mail(mail, "http://cued", it), now)
                }
                Some(_) => {
                    let sent = notifications::send(&client, it, now);
                    notifications::result_of_post(it, &sent, now)
                }
            };
            finished = posts.iter().map(send).collect();
        }
    }

    /// Passes of the dispatcher until it rests. A draining one waits for every attempt and claims nothing.
    pub fn deliver(&mut self, mode: DispatcherMode) -> Checked {
        for attempt in &mut self.machine.in_flight {
            attempt.age += 1;
        }
        let mut bound = self.ready_to_send().len() + 3;
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
                let AttemptRef { key, attempt, .. } = delivery.attempt_ref;
                let store = &self.machine.app().store;
                let loaded = store.read_blocking(|read| delivery_request::load(read, delivery));
                let loaded = loaded.map_err(|error| format!("run {key} cannot be read: {error}"))?;
                // The end of an attempt may fire a cue, and the same write may claim the new run.
                if !self.model.runs.contains_key(&key) {
                    let known = self.model.runs.len();
                    self.adopt_created()?;
                    bound += self.model.runs.len() - known;
                }
                let Some(run) = self.model.runs.get_mut(&key) else {
                    // Until the sweeper erases the runs of a deleted cue, they are in the queue.
                    dropped.push(end_unsent(loaded, self.model.now)?);
                    bound += 1;
                    continue;
                };
                let cue = &self.model.cues[run.cue];
                ensure!(run.queue == Queue::Ready && !cue.is_worker, "run {key} is sent as {run:?}");
                run.attempts += 1;
                ensure!(run.attempts <= cue.max_attempts, "run {key} is attempted {} times", run.attempts);
                ensure!(attempt == run.attempts, "run {key} counts its attempts wrongly");
                (run.status, run.queue) = ("delivering", Queue::None);
                let secret = &self.model.accounts[cue.user].secret;
                self.machine.in_flight.push(InFlight::new(loaded, run, cue, secret));
            }
            finished = self.end_attempts(mode)?;
            finished.append(&mut dropped);
            if is_empty && finished.is_empty() {
                break;
            }
            ensure!(passes <= bound, "the dispatcher does not rest after {passes} passes");
        }
        self.check_victims(mode)
    }

    /// A run of an account whose receivers answer at once never waits for those that do not.
    fn check_victims(&mut self, mode: DispatcherMode) -> Checked {
        let left = self.ready_to_send();
        let victim = left.iter().find(|key| !self.model.accounts[self.model.cue_of(**key).user].is_slow);
        let is_claiming = mode == DispatcherMode::Running;
        ensure!(!is_claiming || victim.is_none(), "run {victim:?} waits for receivers of another account");
        let unfinished = self.machine.engine().dispatcher.unfinished();
        let in_flight = self.machine.in_flight.len();
        ensure!(unfinished == in_flight, "{unfinished} deliveries are unfinished, {in_flight} are under way");
        ensure!(self.machine.in_flight.iter().all(|it| it.receiver >= FIRST_SLOW), "an answer is not taken");
        Ok(())
    }

    fn ready_to_send(&self) -> Vec<i64> {
        let ready =
            |key: &i64| self.model.runs[key].queue == Queue::Ready && !self.model.cue_of(*key).is_worker;
        self.model.runs.keys().copied().filter(ready).collect()
    }

    fn end_attempts(&mut self, mode: DispatcherMode) -> Checked<Vec<FinishedAttempt>> {
        let is_over = |it: &InFlight| mode == DispatcherMode::Draining || it.has_ended();
        let (ended, left) = take(&mut self.machine.in_flight).into_iter().partition(is_over);
        self.machine.in_flight = left;
        let ended: Vec<InFlight> = ended;
        let mut finished = Vec::new();
        for it in ended {
            let (key, id, attempt) = (it.key, it.id.clone(), it.attempt);
            let (end, next) = it.end(self.model.now)?;
            self.unrecorded.push(Unrecorded { key, id, attempt, next });
            finished.push(end);
        }
        Ok(finished)
    }

    fn record_attempts(&mut self) {
        for Unrecorded { key, id, attempt, next } in take(&mut self.unrecorded) {
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
