//! The alert about a clock that is behind: once for each newest instant that the file knows, to every account with an active
//! cue.

use std::time::Duration;

use jiff::Timestamp;

use crate::app::App;
use crate::domain::schedule::wall_clock::{ClockFault, PROOF_TIME};
use crate::error::Result;
use crate::service::alerts;
use crate::store::WriteTx;

/// Accounts in one transaction.
const BATCH: u32 = 500;

/// The state between two passes.
#[derive(Debug, Default)]
pub struct ClockAlert {
    /// The start of the fault, by the monotonic clock.
    since: Option<Duration>,
    /// The newest instant of the fault that was reported last.
    reported: Option<Timestamp>,
}

impl ClockAlert {
    /// Raises the alert once the clock is behind for ten minutes: a machine without a battery is behind after every boot.
    pub fn raise_if_due(&mut self, app: &App) -> Result<()> {
        let Some(ClockFault::Behind { now, newest }) = app.clock_fault() else {
            self.since = None;
            return Ok(());
        };
        let monotonic = app.clock.monotonic();
        let since = *self.since.get_or_insert(monotonic);
        if monotonic.saturating_sub(since) < PROOF_TIME || self.reported == Some(newest) {
            return Ok(());
        }
        let mut after = Some(0);
        while let Some(user_key) = after {
            let raise = move |tx: &WriteTx<'_>| alerts::raise_clock_behind(tx, user_key, BATCH, newest, now);
            after = app.store.write_with_priority(raise).wait()?;
        }
        self.reported = Some(newest);
        Ok(())
    }
}
