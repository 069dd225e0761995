//! Changes of plan by the operator, and the bytes that an account stores.

use cued::error::Error;
use cued::service::accounts::change_plan;
use serde_json::{Value, json};

use crate::simulation::machine::STORAGE_MB;
use crate::simulation::model::{Checked, Rule, ensure};
use crate::simulation::runner::Simulation;

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
            ensure!((0..=STORAGE_MB << 20).contains(&stored), "account {user} stores {stored} bytes");
        }
        Ok(())
    }

    fn stored_bytes(&self, user: usize) -> Checked<i64> {
        let sql = "SELECT stored_bytes FROM users WHERE key = ?1";
        let stored = self.machine.file().prepare_cached(sql);
        let stored =
            stored.and_then(|mut it| it.query_row([self.model.accounts[user].key], |row| row.get(0)));
        stored.map_err(|error| error.to_string())
    }

    /// The plan with more active cues, or back. A downgrade pauses the newest cues above its limit; a `once` cue that is
    /// due runs first.
    pub fn change_plan(&mut self) -> Checked {
        let (user, now) = (self.user(), self.model.now);
        let is_pro = !self.model.accounts[user].is_pro;
        let plan = if is_pro { "pro" } else { "free" };
        let app = self.machine.app().clone();
        let (key, limits) = (self.model.accounts[user].key, app.config.plans.limits(plan));
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
            matches!(cue.rule, Rule::Once(_)) && cue.next_run.is_some_and(|next_run| next_run <= now)
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
