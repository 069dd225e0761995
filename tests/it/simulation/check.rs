//! The comparison of the file with the model after every step.

use std::collections::BTreeMap;

use cued::domain::execution::ExecutionStatus;
use cued::domain::ids::ExecutionId;
use cued::error::{Error, Result};
use cued::store::db::counters;
use rusqlite::{Connection, Row};
use serde_json::Value;

use crate::simulation::model::{Checked, Model, Ms, Queue, Run, RunRequest, Settlement, ensure};
use crate::simulation::model::{Sums, read_sums};
use crate::simulation::runner::Simulation;

/// A row of `executions`.
pub struct RunRow {
    pub key: i64,
    cue_key: i64,
    error: Option<String>,
    pub run: Run,
    outcome_state: Option<String>,
    outcome_due: Option<Ms>,
    pub has_expired: bool,
}

struct MissedRow {
    key: i64,
    cue_key: i64,
    first: Ms,
    last: Ms,
    count: usize,
    is_overlap: bool,
}

/// Status, next run, number of runs, number of missed runs, name.
type CueRow = (String, Option<Ms>, i64, i64, String);

struct State {
    runs: Vec<RunRow>,
    missed: Vec<MissedRow>,
    newest_run: i64,
    cues: BTreeMap<i64, CueRow>,
    active: BTreeMap<i64, i64>,
    used: BTreeMap<(i64, i64), i64>,
    backlog: BTreeMap<String, i64>,
    sums: BTreeMap<i64, Sums>,
}

const RUNS: &str =
    "SELECT key, cue_key, id, scheduled_for, triggered_by, status, queue_name, due_at, attempts,
        claimed_by_worker, lease_expires_at, outcome_state, error_message, is_catch_up,
        (SELECT group_concat(attempt || iif(is_counted, iif(worker_id IS NULL, ' retrying', ' claim_lost'), ' cut'))
           FROM attempts WHERE execution_key = executions.key), outcome_due_at, cause IS 'expired' FROM executions
    WHERE key > ?1 OR ?2 OR status NOT IN ('success', 'failed') OR cause = 'expired' OR outcome_due_at IS NOT NULL
    ORDER BY key";

const LIMIT_EXCEEDED: &str = "execution_limit_exceeded";

impl Simulation {
    /// Compares the file with the model; `is_full` includes what has long ended, and recounts the counters.
    pub fn check(&mut self, is_full: bool) -> Checked {
        let state = self.read(is_full)?;
        self.adopt(&state)?;
        self.check_runs(&state, is_full)?;
        self.check_cues(&state)?;
        self.check_storage()?;
        self.check_bounds(&state)?;
        self.check_figures(&state.sums)?;
        for user in 0..self.model.accounts.len() {
            let active = self.model.active_cues(user);
            let account = &mut self.model.accounts[user];
            account.most_active = account.most_active.min(active);
        }
        self.busy =
            self.model.runs.values().filter(|run| !run.is_over()).map(|run| run.cue).collect();
        Ok(())
    }

    /// Takes over what a write has created, before its runs go on.
    pub fn adopt_created(&mut self) -> Checked {
        let state = self.read(false)?;
        self.adopt(&state)
    }

    fn read(&self, is_full: bool) -> Checked<State> {
        let newest_run = self.newest_run;
        let file = self.machine.file();
        let read = || {
            // One snapshot for all tables.
            let snapshot = file.unchecked_transaction()?;
            let state = State::read(&snapshot, newest_run, is_full)?;
            let wrong = if is_full { counters::discrepancies(&snapshot)? } else { Vec::new() };
            Ok((state, wrong))
        };
        let (state, wrong) =
            read().map_err(|error: Error| format!("the file cannot be read: {error}"))?;
        ensure!(wrong.is_empty(), "a counter is wrong: {wrong:?}");
        Ok(state)
    }

