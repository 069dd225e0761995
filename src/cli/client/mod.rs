//! Commands that are a client of a server: they use its API, and no database file.

pub mod account;
pub mod client_args;
pub mod command;
pub mod context;
pub mod cue;
pub mod pages;
pub mod server;
pub mod preview;
pub mod sign_in;
