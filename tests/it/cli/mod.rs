//! The command line.

pub mod administration;
pub mod backups;
mod bench;
mod client;
mod manual;
mod serve_flags;