    /// Takes over the runs that the step has created, if it had to, and the missed runs.
    fn adopt(&mut self, state: &State) -> Checked {
        self.adopt_expired(&state.runs)?;
        let model = &mut self.model;
        let cues: BTreeMap<i64, usize> = model
            .cues
            .iter()
            .enumerate()
            .filter(|(_, cue)| !cue.is_deleted)
            .map(|(it, cue)| (cue.key, it))
            .collect();
        let mut settlements = std::mem::take(&mut model.settlements);
        settlements.retain(|cue, _| !model.cues[*cue].is_deleted);
        for row in state.runs.iter().filter(|row| row.key > self.newest_run) {
            let Some(cue) = cues.get(&row.cue_key).copied() else { continue };
            let at = row.run.scheduled_for;
            let mut place = Queue::Ready;
            let payload = if row.run.trigger == "schedule" {
                place = model.place_of_new(cue)?;
                let settlement = settlements.get_mut(&cue);
                let is_due = settlement.is_some_and(|it| {
                    it.due.remove(&at) && {
                        it.made.push(at);
                        true
                    }
                });
                ensure!(
                    is_due,
                    "cue {cue} ran for {}, which is not due or has run",
                    Model::timestamp(at)
                );
                model.cues[cue].run_count += 1;
                model.cues[cue].payload.clone()
            } else {
                let is_this =
                    |it: &RunRequest| (it.cue, it.trigger, it.at) == (cue, row.run.trigger, at);
                let place = model.requested.iter().position(is_this);
                ensure!(
                    place.is_some(),
                    "cue {cue} ran for a {} that was not requested",
                    row.run.trigger
                );
                model.requested.swap_remove(place.unwrap()).payload
            };
            let (user, now) = (model.cues[cue].user, Model::timestamp(model.now));
            let is_allowed = model.quota(user).try_use(now);
            let is_failed = row.error.as_deref() == Some(LIMIT_EXCEEDED);
            ensure!(
                is_allowed != is_failed,
                "the quota of account {user}: run {} is {:?}",
                row.key,
                row.run
            );
            let (status, queue) = match is_allowed {
                false => ("failed", Queue::None),
                true if at > model.now => ("pending", Queue::Waiting(at)),
                true => ("pending", place),
            };
            if row.run.trigger == "schedule"
                && queue == Queue::Ready
                && model.cues[cue].policies.has_overlap()
            {
                model.hold_lost(cue);
            }
            let (worker, lease) = (None, None);
            let (attempts, kept, since) = (0, BTreeMap::new(), model.now);
            let run = Run {
                cue,
                status,
                queue,
                attempts,
                kept,
                worker,
                lease,
                since,
                payload,
                ..row.run.clone()
            };
            model.runs.insert(row.key, run);
            if !is_allowed {
                model.end_once(cue, at, false);
                // Which runs it has not held up depends on the quota.
                let settlement =
                    settlements.get_mut(&cue).filter(|_| model.cues[cue].policies.has_overlap());
                settlement.map(|it| it.runs.take());
            }
            self.busy.insert(cue);
        }
        ensure!(model.requested.is_empty(), "an acknowledged run is lost: {:?}", model.requested);
        for row in &state.missed {
            let Some(cue) = cues.get(&row.cue_key).copied() else { continue };
            // A row of skipped runs may have become longer.
            let known = self.missed.insert(row.key, (row.cue_key, row.last, row.count));
            let known = known.filter(|(cue_key, ..)| *cue_key == row.cue_key);
            let (first, count) = known.map_or((row.first, 0), |(_, last, count)| (last + 1, count));
            if row.count == count {
                continue;
            }
            let due = settlements.entry(cue).or_default();
            let missed: Vec<Ms> = due.due.range(first..=row.last).copied().collect();
            let is_right = missed.last() == Some(&row.last)
                && (known.is_some() || missed.first() == Some(&row.first))
                && count + missed.len() == row.count;
            ensure!(
                is_right,
                "cue {cue}: {} missed runs from {} to {} are not those that were due, {missed:?}",
                row.count,
                Model::timestamp(row.first),
                Model::timestamp(row.last)
            );
            let is_held_up = self.busy.contains(&cue) && model.cues[cue].policies.has_overlap();
            ensure!(
                !row.is_overlap || is_held_up,
                "cue {cue} skips runs, and nothing holds them up"
            );
            missed.iter().for_each(|at| {
                due.due.remove(at);
            });
            model.cues[cue].missed_count += i64::try_from(missed.len()).unwrap();
        }
        self.newest_run = state.newest_run;
        settlements.into_iter().try_for_each(|(cue, settlement)| settlement.check(cue))?;
        self.adopt_expired(&state.runs)
    }

