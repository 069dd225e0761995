//! Tells the event streams when the state of the database or of the clock changes (contract §8.13).

use crate::app::App;
use crate::domain::notification::event::{Event, ServerChange};
use crate::domain::schedule::wall_clock::ClockFault;

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
