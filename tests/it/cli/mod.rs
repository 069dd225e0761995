//! The command line.

pub mod administration;
pub mod backups;
mod bench;
mod serve_flags;
