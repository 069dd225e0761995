//! The handlers of the API: one file per heading of the contract.

pub mod account;
pub mod alerts;
pub mod billing;
pub(in crate::http) mod bulk;
pub mod cues;
pub mod echo;
pub mod events;
pub mod executions;
pub mod figures;
pub(in crate::http) mod idempotency;
pub mod operations;
pub mod workers;
