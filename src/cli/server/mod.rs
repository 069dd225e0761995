//! Commands that run a server.

pub mod bench;
pub mod flag_values;
pub mod serve;
