//! The commands, a file or a folder each.

pub mod account;
pub mod alert;
pub mod api;
pub mod cue;
pub mod preview;
pub mod run;
pub mod server;
pub mod sign_in;
pub mod sink;
pub mod tail;
pub mod work;
pub mod worker;
