//! The command line.

pub mod administration;
pub mod backups;
mod bad_start;
mod bench;
mod client;
mod clock;
mod manual;
mod serve_flags;
mod transcripts;
