//! The database file: opening and locking, the writer thread, the reader threads, stored counters, batched deletion.

pub mod batch;
mod checkpoints;
pub mod columns;
pub mod counters;
pub mod hold;
pub mod meta;
pub mod open;
pub(in crate::store) mod readers;
pub mod write_stats;
pub(in crate::store) mod writer;
