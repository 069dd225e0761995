//! Reports changes of the database and of the clock: to the event streams at once (contract §8.13), and a clock that stays
//! behind by an alert to every account with an active cue.

use std::time::Duration;

use jiff::Timestamp;

use crate::app::App;
use crate::domain::notification::event::{Event, ServerChange};
use crate::domain::schedule::wall_clock::{ClockFault, PROOF_TIME};
use crate::error::Result;
use crate::service::alerts;
use crate::store::WriteTx;

/// Accounts in one transaction.
const BATCH: u32 = 500;

/// The state at the last look.
#[derive(Debug, Default)]
pub struct ServerWatch {
    last: Option<ServerState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ServerState {
    is_writable: bool,
    is_damaged: bool,
    is_held: bool,
    clock: ServerChange,
}

impl ServerWatch {
    /// Looks at the state, which is known but for the hold. The first look reports nothing.
    pub fn look(&mut self, app: &App, is_held: bool) {
        let now = ServerState {
            is_writable: app.store.is_writable(),
            is_damaged: app.store.is_corrupt(),
            is_held,
            clock: match app.clock_fault() {
                None => ServerChange::ClockRight,
                Some(ClockFault::Ahead { .. }) => ServerChange::ClockAhead,
                Some(ClockFault::Behind { .. }) => ServerChange::ClockBehind,
            },
        };
        let Some(before) = self.last.replace(now) else { return };
        let pick = |to: bool, yes, no| if to { yes } else { no };
        for (is_changed, change) in [
            (
                before.is_writable != now.is_writable,
                pick(now.is_writable, ServerChange::Writable, ServerChange::Unwritable),
            ),
            (now.is_damaged && !before.is_damaged, ServerChange::Damaged),
            (before.is_held != now.is_held, pick(now.is_held, ServerChange::Held, ServerChange::Promoted)),
            (before.clock != now.clock, now.clock),
        ] {
            if is_changed {
                app.events.publish_server(Event::server(change, app.clock.now()));
            }
        }
    }
}

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
