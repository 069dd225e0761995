//! The API and the pages over HTTP.

mod accounts;
mod attempts;
mod bad_input;
mod billing;
mod channels;
mod claims;
mod conventions;
mod cue_list;
mod cues;
pub mod device_login;
mod echo;
mod events;
mod executions;
mod flows;
mod limits;
mod many;
mod memory;
mod page;
mod policies;
mod response_outcomes;
mod run_policies;
pub mod sessions;
mod stats;
mod tags;
mod verification;
mod wire;
