//! The clock by which stored rows age, with what the file keeps of it.

use crate::app::App;
use crate::domain::cue::retention_clock::{AgingTime, RetentionClock};
use crate::domain::time::saturating_sub;
use crate::error::Result;
use crate::store::db::meta;
use crate::store::maintenance::trusted_time;

/// Starts at its first use.
#[derive(Debug, Default)]
pub struct TrustedClock {
    clock: Option<RetentionClock>,
}

impl TrustedClock {
    /// The time by which rows age now. A test clock is trusted: it is moved on purpose.
    pub fn advance(&mut self, app: &App) -> Result<AgingTime> {
        let (wall, monotonic) = (app.clock.now(), app.clock.monotonic());
        if app.clock.is_test() {
            return Ok(AgingTime { now: wall, newest: None, wall });
        }
        let age = app.config.retention.age;
        let clock = match &mut self.clock {
            Some(clock) => clock,
            none => {
                let (stored, newest) = app
                    .store
                    .read_blocking(|read| Ok((trusted_time::find(read)?, meta::last_seen(read)?)))?;
                none.insert(RetentionClock::start(stored, newest, age, wall, monotonic))
            }
        };
        let time = clock.advance(wall, monotonic);
        if let Some(stored) = clock.to_store() {
            // An execution whose end is not known is kept for twice the age.
            let age = age.unwrap_or_default();
            let expired = saturating_sub(saturating_sub(stored.newest, age), age);
            app.store.write_with_priority(move |tx| trusted_time::set(tx, &stored, expired)).wait()?;
            clock.set_stored(stored);
        }
        Ok(time)
    }
}