    fn check_runs(&self, state: &State, is_full: bool) -> Checked {
        let mut unfinished = 0;
        for row in &state.runs {
            let Some(run) = self.model.runs.get(&row.key).filter(|it| it.id == row.run.id) else {
                continue;
            };
            unfinished += usize::from(!row.run.is_over());
            let parts = |run: &Run| {
                (
                    run.scheduled_for,
                    run.trigger,
                    run.status,
                    run.queue,
                    run.attempts,
                    run.kept.clone(),
                    run.worker.clone(),
                    run.lease,
                )
            };
            ensure!(
                parts(run) == parts(&row.run),
                "run {} is {:?}, expected {run:?}",
                row.key,
                row.run
            );
            let is_same = run.outcome_state() == row.outcome_state.as_deref()
                && self.model.outcome_due(run) == row.outcome_due;
            ensure!(
                is_same,
                "the outcome of run {} is {:?}, expected {run:?}",
                row.key,
                row.outcome_state
            );
        }
        let all = self.model.runs.values().filter(|run| is_full || !run.is_over()).count();
        let found = if is_full {
            state.runs.iter().filter(|row| self.is_known(row)).count()
        } else {
            unfinished
        };
        ensure!(
            found == all,
            "{found} runs are in the file and {all} are expected (all: {is_full})"
        );
        Ok(())
    }

    fn is_known(&self, row: &RunRow) -> bool {
        self.model.runs.get(&row.key).is_some_and(|run| run.id == row.run.id)
    }

    fn check_cues(&self, state: &State) -> Checked {
        let cues = self.model.cues.iter().filter(|cue| !cue.is_deleted);
        ensure!(cues.clone().count() == state.cues.len(), "there are {} cues", state.cues.len());
        for cue in cues {
            let expected = (
                cue.status.to_owned(),
                cue.next_run,
                cue.run_count,
                cue.missed_count,
                cue.name.clone(),
            );
            let found = state.cues.get(&cue.key);
            ensure!(
                found == Some(&expected),
                "cue {} is {found:?}, expected {expected:?}",
                cue.key
            );
        }
        Ok(())
    }

    fn check_bounds(&self, state: &State) -> Checked {
        for (user, account) in self.model.accounts.iter().enumerate() {
            let (active, counted) = (self.model.active_cues(user), state.active[&account.key]);
            ensure!(
                usize::try_from(counted) == Ok(active),
                "account {user} counts {counted} of {active} cues"
            );
            let most = account.most_active.max(self.model.cue_limit(user));
            ensure!(active <= most, "account {user} has {active} active cues");
            for (month, quota) in &account.quotas {
                let used = state.used.get(&(account.key, *month)).copied().unwrap_or(0);
                ensure!(used == quota.used, "account {user} counts {used} of {} runs", quota.used);
            }
        }
        let count = |counts: &dyn Fn(&Run, bool) -> bool| {
            let runs = self.model.runs.values();
            i64::try_from(
                runs.filter(|run| counts(run, self.model.cues[run.cue].is_worker)).count(),
            )
            .unwrap()
        };
        let expected = [
            ("send", count(&|run, is_worker| run.queue == Queue::Ready && !is_worker)),
            ("claim", count(&|run, is_worker| run.queue == Queue::Ready && is_worker)),
            ("retry", count(&|run, _| run.status == "retrying" && run.queue != Queue::Ready)),
        ];
        // The rows of deleted cues are counted until the sweeper has erased them.
        let has_deleted = self.model.cues.iter().any(|cue| cue.is_deleted);
        for (name, expected) in expected {
            let found = state.backlog[name];
            let is_right = found == expected || (has_deleted && found > expected);
            ensure!(is_right, "the backlog {name} counts {found} of {expected}");
        }
        Ok(())
    }
}

