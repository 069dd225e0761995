//! The database file: how it is opened and locked, the writer thread, the reader threads, counters.

pub mod batch;
pub mod columns;
pub(in crate::store) mod corruption;
pub mod counters;
pub mod hold;
pub mod meta;
pub mod open;
pub(in crate::store) mod readers;
pub mod write_stats;
pub(in crate::store) mod writer;
