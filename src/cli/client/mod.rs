//! Commands that are a client of a server: they use its API, and no database file.

pub mod account;
pub mod client_args;
pub mod command;
pub mod context;
pub mod cue;
pub mod pages;
pub mod server;
pub mod preview;
pub mod alert;
pub mod api;
pub mod arguments;
pub mod client_args;
pub mod command;
pub mod context;
pub mod interrupt;
pub mod pages;
pub mod run;
pub mod sign_in;
pub mod worker;
