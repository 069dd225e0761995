//! One simulation: the program and the model side by side, step by step.

use std::fmt::Write as _;

use cued::domain::schedule::wall_clock::PROOF_TIME;
use cued::engine::delivery::dispatcher::DispatcherMode;

use crate::simulation::engine_steps::Unrecorded;
use crate::simulation::machine::Machine;
use crate::simulation::model::FinishedRuns;
use crate::simulation::model::{
    Account, Checked, DAY, HOUR, MINUTE, Model, Ms, Queue, SECOND, ensure,
};
use crate::simulation::steps::{Action, Step};
use crate::support::*;

/// 2026-01-30T22:00:00Z: most simulations reach the next month, when quotas begin again.
const BEGIN: Ms = 1_769_810_400_000;

/// Passes that end all runs of an account: some 80 in one flow, with three attempts each.
const MAX_DRAIN: usize = 1_000;

/// A full comparison follows every so many steps, and the last.
const FULL_CHECK: usize = 16;

pub struct Simulation {
    pub machine: Machine,
    pub model: Model,
    pub unrecorded: Vec<Unrecorded>,
    pub newest_run: i64,
    /// Cue, end and number of runs of the known rows of missed runs.
    pub missed: BTreeMap<i64, (i64, Ms, usize)>,
    /// Cues of which an execution was not finished since the last check.
    pub busy: BTreeSet<usize>,
    pub ended: FinishedRuns,
    pub random: Random,
    /// The current step.
    pub step: Option<Step>,
    /// What the steps did, for the report of a failure.
    pub log: String,
}

/// What a request must return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    Done(u16),
    Refused(u16, &'static str),
}

impl Simulation {
    /// Runs the steps. Returns the log, and the violated rule of the first failure.
    pub fn run(seed: u64, steps: &[Step]) -> Result<String, (String, String)> {
        let mut simulation = Self::start(seed);
        for (place, step) in steps.iter().enumerate() {
            simulation.random = Random::new(step.salt);
            let is_full = place % FULL_CHECK == FULL_CHECK - 1;
            if let Err(rule) = simulation.take(*step, is_full) {
                return Err((simulation.log, rule));
            }
        }
        match simulation.end() {
            Ok(()) => Ok(simulation.log),
            Err(rule) => Err((simulation.log, format!("at the end: {rule}"))),
        }
    }

