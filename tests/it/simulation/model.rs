//! The model of the server that the simulation compares with it.

use std::collections::{BTreeMap, BTreeSet};

use cued::domain::account::plan::Quota;
use cued::domain::account::user::month_of;
use jiff::Timestamp;
use rusqlite::Connection;
use serde_json::Value;

use crate::simulation::policies::{FlowStarts, Policies};
use crate::simulation::runner::Simulation;

pub use crate::simulation::run::{Queue, Run};

/// Milliseconds since 1970.
pub type Ms = i64;
/// A violated rule as text.
pub type Checked<T = ()> = Result<T, String>;

pub const SECOND: Ms = 1_000;
pub const MINUTE: Ms = 60 * SECOND;
pub const HOUR: Ms = 60 * MINUTE;
pub const DAY: Ms = 24 * HOUR;
/// The lease of a claim, and the silence after which its worker is lost (contract §7.3).
pub const LEASE: Ms = 900 * SECOND;
const SILENCE: Ms = 180 * SECOND;
const MAX_CATCH_UP: usize = 100;
/// Active cues that the plan `pro` allows beyond those of `free`.
pub const MORE_ON_PRO: usize = 3;

/// Returns the message if the condition does not hold.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
pub(crate) use ensure;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// From an instant on, which is 1970 for a cron expression in UTC, and before `end`.
    Every {
        period: Ms,
        from: Ms,
        end: Option<Ms>,
    },
    Once(Ms),
}

#[derive(Debug, Clone)]
pub struct Cue {
    pub user: usize,
    pub id: String,
    pub key: i64,
    pub name: String,
    pub rule: Rule,
    pub catch_up: &'static str,
    pub is_worker: bool,
    pub receiver: usize,
    pub status: &'static str,
    /// The oldest due instant that is not accounted for.
    pub next_run: Option<Ms>,
    pub run_count: i64,
    pub missed_count: i64,
    pub max_attempts: u32,
    pub backoff_minutes: Vec<i64>,
    pub pauses: bool,
    /// The time for which a run of a worker cue may wait for a claim.
    pub claim_within: Option<Ms>,
    pub mode: &'static str,
    /// True if its responses are outcomes.
    pub takes_outcome: bool,
    pub payload: Value,
    pub policies: Policies,
    pub is_deleted: bool,
}

/// A run by request that the current step must create.
#[derive(Debug, Clone)]
pub struct RunRequest {
    pub cue: usize,
    pub trigger: &'static str,
    pub at: Ms,
    pub payload: Value,
}

#[derive(Debug, Clone)]
pub struct Outcome {
    pub success: bool,
    pub state: &'static str,
    pub has_proof: bool,
    pub is_judged: bool,
}

impl Outcome {
    /// A first report, of a cue that verifies successes in `mode`.
    pub fn reported(mode: &str, success: bool, has_proof: bool) -> Self {
        let state = match (success, mode) {
            (false, _) => "reported_failure",
            (true, "none") => "reported_success",
            (true, "manual") => "verification_pending",
            (true, _) if has_proof => "verified_success",
            (true, _) => "verification_failed",
        };
        Self { success, state, has_proof, is_judged: false }
    }
}

#[derive(Debug, Clone)]
pub struct Account {
    pub key: i64,
    pub secret: String,
    /// Its receivers answer slowly or never; those of the others at once.
    pub is_slow: bool,
    pub is_pro: bool,
    /// Active cues that it may have: more than its plan allows after a downgrade that leaves cues that are due.
    pub most_active: usize,
    pub quotas: BTreeMap<i64, Quota>,
    pub heartbeats: BTreeMap<String, Ms>,
    /// Kept answers by key: path and body of the request, its time, the answer.
    pub answers: BTreeMap<String, Answer>,
}

#[derive(Debug, Clone)]
pub struct Answer {
    pub path: String,
    pub body: Value,
    pub at: Ms,
    pub text: Value,
}

/// The due instants of a cue that the current step must account for.
#[derive(Debug, Clone, Default)]
pub struct Settlement {
    pub due: BTreeSet<Ms>,
    /// Those that must become executions, where the rules say which.
    pub runs: Option<Vec<Ms>>,
    pub made: Vec<Ms>,
}

