//! The handlers of the API: one file per heading of the contract.

pub mod account;
pub mod admin;
pub mod alerts;
pub mod apply;
pub mod attempts;
pub mod billing;
pub mod bulk;
pub mod callbacks;
pub mod channels;
pub mod claims;
pub mod cue_list;
pub mod cues;
pub mod device_login;
pub mod echo;
pub mod events;
pub mod executions;
pub mod flows;
pub mod metrics;
pub mod operations;
pub mod sessions;
pub mod stats;
pub mod upcoming;
pub mod workers;
