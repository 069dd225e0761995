//! Commands that are a client of a server: they use its API, and no database file.

pub mod arguments;
pub mod client_args;
pub mod command;
pub mod commands;
pub mod context;
pub mod environment;
pub mod interrupt;
pub mod live_output;
pub mod pages;
