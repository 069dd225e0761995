//! Commands that run a server.

pub mod flag_values;
pub mod serve;
