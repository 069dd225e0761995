//! The command line.

pub mod administration;
pub mod backups;
mod bench;
mod manual;
mod client;
mod serve_flags;
mod transcripts;
