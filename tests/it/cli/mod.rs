//! The command line.

pub mod administration;
pub mod backups;
mod client;
mod commands_reference;
mod docs;
mod manual;
mod serve_flags;
