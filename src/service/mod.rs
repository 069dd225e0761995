//! What changes rows, whoever asks: users, workers and operators through `http` and `cli`, and the background work of
//! `engine`. Commands of users open one write and leave the decisions to the domain. The others take an open transaction
//! and `now`, and read no clock: `fire`, `finish` and their consequences.
//!
//! A transaction may still roll back, so log lines are written by
//! [`WriteTx::on_commit`](crate::store::WriteTx::on_commit).

pub mod accounts;
pub mod alerts;
pub mod billing;
pub mod bulk;
pub mod cues;
pub mod device_login;
pub mod events;
pub mod executions;
pub mod finish;
pub mod fire;
pub mod idempotency;
pub mod manual_runs;
pub mod notify;
pub mod outcome;
pub mod plan_limits;
pub mod stripe_events;
pub mod test_clock;
pub mod unclaimed;
pub mod workers;
