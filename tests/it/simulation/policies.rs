//! The policies of cues in the model, and the rules that hold for them (contract §4.16).

use std::collections::BTreeMap;

use cued::domain::webhook::flow;
use serde_json::{Value, json};

use crate::simulation::check::RunRow;
use crate::simulation::model::{
    Checked, Cue, HOUR, MINUTE, Model, Ms, Queue, Rule, Run, SECOND, ensure,
};
use crate::simulation::receivers::InFlight;
use crate::simulation::runner::Simulation;

/// In `due_at`: it waits for the end of an earlier execution.
pub const BUFFERED: Ms = 253_370_764_800_000;

#[derive(Debug, Clone, Default)]
pub struct Policies {
    /// `allow` if empty.
    pub overlap: &'static str,
    pub max_age: Option<Ms>,
    pub deadline: Option<Ms>,
    pub flow: Option<Flow>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    pub key: &'static str,
    pub parallelism: Option<usize>,
    pub per_minute: Option<Ms>,
}

/// The latest start in a flow, by account and key. The program may have forgotten one that is not certain.
pub type FlowStarts = BTreeMap<(usize, &'static str), (Ms, bool)>;

impl Policies {
    pub fn has_overlap(&self) -> bool {
        matches!(self.overlap, "skip" | "buffer_one")
    }

    pub fn fields(&self, is_worker: bool) -> Value {
        let seconds = |span: Option<Ms>| span.map(|span| span / SECOND);
        let overlap = if self.has_overlap() { self.overlap } else { "allow" };
        let mut fields = json!({"overlap": overlap, "max_age_seconds": seconds(self.max_age)});
        if !is_worker {
            fields["outcome_deadline_seconds"] = seconds(self.deadline).into();
        }
        fields
    }

    pub fn flow_field(&self) -> Value {
        self.flow.as_ref().map_or(
            Value::Null,
            |it| json!({"key": it.key, "parallelism": it.parallelism, "per_minute": it.per_minute}),
        )
    }
}

impl Run {
    pub fn is_queued(&self) -> bool {
        self.queue != Queue::None
    }

    /// It waits for another worker.
    pub fn has_lost_claim(&self) -> bool {
        self.status == "pending" && self.attempts > 0 && self.queue == Queue::Ready
    }

    /// It has lost its claim, and waits for the end of another run: those by hand and replays do not.
    pub fn can_be_held(&self) -> bool {
        self.has_lost_claim() && self.trigger == "schedule"
    }

    pub fn is_buffered(&self) -> bool {
        self.queue == Queue::Waiting(BUFFERED)
    }

    pub fn outcome_state(&self) -> Option<&'static str> {
        self.outcome.as_ref().map(|outcome| outcome.state).or(self.is_missing.then_some("missing"))
    }
}

impl Model {
    /// Whether an execution holds up the next run of the cue.
    pub fn is_running(&self, cue: usize) -> bool {
        let holds_up = |run: &Run| {
            // One that began before the clock was set back is under way.
            let is_due = run.scheduled_for <= self.now || run.status == "delivering";
            run.cue == cue
                && is_due
                && !run.is_buffered()
                && !run.is_over()
                && !run.has_lost_claim()
        };
        self.runs.values().any(holds_up)
    }

    pub fn buffered(&self, cue: usize) -> Option<i64> {
        let waiting = self.runs.iter().filter(|(_, run)| run.cue == cue && run.is_buffered());
        waiting.max_by_key(|(key, run)| (run.scheduled_for, **key)).map(|(key, _)| *key)
    }

    /// Another run of the cue starts: the scheduled ones that have lost their claims wait for its end.
    pub fn hold_lost(&mut self, cue: usize) {
        let lost = self.runs.values_mut().filter(|run| run.cue == cue && run.can_be_held());
        lost.for_each(|run| run.queue = Queue::Waiting(BUFFERED));
    }

    /// The due runs that become executions, without those that `overlap` skips.
    pub fn without_overlap(&mut self, cue: usize, mut runs: Vec<Ms>) -> Vec<Ms> {
        let overlap = self.cues[cue].policies.overlap;
        if self.cues[cue].policies.has_overlap() && !runs.is_empty() {
            self.start_waiting_if_free(cue);
            let is_running = self.is_running(cue);
            let has_lost = self.runs.values().any(|run| run.cue == cue && run.can_be_held());
            let is_waiting = self.buffered(cue).is_some() || (!is_running && has_lost);
            let waits = overlap == "buffer_one" && !is_waiting;
            runs.truncate(usize::from(!is_running) + usize::from(waits));
        }
        runs
    }

    pub fn start_waiting_if_free(&mut self, cue: usize) {
        if let Some(key) = self.buffered(cue).filter(|_| !self.is_running(cue)) {
            self.hold_lost(cue);
            self.start(key);
        }
    }

