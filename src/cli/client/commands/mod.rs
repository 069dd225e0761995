//! The commands, a file or a folder each.

pub mod account;
pub mod api;
pub mod apply;
pub mod channel;
pub mod cue;
pub mod health;
pub mod mcp;
pub mod run;
pub mod schedule;
pub mod sign_in;
pub mod sink;
pub mod tail;
pub mod work;
