//! Changes that touch several aggregates in one write, whoever asks for them: people and workers (`actions`) or the
//! machine (`engine`).
//!
//! - `fire`: a due cue becomes executions, and is due again.
//! - `finish`: an execution that has ended has consequences for its cue: status, failure streak, alert, notifications,
//!   pause.
//! - `alerts`, `notify`, `pause`: those consequences, one by one.
//! - `verification`: an outcome's verification state, and the alert when verification fails.
//! - `plan_limits`: a lower plan pauses cues.
//!
//! Every function takes an open transaction and `now`: nothing here reads the clock. Nothing is logged inside a
//! transaction, which may still roll back; what an operator should know is passed to
//! [`WriteTx::on_commit`](crate::store::WriteTx::on_commit).

pub mod alerts;
pub mod finish;
pub mod fire;
pub mod notify;
pub mod pause;
pub mod plan_limits;
pub mod verification;
