//! What a cue was due for and has not fired yet when a change takes its instant away: the change came later, so that it
//! fires first. The scheduler is behind for a moment at a full hour, and whenever the machine is.

use std::sync::Arc;

use jiff::Timestamp;

use crate::app::App;
use crate::domain::account::plan::Plans;
use crate::domain::cue::Cue;
use crate::domain::cue::retention::Retention;
use crate::domain::schedule::catch_up::{Outage, gap_of};
use crate::error::Result;
use crate::random::ExecutionIdSource;
use crate::store::WriteTx;
use crate::store::accounts::usage;
use crate::store::cues::due_cues;
use crate::store::cues::fire::{CueFirer, plan};
use crate::store::db::{hold, meta};

/// What is needed to fire a cue in place of the scheduler.
pub struct OverdueFirer {
    ids: Arc<ExecutionIdSource>,
    plans: Plans,
    retention: Retention,
    gap: Option<Outage>,
    /// A test clock is moved on purpose: what it passes is not missed.
    is_test: bool,
    /// Before it nothing fires by schedule (contract §4).
    seen: Timestamp,
    now: Timestamp,
}

impl OverdueFirer {
    /// At `now`.
    #[must_use]
    pub fn new(app: &App, now: Timestamp) -> Self {
        Self {
            ids: Arc::clone(&app.ids),
            plans: app.config.plans.clone(),
            retention: app.config.retention,
            gap: app.outage(),
            is_test: app.clock.is_test(),
            seen: app.engine_stats.last_seen(),
            now,
        }
    }

    /// Fires `cue` for all that it is due for; tells whether it was due for anything. One that cannot be fired, or not
    /// now, is left to whoever accounts for it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn fire(&self, tx: &WriteTx<'_>, cue: &Cue) -> Result<bool> {
        let now = self.now;
        if cue.next_run.is_none_or(|due| due > now) || now < self.seen || hold::is_held(tx)? {
            return Ok(false);
        }
        let Some(mut quota) = usage::quota(tx, &self.plans, cue.user_key, now)? else { return Ok(false) };
        let firing = CueFirer { retention: &self.retention, next_id: &|| self.ids.next(now), now };
        let mut has_fired = false;
        while let Some(due) = due_cues::find(tx, cue.key, now)? {
            let gap = if self.is_test { self.gap } else { gap_of(self.gap, due.next_run, now) };
            let Ok(step) = plan(&due, gap) else { break };
            firing.fire(tx, &due, &step, gap, &mut quota)?;
            has_fired = true;
        }
        if has_fired {
            usage::save_quota(tx, cue.user_key, &quota, now)?;
            meta::saw(tx, now)?;
        }
        Ok(has_fired)
    }
}