#[derive(Debug, Clone)]
pub struct Model {
    pub now: Ms,
    pub is_test_clock: bool,
    pub cue_limit: usize,
    pub monthly_limit: u32,
    pub accounts: Vec<Account>,
    pub cues: Vec<Cue>,
    /// By the key of the row.
    pub runs: BTreeMap<i64, Run>,
    pub settlements: BTreeMap<usize, Settlement>,
    pub requested: Vec<RunRequest>,
    /// The scheduler's view of the clock.
    pub wall: Ms,
    pub last_seen: Ms,
    /// The newest instant at which cues fired by schedule; it is in the file.
    pub fired_at: Ms,
    /// The newest instant of the clock.
    pub newest: Ms,
    pub outage_until: Ms,
    /// No run fails for want of a claim before.
    pub looks_from: Ms,
    pub flow_starts: FlowStarts,
}

impl Rule {
    /// The first instant after `after`.
    pub fn next_after(self, after: Ms) -> Option<Ms> {
        match self {
            Self::Every { period, from, end } => {
                let next = from + ((after - from).max(-1).div_euclid(period) + 1) * period;
                end.is_none_or(|end| next < end).then_some(next)
            }
            Self::Once(at) => (at > after).then_some(at),
        }
    }

    /// The instants from `from` to `to`.
    pub fn instants(self, from: Ms, to: Ms) -> Vec<Ms> {
        let mut found = Vec::new();
        let mut next = self.next_after(from - 1);
        while let Some(at) = next.filter(|at| *at <= to) {
            found.push(at);
            next = self.next_after(at);
        }
        found
    }
}

impl Model {
    pub fn cue_of(&self, run: i64) -> &Cue {
        &self.cues[self.runs[&run].cue]
    }

    pub fn active_cues(&self, user: usize) -> usize {
        self.cues
            .iter()
            .filter(|cue| cue.user == user && !cue.is_deleted && cue.status == "active")
            .count()
    }

    /// The active cues that the plan of the account allows.
    pub fn cue_limit(&self, user: usize) -> usize {
        self.cue_limit + if self.accounts[user].is_pro { MORE_ON_PRO } else { 0 }
    }

    pub fn timestamp(at: Ms) -> Timestamp {
        Timestamp::from_millisecond(at).unwrap()
    }

    /// The quota of the account in the current month.
    pub fn quota(&mut self, user: usize) -> &mut Quota {
        let (month, limit) = (month_of(Self::timestamp(self.now)), self.monthly_limit);
        let new = Quota { limit: Some(limit), used: 0, over_quota_since: None };
        self.accounts[user].quotas.entry(month).or_insert(new)
    }

    /// Whether the quota allows one more run now.
    pub fn has_quota(&mut self, user: usize) -> bool {
        let now = Self::timestamp(self.now);
        let mut quota = *self.quota(user);
        quota.try_use(now)
    }

    /// The step accounts for every instant of the cue up to now; its next run is `next_run`.
    pub fn settle(&mut self, cue: usize, next_run: Option<Ms>) {
        let (now, it) = (self.now, &mut self.cues[cue]);
        if let Some(from) = it.next_run.filter(|from| *from <= now) {
            let due = it.rule.instants(from, now).into_iter().collect();
            self.settlements.insert(cue, Settlement { due, ..Settlement::default() });
        }
        it.next_run = next_run;
    }

    /// The scheduler reads the clock.
    pub fn read_clock(&mut self) {
        let jumped = !self.is_test_clock && self.now - self.wall > MINUTE;
        if jumped || (self.wall < self.last_seen && self.last_seen <= self.now) {
            self.outage_until = self.now - 1;
        }
        // A period without runs does not reach into the future, wherever the clock stood at its end.
        self.outage_until = self.outage_until.min(self.now - 1);
        self.looks_from = self.outage_until + MINUTE;
        self.wall = self.now;
    }

    /// The scheduler fires all that is due.
    pub fn fire_due(&mut self) {
        if self.now < self.last_seen {
            return;
        }
        (self.last_seen, self.newest) = (self.now, self.newest.max(self.now));
        for cue in 0..self.cues.len() {
            let it = &self.cues[cue];
            let (rule, now) = (it.rule, self.now);
            if it.is_deleted || it.next_run.is_none_or(|next_run| next_run > now) {
                continue;
            }
            let runs = self.runs_to_fire(cue);
            let runs = self.without_overlap(cue, runs);
            self.fired_at = self.now;
            let next_run = rule.next_after(now);
            self.settle(cue, next_run);
            match rule {
                Rule::Once(at) if runs.is_empty() => self.end_once(cue, at, false),
                Rule::Every { .. } if next_run.is_none() => self.cues[cue].status = "completed",
                _ => {}
            }
            if let Some(settlement) = self.settlements.get_mut(&cue) {
                settlement.runs = Some(runs);
            }
        }
    }

