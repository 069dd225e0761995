//! Changes to several aggregates in one write. Both `actions` (requests of users and workers) and `engine` (background
//! work) call them.
//!
//! - `fire`: creates the executions of a due cue and moves the cue to its next run.
//! - `finish`: applies the consequences of a finished execution to its cue: status, failure streak, alert,
//!   notifications,
//!   pause.
//! - `alerts`, `notify`, `once`, `pause`: the single consequences.
//! - `cancel`: ends a queued execution by request.
//! - `attempt`: records a delivery attempt that has ended.
//! - `outcome`: records an outcome, sets its verification state and raises an alert when verification fails.
//! - `unclaimed`: alerts about executions that no worker claims, and fails them in the end.
//! - `plan_limits`: pauses cues above the limit of a lower plan.
//! - `events`: emits the live events of all of these.
//!
//! Every function takes an open transaction and `now`; nothing here reads the clock. A transaction may still roll back,
//! so log lines are written by [`WriteTx::on_commit`](crate::store::WriteTx::on_commit).

pub mod alerts;
pub mod attempt;
pub mod cancel;
pub mod events;
pub mod finish;
pub mod fire;
pub mod notify;
mod once;
pub mod outcome;
pub mod pause;
pub mod plan_limits;
pub mod unclaimed;