    pub fn start_waiting(&mut self, cue: usize) {
        while let Some(key) = self.buffered(cue) {
            self.start(key);
        }
    }

    fn start(&mut self, key: i64) {
        let now = self.now;
        self.change(key, |run| {
            (run.queue, run.since) = (Queue::Ready, now);
            run.scheduled_for = run.scheduled_for.min(now);
        });
    }

    /// What a run that the schedule creates now does, by the policy of its cue.
    pub fn place_of_new(&self, cue: usize) -> Checked<Queue> {
        let (overlap, is_running) = (self.cues[cue].policies.overlap, self.is_running(cue));
        ensure!(overlap != "skip" || !is_running, "cue {cue} runs beside an earlier execution");
        let is_buffered = overlap == "buffer_one" && is_running;
        ensure!(!is_buffered || self.buffered(cue).is_none(), "a second run of cue {cue} waits");
        Ok(if is_buffered { Queue::Waiting(BUFFERED) } else { Queue::Ready })
    }

    pub fn expires_at(&self, run: &Run) -> Option<Ms> {
        self.cues[run.cue].policies.max_age.map(|age| run.scheduled_for + age)
    }

    /// Whether it may not be tried again.
    pub fn has_expired(&self, run: &Run) -> bool {
        !run.is_over() && self.expires_at(run).is_some_and(|end| end <= self.now)
    }

    /// Whether the end of an expired run may start or create others in the same write.
    pub fn is_chain_due(&self) -> bool {
        self.runs.values().filter(|run| run.is_queued() && self.has_expired(run)).any(|run| {
            let cue = &self.cues[run.cue];
            let is_due = cue.next_run.is_some_and(|next_run| next_run <= self.now);
            self.buffered(run.cue).is_some() || (cue.pauses && is_due)
        })
    }

    pub fn outcome_due(&self, run: &Run) -> Option<Ms> {
        run.delivered.zip(self.cues[run.cue].policies.deadline).map(|(at, deadline)| at + deadline)
    }

    /// Outcomes that nobody has reported in time. Returns the cues.
    pub fn miss_outcomes(&mut self) -> Vec<usize> {
        let is_overdue = |run: &Run| self.outcome_due(run).is_some_and(|due| due <= self.now);
        let overdue = self.runs.iter().filter(|(_, run)| is_overdue(run));
        let overdue: Vec<(i64, usize)> = overdue.map(|(key, run)| (*key, run.cue)).collect();
        for (key, cue) in &overdue {
            self.change(*key, |run| (run.delivered, run.is_missing) = (None, true));
            self.pause_after_failure(*cue);
        }
        overdue.into_iter().map(|(_, cue)| cue).collect()
    }

    /// The executions that wait follow the changed policies of their cue.
    pub fn follow_change(&mut self, cue: usize, before: &Policies) {
        let after = self.cues[cue].policies.clone();
        if before.has_overlap() && !after.has_overlap() {
            self.start_waiting(cue);
        }
        if after.deadline.is_none() {
            self.runs
                .values_mut()
                .filter(|run| run.cue == cue)
                .for_each(|run| run.delivered = None);
        }
        if before.flow != after.flow {
            self.leave_flow(cue, before);
        }
    }

    /// A flow ends with its last cue.
    pub fn leave_flow(&mut self, cue: usize, before: &Policies) {
        let Some(flow) = &before.flow else { return };
        let user = self.cues[cue].user;
        if self.cues_of_flow(user, flow.key).count() == 0 {
            self.flow_starts.remove(&(user, flow.key));
        }
    }

    fn cues_of_flow<'a>(&'a self, user: usize, key: &'a str) -> impl Iterator<Item = &'a Flow> {
        let cues = self.cues.iter().filter(move |cue| cue.user == user && !cue.is_deleted);
        cues.filter_map(|cue| cue.policies.flow.as_ref()).filter(move |flow| flow.key == key)
    }

    /// The limits of a flow: the strictest of its cues.
    fn flow_limits(&self, user: usize, key: &str) -> (Option<usize>, Option<Ms>) {
        let limits = self.cues_of_flow(user, key).map(|flow| (flow.parallelism, flow.per_minute));
        let (parallelism, per_minute): (Vec<_>, Vec<_>) = limits.unzip();
        (parallelism.into_iter().flatten().min(), per_minute.into_iter().flatten().min())
    }

    /// The next turns of flows by their rates.
    pub fn turns(&self) -> impl Iterator<Item = Ms> {
        self.flow_starts.iter().filter_map(|((user, key), (last, _))| {
            self.flow_limits(*user, key).1.map(|per_minute| last + MINUTE / per_minute)
        })
    }

