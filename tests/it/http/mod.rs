//! The API and the pages over HTTP.

mod accounts;
mod attempts;
mod bad_input;
mod billing;
mod browsers;
mod claims;
mod conventions;
mod cue_list;
mod cues;
pub mod device_login;
mod echo;
mod events;
mod executions;
mod figures;
mod health;
mod limits;
mod long_polls;
mod many;
mod memory;
mod page;
mod reports;
mod response_outcomes;
pub mod sessions;
mod unclaimed;
mod verification;
mod wire;