    fn start(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5eed);
        let now = BEGIN + Self::below(&mut random, 48) * 10 * MINUTE;
        let mut model = Model {
            now,
            is_test_clock: random.below(3) == 0,
            cue_limit: 3 + random.index(5),
            monthly_limit: 20 + u32::try_from(random.below(60)).unwrap(),
            accounts: Vec::new(),
            cues: Vec::new(),
            runs: Default::default(),
            settlements: Default::default(),
            requested: Vec::new(),
            wall: now,
            last_seen: now,
            fired_at: 0,
            newest: now,
            outage_until: now - 1,
            looks_from: Ms::MIN,
            flow_starts: Default::default(),
        };
        let mut machine = Machine::start(&model);
        for (user, is_slow) in [true, false, false].into_iter().enumerate() {
            let client = machine.client().register(&format!("user{user}@example.com"));
            let secret = client.read("/v1/auth/webhook-secret").text("webhook_secret").to_owned();
            let key = i64::try_from(user).unwrap() + 1;
            let (quotas, heartbeats, answers) = Default::default();
            let (is_pro, most_active) = (false, 0);
            let account =
                Account { key, secret, is_slow, is_pro, most_active, quotas, heartbeats, answers };
            model.accounts.push(account);
            machine.clients.push(client);
        }
        let (unrecorded, log) = (Vec::new(), String::new());
        Self {
            machine,
            model,
            unrecorded,
            newest_run: 0,
            missed: BTreeMap::new(),
            busy: BTreeSet::new(),
            ended: FinishedRuns::default(),
            random,
            step: None,
            log,
        }
    }

    fn take(&mut self, step: Step, is_full: bool) -> Checked {
        let at = Model::timestamp(self.model.now);
        writeln!(self.log, "{at} {step}").unwrap();
        self.step = Some(step);
        if step.failing_commit > 0 {
            self.machine.refuse_commit(step.failing_commit);
        }
        let taken = self.act(step.action);
        self.machine.refuse_commit(0);
        taken.and_then(|()| self.check(is_full)).map_err(|rule| format!("{step}: {rule}"))
    }

    fn act(&mut self, action: Action) -> Checked {
        match action {
            Action::Advance => {
                let spans =
                    [SECOND, 20 * SECOND, 50 * SECOND, 2 * MINUTE, 10 * MINUTE, 20 * MINUTE];
                let span = spans[self.random.index(spans.len())];
                self.advance(span)
            }
            Action::AdvanceToRun => self.advance_to_run(),
            Action::Jump => {
                let most = if self.model.is_test_clock { 3 * HOUR } else { 3 * DAY };
                let span = HOUR + Self::below(&mut self.random, most / SECOND) * SECOND;
                if self.model.is_test_clock || span <= DAY {
                    self.advance(span)
                } else {
                    self.jump_far(span)
                }
            }
            Action::SetBack => {
                let span = MINUTE + Self::below(&mut self.random, 2 * HOUR / SECOND) * SECOND;
                self.advance(-span)
            }
            Action::Pass => self.pass(),
            Action::Schedule => self.schedule(),
            Action::Promote => self.promote(),
            Action::Reap => self.reap(),
            Action::Deliver => self.deliver(DispatcherMode::Running),
            Action::Notify => self.notify(),
            Action::Sweep => self.sweep(),
            Action::ChangePlan => self.change_plan(),
            Action::Stop | Action::Crash => self.restart(action == Action::Crash),
            _ => self.request(action),
        }
    }

    pub fn below(random: &mut Random, end: i64) -> i64 {
        i64::try_from(random.below(u64::try_from(end).unwrap())).unwrap()
    }

    pub fn note(&mut self, text: &str) {
        writeln!(self.log, "    {text}").unwrap();
    }

    fn advance(&mut self, span: Ms) -> Checked {
        self.set_clock(self.model.now + span);
        Ok(())
    }

    /// A jump of more than a day. It is believed at once if the clock was behind, else once it has lasted; half of them
    /// do not: the next step sets the clock from where it was.
    fn jump_far(&mut self, span: Ms) -> Checked {
        let (now, proof) = (self.model.now, Ms::try_from(PROOF_TIME.as_millis()).unwrap());
        let clock = &self.machine.app().clock;
        ensure!(clock.now().as_millisecond() == now, "the clock shows {}", clock.now());
        clock.set(Model::timestamp(now + span));
        let shown = clock.now().as_millisecond();
        let is_behind = self.model.last_seen - now > MINUTE;
        ensure!(
            shown == now || self.model.newest - now > MINUTE,
            "a jump of {span} ms is believed at once"
        );
        ensure!(shown != now || !is_behind, "a clock that was behind may not jump");
        if shown == now && self.random.below(2) == 0 {
            self.note(&format!("the clock shows {} for a while", Model::timestamp(now + span)));
            return Ok(());
        }
        self.machine.app().clock.elapse(PROOF_TIME);
        self.set_clock(now + span + proof);
        ensure!(self.machine.app().clock.doubted().is_none(), "a jump that lasts is not believed");
        Ok(())
    }

    pub fn set_clock(&mut self, to: Ms) {
        self.note(&format!("the clock is set to {}", Model::timestamp(to)));
        self.model.now = to;
        // The program forgets a start that is in the future, if it looks.
        for (last, is_certain) in self.model.flow_starts.values_mut() {
            *is_certain &= *last <= to;
        }
        self.model.newest = self.model.newest.max(to);
        let clock = &self.machine.app().clock;
        // The program reads its clock all the time, so two jumps of less than a day are not one of more.
        clock.now();
        clock.set(Model::timestamp(to));
    }

    /// To the next run of a cue or the end of a wait or a lease, a millisecond before, or a millisecond after.
    fn advance_to_run(&mut self) -> Checked {
        let model = &self.model;
        let runs = model.cues.iter().filter(|cue| !cue.is_deleted).filter_map(|cue| cue.next_run);
        let waits = model.runs.values().filter_map(|run| match run.queue {
            Queue::Waiting(at) => Some(at),
            _ => run.lease.or_else(|| model.claim_deadline(run)).or_else(|| model.outcome_due(run)),
        });
        let expiries = model.runs.values().filter(|run| run.is_queued());
        let waits =
            waits.chain(expiries.filter_map(|run| model.expires_at(run))).chain(model.turns());
        let near = model.now + 2 * HOUR;
        let mut instants: Vec<Ms> =
            runs.chain(waits).filter(|at| *at > model.now && *at < near).collect();
        instants.sort_unstable();
        if !instants.is_empty() {
            let at = instants[self.random.index(instants.len())];
            let offset = Self::below(&mut self.random, 3) - 1;
            self.set_clock(at + offset);
        }
        Ok(())
    }

    /// A stop records all attempts that are under way. After a crash they are made again.
    fn restart(&mut self, is_crash: bool) -> Checked {
        if !is_crash {
            self.deliver(DispatcherMode::Draining)?;
            self.check(false)?;
        }
        let gap = [0, SECOND, 30 * MINUTE, 5 * HOUR][self.random.index(4)];
        let now = self.model.now + Self::below(&mut self.random, gap + 1);
        self.note(&format!("the process is away until {}", Model::timestamp(now)));
        self.machine.in_flight.clear();
        self.unrecorded.clear();
        self.machine.refuse_commit(0);
        self.machine.restart(is_crash, now);
        self.model.requeue();
        let seen = self.machine.app().engine_stats.last_seen().as_millisecond();
        self.model.newest = self.model.newest.max(now);
        let (known, newest) = (self.model.fired_at, self.model.newest);
        ensure!(
            (known..=newest).contains(&seen),
            "the newest instant of the file is {}",
            Model::timestamp(seen)
        );
        let model = &mut self.model;
        (model.now, model.wall, model.last_seen, model.outage_until) = (now, now, seen, now - 1);
        model.looks_from = Ms::MIN;
        self.quick_check()
    }

    fn end(&mut self) -> Checked {
        self.pass()?;
        self.check(true)?;
        self.drain()?;
        self.check(true)?;
        self.quick_check()
    }

    /// Without new runs, all that waits has an end: nothing starves.
    fn drain(&mut self) -> Checked {
        for cue in 0..self.model.cues.len() {
            if !self.model.cues[cue].is_deleted {
                self.patch(cue, Action::Pause)?;
                self.check(false)?;
            }
        }
        for _ in 0..MAX_DRAIN {
            self.machine.in_flight.iter_mut().for_each(|it| it.age += 10);
            self.pass()?;
            self.finish_claims()?;
            self.check(false)?;
            let runs = self.model.runs.values().filter(|run| !run.is_over());
            let waits = runs.clone().filter_map(|run| match run.queue {
                Queue::Waiting(at) if !run.is_buffered() => Some(at),
                _ => None,
            });
            if runs.clone().next().is_none() {
                return Ok(());
            }
            let now = self.model.now;
            let cues =
                self.model.cues.iter().filter(|cue| !cue.is_deleted).filter_map(|cue| cue.next_run);
            let next = waits.chain(self.model.turns()).chain(cues).chain([self.model.last_seen]);
            let next = next.filter(|at| *at > now).min();
            if let Some(next) = next {
                self.set_clock(next.min(now + DAY / 2));
            }
        }
        Err(format!("a run has no end: {:?}", self.model.runs.values().find(|run| !run.is_over())))
    }

    fn quick_check(&self) -> Checked {
        let found =
            self.machine.file().query_row("PRAGMA quick_check", [], |row| row.get::<_, String>(0));
        let found = found.map_err(|error| error.to_string())?;
        ensure!(found == "ok", "the file is damaged: {found}");
        Ok(())
    }

    /// Sends a request and compares its status. Returns the body of a success that is on the disk.
    pub fn call(
        &mut self,
        user: usize,
        (method, path): (&str, &str),
        headers: &[(&str, &str)],
        body: Option<&Value>,
        expected: Expected,
    ) -> Checked<Option<Value>> {
        let text = body.map(Value::to_string).unwrap_or_default();
        let refusals = self.machine.refusals_left();
        let response = self.machine.clients[user].call(method, path, headers, text.as_bytes());
        let response = response.map_err(|error| format!("{method} {path}: {error}"))?;
        let status = response.status;
        let short: String = text.chars().take(500).collect();
        self.note(&format!("account {user}: {method} {path} {headers:?} {short}: {status}"));
        if refusals > self.machine.refusals_left() {
            ensure!(status == 503, "{method} {path} is {status}, and its commit was refused");
            return Ok(None);
        }
        let is_right = match expected {
            Expected::Done(expected) => status == expected,
            Expected::Refused(expected, code) => status == expected && response.code() == code,
        };
        ensure!(is_right, "{method} {path} is {status} {}, expected {expected:?}", response.text());
        let is_done = matches!(expected, Expected::Done(_));
        Ok(is_done.then(|| response.json()))
    }

    /// The key of a row by its public id.
    pub fn key_of_cue(&self, id: &str) -> Checked<i64> {
        let sql = "SELECT key FROM cues WHERE id = ?1";
        let found = self.machine.file().query_row(sql, [id], |row| row.get::<_, i64>(0));
        found.map_err(|error| format!("the acknowledged cue {id} is lost: {error}"))
    }

    /// An account.
    pub fn user(&mut self) -> usize {
        self.random.index(self.model.accounts.len())
    }

    /// Empty JSON body.
    pub fn nothing() -> Value {
        json!({})
    }
}
