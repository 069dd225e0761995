//! The engine's way to fire cues: with its clock, identifiers and plans.

use jiff::Timestamp;

use crate::app::App;
use crate::lifecycle::fire::{CueFirer, SchedulerClock};

/// Fires cues at `now`, with the scheduler's view of the clock.
pub(in crate::engine) fn cue_firer(app: &App, now: Timestamp) -> CueFirer {
    let clock = SchedulerClock {
        outage: app.outage(),
        last_seen: app.engine_stats.last_seen(),
        is_test: app.clock.is_test(),
    };
    CueFirer::new(&app.ids, &app.config.plans, app.config.retention, clock, now)
}