    /// Whether the limits of its flow hold up the run of a cue.
    pub fn waits_for_turn(&self, cue: &Cue, in_flight: &[InFlight]) -> bool {
        let Some(flow) = &cue.policies.flow else { return false };
        let (parallelism, per_minute) = self.flow_limits(cue.user, flow.key);
        let last =
            self.flow_starts.get(&(cue.user, flow.key)).filter(|(last, _)| *last <= self.now);
        let is_early =
            last.zip(per_minute).is_some_and(|((last, _), rate)| self.now < last + MINUTE / rate);
        let under_way =
            in_flight.iter().filter(|it| it.user == cue.user && it.flow == Some(flow.key));
        is_early || parallelism.is_some_and(|most| under_way.count() >= most)
    }

    /// An attempt starts: it must be its turn.
    pub fn start_in_flow(
        &mut self,
        cue: usize,
        destination: i64,
        in_flight: &[InFlight],
    ) -> Checked {
        let cue = &self.cues[cue];
        let Some(flow) = &cue.policies.flow else {
            ensure!(destination >= 0, "an attempt of {} is in a flow", cue.name);
            return Ok(());
        };
        let key = flow.key.to_owned();
        let hash = flow::Flow { key, parallelism: None, per_minute: None }.destination_hash();
        ensure!(destination == hash, "an attempt of {} is not in its flow {flow:?}", cue.name);
        let place = (cue.user, flow.key);
        let is_certain = self.flow_starts.get(&place).is_none_or(|(_, is_certain)| *is_certain);
        let is_turn = !is_certain || !self.waits_for_turn(cue, in_flight);
        ensure!(
            is_turn,
            "an attempt does not wait for its turn in {flow:?}: {:?}",
            self.flow_starts
        );
        self.flow_starts.insert(place, (self.now, true));
        Ok(())
    }

    /// A change to the cue fires its due run first. If that is its last one, or is skipped, the cue ends before the
    /// change.
    pub fn may_end_first(&self, cue: usize) -> bool {
        let it = &self.cues[cue];
        let is_last = match it.rule {
            Rule::Once(_) => it.policies.has_overlap(),
            Rule::Every { .. } => it.rule.next_after(self.now).is_none(),
        };
        is_last && !it.is_deleted && it.next_run.is_some_and(|next_run| next_run <= self.now)
    }
}

impl Simulation {
    pub fn policies(&mut self, is_worker: bool) -> Policies {
        let mut policies = Policies::default();
        for _ in 0..self.random.below(4) {
            self.change_policy(&mut policies, is_worker);
        }
        policies
    }

    pub fn change_policy(&mut self, policies: &mut Policies, is_worker: bool) {
        let random = &mut self.random;
        match random.below(6) {
            0..=2 => {
                policies.overlap = ["allow", "skip", "buffer_one", "buffer_one"][random.index(4)]
            }
            3 => {
                policies.max_age =
                    [None, Some(MINUTE), Some(10 * MINUTE), Some(HOUR)][random.index(4)]
            }
            4 => {
                let deadline =
                    [None, Some(10 * SECOND), Some(5 * MINUTE), Some(HOUR)][random.index(4)];
                policies.deadline = deadline.filter(|_| !is_worker);
            }
            _ => {
                let limits =
                    [(Some(1), None), (Some(2), Some(6)), (None, Some(1)), (None, Some(30))];
                let (parallelism, per_minute) = limits[random.index(4)];
                let flow =
                    Flow { key: ["first", "second"][random.index(2)], parallelism, per_minute };
                policies.flow = (!is_worker && random.below(5) > 0).then_some(flow);
            }
        }
    }

    /// Takes over the runs that have reached their maximum age.
    pub fn adopt_expired(&mut self, rows: &[RunRow]) -> Checked {
        for row in rows.iter().filter(|row| row.has_expired) {
            let is_new = |it: &&Run| it.id == row.run.id && !it.is_over();
            let Some(run) = self.model.runs.get(&row.key).filter(is_new) else { continue };
            let is_right = run.is_queued() && self.model.has_expired(run);
            ensure!(is_right, "run {} has expired, expected {run:?}", row.key);
            self.model.change(row.key, |run| (run.status, run.queue) = ("failed", Queue::None));
            self.model.finish(row.key, false);
        }
        Ok(())
    }

    /// After the engine has ended all that was overdue.
    pub fn check_deadlines(&mut self) -> Checked {
        let cues = self.model.miss_outcomes();
        self.adopt_created()?;
        let late =
            self.model.runs.iter().find(|(_, run)| run.is_queued() && self.model.has_expired(run));
        ensure!(late.is_none(), "a run is over its maximum age: {late:?}");
        // One within five minutes is enough.
        let sql = "SELECT 1 FROM alerts WHERE cue_key = ?1 AND alert_type = 'outcome_missing' AND created_at >= ?2";
        for cue in cues {
            let alert = (self.model.cues[cue].key, self.model.now - 5 * MINUTE);
            let found = self.machine.file().query_row(sql, alert, |_| Ok(()));
            ensure!(found.is_ok(), "no alert about a missing outcome of cue {cue}: {found:?}");
        }
        Ok(())
    }
}
