//! The figures of each hour: their sums are the executions that ended and the runs that were missed.

use std::collections::BTreeMap;

use rusqlite::Connection;

use crate::simulation::model::{Checked, Model, ensure};
use crate::simulation::runner::Simulation;

/// The sums over the hours of an account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    pub succeeded: i64,
    pub failed: i64,
    pub missed: i64,
}

/// The executions that have ended, whether or not their rows are kept.
#[derive(Debug, Default)]
pub struct Ended {
    /// The account and the last known status, by public id.
    runs: BTreeMap<String, (usize, &'static str)>,
    /// The executions that were under way when their cue was deleted: they may end before their rows are erased.
    uncertain: BTreeMap<usize, i64>,
}

impl Ended {
    /// To be called when a cue is about to be deleted.
    pub fn delete_cue(&mut self, model: &Model, cue: usize) {
        let unfinished = model.runs.values().filter(|run| run.cue == cue && !run.is_over()).count();
        *self.uncertain.entry(model.cues[cue].user).or_default() += i64::try_from(unfinished).unwrap();
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
        "SELECT user_key, sum(succeeded), sum(failed), sum(missed) FROM hours GROUP BY user_key",
    )?;
    let sums = sums.query_map([], |row| {
        Ok((row.get(0)?, Sums { succeeded: row.get(1)?, failed: row.get(2)?, missed: row.get(3)? }))
    })?;
    sums.collect()
}