    /// The due instants that fire; the others are missed (contract §4.12).
    fn runs_to_fire(&self, cue: usize) -> Vec<Ms> {
        let cue = &self.cues[cue];
        let due = cue.rule.instants(cue.next_run.unwrap_or(self.now), self.now);
        let Rule::Every { .. } = cue.rule else { return due };
        let (before, after): (Vec<Ms>, Vec<Ms>) =
            due.into_iter().partition(|at| *at <= self.outage_until);
        let kept = match cue.catch_up {
            "latest" => 1,
            "all" => MAX_CATCH_UP,
            _ => 0,
        };
        let skipped = before.len().saturating_sub(kept);
        before.into_iter().skip(skipped).chain(after).collect()
    }

    /// The runs that workers of the account may claim, in their order.
    pub fn claimable(&self, user: usize) -> Vec<i64> {
        let is_claimable = |key: &i64| {
            let cue = self.cue_of(*key);
            cue.user == user && cue.is_worker && self.runs[key].queue == Queue::Ready
        };
        let mut keys: Vec<i64> = self.runs.keys().copied().filter(is_claimable).collect();
        keys.sort_by_key(|key| (self.runs[key].is_catch_up, *key));
        keys
    }

    /// Promotes runs whose waiting time is over.
    pub fn promote(&mut self) {
        for run in self.runs.values_mut() {
            if matches!(run.queue, Queue::Waiting(at) if at <= self.now) {
                (run.queue, run.since) = (Queue::Ready, self.now);
            }
        }
    }

    /// Releases the claims that are lost (contract §7.3), and forgets kept answers.
    pub fn reap(&mut self) {
        let now = self.now;
        for key in self.runs.keys().copied().collect::<Vec<_>>() {
            let run = &self.runs[&key];
            let (Some(lease), Some(worker)) = (run.lease, &run.worker) else { continue };
            let cue = &self.cues[run.cue];
            let heard = self.accounts[cue.user].heartbeats.get(worker);
            let lost_at = heard.map_or(lease, |heard| lease.max(heard + SILENCE + 1));
            if cue.is_deleted {
                continue;
            }
            if lost_at > now {
                // An ended lease of a worker that sends heartbeats gets a later end, as far as one of now allows.
                if lease <= now {
                    let end = lost_at.min(lease.max(now + SILENCE + 1));
                    self.change(key, |run| run.lease = Some(end));
                }
                continue;
            }
            let is_last = run.attempts >= cue.max_attempts || self.has_expired(run);
            let cue = run.cue;
            self.change(key, |run| {
                run.lease = None;
                run.kept.insert((run.attempts, false), "claim_lost");
                if is_last {
                    (run.status, run.queue) = ("failed", Queue::None);
                } else {
                    (run.status, run.queue, run.worker, run.since) =
                        ("pending", Queue::Ready, None, now);
                }
            });
            match is_last {
                true => self.finish(key, false),
                false => self.start_waiting_if_free(cue),
            }
        }
        for account in &mut self.accounts {
            account.answers.retain(|_, answer| answer.at > now - DAY);
        }
    }

    /// The deadline for a worker to claim the run (contract §7.6).
    pub fn claim_deadline(&self, run: &Run) -> Option<Ms> {
        let cue = &self.cues[run.cue];
        let waits = run.queue == Queue::Ready && cue.is_worker && !cue.is_deleted;
        cue.claim_within.filter(|_| waits).map(|within| run.since + within)
    }

    pub fn change(&mut self, key: i64, change: impl FnOnce(&mut Run)) {
        if let Some(run) = self.runs.get_mut(&key) {
            change(run);
        }
    }

    /// The consequences of the end of a run for its cue (contract §4.2, §6.8).
    pub fn finish(&mut self, key: i64, success: bool) {
        let cue = self.runs[&key].cue;
        self.end_once_by(key, success);
        self.start_waiting_if_free(cue);
        if !success {
            self.pause_after_failure(cue);
        }
    }

