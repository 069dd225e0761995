//! Commands that are a client of a server: they use its API, and no database file.

pub mod arguments;
pub mod command;
pub mod commands;
pub mod context;
pub mod live_output;