impl Settlement {
    fn check(mut self, cue: usize) -> Checked {
        let lost: Vec<String> =
            self.due.iter().map(|at| Model::timestamp(*at).to_string()).collect();
        ensure!(
            lost.is_empty(),
            "cue {cue}: {} due instants are lost: {:?}",
            lost.len(),
            &lost[..lost.len().min(3)]
        );
        self.made.sort_unstable();
        let is_right = self.runs.as_ref().is_none_or(|runs| *runs == self.made);
        ensure!(is_right, "cue {cue} ran for {:?}, expected {:?}", self.made, self.runs);
        Ok(())
    }
}

impl State {
    fn read(file: &Connection, newest_run: i64, is_full: bool) -> Result<Self> {
        let newest = |sql: &str| file.prepare_cached(sql)?.query_row([], |row| row.get(0));
        let mut missed = file.prepare_cached(
            "SELECT cue_key, first, last, count, reason = 'overlap', key FROM missed_runs ORDER BY key",
        )?;
        let missed = missed.query_map([], |row| {
            Ok(MissedRow {
                cue_key: row.get(0)?,
                first: row.get(1)?,
                last: row.get(2)?,
                count: usize::try_from(row.get::<_, i64>(3)?).unwrap(),
                is_overlap: row.get(4)?,
                key: row.get(5)?,
            })
        })?;
        let mut cues = file.prepare_cached(
            "SELECT key, status, next_run, run_count, missed_count, name FROM cues",
        )?;
        let cues = cues.query_map([], |row| {
            Ok((row.get(0)?, (row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?)))
        })?;
        let mut used =
            file.prepare_cached("SELECT user_key, month, executions FROM monthly_usage")?;
        let used = used.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))?;
        let mut active = file.prepare_cached("SELECT key, active_cues FROM users")?;
        let active = active.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mut backlog = file.prepare_cached("SELECT name, count FROM backlog")?;
        let backlog = backlog.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mut runs = file.prepare_cached(RUNS)?;
        let runs = runs.query_map((newest_run, is_full), read_run)?;
        Ok(Self {
            newest_run: newest("SELECT coalesce(max(key), 0) FROM executions")?,
            sums: read_sums(file)?,
            runs: runs.collect::<rusqlite::Result<_>>()?,
            missed: missed.collect::<rusqlite::Result<_>>()?,
            cues: cues.collect::<rusqlite::Result<_>>()?,
            active: active.collect::<rusqlite::Result<_>>()?,
            used: used.collect::<rusqlite::Result<_>>()?,
            backlog: backlog.collect::<rusqlite::Result<_>>()?,
        })
    }
}

/// The kept attempts of a run, from a list like `1 cut,1 retrying`.
fn kept(text: Option<&str>) -> BTreeMap<(u32, bool), &'static str> {
    let words =
        text.into_iter().flat_map(|text| text.split(',')).map(|word| word.split_once(' ').unwrap());
    let results = ["retrying", "claim_lost", "cut"];
    let result = |word: &str| results[results.iter().position(|it| *it == word).unwrap()];
    words.map(|(number, word)| ((number.parse().unwrap(), word == "cut"), result(word))).collect()
}

fn read_run(row: &Row<'_>) -> rusqlite::Result<RunRow> {
    let queue = match row.get_ref(6)?.as_str_or_null()? {
        None => Queue::None,
        Some("waiting") => Queue::Waiting(row.get(7)?),
        Some(_) => Queue::Ready,
    };
    let trigger = match row.get_ref(4)?.as_str()? {
        "schedule" => "schedule",
        "replay" => "replay",
        _ => "manual_fire",
    };
    Ok(RunRow {
        key: row.get(0)?,
        cue_key: row.get(1)?,
        run: Run {
            id: ExecutionId::from_bytes(row.get(2)?).to_string(),
            cue: usize::MAX,
            scheduled_for: row.get(3)?,
            trigger,
            status: ExecutionStatus::parse(row.get_ref(5)?.as_str()?).unwrap().as_str(),
            queue,
            attempts: row.get(8)?,
            kept: kept(row.get_ref(14)?.as_str_or_null()?),
            worker: row.get(9)?,
            lease: row.get(10)?,
            since: 0,
            outcome: None,
            delivered: None,
            is_missing: false,
            payload: Value::Null,
            is_catch_up: row.get(13)?,
        },
        outcome_state: row.get(11)?,
        outcome_due: row.get(15)?,
        has_expired: row.get(16)?,
        error: row.get(12)?,
    })
}