    pub fn pause_after_failure(&mut self, cue: usize) {
        let it = &self.cues[cue];
        if it.pauses && it.status == "active" && matches!(it.rule, Rule::Every { .. }) {
            self.settle(cue, None);
            self.cues[cue].status = "paused";
        }
    }

    pub fn end_once_by(&mut self, key: i64, success: bool) {
        let run = &self.runs[&key];
        let (cue, at) = (run.cue, run.scheduled_for);
        if run.trigger == "schedule" {
            self.end_once(cue, at, success);
        }
    }

    /// A `once` cue ends with its only run.
    pub fn end_once(&mut self, cue: usize, at: Ms, success: bool) {
        let it = &mut self.cues[cue];
        // The program allows for the longest jitter.
        let is_only = |due: Ms| (due..=due + HOUR).contains(&at);
        if matches!(it.rule, Rule::Once(due) if is_only(due)) && it.next_run.is_none() {
            it.status = if success { "completed" } else { "failed" };
        }
    }

    /// Webhook deliveries that a stop cut off are made again.
    pub fn requeue(&mut self) {
        for run in
            self.runs.values_mut().filter(|run| run.status == "delivering" && run.lease.is_none())
        {
            run.kept.insert((run.attempts, true), "cut");
            run.attempts -= 1;
            run.status = if run.attempts > 0 { "retrying" } else { "pending" };
            run.queue = Queue::Ready;
        }
    }
}

/// The sums over the hours of an account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    pub succeeded: i64,
    pub failed: i64,
    pub missed: i64,
}

/// The executions that have ended, whether or not their rows are kept.
#[derive(Debug, Default)]
pub struct FinishedRuns {
    /// The account and the last known status, by public id.
    runs: BTreeMap<String, (usize, &'static str)>,
    /// The executions that were under way when their cue was deleted: they may end before their rows are erased.
    uncertain: BTreeMap<usize, i64>,
}

impl FinishedRuns {
    /// To be called when a cue is about to be deleted.
    pub fn delete_cue(&mut self, model: &Model, cue: usize) {
        let unfinished = model.runs.values().filter(|run| run.cue == cue && !run.is_over()).count();
        *self.uncertain.entry(model.cues[cue].user).or_default() +=
            i64::try_from(unfinished).unwrap();
    }

    fn add(&mut self, model: &Model) {
        for run in model.runs.values().filter(|run| run.is_over()) {
            self.runs.insert(run.id.clone(), (model.cues[run.cue].user, run.status));
        }
    }

    fn count(&self, user: usize, status: &str) -> i64 {
        i64::try_from(self.runs.values().filter(|it| **it == (user, status)).count()).unwrap()
    }
}

impl Simulation {
    pub fn check_figures(&mut self, sums: &BTreeMap<i64, Sums>) -> Checked {
        self.ended.add(&self.model);
        for (user, account) in self.model.accounts.iter().enumerate() {
            let found = sums.get(&account.key).copied().unwrap_or_default();
            let cues = self.model.cues.iter().filter(|cue| cue.user == user);
            let expected = Sums {
                succeeded: self.ended.count(user, "success"),
                failed: self.ended.count(user, "failed"),
                missed: cues.map(|cue| cue.missed_count).sum(),
            };
            let most = self.ended.uncertain.get(&user).copied().unwrap_or(0);
            let more = [found.succeeded - expected.succeeded, found.failed - expected.failed];
            ensure!(
                more.iter().all(|more| *more >= 0) && more.iter().sum::<i64>() <= most,
                "the hours of account {user} sum up to {found:?}, expected {expected:?} and at most {most} more"
            );
            ensure!(
                found.missed == expected.missed,
                "account {user} missed {found:?}, expected {expected:?}"
            );
        }
        Ok(())
    }
}

/// The sums of all accounts, by row.
pub fn read_sums(file: &Connection) -> rusqlite::Result<BTreeMap<i64, Sums>> {
    let mut sums = file.prepare_cached(
        "SELECT user_key, sum(succeeded), sum(failed), sum(missed) FROM hourly_stats GROUP BY user_key",
    )?;
    let sums = sums.query_map([], |row| {
        Ok((row.get(0)?, Sums { succeeded: row.get(1)?, failed: row.get(2)?, missed: row.get(3)? }))
    })?;
    sums.collect()
}
