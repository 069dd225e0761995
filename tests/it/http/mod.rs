//! The API and the pages over HTTP.

mod accounts;
mod bad_input;
mod billing;
mod claims;
mod conventions;
mod cues;
pub mod device_login;
mod echo;
mod executions;
mod health;
mod limits;
mod memory;
mod verification;
mod wire;
